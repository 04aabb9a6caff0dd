"""Means over samples whose scores have 16 bits, against the fractions of counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import Predictions, Samples, Task, TaskSequence
from everlight.continual.engine import validate
from everlight.continual.engine.generated import mean_metric
from everlight.continual.objectives import softmax_objective, target_objective
from everlight.continual.strategies import naive
from tests.continual import small_net as net

# In bfloat16 628 of 1,001 is 0.62891; in float16 the sum and the number of 70,000 overflow.
CASES = [(jnp.bfloat16, 628, 1001), (jnp.float16, 70_000, 80_000)]
KEY = jax.random.key(0)
SEEN = jnp.ones(2, bool)


def scored(dtype, hits, count):
    """Return samples of class 0, and scores that predict it for the first ones."""
    samples = Samples(jnp.arange(count), jnp.zeros((count, 1), int), jnp.ones(count, bool))
    scores = jnp.stack([jnp.arange(count) < hits, jnp.full(count, 0.5)], axis=1)
    return samples, scores.astype(dtype)


def predicting(dtype, hits):
    """Return setup, strategy and learner that predict class 0 for the first samples."""
    plain = net.small_setup()

    def predict(memory, learner, index):
        chosen = jnp.stack([index < hits, jnp.full(index.shape, 0.5)], axis=1)
        return chosen.astype(dtype)

    setup = plain._replace(gather=lambda index, key: index.astype(jnp.float32))
    learner = net.small_learner(plain, [0, 1])._replace(seen=SEEN)
    return setup, naive(setup)._replace(predict=predict), learner


@pytest.mark.parametrize(("dtype", "hits", "count"), CASES)
def test_accuracies_and_mean_losses_of_a_test_set(dtype, hits, count):
    samples, scores = scored(dtype, hits, count)
    tasks = jax.tree.map(lambda leaf: leaf[None], Task(samples, samples, SEEN, jnp.int32(0)))
    member = jnp.ones((1, count), bool)
    sequence = TaskSequence(tasks, samples, member, jnp.zeros(2, int), SEEN[None])
    predictions = Predictions(
        scores,
        scores,
        samples.labels,
        jnp.zeros(count, int),
        sequence.class_task,
        jnp.ones((count, 2), bool),
    )
    mean_output = target_objective(lambda outputs, target: outputs[0], lambda labels: labels)
    for objective in (softmax_objective(), mean_output):
        values = objective.per_sample_metrics(predictions, SEEN)
        for row in jax.tree.leaves(objective.evaluate(sequence, values, SEEN)):
            np.testing.assert_allclose(row, [hits / count], rtol=1e-6)


@pytest.mark.parametrize(("dtype", "hits", "count"), CASES)
def test_validation_and_the_mean_of_a_generated_task(dtype, hits, count):
    samples, _ = scored(dtype, hits, count)
    setup, strategy, learner = predicting(dtype, hits)
    result = validate(setup, strategy, (), learner, samples, 20_000, KEY)
    np.testing.assert_allclose(result, hits / count, rtol=1e-6)
    mean = mean_metric(setup, strategy, (), learner, samples)
    np.testing.assert_allclose(mean, hits / count, rtol=1e-6)
