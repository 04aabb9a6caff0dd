"""C5's histograms and its locator, against the authors' steps written in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.chroma_histogram import (
    ChromaWindow,
    chroma_histograms,
    located_illuminant,
    neighbor_differences,
    weighted_chroma_histogram,
)

WINDOWS = [ChromaWindow(), ChromaWindow(16, -0.6, 2.2)]


def by_hand(colors, window):
    """Return distances of every colour from every bin, as the authors' `compute_histogram`."""
    width = (window.high - window.low) / (window.bins - 1)
    centers = window.low + width * np.arange(window.bins)
    u, v = np.log(colors[:, 1] / colors[:, 0]), np.log(colors[:, 1] / colors[:, 2])
    across = np.abs(u[:, None] - centers) <= width
    down = np.abs(v[:, None] - centers[::-1]) <= width
    total = (down * np.linalg.norm(colors, axis=1)[:, None]).T @ across
    return np.sqrt(total / (total.sum() + 1e-9))


@pytest.mark.parametrize("window", WINDOWS)
def test_histograms_are_the_authors(rng, window):
    colors = np.exp(rng.normal(0, 0.8, (300, 3)))
    spoilt = np.concatenate([colors, [[0, 1, 1], [1, 0, 1], [0, 0, 0], [1, 1, -1]]])
    result = weighted_chroma_histogram(
        jnp.float32(spoilt), jnp.float32(np.linalg.norm(spoilt, axis=1)), window
    )
    expected = by_hand(colors, window)
    assert (expected > 0).sum() > 100
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-6)


def test_edges_are_the_authors_where_they_do_not_reflect(rng):
    """A frame of one colour, two pixels wide, differs from its reflection nowhere."""
    image = rng.uniform(0.1, 1, (12, 15, 3))
    for side in ((slice(None, 2),), (slice(-2, None),), (slice(None), slice(None, 2))):
        image[side] = 0.5
    image[:, -2:] = 0.5
    padded = np.pad(image, ((1, 1), (1, 1), (0, 0)), mode="symmetric")
    expected = np.zeros_like(image)
    for down in range(3):
        for right in range(3):
            expected += np.abs(image - padded[down : down + 12, right : right + 15]) / 8
    result = neighbor_differences(jnp.float32(image), jnp.ones((12, 15), bool))[0] / 8
    np.testing.assert_allclose(result, expected, atol=1e-6)
    both = np.asarray(chroma_histograms(jnp.float32(image), None, WINDOWS[0]))
    lit = expected.reshape(-1, 3)
    lit = lit[(lit > 1e-6).all(axis=1)]
    np.testing.assert_allclose(both[..., 0], by_hand(image.reshape(-1, 3), WINDOWS[0]), atol=1e-4)
    np.testing.assert_allclose(both[..., 1], by_hand(lit, WINDOWS[0]), atol=1e-4)


def test_masked_pixels_have_no_share_and_no_edge(rng):
    image = jnp.float32(rng.uniform(0.1, 1, (10, 12, 3)))
    mask = jnp.ones((10, 12)).at[:, 8:].set(0)
    result = chroma_histograms(image.at[:, 8:].set(jnp.nan), mask)
    np.testing.assert_allclose(result, chroma_histograms(image[:, :8], None), atol=1e-6)
    assert jnp.isnan(chroma_histograms(image.at[2, 2].set(jnp.inf), mask)).all()
    assert not np.asarray(chroma_histograms(image, jnp.zeros((10, 12)))).any()


@pytest.mark.parametrize("window", WINDOWS)
def test_the_locator_is_the_authors(rng, window):
    scores = rng.normal(0, 3, (window.bins, window.bins))
    scores[3, 5] = 400
    scores[4, 7] = 99
    clipped = np.clip(scores, -100, 100)
    shares = np.exp(clipped - 100) / np.exp(clipped - 100).sum()
    line = np.arange(window.bins) - (window.bins - 1) / 2
    scale = (window.high - window.low) / window.bins
    middle = (window.high + window.low) / 2
    u = middle + scale * (shares * line[None, :]).sum()
    v = middle + scale * (shares * line[::-1, None]).sum()
    expected = np.array([np.exp(-u), 1, np.exp(-v)])
    result = located_illuminant(jnp.float32(scores), window)
    np.testing.assert_allclose(result, expected / np.linalg.norm(expected), rtol=1e-5)


def test_gradients_are_finite_on_flat_and_dark_images():
    def total(image):
        return jnp.sum(chroma_histograms(image, None) ** 2)

    for image in (jnp.full((6, 6, 3), 0.4), jnp.zeros((6, 6, 3)).at[0].set(1)):
        assert jnp.isfinite(jax.grad(total)(image)).all()
