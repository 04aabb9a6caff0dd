"""Pictures of the reports on illuminants: what they show, and that nothing lies on the data."""

import numpy as np
import pytest

from everlight_experiments.illuminant import comparison, report, tables
from everlight_experiments.illuminant.report import compared_sections


def lights_at(degrees):
    radians = np.radians(degrees)
    return np.stack([np.cos(radians), np.sin(radians), 0 * radians], axis=-1)[None, None]


@pytest.fixture
def drawn(monkeypatch, tmp_path, rng):
    """Canvases by name of file, of three cameras and of a method and a baseline far off."""
    canvases = {}

    def keep(canvas, path):
        canvas.canvas.draw()
        canvases[path.name] = canvas
        return path

    monkeypatch.setattr(report, "save", keep)
    degrees = {"near": 2.0, "kept": 25.0, "GW": 31.0}
    lights = {name: lights_at(rng.uniform(0.9, 1.1, 40) * far) for name, far in degrees.items()}
    cameras = {f"Maker's long name {number}": rng.uniform(0.4, 1, (5, 3)) for number in range(3)}
    truth = np.broadcast_to([1.0, 0, 0], (1, 40, 3))
    compared = comparison.Comparison(lights, truth, "held out")
    panels = {" + ".join(cameras): cameras, "two": dict(list(cameras.items())[:2])}
    compared_sections(tmp_path, "?", "", {"": compared}, ("near",), panels, headline="kept")
    return canvases


def test_the_baseline_and_the_kept_method_are_in_the_picture(drawn):
    """They are not among the curves asked for, and beyond 12 degrees."""
    (axes,) = drawn["error_curves.png"].axes
    lines = {line.get_label(): line.get_xydata() for line in axes.lines}
    assert {*lines} == {"near", "kept", "GW"}
    low, high = axes.get_xlim()
    for points in lines.values():
        assert np.mean((points[:, 0] >= low) & (points[:, 0] <= high)) >= 0.5
    assert high == pytest.approx(1.2 * np.median(lines["GW"][:, 0]), rel=1e-3)


def test_many_cameras_have_a_short_title_and_a_legend_beside_the_data(drawn):
    canvas = drawn["illuminants.png"]
    assert [axes.get_title() for axes in canvas.axes] == ["3 cameras", "two"]
    full = canvas.bbox
    for axes in canvas.axes:
        legend = axes.get_legend().get_window_extent()
        assert legend.x0 >= axes.get_window_extent().x1
        assert legend.x1 <= full.x1


def test_what_is_always_drawn_goes_before_other_curves():
    lights = {f"m{number}": lights_at([10.0 + number]) for number in range(12)}
    compared = comparison.Comparison(lights, np.broadcast_to([1.0, 0, 0], (1, 1, 3)))
    (curves,) = tables.shown_curves(sorted(lights), [compared], ("m11", "none")).values()
    assert len(curves) == tables.MAX_CURVES
    assert {"m11", "m0"} <= {*curves}
