"""Time and settings of a capture: the formula, the network in NumPy, and a world that they tell."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.chroma_histogram import ChromaWindow, chroma_histograms
from everlight.color.learned.capture_aware import (
    CaptureModel,
    CaptureNet,
    capture_aware_estimate,
    capture_features,
    fit_capture_aware,
)
from everlight.metrics.angular import angular_error
from tests.color.references import convolution

HOUR = 3600
SUN = np.array([5.5, 6, 12, 18, 18.5, 24]) * HOUR


def test_features_are_the_papers():
    inputs = (jnp.float32(item) for item in (9 * HOUR, SUN, 100, 0.01))
    result = capture_features(*inputs, jnp.array(True))
    hours = [3.5, 3, 3, 9, 9.5, 15]
    expected = [1 - item / 24 for item in hours]
    expected += [0, 0, 1, 1, 1, 1, np.log(100), np.log(0.01), 1]
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def elu(maps):
    return np.where(maps > 0, maps, np.expm1(np.minimum(maps, 0)))


def test_the_network_is_the_papers(rng):
    histograms = jnp.float32(rng.uniform(0, 0.3, (1, 12, 12, 2)))
    vector = jnp.float32(rng.uniform(0, 1, (1, 15)))
    net = CaptureNet()
    variables = net.init(jax.random.key(0), histograms, vector)
    variables = jax.tree.map(
        lambda leaf: leaf + jnp.float32(rng.uniform(0, 0.1, leaf.shape)), variables
    )
    assert sum(leaf.size for leaf in jax.tree.leaves(variables["params"])) == 4_834
    exact = jax.tree.map(lambda leaf: np.asarray(leaf, float), variables)
    params, stored = exact["params"], exact["batch_stats"]["BatchNorm_0"]

    def dense(values, number):
        return values @ params[f"Dense_{number}"]["kernel"] + params[f"Dense_{number}"]["bias"]

    line = np.linspace(0, 1, 12)
    maps = np.concatenate([histograms[0], np.stack(np.meshgrid(line, line[::-1]), -1)], -1)
    for number in range(3):
        maps = elu(convolution(maps, params[f"Convolution_{number}"]))
    both = np.concatenate([dense(maps.mean((0, 1)), 0), dense(np.asarray(vector[0], float), 1)])
    hidden = (dense(both, 2) - stored["mean"]) / np.sqrt(stored["var"] + 1e-5)
    hidden = hidden * params["BatchNorm_0"]["scale"] + params["BatchNorm_0"]["bias"]
    expected = dense(elu(dense(elu(dense(elu(hidden), 3)), 4)), 5)
    np.testing.assert_allclose(net.apply(variables, histograms, vector)[0], expected, rtol=1e-4)
    ends = jnp.zeros(15), jnp.full(15, 2.0)
    result = capture_aware_estimate(CaptureModel(variables, *ends), histograms[0], 2 * vector[0])
    illuminant = np.array([expected[0], 1, expected[1]])
    np.testing.assert_allclose(result, illuminant / np.linalg.norm(illuminant), rtol=1e-4)
    blank = capture_aware_estimate(CaptureModel(variables, *ends), 0 * histograms[0], vector[0])
    assert np.isnan(blank).all()


@pytest.mark.slow
def test_the_time_adds_what_the_colors_leave_open():
    """Surfaces are as coloured as the illuminants; evening light is red."""
    rng = np.random.default_rng(0)
    count, window = 300, ChromaWindow(16, -1.5, 2.5)
    times = rng.uniform(0, 24, count) * HOUR
    red = 0.5 + 0.4 * np.cos(times / 24 / HOUR * 2 * np.pi)
    illuminants = jnp.float32(np.stack([red, np.ones(count), 1.1 - red], axis=1))
    tints = np.exp(rng.normal(0, 0.5, (count, 1, 1, 3)))
    images = jnp.float32(rng.uniform(0.2, 1, (count, 4, 4, 3)) * tints) * illuminants[:, None, None]
    histograms = jax.vmap(lambda image: chroma_histograms(image, None, window))(images)
    events, one = jnp.broadcast_to(jnp.float32(SUN), (count, 6)), jnp.ones(count)
    vectors = jax.vmap(capture_features)(
        jnp.float32(times), events, one, one, jnp.zeros(count, bool)
    )
    errors = []
    for value in (vectors, 0 * vectors):
        taught = histograms[:200], value[:200], illuminants[:200]
        model = fit_capture_aware(*taught, key=jax.random.key(0), steps=400)
        result = jax.vmap(capture_aware_estimate, (None, 0, 0))(
            model, histograms[200:], value[200:]
        )
        errors.append(np.mean(jax.vmap(angular_error)(result, illuminants[200:])))
    assert errors[0] < 0.6 * errors[1]
