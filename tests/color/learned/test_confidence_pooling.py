"""FC4-style: the pooling in closed form, places that have no part, and a world that it learns."""

import jax
import jax.numpy as jnp
import numpy as np

from everlight.color.learned.confidence_pooling import (
    HIDDEN_UNITS,
    ConfidencePoolingHead,
    ConfidencePoolingModel,
    confidence_pooled_estimate,
    fit_confidence_pooling,
)
from everlight.metrics.angular import angular_error

estimate = jax.jit(confidence_pooled_estimate)


def by_hand(maps, colors, first, second):
    """Compute the pooled illuminant place by place in float64."""
    total = np.zeros(3)
    for row in range(maps.shape[0]):
        for column in range(maps.shape[1]):
            hidden = np.maximum(maps[row, column] @ first, 0)
            predicted = hidden @ second
            illuminant = np.exp(predicted[:3]) * colors[row, column]
            confidence = np.log1p(np.exp(predicted[3]))
            if (colors[row, column] > 0).all():
                total += confidence * illuminant / np.linalg.norm(illuminant)
    return total / np.linalg.norm(total)


def model_of(first, second, mean, scale):
    blank = jnp.zeros((2, 2, len(first)))
    params = ConfidencePoolingHead().init(jax.random.key(0), blank, jnp.ones((2, 2, 3)))
    params = jax.tree.map(jnp.zeros_like, params)
    params["params"]["Dense_0"]["kernel"] = jnp.float32(first)
    params["params"]["Dense_1"]["kernel"] = jnp.float32(second)
    return ConfidencePoolingModel(params, jnp.float32(mean), jnp.float32(scale))


def test_the_illuminant_is_the_places_illuminants_by_their_confidence(rng):
    maps, colors = rng.normal(size=(3, 4, 5)), rng.uniform(0.1, 1, (3, 4, 3))
    first, second = rng.normal(size=(5, HIDDEN_UNITS)), 0.2 * rng.normal(size=(HIDDEN_UNITS, 4))
    mean, scale = rng.normal(size=5), rng.uniform(0.5, 2, 5)
    colors[1, 2] = 0
    model = model_of(first, second, mean, scale)
    expected = by_hand((maps - mean) / scale, colors, first, second)
    for _ in range(2):
        result = estimate(model, jnp.float32(maps), jnp.float32(colors))
        np.testing.assert_allclose(result, expected, rtol=1e-4)
        maps[1, 2] = 1e3


def test_confidences_find_the_places_that_show_the_illuminant(rng):
    """Half of the places are grey and half of any colour; one of the maps says which."""
    count = 80
    illuminants = rng.uniform(0.4, 1, (count, 3))
    kind = rng.integers(0, 2, (count, 4, 4))
    surfaces = np.where(kind[..., None] > 0, 0.5, rng.uniform(0.02, 1, (count, 4, 4, 3)) ** 2)
    colors = jnp.float32(surfaces * illuminants[:, None, None])
    noise = rng.normal(size=(count, 4, 4, 2))
    maps = jnp.float32(np.concatenate([kind[..., None], noise], axis=-1))
    truth = jnp.float32(illuminants)
    taught = maps[:60, None], colors[:60, None], truth[:60, None]
    model = fit_confidence_pooling(*taught, key=jax.random.key(0), steps=300)
    predicted = jax.vmap(estimate, (None, 0, 0))(model, maps[60:], colors[60:])
    errors = jax.vmap(angular_error)(predicted, truth[60:])
    gray = jax.vmap(angular_error)(colors[60:].mean((1, 2)), truth[60:])
    assert gray.mean() > 3
    assert errors.mean() < 0.5 * gray.mean()
