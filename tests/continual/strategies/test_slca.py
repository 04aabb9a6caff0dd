"""SLCA against the official procedure in float64: steps, Gaussians of classes, aligned head."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.strategies.slca import (
    class_gaussians,
    gaussian_samples,
    normalised_logits,
    slca,
)
from tests.continual import small_net as net
from tests.continual.small_net import DATA, START
from tests.continual.strategies import slca_by_hand as hand

STRATEGY = slca(hand.SETUP, hand.SLOW, hand.EPOCHS, hand.COUNT, hand.TEMPERATURE)
END_KEY = jax.random.key(3)
"""Key of `run_tasks` at the end of a task."""
TEST = np.arange(20, 40)
INPUTS = jnp.asarray(DATA[TEST], jnp.float32)


@pytest.fixture(scope="module")
def after_each():
    return net.run_tasks(hand.SETUP, STRATEGY, hand.TASKS)


def test_three_tasks_are_the_official_procedure(after_each):
    params, gaussians, seen = START, {}, []
    for task, (memory, learner) in enumerate(after_each):
        params = hand.stage_one(params, hand.TASKS[task][1], hand.OWN[task])
        net.assert_trees_close(net.flat(learner.params), params, rtol=1e-4, atol=2e-6)
        gaussians |= hand.own_gaussians(params, task)
        for c in hand.OWN[task]:
            np.testing.assert_allclose(memory.mean[c], gaussians[c][0], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(memory.covariance[c], gaussians[c][1], atol=1e-5)
        seen = [*seen, *hand.OWN[task]]
        # The first task's head is not aligned.
        head = {"kernel": params["head"], "bias": params["head_bias"]}
        if task:
            head = hand.stage_two(params, gaussians, seen, task, END_KEY)
            assert np.abs(head["kernel"] - params["head"]).max() > 1e-2
        net.assert_trees_close(memory.head, head, rtol=2e-3, atol=2e-4)
        found = STRATEGY.predict(memory, learner, INPUTS)
        expected = net.forward(params, TEST)[1] @ head["kernel"] + head["bias"]
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-3)


def test_while_a_task_is_learned_the_head_before_alignment_predicts(after_each):
    memory, learner = after_each[1]
    memory, learner = net.begin(hand.SETUP, STRATEGY, memory, learner, hand.TASKS[2][0])
    expected, _ = hand.SETUP.apply(learner.params, learner.batch_stats, INPUTS, False, None)
    np.testing.assert_allclose(
        STRATEGY.predict(memory, learner, INPUTS), expected.logits, rtol=1e-5, atol=1e-5
    )


def test_statistics_of_classes_are_those_of_numpy():
    rng = np.random.default_rng(0)
    rows, label = rng.normal(size=(30, 3)) + 5, rng.integers(0, 3, 30)
    mask = np.arange(30) < 25
    mean, covariance = class_gaussians(jnp.float32(rows), jnp.array(label), jnp.array(mask), 4)
    for c in range(3):
        own = rows[mask & (label == c)]
        np.testing.assert_allclose(mean[c], own.mean(axis=0), rtol=1e-5)
        expected = np.cov(own.T) + 1e-4 * np.eye(3)
        np.testing.assert_allclose(covariance[c], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(covariance[3], 1e-4 * np.eye(3))


def test_drawn_samples_have_the_moments_of_their_class():
    covariance = np.array([[[2.0, 0.6], [0.6, 0.5]], [[0.1, -0.05], [-0.05, 0.3]]])
    means = np.array([[3.0, -1.0], [0.0, 10.0]])
    roots = jnp.float32(np.linalg.cholesky(covariance))
    drawn = gaussian_samples(jnp.float32(means), roots, 40_000, jax.random.key(0))
    for c, rows in enumerate(np.asarray(drawn).reshape(2, -1, 2)):
        np.testing.assert_allclose(rows.mean(axis=0), means[c], atol=0.03)
        np.testing.assert_allclose(np.cov(rows.T), covariance[c], atol=0.03)


def test_normalised_logits_do_not_depend_on_their_scale_and_have_a_finite_gradient_at_0():
    logits = jnp.array([[3.0, 4.0, 0.0, 7.0]])
    tasks, seen = jnp.array([0, 0, 1, 2]), jnp.array([True, True, True, False])
    found = normalised_logits(logits, tasks, seen)
    np.testing.assert_allclose(found, logits / 2.5, rtol=1e-6)
    np.testing.assert_allclose(normalised_logits(10 * logits, tasks, seen), found, rtol=1e-6)
    slope = jax.grad(lambda given: jnp.sum(normalised_logits(given, tasks, seen)))(logits)
    assert np.all(np.isfinite(slope))


def test_other_heads_are_refused():
    _, learner = net.untrained(hand.SETUP, STRATEGY)
    cosine = {**learner.params["head"], "scale": jnp.ones(())}
    for params, message in (
        ({**learner.params, "head": cosine}, "SLCA needs a linear layer named head"),
        ({"out": learner.params["head"]}, "name the network's last layer head"),
    ):
        with pytest.raises(ValueError, match=message):
            STRATEGY.init(jax.random.key(0), learner._replace(params=params))
