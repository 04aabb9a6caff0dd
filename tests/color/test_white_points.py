"""White points against colour-science, and against the DNG specification's equations in float64."""

import colour
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.camera_calibration import CameraCalibration
from everlight.color.rendering import camera_to_srgb
from everlight.color.white_points import (
    bradford_adaptation,
    describe_white_point,
    forward_camera_matrix,
    neutral_white_point,
    white_preserving_transform,
)

WARM = np.array([[0.75, -0.15, -0.05], [-0.42, 1.25, 0.18], [-0.06, 0.2, 0.5]])
DAY = np.array([[0.6941, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.154, 0.6039]])
TWO = CameraCalibration(jnp.float32([WARM, DAY]), jnp.float32([2856, 6504]))
WHITES = colour.CCS_ILLUMINANTS["CIE 1931 2 Degree Standard Observer"]


def robertson(xy):
    """Return temperature and tint by colour-science, whose distance has the tint's sign."""
    kelvin, distance = colour.temperature.uv_to_CCT_Robertson1968(
        colour.UCS_to_uv(colour.XYZ_to_UCS(colour.xy_to_XYZ(xy)))
    )
    return kelvin, 3000 * distance


@pytest.mark.parametrize("name", ["A", "B", "C", "D50", "D55", "D65", "D75", "FL2", "FL11", "HP1"])
def test_temperature_and_tint_equal_color_science(name):
    result = describe_white_point(jnp.float32(WHITES[name]))
    kelvin, tint = robertson(WHITES[name])
    np.testing.assert_allclose(result.temperature, kelvin, rtol=2e-5)
    np.testing.assert_allclose(result.tint, tint, atol=2e-3)


def test_temperatures_end_with_the_lines():
    """The coldest line is that of 1,667 K, and 100,000 K is the hottest temperature."""
    red, blue = (describe_white_point(jnp.float32(xy)) for xy in ((0.65, 0.33), (0.22, 0.22)))
    np.testing.assert_allclose([red.temperature, blue.temperature], [1e6 / 600, 1e5], rtol=1e-5)


@pytest.mark.parametrize("kelvin", [2000, 2856, 3500, 4500, 6504, 9000])
def test_the_neutral_of_a_white_has_its_chromaticity(kelvin):
    xy = np.array(colour.temperature.CCT_to_xy_Kang2002(kelvin))
    temperature = robertson(xy)[0]
    share = np.clip((1 / temperature - 1 / 2856) / (1 / 6504 - 1 / 2856), 0, 1)
    neutral = ((1 - share) * WARM + share * DAY) @ colour.xy_to_XYZ(xy)
    result = neutral_white_point(TWO, jnp.float32(7 * neutral))
    np.testing.assert_allclose(result.chromaticity, xy, atol=2e-5)
    np.testing.assert_allclose(result.temperature, temperature, rtol=2e-4)


def test_one_matrix_needs_no_iteration():
    one = CameraCalibration(jnp.float32([DAY, DAY]), jnp.float32([2856, 6504]))
    xyz = np.linalg.solve(DAY, [0.6, 1, 0.4])
    result = neutral_white_point(one, jnp.float32([0.6, 1, 0.4]))
    np.testing.assert_allclose(result.chromaticity, xyz[:2] / xyz.sum(), rtol=1e-5)


def test_a_neutral_without_chromaticity_gives_nan():
    result = neutral_white_point(TWO._replace(matrices=-TWO.matrices), jnp.ones(3))
    assert np.isnan(result.chromaticity).all()


def test_the_chromaticity_has_the_derivative_of_finite_differences():
    def red_share(neutral):
        return neutral_white_point(TWO, neutral).chromaticity[0]

    neutral = jnp.float32([0.5, 1, 0.6])
    gradient = jax.grad(red_share)(neutral)
    step = 1e-2
    differences = [
        (red_share(neutral + step * axis) - red_share(neutral - step * axis)) / (2 * step)
        for axis in jnp.eye(3)
    ]
    np.testing.assert_allclose(gradient, differences, rtol=2e-2, atol=2e-4)


def test_the_transform_is_the_constrained_minimum(rng):
    """The minimum is the solution of Lagrange's equations in float64."""
    source, target = rng.uniform(0.1, 1, (24, 3)), rng.uniform(0.1, 1, (24, 3))
    white, result_white = np.array([0.5, 1, 0.7]), np.array([0.96, 1, 0.82])
    system = np.block([[source.T @ source, white[:, None]], [white, np.zeros(1)]])
    expected = np.linalg.solve(system, np.vstack([source.T @ target, result_white]))[:3]
    result = white_preserving_transform(
        *(jnp.float32(array) for array in (source, target, white, result_white))
    )
    np.testing.assert_allclose(result, expected, atol=2e-5)
    np.testing.assert_allclose(white @ np.asarray(result, float), result_white, rtol=1e-6)


@pytest.mark.parametrize("name", ["A", "D50", "D75", "FL11"])
def test_adaptation_equals_color_science(name):
    whites = [colour.xy_to_XYZ(WHITES[white]) for white in (name, "D65")]
    expected = colour.adaptation.matrix_chromatic_adaptation_VonKries(*whites, "Bradford")
    result = bradford_adaptation(jnp.float32(WHITES[name]), jnp.float32(WHITES["D65"]))
    np.testing.assert_allclose(result, expected, atol=2e-5)


def test_a_forward_matrix_renders_as_its_product_with_bradfords_adaptation():
    forward = np.array([[0.6, 0.3, 0.0642], [0.25, 0.85, -0.1], [0.02, -0.1, 0.9049]])
    whites = [colour.xy_to_XYZ(xy) for xy in ((0.3457, 0.3585), (0.3127, 0.3290))]
    adapted = colour.adaptation.matrix_chromatic_adaptation_VonKries(*whites, "Bradford")
    expected = np.linalg.inv(colour.RGB_COLOURSPACES["sRGB"].matrix_RGB_to_XYZ) @ adapted @ forward
    result = camera_to_srgb(forward_camera_matrix(jnp.float32(forward)))
    np.testing.assert_allclose(result.T, expected, atol=2e-3)
