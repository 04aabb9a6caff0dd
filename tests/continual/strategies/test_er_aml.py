"""ER-AML's metric loss and pairs in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.engine.updates import complete_batch
from everlight.continual.strategies.er_aml import er_aml, possible_pairs
from everlight.continual.strategies.experience_replay import Reservoir
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, GAIN, LABELS, START

SETUP = net.small_setup()
TEMPERATURE = 0.3
TASK = net.task_of(1, [2, 3], [2, 3])
# Sample 9 has no second one of class 3, and sample 5 fills a last, partial batch.
ROWS, SEEN = [2, 14, 4, 9], [0, 2, 3, 4, 5]
BATCH = net.batch_of([*ROWS, 5], [1, 1, 1, 1, 0])
HELD = [0, 6, 11, 8, 10, 20]
POSITIVES = {2: {14, 8, 20}, 14: {2, 8, 20}, 4: {10}}
NEGATIVES = {2: {4, 10, 9}, 14: {4, 10, 9}, 4: {2, 14, 8, 20, 9}}


def memory_of(index):
    content = np.array([*index, *[39] * (8 - len(index))])
    return Reservoir(net.samples_of(content, np.arange(8) < len(index)), jnp.int32(len(index)))


def among(classes):
    return np.isin(np.arange(CLASSES), classes)


def metric_loss(params, current, positive, negative):
    """Compute the equation with loops, averaged over the samples."""

    def unit_feature(index):
        feature = GAIN * net.forward(params, [index], train=True)[1][0]
        return feature / np.linalg.norm(feature)

    others = [*positive, *negative]
    total = 0.0
    for index in current:
        near = {other: unit_feature(index) @ unit_feature(other) / TEMPERATURE for other in others}
        everything = sum(np.exp(near[other]) for other in others)
        logs = [
            np.log(np.exp(near[other]) / everything)
            for other in others
            if LABELS[other] == LABELS[index]
        ]
        total -= TEMPERATURE / 0.07 * np.mean(logs)
    return total / len(current)


@pytest.fixture(scope="module")
def step():
    """Return, per `loss_over`, the function of a memory to replayed samples, gradient and info."""

    def created(loss_over):
        strategy = er_aml(SETUP, 8, temperature=TEMPERATURE, loss_over=loss_over)

        @jax.jit
        def run(memory):
            batch = complete_batch(SETUP, strategy, memory, BATCH, TASK, jax.random.key(0))
            learner = net.small_learner(SETUP, SEEN)
            gradient, info = strategy.grads(memory, learner, batch, TASK, jax.random.key(1))
            return batch.replay, gradient, info

        return run

    return {item: created(item) for item in ("seen", "all")}


@pytest.mark.parametrize(("loss_over", "active"), [("seen", SEEN), ("all", range(CLASSES))])
def test_a_step_is_the_gradient_in_float64(step, loss_over, active):
    drawn, gradient, info = step[loss_over](memory_of(HELD))
    np.testing.assert_array_equal(drawn.positive.weight, [1, 1, 1, 0, 0])
    np.testing.assert_array_equal(drawn.negative.weight, [1, 1, 1, 0, 0])
    paired, *pairs = ROWS[:3], drawn.positive.index[:3].tolist(), drawn.negative.index[:3].tolist()
    metric = net.finite_differences(lambda params: metric_loss(params, paired, *pairs), START)
    stored = drawn.replayed.index[np.asarray(drawn.replayed.weight) > 0]
    replayed = net.batch_gradient(START, stored, among(active))
    expected = {name: metric[name] + replayed[name] for name in metric}
    net.assert_trees_close(gradient, expected, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(info.loss, metric_loss(START, paired, *pairs), rtol=1e-5)
    # The batch, its pairs and the replayed samples have one pass each.
    assert info.batch_stats["passes"] == 3


def test_an_empty_memory_leaves_the_usual_loss(step):
    _, gradient, info = step["seen"](memory_of([]))
    net.assert_trees_close(gradient, net.batch_gradient(START, ROWS, among(SEEN)), atol=1e-6)
    assert info.batch_stats["passes"] == 1


def test_possible_pairs_are_the_authors():
    complete = np.array([*HELD, *ROWS, 5])
    mask = np.array([1] * (len(HELD) + len(ROWS)) + [0], bool)
    result = possible_pairs(jnp.array(LABELS[[*ROWS, 5]]), jnp.array(LABELS[complete]), mask)
    for possible, expected in zip(result, (POSITIVES, NEGATIVES), strict=True):
        for row, index in zip(np.asarray(possible), ROWS[:3], strict=False):
            assert set(complete[row].tolist()) == expected[index]
    # The code looks for them by label alone; a sample without a positive has none of either.
    assert not result[0][3].any()


def test_every_possible_one_is_drawn_equally_often():
    """The counts are within five standard deviations of the mean of 600 draws."""
    strategy, memory = er_aml(SETUP, 8), memory_of(HELD)
    draw = jax.jit(jax.vmap(lambda key: strategy.draw(memory, BATCH, TASK, key)))
    drawn = draw(jax.random.split(jax.random.key(2), 600))
    for batch, possible in ((drawn.positive, POSITIVES), (drawn.negative, NEGATIVES)):
        for place, index in enumerate(ROWS[:3]):
            result, counts = np.unique(batch.index[:, place], return_counts=True)
            assert set(result.tolist()) == possible[index]
            share = 1 / len(result)
            np.testing.assert_allclose(counts / 600, share, atol=5 * np.sqrt(share / 600))
            assert set(np.unique(batch.labels[:, place])) == set(LABELS[sorted(possible[index])])
