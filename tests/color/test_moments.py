"""Colour moments of images against float64."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlight.color.moments import color_moments, reilluminate_moments

moments = jax.jit(color_moments, static_argnums=2)


def float64_moments(colors, weights, degree):
    """Return moments of every multiset of up to `degree` channels, sorted as exponents are."""
    colors, weights = np.float64(colors), np.float64(weights) / np.sum(weights)
    results = {}
    for order in range(1, degree + 1):
        for channels in itertools.combinations_with_replacement(range(3), order):
            powers = tuple(channels.count(c) for c in range(3))
            results[order, powers] = (weights @ colors[:, channels].prod(1)) ** (1 / order)
    values = np.array([results[key] for key in sorted(results)])
    return values / values.mean()


@pytest.mark.parametrize(("degree", "count"), [(1, 3), (2, 9), (3, 19)])
def test_against_float64(rng, degree, count):
    colors, weights = rng.uniform(0, 1, (50, 3)), rng.uniform(0, 2, 50)
    weights[7] = 0
    expected = float64_moments(colors, weights, degree)
    colors[7] = np.nan
    actual = moments(jnp.asarray(colors, jnp.float32), jnp.asarray(weights, jnp.float32), degree)
    assert actual.shape == (count,)
    np.testing.assert_allclose(actual, expected, rtol=2e-6)


@given(exposure=st.floats(1e-6, 1e6), seed=st.integers(0, 2**16))
def test_exposure_does_not_matter(exposure, seed):
    colors = np.random.default_rng(seed).uniform(0.01, 1, (30, 3)).astype(np.float32)
    result = moments(jnp.asarray(colors * np.float32(exposure)), None, 3)
    np.testing.assert_allclose(result, moments(jnp.asarray(colors), None, 3), rtol=1e-5)


def test_channels_that_never_meet_have_a_moment_of_0_and_a_finite_gradient():
    colors = jnp.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])
    values = moments(colors, None, 2)
    assert (values == 0).sum() == 3
    gradient = jax.jacobian(lambda c: color_moments(c, None, 2))(colors)
    assert np.isfinite(gradient).all()


def test_an_image_without_illuminant_has_none():
    for weights in (None, jnp.zeros(5)):
        assert np.isnan(moments(jnp.full((5, 3), -0.1), weights, 2)).all()
    assert np.isnan(moments(jnp.ones((5, 3)), jnp.zeros(5), 2)).all()
    for count in (5, 5000):
        assert np.isnan(moments(jnp.ones((count, 3)).at[2, 1].set(jnp.nan), None, 2)).all()


@pytest.mark.parametrize("diagonal", [False, True])
def test_moments_of_a_relit_image_need_no_pixels(rng, diagonal):
    colors = rng.uniform(0.05, 1, (60, 3))
    relight = np.diag(rng.uniform(0.3, 2, 3)) if diagonal else rng.uniform(0, 1, (3, 3))
    expected = float64_moments(colors @ relight, np.ones(60), 2)
    actual = reilluminate_moments(moments(jnp.float32(colors), None, 2), jnp.float32(relight))
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
