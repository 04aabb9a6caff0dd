"""Plots have the right numbers of lines, labels and axes."""

import colour
import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt

from everlight import plots
from everlight.metrics import CRITERIA
from tests.refusals import refused

MATRICES = np.array(
    [
        [[0.8, 0.1, 0.2], [0.6, 0.9, 0.3], [0.5, 0.7, 1.0]],
        [[0.6, 0.1, 0.2], [0.6, 0.7, 0.3], [0.7, 0.3, 0.8]],
    ]
)
PERFECT = dict.fromkeys(CRITERIA, 1.0)
CMFS = colour.MSDS_CMFS["CIE 1931 2 Degree Standard Observer"]
OBSERVER = CMFS.wavelengths, CMFS.values.T


def band(axes):
    """Return the lowest and highest point of the first band at each place of the other axis."""
    return axes.collections[0].get_paths()[0].vertices


DRAWN = {
    plots.plot_accuracy_matrix: MATRICES[0],
    plots.plot_accuracy_over_time: {"EWC": MATRICES[:, -1]},
    plots.plot_forgetting: {"EWC": MATRICES},
    plots.plot_confusion: MATRICES[0],
    plots.plot_criteria: {"EWC": PERFECT},
    plots.plot_error_curves: {"Net": np.ones((2, 5))},
    plots.plot_chromaticity: {"Sun": np.ones((2, 3))},
    plots.plot_rejection: {"Net": np.linspace(0, 1, 5) ** 0.5},
}


@pytest.mark.parametrize("plot", DRAWN, ids=lambda plot: plot.__name__)
def test_the_axes_given_are_drawn_on_and_returned_without_a_legend(plot):
    polar = {"projection": "polar"} if plot is plots.plot_criteria else {}
    canvas, axes = plt.subplots(subplot_kw=polar)
    assert plot(DRAWN[plot], axes=axes) is axes
    assert canvas.axes == [axes]
    assert axes.get_legend() is None
    assert not canvas.legends


@pytest.mark.parametrize("plot", DRAWN, ids=lambda plot: plot.__name__)
def test_without_axes_there_is_a_figure_with_labels(plot):
    canvas = plot(DRAWN[plot]).figure
    legends = [*canvas.legends, *(item.get_legend() for item in canvas.axes)]
    message = [text.get_text() for legend in legends if legend for text in legend.get_texts()]
    message += [canvas.axes[-1].get_ylabel()]
    named = {"EWC", "Net", "Sun", "accuracy", "share of the true class"}
    assert named & set(message)
    canvas.canvas.draw()


def test_the_matrix_is_shown_with_rows_of_times_and_columns_of_tasks():
    axes = plots.plot_accuracy_matrix(MATRICES[0])
    np.testing.assert_array_equal(axes.images[0].get_array(), MATRICES[0])
    assert axes.images[0].get_clim() == (0, 1)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("test data of task", "after learning task")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "3"]


def test_many_tasks_have_every_third_tick():
    axes = plots.plot_accuracy_matrix(np.eye(10))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "4", "7", "10"]


def test_accuracy_is_the_mean_over_runs_within_one_deviation():
    curves = {"one": np.array([[0.5, 0.2, 0.1]]), "two": np.array([[0.2, 0.4], [0.4, 0.8]])}
    axes = plots.plot_accuracy_over_time(curves)
    one, two = axes.lines
    np.testing.assert_allclose(one.get_xydata(), [[1, 0.5], [2, 0.2], [3, 0.1]])
    np.testing.assert_allclose(two.get_xydata(), [[1, 0.3], [2, 0.6]])
    assert [one.get_label(), two.get_label()] == ["one", "two"]
    assert len(axes.collections) == 1  # One run has no spread.
    # The sample's deviations are √2 / 10 and √2 / 5.
    ends = [0.3 - 0.02**0.5, 0.6 - 0.08**0.5, 0.3 + 0.02**0.5, 0.6 + 0.08**0.5]
    np.testing.assert_allclose(sorted({*band(axes)[:, 1].round(6)}), ends, atol=1e-6)
    assert axes.get_xlabel() == "tasks learned"


def test_forgetting_after_two_and_after_three_tasks():
    axes = plots.plot_forgetting({"EWC": MATRICES})
    # Run 1 has 0.8 - 0.6 and (0.8 - 0.5 + 0.9 - 0.7) / 2.
    # Run 2 has 0.6 - 0.6 and (0.6 - 0.7 + 0.7 - 0.3) / 2.
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[2, 0.1], [3, 0.2]], atol=1e-6)
    ends = sorted({*band(axes)[:, 1].round(5)})
    # The sample's deviations are √2 / 10 and √2 / 20.
    band_ends = [0.1 - 0.02**0.5, 0.2 - 0.005**0.5, 0.1 + 0.02**0.5, 0.2 + 0.005**0.5]
    np.testing.assert_allclose(ends, band_ends, atol=1e-5)
    with pytest.raises(ValueError, match="'EWC' has one task; forgetting needs at least two"):
        plots.plot_forgetting({"EWC": MATRICES[:, :1, :1]})


def test_criteria_are_lengths_on_rays_and_the_polygon_is_closed():
    values = dict(zip(CRITERIA, np.linspace(0.1, 0.7, 7), strict=True))
    axes = plots.plot_criteria({"EWC": values, "Naive": PERFECT})
    angles, lengths = axes.lines[0].get_data()
    np.testing.assert_allclose(lengths, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.1])
    np.testing.assert_allclose(np.diff(angles[:7]), 2 * np.pi / 7)
    assert [label.get_text() for label in axes.get_xticklabels()] == list(CRITERIA)
    assert axes.get_ylim() == (0, 1)


def test_criteria_refuse_other_axes_and_name_what_is_missing():
    with pytest.raises(ValueError, match="polar"):
        plots.plot_criteria({"EWC": PERFECT}, plt.subplots()[1])
    with pytest.raises(ValueError, match=r"EWC lacks BWT\+, REM"):
        plots.plot_criteria({"EWC": dict.fromkeys(set(CRITERIA) - {"BWT+", "REM"}, 0.5)})


def test_error_curves_rise_to_all_images_at_the_sorted_errors():
    errors = {"Net": np.array([[3.0, 1.0], [2.0, 6.0]]), "GW": np.ones((1, 4))}
    axes = plots.plot_error_curves(errors)
    net, gray = axes.lines
    np.testing.assert_allclose(net.get_xydata(), [[1.5, 50], [4.5, 100]])
    np.testing.assert_allclose(gray.get_xydata(), [[1, 25], [1, 50], [1, 75], [1, 100]])
    assert set(band(axes)[:, 0]) == {1, 2, 3, 6}
    assert axes.get_xlabel() == "angular error (degrees)"
    assert axes.get_ylabel() == "images with at most this error (%)"


def test_illuminants_of_any_scale_lie_at_their_shares():
    axes = plots.plot_chromaticity({"Sun": np.array([[1.0, 2, 1], [20, 10, 10]])})
    np.testing.assert_allclose(axes.collections[0].get_offsets(), [[0.25, 0.5], [0.5, 0.25]])
    assert not axes.lines
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("R / (R+G+B)", "G / (R+G+B)")


def test_every_one_of_28_cameras_has_its_own_color_and_marker():
    """Cameras whose numbers differ by eight looked alike."""
    axes = plots.plot_chromaticity({f"camera {number}": np.ones((2, 3)) for number in range(28)})
    drawn = axes.collections
    looks = {
        (dots.get_facecolor().tobytes(), dots.get_paths()[0].vertices.tobytes()) for dots in drawn
    }
    assert len(drawn) == len(looks) == 28


def test_the_locus_of_the_standard_observer_is_that_of_other_code():
    """Its marked points follow Kang et al. 2002, a fit of the locus from 1,667 K to 25,000 K."""
    axes = plots.plot_chromaticity({"white": np.ones((1, 3))}, OBSERVER)
    marked = axes.lines[1].get_xydata()
    expected = colour.temperature.CCT_to_xy_Kang2002(np.array(plots.illuminants.KELVIN))
    np.testing.assert_allclose(marked, expected, atol=1e-3)
    labels = [f"{kelvin:,} K" for kelvin in plots.illuminants.KELVIN]
    assert [text.get_text() for text in axes.texts] == labels


def test_curves_beyond_the_colors_have_other_lines_and_too_many_are_refused():
    looks = {plots.line_style(place) for place in range(32)}
    assert len(looks) == 32
    assert plots.line_style(8) == (plots.COLORS[0], "--")
    with pytest.raises(ValueError, match="index=32; give 0 to 31"):
        plots.line_style(32)


def test_answers_are_beside_their_picture_in_the_color_of_right_and_wrong():
    pictures = np.zeros((2, 3, 3, 3), np.uint8)
    answers = {"EWC": ["a dog", "a cat"], "SI": ["a fox", "a bird"]}
    right = {"EWC": np.array([True, False]), "SI": np.array([False, True])}
    axes = plots.plot_answers(pictures, ["a dog", "a bird"], answers, right)
    assert len(axes.images) == 2
    drawn = {(text.get_text(), text.get_position()): text.get_color() for text in axes.texts}
    green, orange = plots.COLORS[2], plots.COLORS[1]
    assert drawn["a dog", (1.6, 0.5)] == drawn["a bird", (2.6, 1.5)] == green
    assert drawn["a cat", (1.6, 1.5)] == drawn["a fox", (2.6, 0.5)] == orange
    assert {"EWC", "SI", "shown"} <= {text.get_text() for text in axes.texts}


def test_answers_that_are_neither_right_nor_wrong_are_refused():
    pictures, right = np.zeros((1, 3, 3, 3), np.uint8), {"EWC": np.array([True])}
    answers = {"EWC": ["a dog"], "SI": ["a fox"]}
    refused(
        "^is_correct lacks 'SI'; give it for every key of answers$",
        lambda: plots.plot_answers(pictures, ["a dog"], answers, right),
    )
