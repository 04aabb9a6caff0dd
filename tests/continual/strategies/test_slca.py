"""SLCA against the official procedure in float64: steps, Gaussians of classes, aligned head."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.strategies.slca import normalized_logits, slca
from tests.continual import small_net as net
from tests.continual.small_net import DATA, START
from tests.continual.strategies.references import slca_by_hand as hand

STRATEGY = slca(hand.SETUP, hand.SLOW, hand.EPOCHS, hand.COUNT, hand.TEMPERATURE)
END_KEY = jax.random.key(3)
"""Key of `run_tasks` at the end of a task."""
TEST = np.arange(20, 40)
INPUTS = jnp.float32(DATA[TEST])


@pytest.fixture(scope="module")
def after_each():
    return net.run_tasks(hand.SETUP, STRATEGY, hand.TASKS)


def test_three_tasks_are_the_official_procedure(after_each):
    params, gaussians, seen = START, {}, []
    for task, (memory, learner) in enumerate(after_each):
        params = hand.stage_one(params, hand.TASKS[task][1], hand.TASK_CLASSES[task])
        net.assert_trees_close(net.flat(learner.params), params, rtol=1e-4, atol=2e-6)
        gaussians |= hand.own_gaussians(params, task)
        for c in hand.TASK_CLASSES[task]:
            np.testing.assert_allclose(memory.mean[c], gaussians[c][0], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(memory.covariance[c], gaussians[c][1], atol=1e-5)
        seen = [*seen, *hand.TASK_CLASSES[task]]
        # The first task's head is not aligned.
        head = {"kernel": params["head"], "bias": params["head_bias"]}
        if task:
            head = hand.stage_two(params, gaussians, seen, task, END_KEY)
            assert np.abs(head["kernel"] - params["head"]).max() > 1e-2
        net.assert_trees_close(memory.head, head, rtol=2e-3, atol=2e-4)
        predicted = STRATEGY.predict(memory, learner, INPUTS)
        expected = net.forward(params, TEST)[1] @ head["kernel"] + head["bias"]
        np.testing.assert_allclose(predicted, expected, rtol=2e-3, atol=1e-3)


def test_while_a_task_is_learned_the_head_before_alignment_predicts(after_each):
    memory, learner = after_each[1]
    memory, learner = net.begin(hand.SETUP, STRATEGY, memory, learner, hand.TASKS[2][0])
    expected, _ = hand.SETUP.apply(learner.params, learner.batch_stats, INPUTS, False, None)
    np.testing.assert_allclose(
        STRATEGY.predict(memory, learner, INPUTS), expected.logits, rtol=1e-5, atol=1e-5
    )


def test_normalized_logits_do_not_depend_on_their_scale_and_have_a_finite_gradient_at_0():
    logits = jnp.array([[3.0, 4.0, 0.0, 7.0]])
    tasks, seen = jnp.array([0, 0, 1, 2]), jnp.array([True, True, True, False])
    result = normalized_logits(logits, tasks, seen)
    np.testing.assert_allclose(result, logits / 2.5, rtol=1e-6)
    np.testing.assert_allclose(normalized_logits(10 * logits, tasks, seen), result, rtol=1e-6)
    slope = jax.grad(lambda inputs: jnp.sum(normalized_logits(inputs, tasks, seen)))(logits)
    assert np.all(np.isfinite(slope))
