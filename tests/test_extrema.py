"""Largest and smallest values, NaN included, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight import metrics
from everlight.extrema import largest_value, smallest_value


@pytest.mark.parametrize("shape", [(5, 4, 3), (64, 64, 3)])
@pytest.mark.parametrize("axis", [None, -1, (0, 1)])
def test_nan_is_the_extremum_wherever_it_is(shape, axis, rng):
    values = rng.normal(size=shape).astype(np.float32)
    values[3, 2, 1] = np.nan
    for function, reference in ((largest_value, np.max), (smallest_value, np.min)):
        np.testing.assert_array_equal(function(jnp.asarray(values), axis), reference(values, axis))


@pytest.mark.parametrize("runs", [1, 100])
def test_metrics_of_many_runs_are_nan_where_an_accuracy_is(runs, rng):
    accuracies = jnp.asarray(rng.uniform(size=(runs, 10, 10)), jnp.float32).at[:, 3].set(jnp.nan)
    tasks = jnp.arange(10)
    assert jnp.isnan(jax.vmap(metrics.forgetting)(accuracies)).all()
    for gap in (metrics.stability_gap, lambda *values: metrics.windowed_forgetting(*values, 3)):
        assert jnp.isnan(jax.vmap(gap, (0, None))(accuracies, tasks)).all()
    scores = jnp.log(accuracies)
    confidence = metrics.maximum_softmax_probability(scores)
    assert (jnp.isnan(confidence) == jnp.isnan(accuracies).any(axis=-1)).all()
