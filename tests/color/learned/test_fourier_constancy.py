"""FFCC: histograms against NumPy, the torus in closed form, and a world that it learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.learned.fourier_constancy import (
    BIN_WIDTH,
    BINS,
    FourierModel,
    first_bin,
    fit_fourier_constancy,
    fourier_estimate,
    illuminant_bins,
    log_chroma_histograms,
)
from everlight.metrics.angular import angular_error

histograms_of = jax.jit(log_chroma_histograms)
estimate_of = jax.jit(fourier_estimate)


def by_hand(image, mask):
    """Count the histograms of colours and edges pixel by pixel in float64."""
    height, width = mask.shape
    edges = np.zeros_like(image)
    for row, column in np.argwhere(mask):
        differences = [
            np.abs(image[r, c] - image[row, column])
            for r in range(max(row - 1, 0), min(row + 2, height))
            for c in range(max(column - 1, 0), min(column + 2, width))
            if mask[r, c] and (r, c) != (row, column)
        ]
        edges[row, column] = np.mean(differences, axis=0) if differences else 0
    histograms = np.zeros((2, BINS, BINS))
    for histogram, colors in zip(histograms, (image, edges), strict=True):
        for r, g, b in colors[mask]:
            if min(r, g, b) >= 1 / 256:
                u, v = (round(np.log(g / other) / BIN_WIDTH) % BINS for other in (r, b))
                histogram[u, v] += 1
    return histograms / np.maximum(histograms.sum(axis=(1, 2), keepdims=True), 1)


def test_histograms_are_those_counted_by_hand(rng):
    image = rng.uniform(0, 1, (9, 11, 3)) ** 3
    mask = rng.uniform(size=(9, 11)) > 0.3
    actual = histograms_of(jnp.float32(image), jnp.asarray(mask))
    # A colour on a bin's border may be rounded to either side.
    assert np.abs(actual - by_hand(image, mask)).sum() < 0.05
    np.testing.assert_allclose(actual.sum(axis=(1, 2)), 1, rtol=1e-5)


def gaussian(place, spread):
    """Return the logarithm of a Gaussian on the torus, at a place in bins."""
    away = (np.arange(BINS)[:, None] - place + BINS / 2) % BINS - BINS / 2
    first, second = (-0.5 * (away[:, axis] / spread) ** 2 for axis in (0, 1))
    return jnp.float32(first[:, None] + second[None, :])


@pytest.mark.parametrize("place", [(10.3, 20.8), (63.6, 0.2), (31.5, 40.0)])
@pytest.mark.parametrize("origin", [(0, 0), (-9, 12), (40, -30)])
def test_the_mean_on_the_torus_is_the_gaussians(place, origin):
    """Without filters the map gives the illuminant, unwrapped into the bins from the origin on."""
    model = FourierModel(
        jnp.zeros((2, BINS, BINS)), gaussian(np.array(place), 2.0), jnp.float32([*origin])
    )
    illuminant = estimate_of(model, jnp.ones((2, BINS, BINS)))
    u, v = (first + (item - first) % BINS for first, item in zip(origin, place, strict=True))
    expected = np.exp([-u * BIN_WIDTH, 0, -v * BIN_WIDTH])
    np.testing.assert_allclose(illuminant, expected / np.linalg.norm(expected), rtol=1e-3)


def test_a_filter_moves_what_the_histogram_shows():
    """A filter with a peak at (4, 60) moves the pixels of bin (7, 9) to illuminant (11, 5)."""
    seen = jnp.zeros((2, BINS, BINS)).at[:, 7, 9].set(1)
    filters = jnp.stack([gaussian(np.array([4.0, 60.0]), 1.0), jnp.zeros((BINS, BINS))])
    model = FourierModel(filters, jnp.zeros((BINS, BINS)), jnp.zeros(2))
    expected = np.exp([-11 * BIN_WIDTH, 0, -5 * BIN_WIDTH])
    illuminant = estimate_of(model, seen)
    np.testing.assert_allclose(illuminant, expected / np.linalg.norm(expected), rtol=1e-3)


def test_each_axis_holds_its_own_illuminants():
    """Bins are −5.2 to 34.7 and 3.5 to 59.6, as of Cube+: 40 and 56 wide, 65 joined."""
    ends = jnp.array([[-5.2, 3.5], [34.7, 59.6]])
    illuminants = jnp.exp(-BIN_WIDTH * jnp.insert(ends, 1, 0, axis=1))
    origin = first_bin(illuminant_bins(illuminants))
    np.testing.assert_array_equal(origin, [-17, 0])
    assert ((ends >= origin) & (ends < origin + BINS)).all()


def test_black_and_masked_images_have_no_illuminant():
    model = FourierModel(jnp.zeros((2, BINS, BINS)), jnp.zeros((BINS, BINS)), jnp.zeros(2))
    black = jnp.zeros((8, 8, 3))
    assert jnp.isnan(estimate_of(model, histograms_of(black, None))).all()
    flat = histograms_of(black + 0.5, None)
    assert float(flat[1].sum()) == 0
    assert jnp.isfinite(estimate_of(model, flat)).all()
    assert jnp.isnan(estimate_of(model, histograms_of(black.at[0, 0, 0].set(jnp.nan), None))).all()


@pytest.mark.slow
def test_learns_a_world_of_one_palette(rng):
    """Every scene shows the same surfaces: the histogram's shift tells the illuminant."""
    palette = rng.uniform(0.1, 0.9, (12, 3))
    illuminants = np.exp(rng.uniform(-0.3, 0.3, (60, 3)))
    scenes = palette[rng.integers(0, 12, (60, 16, 16))] * illuminants[:, None, None] / 2
    seen = jax.jit(jax.vmap(log_chroma_histograms, (0, None)))(jnp.float32(scenes), None)
    illuminants = jnp.float32(illuminants)
    model = fit_fourier_constancy(
        seen[:40], illuminants[:40], crossentropy_steps=8, likelihood_steps=40
    )
    estimates = jax.vmap(estimate_of, (None, 0))(model, seen[40:])
    errors = jax.vmap(angular_error)(estimates, illuminants[40:])
    gray = jax.vmap(angular_error)(jnp.float32(scenes[40:].mean(axis=(1, 2))), illuminants[40:])
    assert errors.mean() < 0.4 * gray.mean(), (errors.mean(), gray.mean())
    np.testing.assert_allclose(model.bias.mean(), 0, atol=1e-4)
