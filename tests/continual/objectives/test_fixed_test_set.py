"""The objective of a fixed test set against float64 NumPy: all outputs compete, seen or not."""

import jax
import jax.numpy as jnp
import numpy as np

from everlight.base import Outputs, Predictions, Samples, Task, TaskSequence
from everlight.continual.objectives.fixed_test_set import fixed_test_objective

CLASSES = 5
OBJECTIVE = fixed_test_objective(CLASSES)
SEEN = jnp.array([True, True, False, False, False])


def test_the_loss_and_the_metric_run_over_all_outputs(rng):
    logits = rng.normal(size=(6, CLASSES)) * 3
    labels = np.array([0, 1, 1, 0, 1, 0])
    powers = np.exp(logits)
    expected = -np.log(powers[np.arange(6), labels] / powers.sum(axis=1))
    scores = jnp.float32(logits)
    outputs = Outputs(scores, jnp.zeros((6, 1)))
    loss = OBJECTIVE.loss(outputs, jnp.asarray(labels)[:, None], SEEN)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    metric = OBJECTIVE.metric(scores, jnp.asarray(labels)[:, None], SEEN)
    np.testing.assert_array_equal(metric, logits.argmax(axis=1) == labels)
    assert np.any(logits.argmax(axis=1) >= 2), "the test needs an unseen class that wins"


def test_an_evaluation_keeps_every_sample_and_its_means(rng):
    count, padded = 40, 45
    logits = rng.normal(size=(padded, CLASSES)) * 2
    labels = rng.integers(0, CLASSES - 1, padded)
    logits[np.arange(padded), labels] += 1.5
    mask = np.arange(padded) < count
    test = Samples(jnp.arange(padded), jnp.asarray(labels)[:, None], jnp.asarray(mask))
    empty = jax.tree.map(lambda leaf: leaf[None, :1], test)
    task = Task(empty, empty, jnp.ones((1, CLASSES), bool), jnp.arange(1))
    sequence = TaskSequence(task, test, jnp.ones((1, padded), bool), jnp.zeros(CLASSES, int))
    scores = jnp.float32(logits)
    predictions = Predictions(
        scores, scores, test.labels, jnp.zeros(padded, int), sequence.class_task
    )
    # Padding is not evaluated, and is 0 in all stored values.
    masked = jax.tree.map(
        lambda leaf: jnp.where(mask, leaf, 0), OBJECTIVE.per_sample_metrics(predictions, SEEN)
    )
    stored = OBJECTIVE.evaluate(sequence, masked, SEEN)
    right = (logits.argmax(axis=1) == labels) & mask
    np.testing.assert_array_equal(stored.correct, right)
    np.testing.assert_allclose(stored.accuracy, right.sum() / count, rtol=1e-6)
    by_class = [right[mask & (labels == label)].mean() for label in range(CLASSES - 1)]
    np.testing.assert_allclose(stored.class_accuracy, [*by_class, 0], rtol=1e-6)
    powers = np.exp(logits)
    confidence = (powers / powers.sum(axis=1, keepdims=True)).max(axis=1)
    np.testing.assert_allclose(stored.confidence[:count], confidence[:count], rtol=1e-5)
