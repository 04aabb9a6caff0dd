"""Replay with tricks: replacement weights, decay and bias control against float64 NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

from everlight.base import StepInfo
from everlight.continual.engine.updates import complete_batch
from everlight.continual.strategies.er_tricks import (
    BIAS_RATE,
    TricksMemory,
    er_tricks,
    replacement_weights,
)
from everlight.continual.strategies.parts.memory import ReservoirDraw
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, LABELS, START

SETUP = net.small_setup()
HELD = np.array([0, 6, 12, 1, 7, 2, 8, 14, 20])
LOSSES = np.array([0.1, 0.5, 2.0, 0.3, 0.3, 1.5, 0.0, 0.7, 4.0])
SEEN = [0, 1, 2]
AMONG = np.isin(np.arange(CLASSES), SEEN)


def authors_weights(labels, losses):
    """Return the scores by which hastings24/rethinking_er chooses the sample to replace."""
    counts = {label: np.sum(labels == label) for label in labels}
    balance = np.array([counts[label] for label in labels], float)
    importance = -losses
    scaling = np.abs(importance).mean() * np.abs(balance).mean()
    score = 0.5 * importance / scaling + 0.5 * balance
    if score.max() > score.min():
        score = (score - score.min()) / (score.max() - score.min())
    return score / score.sum()


@pytest.mark.parametrize("losses", [LOSSES, np.full(9, 0.7), np.zeros(9)])
def test_weights_of_class_and_loss_are_the_authors(losses):
    result = replacement_weights(
        jnp.asarray(LABELS[HELD]), jnp.float32(losses), CLASSES, "loss-aware"
    )
    with np.errstate(invalid="ignore"):
        expected = authors_weights(LABELS[HELD], losses)
    if not losses.any():
        # The authors divide by 0; without losses the class alone counts.
        expected = np.isin(LABELS[HELD], [2]) / 4 + np.isin(LABELS[HELD], [0]) / 8
        expected /= expected.sum()
    np.testing.assert_allclose(result / jnp.sum(result), expected, atol=1e-6)


def test_a_balanced_reservoir_replaces_samples_of_the_largest_class():
    result = replacement_weights(
        jnp.asarray(LABELS[HELD]), jnp.float32(LOSSES), CLASSES, "balanced"
    )
    np.testing.assert_array_equal(result, LABELS[HELD] == 2)


def memory_of(arrived):
    return TricksMemory(
        net.samples_of(HELD),
        jnp.float32(LOSSES),
        jnp.int32(arrived),
        jnp.array([1.0, 0.0]),
        jnp.zeros(CLASSES, bool),
    )


@functools.cache
def after_one_step(replacement, keys=4000):
    """Return memories, drawn slots and losses after a step whose batch is the one sample 3."""
    strategy = er_tricks(SETUP, 9, 2, replacement, bias_epochs=0)

    def step(key):
        key_draw, key_grads, key_after = jax.random.split(key, 3)
        memory, task = memory_of(11), net.task_of(0, SEEN, [3])
        learner = net.small_learner(SETUP, range(CLASSES))
        batch = complete_batch(SETUP, strategy, memory, net.batch_of([3]), task, key_draw)
        _, info = strategy.grads(memory, learner, batch, task, key_grads)
        after, _ = strategy.after_step(memory, learner, info._replace(batch=batch), key_after)
        return after, batch.replay.slots

    return jax.jit(jax.vmap(step))(jax.random.split(jax.random.key(1), keys))


@pytest.mark.parametrize("replacement", ["uniform", "balanced", "loss-aware"])
def test_an_arrival_is_stored_by_chance_and_replaces_by_weight(replacement):
    """The twelfth sample enters nine slots with probability 9 / 12; losses change before it."""
    after, slots = after_one_step(replacement)
    stored = np.asarray(after.samples.index) == 3
    assert np.all(after.arrived == 12)
    assert abs(stored.any(axis=1).sum() - 3000) < 5 * (4000 * 3 / 16) ** 0.5
    losses = np.tile(LOSSES, (4000, 1))
    complete = -np.log(
        net.softmax(net.forward(START, HELD, train=True)[2], True)[np.arange(9), LABELS[HELD]]
    )
    np.put_along_axis(losses, np.asarray(slots), complete[np.asarray(slots)], axis=1)
    current = -np.log(net.softmax(net.forward(START, [3], train=True)[2], True)[0, LABELS[3]])
    np.testing.assert_allclose(after.losses, np.where(stored, current, losses), rtol=1e-5)
    if replacement == "loss-aware":
        weights = np.stack([authors_weights(LABELS[HELD], row) for row in losses])
    else:
        weights = np.ones((4000, 9)) if replacement == "uniform" else LABELS[HELD] == 2
        weights = np.broadcast_to(weights / np.sum(weights, axis=-1, keepdims=True), (4000, 9))
    expected = 0.75 * weights.sum(axis=0)
    assert np.all(stored.sum(axis=0)[expected == 0] == 0)
    remote = expected > 0
    statistic = np.sum((stored.sum(axis=0) - expected)[remote] ** 2 / expected[remote])
    assert chi2.ppf(1e-4, remote.sum()) < statistic < chi2.ppf(1 - 1e-4, remote.sum())


def test_each_sample_of_a_batch_changes_what_the_next_one_replaces():
    """The largest of 3, 2 and 4 samples gives way to class 3, until this is the largest."""
    strategy = er_tricks(SETUP, 9, 2, "balanced", bias_epochs=0)
    rows = np.arange(3, 40, 6)
    batch = net.batch_of(rows)
    # No sample is replayed, so that losses are those of the batch.
    replay = jax.tree.map(lambda leaf: leaf[:0], batch)
    batch = batch._replace(replay=ReservoirDraw(replay, jnp.zeros(0, int)))
    info = StepInfo({}, {}, jnp.float32(0), jnp.ones(len(rows)), batch)
    learner = net.small_learner(SETUP, range(CLASSES))
    after, _ = jax.jit(jax.vmap(lambda key: strategy.after_step(memory_of(9), learner, info, key)))(
        jax.random.split(jax.random.key(0), 100)
    )
    labels = np.asarray(after.samples.labels)[..., 0]
    counts = {tuple(np.bincount(row, minlength=4)) for row in labels}
    # These counts follow no replacement, one, two, and more.
    assert counts <= {(3, 2, 4, 0), (3, 2, 3, 1), (2, 2, 3, 2), (2, 2, 2, 3)}
    assert (2, 2, 2, 3) in counts


@pytest.mark.parametrize(("decay", "arrived"), [(0.9, 11), (0.99999935, 2_500_000), (1e-8, 0)])
def test_the_decay_scales_the_gradient_of_both_batches_by_the_number_of_arrivals(decay, arrived):
    """This holds after the authors' 50 epochs of CIFAR-10, whose factor float32 cannot resolve."""
    strategy = er_tricks(SETUP, 9, 2, decay=decay)
    memory, learner = memory_of(arrived), net.small_learner(SETUP, SEEN)
    rows = [0, 1, 8]
    task = net.task_of(0, SEEN, rows)
    batch = complete_batch(SETUP, strategy, memory, net.batch_of(rows), task, jax.random.key(0))
    result, _ = jax.jit(strategy.grads)(memory, learner, batch, task, jax.random.key(1))
    both = rows + np.asarray(batch.replay.batch.index).tolist()
    weight = [1, 1, 1, *batch.replay.batch.weight]
    expected = net.batch_gradient(START, both, AMONG, weight)
    net.assert_trees_close(result, {k: decay**arrived * leaf for k, leaf in expected.items()})


def test_padding_and_empty_slots_have_no_part_in_a_step():
    """Three of nine slots are filled, five are wanted; the last of three samples is padding."""
    strategy = er_tricks(SETUP, 9, 5)
    memory = memory_of(3)._replace(samples=net.samples_of(HELD, np.arange(9) < 3))
    learner, rows = net.small_learner(SETUP, SEEN), [13, 8, 20]
    task = net.task_of(0, SEEN, rows)
    batch = net.batch_of(rows, [1, 1, 0])
    batch = complete_batch(SETUP, strategy, memory, batch, task, jax.random.key(0))
    gradient, info = strategy.grads(memory, learner, batch, task, jax.random.key(1))
    remote = [*HELD[:3], 13, 8]
    net.assert_trees_close(gradient, net.batch_gradient(START, remote, AMONG))
    info = info._replace(batch=batch)
    after, _ = jax.jit(strategy.after_step)(memory, learner, info, jax.random.key(2))
    assert after.arrived == 5
    np.testing.assert_array_equal(after.samples.mask, np.arange(9) < 5)
    np.testing.assert_array_equal(after.samples.index[:5], remote)
    chances = net.softmax(net.forward(START, remote, train=True)[2], AMONG)
    np.testing.assert_allclose(
        after.losses[:5], -np.log(chances[np.arange(5), LABELS[remote]]), rtol=1e-5
    )
    np.testing.assert_allclose(after.losses[5:], LOSSES[5:], rtol=1e-6)


def test_bias_control_is_the_authors_gradient_descent(monkeypatch):
    """The order of two tasks' samples is fixed, all else is NumPy's; the pair continues.

    Empty slots come first in that order; batches are cut from the others.
    """
    monkeypatch.setattr(jax.random, "permutation", lambda key, count: jnp.arange(count)[::-1])
    strategy = er_tricks(SETUP, 9, 2, bias_epochs=3, bias_batch_size=4)
    first, second = [0, 1, 6, 7], [2, 3, 8]
    tasks = [(net.task_of(0, [0, 1], first), [first]), (net.task_of(1, [2, 3], second), [second])]
    pair = np.zeros(2)
    seen = np.zeros(CLASSES, bool)
    for (memory, learner), classes in zip(
        net.run_tasks(SETUP, strategy, tasks), ([0, 1], [2, 3]), strict=True
    ):
        last = np.isin(np.arange(CLASSES), classes)
        seen |= last
        params = {name: np.asarray(leaf, float) for name, leaf in learner.params.items()}
        held = np.asarray(memory.samples.index)[np.asarray(memory.samples.mask)][::-1]
        logits = net.forward(params, held)[2]
        for _ in range(3):
            for start in range(0, len(held), 4):
                rows, labels = logits[start : start + 4], LABELS[held][start : start + 4]
                corrected = np.where(last, pair[0] * rows + pair[1], rows)
                slope = net.softmax(corrected, seen) - np.eye(CLASSES)[labels]
                slope = slope[:, last] / len(rows)
                pair = pair - BIAS_RATE * np.array([np.sum(slope * rows[:, last]), np.sum(slope)])
        np.testing.assert_allclose(memory.bias, pair, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(memory.last, last)
        inputs = SETUP.gather(jnp.arange(5), None)
        scores = strategy.predict(memory, learner, inputs)
        logits = net.forward(params, np.arange(5))[2]
        expected = np.where(last, pair[0] * logits + pair[1], logits)
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


def test_without_bias_control_a_task_s_end_changes_nothing():
    strategy = er_tricks(SETUP, 9, 2, bias_epochs=0)
    assert strategy.end_task is None
    assert not strategy.needs_boundaries
