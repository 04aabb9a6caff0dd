"""SLCA against the official procedure in float64: steps, Gaussians of classes, aligned head."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.strategies.slca import (
    class_gaussians,
    gaussian_samples,
    normalized_logits,
    slca,
)
from tests.continual.small_net import (
    DATA,
    START,
    assert_trees_close,
    begin,
    flat,
    forward,
    run_tasks,
    untrained,
)
from tests.continual.strategies.slca_by_hand import (
    COUNT,
    EPOCHS,
    OWN,
    SETUP,
    SLOW,
    TASKS,
    TEMPERATURE,
    own_gaussians,
    stage_one,
    stage_two,
)

STRATEGY = slca(SETUP, SLOW, EPOCHS, COUNT, TEMPERATURE)
END_KEY = jax.random.key(3)
"""Key of `run_tasks` at the end of a task."""
TEST = np.arange(20, 40)
INPUTS = jnp.asarray(DATA[TEST], jnp.float32)


@pytest.fixture(scope="module")
def after_each():
    return run_tasks(SETUP, STRATEGY, TASKS)


def test_three_tasks_are_the_official_procedure(after_each):
    params, gaussians, seen = START, {}, []
    for task, (memory, learner) in enumerate(after_each):
        params = stage_one(params, TASKS[task][1], OWN[task])
        assert_trees_close(flat(learner.params), params, rtol=1e-4, atol=2e-6)
        gaussians |= own_gaussians(params, task)
        for c in OWN[task]:
            np.testing.assert_allclose(memory.mean[c], gaussians[c][0], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(memory.covariance[c], gaussians[c][1], atol=1e-5)
        seen = [*seen, *OWN[task]]
        # The first task's head is not aligned.
        head = {"kernel": params["head"], "bias": params["head_bias"]}
        if task:
            head = stage_two(params, gaussians, seen, task, END_KEY)
            assert np.abs(head["kernel"] - params["head"]).max() > 1e-2
        assert_trees_close(memory.head, head, rtol=2e-3, atol=2e-4)
        found = STRATEGY.predict(memory, learner, INPUTS)
        expected = forward(params, TEST)[1] @ head["kernel"] + head["bias"]
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-3)


def test_while_a_task_is_learned_the_head_before_alignment_predicts(after_each):
    memory, learner = after_each[1]
    memory, learner = begin(SETUP, STRATEGY, memory, learner, TASKS[2][0])
    expected, _ = SETUP.apply(learner.params, learner.batch_stats, INPUTS, False, None)
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


def test_normalized_logits_do_not_depend_on_their_scale_and_have_a_finite_gradient_at_0():
    logits = jnp.array([[3.0, 4.0, 0.0, 7.0]])
    tasks, seen = jnp.array([0, 0, 1, 2]), jnp.array([True, True, True, False])
    found = normalized_logits(logits, tasks, seen)
    np.testing.assert_allclose(found, logits / 2.5, rtol=1e-6)
    np.testing.assert_allclose(normalized_logits(10 * logits, tasks, seen), found, rtol=1e-6)
    slope = jax.grad(lambda given: jnp.sum(normalized_logits(given, tasks, seen)))(logits)
    assert np.all(np.isfinite(slope))


def test_other_heads_are_refused():
    _, learner = untrained(SETUP, STRATEGY)
    cosine = {**learner.params["head"], "scale": jnp.ones(())}
    for params, message in (
        ({**learner.params, "head": cosine}, "SLCA needs a linear layer named head"),
        ({"out": learner.params["head"]}, "name the network's last layer head"),
    ):
        with pytest.raises(ValueError, match=message):
            STRATEGY.init(jax.random.key(0), learner._replace(params=params))
