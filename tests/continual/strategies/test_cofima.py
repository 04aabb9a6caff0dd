"""CoFiMA in float64 NumPy: SLCA's steps, Fisher-weighted averages, alignment of the merged network.

Stages one and two are those of the authors, who merge between them.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.strategies.cofima import cofima, weighted_average
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, START
from tests.continual.strategies.references import slca_by_hand as hand

WEIGHT = 0.3
STRATEGY = cofima(
    hand.SETUP, WEIGHT, hand.SLOW, hand.EPOCHS, hand.COUNT, hand.TEMPERATURE, fisher="empirical"
)
ALIGN_KEY = jax.random.split(jax.random.key(3), 4)[3]
"""Key of the alignment; that of `run_tasks` at the end of a task is also split for the others."""
TEST = np.arange(20, 40)


def fisher(params, task):
    active = np.isin(np.arange(CLASSES), hand.TASK_CLASSES[task])
    rows = net.cross_entropy_gradients(params, hand.INDEX[task], active)
    return {name: np.mean(leaf**2, axis=0) for name, leaf in rows.items()}


def average(before, current, of_before, local):
    merged = {}
    for name in START:
        weights = WEIGHT * local[name], (1 - WEIGHT) * of_before[name]
        total = weights[0] + weights[1]
        plain = WEIGHT * current[name] + (1 - WEIGHT) * before[name]
        known = np.where(total > 0, total, 1)
        mean = (weights[0] * current[name] + weights[1] * before[name]) / known
        merged[name] = np.where(total > 0, mean, plain)
    return merged


def merged_by_hand():
    """Return merged parameters after each task, each of which starts from those before."""
    merged = [hand.stage_one(START, hand.TASKS[0][1], hand.TASK_CLASSES[0])]
    for task in (1, 2):
        before, current = (
            merged[-1],
            hand.stage_one(merged[-1], hand.TASKS[task][1], hand.TASK_CLASSES[task]),
        )
        merged.append(average(before, current, fisher(before, task - 1), fisher(current, task)))
    return merged


@pytest.fixture(scope="module")
def after_each():
    return net.run_tasks(hand.SETUP, STRATEGY, hand.TASKS)


def test_three_tasks_are_merged_before_their_alignment_in_float64(after_each):
    gaussians, seen = {}, []
    for task, (params, (memory, learner)) in enumerate(
        zip(merged_by_hand(), after_each, strict=True)
    ):
        net.assert_trees_close(net.flat(learner.params), params, rtol=3e-4, atol=2e-5)
        net.assert_trees_close(net.flat(memory.params), params, rtol=3e-4, atol=2e-5)
        net.assert_trees_close(
            net.flat(memory.information), fisher(params, task), rtol=3e-3, atol=1e-6
        )
        gaussians |= hand.own_gaussians(params, task)
        for c in hand.TASK_CLASSES[task]:
            np.testing.assert_allclose(
                memory.gaussians.mean[c], gaussians[c][0], rtol=1e-4, atol=1e-4
            )
            np.testing.assert_allclose(memory.gaussians.covariance[c], gaussians[c][1], atol=1e-4)
        seen += hand.TASK_CLASSES[task]
        # The first task's head is not aligned.
        head = {"kernel": params["head"], "bias": params["head_bias"]}
        if task:
            head = hand.stage_two(params, gaussians, seen, task, ALIGN_KEY)
            assert np.abs(head["kernel"] - params["head"]).max() > 1e-2
        net.assert_trees_close(memory.gaussians.head, head, rtol=2e-3, atol=5e-4)
        scores = STRATEGY.predict(memory, learner, jnp.float32(DATA[TEST]))
        expected = net.forward(params, TEST)[1] @ head["kernel"] + head["bias"]
        np.testing.assert_allclose(scores, expected, rtol=2e-3, atol=2e-3)


def test_a_new_class_keeps_its_task_s_column_and_an_old_one_that_before_alignment(after_each):
    heads = [np.asarray(learner.params["head"]["kernel"]) for _, learner in after_each]
    np.testing.assert_array_equal(
        heads[1][:, hand.TASK_CLASSES[0]], heads[0][:, hand.TASK_CLASSES[0]]
    )
    np.testing.assert_array_equal(
        heads[2][:, hand.TASK_CLASSES[0]], heads[1][:, hand.TASK_CLASSES[0]]
    )
    trained = hand.stage_one(merged_by_hand()[1], hand.TASKS[2][1], hand.TASK_CLASSES[2])["head"]
    np.testing.assert_allclose(
        heads[2][:, hand.TASK_CLASSES[2]], trained[:, hand.TASK_CLASSES[2]], rtol=1e-3
    )


def test_the_default_backbone_takes_a_hundredth_of_the_rate():
    """The factor is `bcb_lrscale` of the official code; the head has the full rate."""
    ((_, slow),) = net.run_tasks(hand.SETUP, cofima(hand.SETUP), hand.TASKS[:1])
    ((_, full),) = net.run_tasks(
        hand.SETUP, cofima(hand.SETUP, backbone_learning_rate_factor=1.0), hand.TASKS[:1]
    )
    expected = hand.stage_one(START, hand.TASKS[0][1], hand.TASK_CLASSES[0], slow=0.01)
    net.assert_trees_close(net.flat(slow.params), expected, rtol=1e-5, atol=1e-6)
    moved = np.abs(full.params["hidden"]["kernel"] - START["hidden"]).max()
    assert np.abs(slow.params["hidden"]["kernel"] - START["hidden"]).max() < 0.02 * moved


@pytest.mark.parametrize(
    ("information_before", "information", "expected"),
    [(1, 1, 3.25), (3, 1, 1.9), (0, 2, 10), (2, 0, 1), (0, 0, 3.25)],
)
def test_averages_by_hand(information_before, information, expected):
    """One network has 1 with weight 0.75, the other 10 with 0.25."""
    leaves = [jnp.float32(value) for value in (1, 10, information_before, information)]
    np.testing.assert_allclose(weighted_average(*leaves, 0.25), expected, rtol=1e-6)
