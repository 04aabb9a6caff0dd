"""Latent replay: steps, memory and head done again in float64, for samples that entered memory."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Samples, Task
from everlight.continual.engine import flax_setup
from everlight.continual.engine.sources import StoredImages
from everlight.continual.objectives.fixed_test_set import fixed_test_objective
from everlight.continual.strategies.ar1 import DAMPING, IMPORTANCE_LIMIT
from everlight.continual.strategies.latent_replay import exchanged, latent_replay
from everlight.models import MLP
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, LABELS, RATE

CAPACITY, REPLAYED, STEPS, MOMENTUM, DECAY = 5, 3, 4, 0.9, 0.01
# Classes 0 and 1 come again in other numbers; class 5 never comes.
TASKS = [[0, 6, 12, 18, 1, 7, 2], [0, 6, 1, 7, 13, 19, 25, 3], [24, 1, 7, 4, 10]]
NET = MLP(CLASSES, (5, 4))
STORED = StoredImages.of(np.float32(DATA), jnp.float32(0), jnp.float32(1))
SETUP = flax_setup(
    NET,
    STORED,
    fixed_test_objective(CLASSES),
    optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(RATE, momentum=MOMENTUM)),
)


def sequence():
    tasks = []
    for number, index in enumerate(TASKS):
        train = net.samples_of([*index, 5], [True] * len(index) + [False])
        batches = [net.batch_of(index[:4], [1, 1, 1, 0]), *[net.batch_of(index[1:5])] * (STEPS - 1)]
        tasks.append((net.task_of(number, np.unique(LABELS[index]), train), batches))
    return tasks


def below(params, index):
    return DATA[index] @ params["hidden1"]["kernel"] + params["hidden1"]["bias"]


def gradient_above(params, activations, labels):
    """Return the gradient of the mean cross-entropy of given outputs of the first layer."""
    first = np.maximum(activations, 0)
    second = first @ params["hidden2"]["kernel"] + params["hidden2"]["bias"]
    features = np.maximum(second, 0)
    logits = features @ params["head"]["kernel"] + params["head"]["bias"]
    slope = (net.softmax(logits, np.ones(CLASSES, bool)) - np.eye(CLASSES)[labels]) / len(labels)
    lower = (slope @ params["head"]["kernel"].T) * (second > 0)
    return {
        "hidden2": {"kernel": first.T @ lower, "bias": lower.sum(axis=0)},
        "head": {"kernel": features.T @ slope, "bias": slope.sum(axis=0)},
    }


def consolidate(old, new, count, past):
    rows, mean = np.where(past > 0, old, new), np.mean(new[..., count > 0])
    for row in np.flatnonzero(count):
        weight = np.sqrt(past[row] / count[row])
        rows[..., row] = (weight * old[..., row] + new[..., row] - mean) / (weight + 1)
    return rows


def train_task(params, batches, replayed, labels, start, total, regularization):
    """Return the parameters and the sum over steps of a task that replays such a memory."""
    velocity = {name: dict.fromkeys(layer, 0.0) for name, layer in params.items()}
    path, position = dict.fromkeys(params["hidden2"], 0.0), 0
    for batch in batches:
        index = np.asarray(batch.index)[np.asarray(batch.weight) > 0]
        slots = (position + np.arange(min(REPLAYED, len(labels)))) % max(len(labels), 1)
        position += REPLAYED
        activations = np.concatenate([below(params, index), replayed[slots]])
        known = np.concatenate([LABELS[index], labels[slots]]).astype(int)
        gradient = gradient_above(params, activations, known)
        stiff = {
            name: regularization * np.clip(leaf, 0, IMPORTANCE_LIMIT)
            for name, leaf in total.items()
        }
        moved = {"hidden1": params["hidden1"]}
        for layer, leaves in gradient.items():
            moved[layer] = {}
            for name, slope in leaves.items():
                theta = params[layer][name]
                if layer == "hidden2":
                    slope = slope + stiff[name] * (theta - start[name])
                velocity[layer][name] = slope + DECAY * theta + MOMENTUM * velocity[layer][name]
                moved[layer][name] = theta - RATE * velocity[layer][name]
                if layer == "hidden2":
                    path[name] = path[name] - slope * (moved[layer][name] - theta)
        params = moved
    return params, path


@pytest.mark.parametrize("regularization", [0.0, 3e3])
def test_three_tasks_done_again_in_float64(regularization):
    strategy = latent_replay(SETUP, CAPACITY, "hidden1", 1, REPLAYED, regularization)
    strategy = net.compiled(strategy)
    _, learner = net.untrained(SETUP, strategy)
    params = jax.tree.map(np.float64, learner.params)
    after = net.run_tasks(SETUP, strategy, sequence())
    cw = jax.tree.map(np.zeros_like, params["head"])
    total, past = jax.tree.map(np.zeros_like, params["hidden2"]), np.zeros(CLASSES)
    replayed, labels = np.zeros((0, 5)), np.zeros(0, int)
    for index, (_, batches), (memory, learner) in zip(TASKS, sequence(), after, strict=True):
        count = np.bincount([*LABELS[index], *labels], minlength=CLASSES)
        again = (count > 0) & (past > 0)
        params["head"] = {name: np.where(again, leaf, 0) for name, leaf in cw.items()}
        start = params["hidden2"]
        params, path = train_task(params, batches, replayed, labels, start, total, regularization)
        cw = {
            name: consolidate(leaf, params["head"][name], count, past) for name, leaf in cw.items()
        }
        total = {
            name: leaf + path[name] / ((params["hidden2"][name] - start[name]) ** 2 + DAMPING)
            for name, leaf in total.items()
        }
        past = past + count
        for name in params:
            net.assert_trees_close(learner.params[name], params[name], rtol=2e-3, atol=2e-5)
        latent = memory
        if regularization:
            latent = memory.head
            net.assert_trees_close(memory.total["hidden2"], total, rtol=5e-2, atol=1e-2)
            assert not any(map(np.any, jax.tree.leaves(memory.total["hidden1"])))
        net.assert_trees_close(latent.head.head, cw, rtol=2e-3, atol=2e-5)
        np.testing.assert_array_equal(latent.head.updates, past)
        held = np.asarray(latent.samples.index)
        assert np.all(latent.samples.mask)
        assert {*held} <= {*np.concatenate(TASKS)}
        replayed, labels = below(params, held), LABELS[held]
        np.testing.assert_allclose(latent.activations, replayed, rtol=1e-4, atol=1e-5)


def test_frozen_layers_keep_every_bit_in_spite_of_decay():
    strategy = latent_replay(SETUP, CAPACITY, "hidden1")
    _, start = net.untrained(SETUP, strategy)
    _, learner = net.run_tasks(SETUP, strategy, sequence()[:2])[-1]
    jax.tree.map(np.testing.assert_array_equal, learner.params["hidden1"], start.params["hidden1"])
    assert np.any(learner.params["hidden2"]["kernel"] != start.params["hidden2"]["kernel"])


def memory_of(index, capacity):
    index = np.asarray(index, np.int32)
    padded = np.pad(index, (0, capacity - len(index)))
    mask = jnp.arange(capacity) < len(index)
    return Samples(jnp.asarray(padded), jnp.asarray(LABELS[padded][:, None]), mask)


@pytest.mark.parametrize(
    ("held", "capacity", "number", "entering"),
    [
        *[((), 6, 0, 6), ((), 20, 0, 9), (range(20, 26), 6, 1, 3), (range(20, 26), 6, 7, 0)],
        *[(range(20, 23), 6, 1, 3), (range(20, 25), 6, 1, 3), (range(20, 38), 18, 0, 9)],
    ],
)
def test_a_share_of_the_memory_is_exchanged(held, capacity, number, entering):
    """The authors' code exchanges as many; here they fill empty places first."""
    index = np.arange(9)
    samples = memory_of(held, capacity)
    train = net.samples_of([*index, 11], [True] * 9 + [False])
    task = Task(train, train, net.classes_mask([0]), jnp.int32(number))
    seen = set()
    for seed in range(3):
        new, is_new = jax.jit(exchanged)(samples, task, jax.random.key(seed))
        stored = np.asarray(new.index)[np.asarray(new.mask)]
        assert len({*stored}) == len(stored) == min(capacity, max(len(held), len(held) + entering))
        assert int(is_new.sum()) == entering == len({*stored} & {*index})
        np.testing.assert_array_equal(new.index[~is_new], samples.index[~is_new])
        np.testing.assert_array_equal(new.labels[new.mask][:, 0], LABELS[stored])
        # Stored samples fill the first slots.
        np.testing.assert_array_equal(np.sort(new.mask)[::-1], new.mask)
        seen.add(tuple(stored))
    assert len(seen) > 1 or not entering


def test_every_sample_enters_and_every_slot_is_left_with_equal_probability():
    train = net.samples_of(np.arange(10))
    task = Task(train, train, net.classes_mask([0]), jnp.int32(1))
    samples = memory_of(range(20, 26), 6)
    keys = jax.random.split(jax.random.key(0), 2000)
    new, is_new = jax.jit(jax.vmap(lambda key: exchanged(samples, task, key)))(keys)
    np.testing.assert_allclose(is_new.mean(axis=0), 0.5, atol=0.05)
    shares = np.bincount(np.asarray(new.index)[np.asarray(is_new)], minlength=10) / len(keys)
    np.testing.assert_allclose(shares, 0.3, atol=0.05)


def test_a_setup_without_layers_is_refused():
    with pytest.raises(ValueError, match="the setup has no split_at; make it by flax_setup"):
        latent_replay(SETUP._replace(split_at=None))
