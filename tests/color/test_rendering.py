"""Rendering against colour-science, and against a dcraw-style matrix written in float64."""

import colour
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight.color.rendering import (
    camera_to_srgb,
    encode_srgb,
    render,
    render_linear,
    white_balance,
)

# Canon EOS 550D, XYZ under D65 to camera (from the sample DNG's ColorMatrix1).
CANON = np.array([[0.6461, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.154, 0.6039]])
ILLUMINANT = np.array([0.52, 1.0, 0.71])
channel = st.floats(0.1, 4.0)


def as_jax(values):
    return jnp.asarray(values, jnp.float32)


def test_white_balance_divides_by_the_illuminant_and_keeps_green(rng):
    image = rng.uniform(size=(4, 5, 3))
    result = np.asarray(white_balance(as_jax(image), as_jax(2 * ILLUMINANT)))
    np.testing.assert_allclose(result, image / ILLUMINANT, rtol=1e-6)
    np.testing.assert_array_equal(result[..., 1], as_jax(image)[..., 1])


def test_the_transfer_curve_equals_color_science():
    linear = np.linspace(0, 1, 4001)[:, None] * np.ones(3)
    expected = colour.cctf_encoding(linear, function="sRGB")
    np.testing.assert_allclose(encode_srgb(as_jax(linear)), expected, atol=5e-7)


def test_the_transfer_curves_slope_is_finite_at_black():
    slope = jax.grad(lambda value: encode_srgb(jnp.full(3, value))[0])(0.0)
    np.testing.assert_allclose(slope, 12.92, rtol=1e-6)


def test_camera_to_srgb_shows_a_cameras_colors_as_they_are(rng):
    """A camera sees known sRGB colours; balanced by its white, the matrix brings them back."""
    linear = rng.uniform(0.05, 1, (20, 3))
    srgb_to_xyz = colour.RGB_COLOURSPACES["sRGB"].matrix_RGB_to_XYZ
    seen = linear @ srgb_to_xyz.T @ CANON.T
    white = np.ones(3) @ srgb_to_xyz.T @ CANON.T
    recovered = as_jax(seen / white) @ camera_to_srgb(as_jax(CANON))
    np.testing.assert_allclose(recovered, linear, atol=2e-3)


def test_a_singular_camera_matrix_has_no_inverse():
    assert np.isnan(camera_to_srgb(jnp.arange(1.0, 10).reshape(3, 3))).all()


@settings(max_examples=30)
@given(red=channel, blue=channel, level=st.floats(0.01, 0.2))
def test_a_neutral_patch_is_rendered_neutral(red, blue, level):
    illuminant = as_jax([red, 1, blue])
    patch = level * illuminant * jnp.ones((2, 2, 3))
    # The illuminant's greatest channel over green is how far red or blue saturates.
    expected = colour.cctf_encoding(level * max(1, red, blue), function="sRGB")
    for matrix in (None, as_jax(CANON)):
        np.testing.assert_allclose(render(patch, illuminant, matrix), expected, atol=1e-5)


def test_render_without_a_matrix_is_gamma_alone(rng):
    image = rng.uniform(0, 0.5, (4, 5, 3))
    expected = colour.cctf_encoding(np.clip(image / ILLUMINANT, 0, 1), function="sRGB")
    np.testing.assert_allclose(render(as_jax(image), as_jax(ILLUMINANT)), expected, atol=1e-6)


def test_render_with_a_matrix_is_the_pipeline_in_float64(rng):
    image = rng.uniform(0, 0.5, (4, 5, 3))
    to_camera = CANON @ colour.RGB_COLOURSPACES["sRGB"].matrix_RGB_to_XYZ
    to_camera /= to_camera.sum(axis=1, keepdims=True)
    linear = np.clip(image / ILLUMINANT, 0, 1) @ np.linalg.inv(to_camera).T
    expected = colour.cctf_encoding(np.clip(linear, 0, 1), function="sRGB")
    result = render(as_jax(image), as_jax(ILLUMINANT), as_jax(CANON))
    np.testing.assert_allclose(result, expected, atol=3e-3)
    result = render_linear(as_jax(image), as_jax(ILLUMINANT), as_jax(CANON))
    np.testing.assert_allclose(result, np.clip(linear, 0, 1), atol=1e-4)


@pytest.mark.parametrize("matrix", [None, CANON])
@pytest.mark.parametrize("illuminant", [ILLUMINANT, [1.35, 1, 0.4], [0.4, 1, 1.2]])
def test_a_saturated_highlight_stays_white(matrix, illuminant):
    """The illuminants include those that are redder or bluer than green."""
    matrix = None if matrix is None else as_jax(matrix)
    np.testing.assert_allclose(render(jnp.ones((1, 3)), as_jax(illuminant), matrix), 1, atol=1e-5)
