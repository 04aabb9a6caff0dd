"""Matrices of charts: exact for linear cameras, and the least squares of float64 NumPy."""

import colour
import numpy as np
import pytest

from everlight_data.color.charts.measured_chart import MeasuredChart
from everlight_data.color.profiles.chart_profile import chart_reference, fit_chart

MATRIX = np.array([[0.9, -0.2, -0.1], [-0.5, 1.3, 0.2], [-0.1, 0.2, 0.6]])
WHITES = colour.CCS_ILLUMINANTS["CIE 1931 2 Degree Standard Observer"]


def chart(colors, usable=None):
    usable = np.ones(24, bool) if usable is None else usable
    return MeasuredChart(np.eye(3), np.float32(colors), usable, (10, 10), 0, "Made Up")


@pytest.mark.parametrize("name", ["A", "D50", "D55", "D65", "D75"])
def test_a_reference_has_the_illuminants_white(name):
    reference = chart_reference(name)
    xy = reference.white[:2] / reference.white.sum()
    np.testing.assert_allclose(xy, WHITES[name], atol=2e-4)
    # The lightest and the darkest grey reflect 90% and 3%.
    np.testing.assert_allclose(reference.patches[18, 1], 0.9, atol=0.03)
    np.testing.assert_allclose(reference.patches[23, 1], 0.03, atol=0.01)


@pytest.mark.parametrize("name", ["A", "D65"])
def test_the_matrix_of_a_linear_camera_is_found(name):
    """A camera whose colours are a matrix of XYZ has that matrix, scaled for D50, and its white."""
    reference = chart_reference(name)
    colors = 0.4 * reference.patches @ MATRIX.T
    fit = fit_chart(chart(colors), name)
    expected = MATRIX / (MATRIX @ chart_reference("D50").white).max()
    np.testing.assert_allclose(fit.matrices.color_matrix, expected, atol=2e-4)
    forward = fit.matrices.forward_matrix
    np.testing.assert_allclose(forward.sum(axis=1), chart_reference("D50").white, atol=1e-5)


def test_the_forward_matrix_is_the_constrained_least_squares(rng):
    colors = chart_reference("D65").patches @ MATRIX.T
    colors *= rng.uniform(0.9, 1.1, colors.shape)
    usable = np.arange(24) != 7
    fit = fit_chart(chart(colors, usable), "D65")
    reference, connection = chart_reference("D65"), chart_reference("D50")
    response = np.linalg.lstsq(reference.patches[usable], colors[usable])[0]
    ratio = reference.white @ response / (reference.patches[18:23].sum(axis=0) @ response)
    balanced = (colors / (colors[18:23].sum(axis=0) * ratio))[usable]
    system = np.block([[balanced.T @ balanced, np.ones((3, 1))], [np.ones(3), np.zeros(1)]])
    right = np.vstack([balanced.T @ connection.patches[usable], connection.white])
    expected = np.linalg.solve(system, right)[:3].T
    np.testing.assert_allclose(fit.matrices.forward_matrix, expected, atol=2e-4)
    assert fit.errors.shape == fit.left_out_errors.shape == (23,)
    assert fit.left_out_errors.mean() > fit.errors.mean() > 1


def test_a_camera_that_sees_xyz_has_no_error():
    fit = fit_chart(chart(chart_reference("D50").patches), "D50")
    assert fit.errors.max() < 0.01
