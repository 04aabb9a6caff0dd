"""The locus of a camera, against NumPy, a dense search and libcamera's equations by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlight.color.locus import (
    Locus,
    fit_color_matrix,
    fit_locus,
    interpolate_matrices,
    locus_chromaticity,
    nearest_on_locus,
    rendering_transform,
)

KELVIN = np.array([2964.0, 3610, 4640, 5910, 7590])
COLORS = np.array(
    [[0.7451, 0.3213], [0.6119, 0.4443], [0.5168, 0.5419], [0.4436, 0.6229], [0.3847, 0.6921]]
)
LOCUS = Locus(jnp.asarray(KELVIN, jnp.float32), jnp.asarray(COLORS, jnp.float32))
ratios = st.floats(0.125, 1.25, width=32)


@pytest.mark.parametrize("kelvin", [1000, 2964, 3000, 4125, 5910, 7589, 20_000])
def test_a_locus_is_linear_in_temperature_and_ends_at_its_ends(kelvin):
    expected = [np.interp(kelvin, KELVIN, channel) for channel in COLORS.T]
    result = locus_chromaticity(LOCUS, jnp.float32(kelvin))
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_halfway_between_two_points_by_hand():
    locus = Locus(jnp.array([4000.0, 6000]), jnp.array([[0.5, 0.5], [0.4, 0.7]]))
    np.testing.assert_allclose(locus_chromaticity(locus, jnp.float32(5000)), [0.45, 0.6], rtol=1e-6)
    # The segment is (-0.1, 0.2); (0.45, 0.6) + 0.05 (0.2, 0.1) / |(0.2, 0.1)| is off by 0.05.
    off = np.array([0.2, 0.1]) / np.hypot(0.2, 0.1) * 0.05
    for sign in (1, -1):
        point = nearest_on_locus(locus, jnp.asarray([0.45, 0.6] + sign * off, jnp.float32))
        np.testing.assert_allclose(point.temperature, 5000, rtol=1e-5)
        np.testing.assert_allclose(point.chromaticity, [0.45, 0.6], atol=1e-6)
        np.testing.assert_allclose(point.distance, sign * 0.05, rtol=1e-4)


@given(color=st.tuples(ratios, ratios))
def test_the_nearest_point_is_that_of_a_dense_search(color):
    point = nearest_on_locus(LOCUS, jnp.asarray(color, jnp.float32))
    kelvin = np.linspace(KELVIN[0], KELVIN[-1], 20_001)
    dense = np.stack([np.interp(kelvin, KELVIN, channel) for channel in COLORS.T], axis=1)
    least = np.linalg.norm(dense - color, axis=1).min()
    np.testing.assert_allclose(abs(float(point.distance)), least, atol=2e-5)
    expected = [np.interp(float(point.temperature), KELVIN, channel) for channel in COLORS.T]
    np.testing.assert_allclose(point.chromaticity, expected, atol=1e-6)


def test_points_of_a_locus_are_their_own_nearest_points():
    kelvin = np.linspace(3000, 7500, 19, dtype=np.float32)
    colors = jax.vmap(locus_chromaticity, (None, 0))(LOCUS, kelvin)
    points = jax.vmap(nearest_on_locus, (None, 0))(LOCUS, colors)
    np.testing.assert_allclose(points.temperature, kelvin, atol=0.02)
    np.testing.assert_allclose(points.distance, 0, atol=1e-6)


def test_colors_that_are_not_finite_have_no_nearest_point():
    for point in (nearest_on_locus(LOCUS, jnp.array(bad)) for bad in ([jnp.nan, 1], [jnp.inf, 1])):
        assert np.isnan(point.temperature)
        assert np.isnan(point.chromaticity).all()
        assert np.isnan(point.distance)


@pytest.mark.parametrize("color", [[0.5168, 0.5419], [0.3, 0.3], [0.9, 0.1]])
def test_gradients_are_finite_on_the_locus_and_off_it(color):
    gradient = jax.jacobian(lambda color: jnp.hstack(nearest_on_locus(LOCUS, color)))
    assert np.isfinite(gradient(jnp.asarray(color, jnp.float32))).all()


def test_a_fit_with_a_knot_per_illuminant_passes_through_all():
    fitted = fit_locus(LOCUS.temperatures, LOCUS.chromaticities, LOCUS.temperatures)
    np.testing.assert_allclose(fitted.chromaticities, COLORS, atol=2e-6)


def test_a_fit_is_the_least_squares_solution_in_float64(rng):
    kelvin = rng.uniform(2800, 7600, 50)
    colors = rng.uniform(0.3, 0.8, (50, 2))
    knots = np.array([2800.0, 4000, 5500, 7600])
    hats = np.stack([np.interp(kelvin, knots, unit) for unit in np.eye(4)], axis=1)
    expected = np.linalg.solve(hats.T @ hats, hats.T @ colors)
    single = (jnp.asarray(value, jnp.float32) for value in (kelvin, colors, knots))
    np.testing.assert_allclose(fit_locus(*single).chromaticities, expected, atol=2e-5)


def test_too_few_points_knots_and_colors_are_refused():
    short = Locus(LOCUS.temperatures[:1], LOCUS.chromaticities[:1])
    with pytest.raises(ValueError, match="locus has 1 points"):
        locus_chromaticity(short, jnp.float32(5000))
    with pytest.raises(ValueError, match="1 knots for 5 illuminants"):
        fit_locus(*LOCUS, LOCUS.temperatures[:1])
    with pytest.raises(ValueError, match="1 colours"):
        fit_color_matrix(jnp.ones((1, 3)), jnp.ones((1, 3)))


@pytest.mark.parametrize("order", [[1, 0], [0, 0]])
def test_temperatures_and_knots_that_do_not_ascend_are_refused(order):
    locus = Locus(LOCUS.temperatures[jnp.array(order)], LOCUS.chromaticities[:2])
    with pytest.raises(ValueError, match=r"temperatures holds .* in ascending order"):
        locus_chromaticity(locus, jnp.float32(3000))
    with pytest.raises(ValueError, match=r"temperatures holds .* in ascending order"):
        interpolate_matrices(locus.temperatures, jnp.zeros((2, 3, 3)), jnp.float32(3000))
    with pytest.raises(ValueError, match=r"knots holds .* in ascending order"):
        fit_locus(*LOCUS, locus.temperatures)


@pytest.mark.parametrize("hue", [[0.0, 0, 0], [0.3, -0.2, 0.1]])
def test_grays_and_colors_of_one_hue_give_no_matrix(rng, hue):
    """They determine the matrix on one line of colours beside white at most."""
    colors = rng.uniform(0.1, 0.9, (24, 1)) + rng.uniform(-0.1, 0.1, (24, 1)) * hue
    target = jnp.float32(colors + rng.normal(0, 0.01, (24, 3)))
    assert np.isnan(fit_color_matrix(jnp.float32(colors), target)).all()
    # A hundredth of a second hue determines it.
    other = colors + rng.uniform(-0.01, 0.01, (24, 1)) * [0.1, 0.2, -0.3]
    other = other + rng.uniform(-0.01, 0.01, (24, 1)) * [0.2, -0.3, 0.1]
    exact = fit_color_matrix(jnp.float32(other), jnp.float32(other))
    np.testing.assert_allclose(exact, np.eye(3), atol=2e-2)


def test_a_color_matrix_keeps_white_and_is_least_squares(rng):
    matrix = np.array([[1.6, -0.4, -0.2], [-0.3, 1.5, -0.2], [0.1, -0.6, 1.5]])
    balanced = rng.uniform(0.05, 0.9, (24, 3))
    exact = fit_color_matrix(jnp.float32(balanced), jnp.float32(balanced @ matrix.T))
    np.testing.assert_allclose(exact, matrix, atol=2e-5)
    target = balanced @ matrix.T + rng.normal(0, 0.05, (24, 3))
    fitted = np.asarray(fit_color_matrix(jnp.float32(balanced), jnp.float32(target)))
    np.testing.assert_allclose(fitted.sum(axis=1), 1, atol=1e-6)
    # Lagrange's equations of least squares with rows of sum 1, in float64.
    gram = np.zeros((4, 4))
    gram[:3, :3], gram[:3, 3], gram[3, :3] = 2 * balanced.T @ balanced, 1, 1
    for row, values in zip(fitted, target.T, strict=True):
        solution = np.linalg.solve(gram, [*(2 * balanced.T @ values), 1])
        np.testing.assert_allclose(row, solution[:3], atol=1e-4)


@pytest.mark.parametrize(("kelvin", "share"), [(2000, 0), (3000, 0), (3500, 0.5), (9000, 1)])
def test_matrices_between_temperatures_are_those_of_libcamera(kelvin, share):
    """libcamera's calculateCcm: lambda times the upper matrix, 1 - lambda times the lower one."""
    matrices = np.stack([np.eye(3), np.arange(9.0).reshape(3, 3)])
    expected = share * matrices[1] + (1 - share) * matrices[0]
    result = interpolate_matrices(
        jnp.array([3000.0, 4000]), jnp.float32(matrices), jnp.float32(kelvin)
    )
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_rendering_divides_by_white_and_multiplies_columns():
    """The equations of processZone in libcamera's awb_nn.cpp, one colour by hand."""
    matrix = np.array([[1.5, -0.4, -0.1], [-0.2, 1.4, -0.2], [0.0, -0.5, 1.5]])
    red, green, blue = 0.3 / 0.5, 0.4, 0.2 / 0.25
    expected = [
        1.5 * red - 0.4 * green - 0.1 * blue,
        -0.2 * red + 1.4 * green - 0.2 * blue,
        -0.5 * green + 1.5 * blue,
    ]
    transform = rendering_transform(jnp.array([0.5, 0.25]), jnp.float32(matrix))
    np.testing.assert_allclose(np.array([0.3, 0.4, 0.2]) @ transform, expected, rtol=1e-6)
