"""Illuminants through calibration matrices, against colour-science and float64 NumPy."""

import colour
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.camera_calibration import (
    CameraCalibration,
    calibrated_illuminant,
    calibrated_matrix,
    camera_fingerprint,
    daylight_chromaticity,
    imaginary_camera,
    locus_illuminants,
    planckian_chromaticity,
)

CANON = np.array([[0.6941, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.154, 0.6039]])
WARM = np.array([[0.75, -0.15, -0.05], [-0.42, 1.25, 0.18], [-0.06, 0.2, 0.5]])
TWO = CameraCalibration(jnp.float32([WARM, CANON]), jnp.float32([2856, 6504]))


def test_both_loci_equal_color_science():
    kelvin = np.array([1700, 2200, 2300, 3000, 3999, 4001, 5500, 7000, 7400, 15000.0])
    result = jax.vmap(planckian_chromaticity)(jnp.float32(kelvin))
    expected = colour.temperature.CCT_to_xy_Kang2002(kelvin)
    np.testing.assert_allclose(result, expected, atol=2e-6)
    kelvin = kelvin[kelvin > 4000]
    result = jax.vmap(daylight_chromaticity)(jnp.float32(kelvin))
    np.testing.assert_allclose(result, colour.temperature.CCT_to_xy_CIE_D(kelvin), atol=2e-6)


@pytest.mark.parametrize(
    ("locus", "kelvin"),
    [
        *((planckian_chromaticity, kelvin) for kelvin in (1_666, 25_001)),
        *((daylight_chromaticity, kelvin) for kelvin in (3_999, 25_001)),
    ],
)
def test_temperatures_beyond_a_locus_are_refused(locus, kelvin):
    with pytest.raises(ValueError, match=r"temperature=.* to 25,000"):
        locus(jnp.float32(kelvin))


def test_matrices_are_mixed_in_inverse_temperature():
    for kelvin in (2000, 2856, 4000, 6504, 9000):
        share = np.clip((1 / kelvin - 1 / 2856) / (1 / 6504 - 1 / 2856), 0, 1)
        expected = (1 - share) * WARM + share * CANON
        result = calibrated_matrix(TWO, jnp.float32(kelvin))
        np.testing.assert_allclose(result, expected, atol=2e-6)
    one = CameraCalibration(jnp.float32([CANON, CANON]), jnp.float32([6504, 6504]))
    np.testing.assert_allclose(calibrated_matrix(one, jnp.float32(3000)), CANON, rtol=1e-6)
    single_one = CameraCalibration(jnp.float32([CANON]), jnp.float32([jnp.nan]))
    np.testing.assert_array_equal(
        calibrated_matrix(single_one, jnp.float32(3000)), jnp.float32(CANON)
    )
    np.testing.assert_allclose(camera_fingerprint(single_one), camera_fingerprint(one), atol=1e-6)
    white = colour.CCS_ILLUMINANTS["CIE 1931 2 Degree Standard Observer"]["D65"]
    result = calibrated_illuminant(TWO, jnp.float32(6504), jnp.float32(white))
    np.testing.assert_allclose(result, CANON @ colour.xy_to_XYZ(white), rtol=1e-5)


def test_both_loci_have_63_temperatures_each():
    kelvin = np.linspace(2500, 7500, 63), np.linspace(4000, 7500, 63)
    loci = colour.temperature.CCT_to_xy_Kang2002, colour.temperature.CCT_to_xy_CIE_D
    expected = []
    for item, locus in zip(kelvin, loci, strict=True):
        for one, point in zip(item, locus(item), strict=True):
            share = np.clip((1 / one - 1 / 2856) / (1 / 6504 - 1 / 2856), 0, 1)
            matrix = (1 - share) * WARM + share * CANON
            expected.append(matrix @ colour.xy_to_XYZ(point))
    np.testing.assert_allclose(locus_illuminants(TWO), expected, atol=2e-5)


def test_a_fingerprint_counts_each_illuminant_beside_its_bins():
    """A fingerprint counts the bins within one width on both axes, weighted by its norm."""
    colors = np.asarray(locus_illuminants(TWO), float)
    result = camera_fingerprint(TWO)
    expected = np.zeros((64, 64, 2))
    centers = np.linspace(-0.5, 1.5, 64)
    for row, (red, green, blue) in enumerate(colors):
        across = np.abs(np.log(green / red) - centers) <= 2 / 63
        down = np.abs(np.log(green / blue) - centers[::-1]) <= 2 / 63
        norm = np.linalg.norm([red, green, blue])
        expected[..., row // 63] += norm * np.outer(down, across)
    np.testing.assert_allclose(result, np.sqrt(expected / expected.sum((0, 1))), atol=1e-4)
    # Another camera has another fingerprint, and a camera between two lies between their colours.
    other = CameraCalibration(TWO.matrices[::-1], TWO.temperatures)
    assert np.abs(camera_fingerprint(other) - result).sum() > 0.5
    middle = locus_illuminants(imaginary_camera(TWO, other, 0.5))
    np.testing.assert_allclose(middle, (colors + locus_illuminants(other)) / 2, rtol=1e-5)
    dark = CameraCalibration(-TWO.matrices, TWO.temperatures)
    assert not np.asarray(camera_fingerprint(dark)).any()
