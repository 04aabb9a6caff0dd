"""Evaluations that keep the predicted class of every sample."""

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual import Predictions, softmax_objective, with_predictions

SCORES = jnp.array([[3.0, 2.0, 1.0, 4.0], [0.0, 2.0, 1.0, 4.0]])
OWN = jnp.array([[False, False, True, True], [True, True, False, False]])


@pytest.mark.parametrize(("task_incremental", "expected"), [(False, [0, 1]), (True, [3, 1])])
def test_the_prediction_is_among_seen_classes_or_those_of_the_task(task_incremental, expected):
    objective = with_predictions(softmax_objective(), task_incremental)
    labels, zeros = jnp.array([[0], [1]]), jnp.zeros(2, int)
    predictions = Predictions(SCORES, SCORES, labels, zeros, jnp.zeros(4, int), OWN)
    seen = jnp.array([True, True, True, False])
    plain, chosen = objective.per_sample_metrics(predictions, seen)
    np.testing.assert_array_equal(chosen - 1, expected)
    np.testing.assert_array_equal(plain.class_incremental, [1, 1])
