"""A camera's colours in a copy of a tuning file."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from everlight_data.color.charts.chart_geometry import CORNERS, map_points
from everlight_data.color.charts.chart_scenes import write_chart_pairs
from everlight_data.color.tuning_files.labelled_colors import (
    LabelledColors,
    Patches,
    read_labelled_colors,
    reference_srgb,
)
from everlight_data.color.tuning_files.libcamera import read_tuning
from everlight_data.errors import DataError, MissingDataError
from everlight_experiments.illuminant.export.command import (
    ExportOptions,
    export,
    fit_curve,
    fit_matrices,
)
from tests.data_pipelines.color.tuning_files.tuning_text import TUNING

KELVIN = np.array([2500.0, 4000, 6000])
COLORS = np.array([[0.9, 0.2], [0.6, 0.5], [0.4, 0.7]])


def labelled(path, temperatures, rng):
    """Write thumbnails whose illuminants are points of a curve through `COLORS`."""
    red, blue = (np.interp(temperatures, KELVIN, channel) for channel in COLORS.T)
    np.savez(
        path,
        images=rng.uniform(0.1, 1, (len(temperatures), 4, 4, 3)),
        illuminant_rgb=np.stack([red, np.ones_like(red), blue], axis=1),
        temperature=temperatures,
    )
    return path


@pytest.fixture
def options(tmp_path, rng):
    (tmp_path / "imx1.json").write_text(TUNING)
    source = labelled(tmp_path / "mine.npz", np.repeat(KELVIN, 2), rng)
    return ExportOptions(source, tmp_path / "imx1.json", tmp_path / "out" / "mine.json")


def test_a_curve_through_few_temperatures_and_nothing_else(options, capsys):
    written = read_tuning(export(options))
    np.testing.assert_array_equal(written.curve.temperatures, KELVIN)
    np.testing.assert_allclose(written.curve.chromaticities, COLORS, atol=5.1e-5)
    curves = re.compile(r'("ct_curve":\s*)\[[^]]*\]')
    assert curves.sub(r"\1", written.text) == curves.sub(r"\1", TUNING)
    assert "ccms: those of the tuning file" in capsys.readouterr().out


def test_many_temperatures_are_fitted_by_points_at_quantiles(options, rng, tmp_path):
    kelvin = rng.uniform(2500, 6000, 400)
    curve = fit_curve(read_labelled_colors(labelled(tmp_path / "many.npz", kelvin, rng)), 4)
    quantiles = 1e6 / np.quantile(1e6 / kelvin, [0, 1 / 3, 2 / 3, 1])
    np.testing.assert_allclose(np.sort(quantiles), curve.temperatures, atol=0.51)
    red, blue = (np.interp(kelvin, KELVIN, channel) for channel in COLORS.T)
    hats = np.stack([np.interp(kelvin, curve.temperatures, unit) for unit in np.eye(4)], axis=1)
    expected = np.linalg.solve(hats.T @ hats, hats.T @ np.stack([red, blue], axis=1))
    np.testing.assert_allclose(curve.chromaticities, expected, atol=1e-4)


def test_knots_are_temperatures_of_images(rng, tmp_path):
    """Interpolated quantiles of these would have a knot at 3,947 K, between all images."""
    kelvin = np.repeat([2500.0, 3000, 5000], [3, 37, 50])
    kelvin = np.concatenate([kelvin, np.linspace(5600, 6000, 10)])
    curve = fit_curve(read_labelled_colors(labelled(tmp_path / "gap.npz", kelvin, rng)), 6)
    assert {*curve.temperatures} <= {*np.round(kelvin, 1)}
    expected = [np.interp(curve.temperatures, KELVIN, channel) for channel in COLORS.T]
    np.testing.assert_allclose(curve.chromaticities, np.stack(expected, axis=1), atol=0.03)
    assert (np.diff(curve.chromaticities[:, 0]) < 0).all()


def test_a_tuning_file_of_another_camera_is_refused(options, rng, tmp_path):
    """A copy with the camera's name is the way out for a camera without a file of its own."""
    source = labelled(tmp_path / "imx708.npz", KELVIN, rng)
    other = shutil.copy(options.tuning, tmp_path / "imx219.json")
    message = r"imx219\.json is named after imx219, and the camera of .*imx708\.npz after imx708"
    with pytest.raises(DataError, match=message):
        export(replace(options, source=source, tuning=other))
    copied = shutil.copy(other, tmp_path / "imx708.json")
    assert export(replace(options, source=source, tuning=copied)).exists()


def test_an_export_says_whether_it_only_repeats_the_curve(options, rng, tmp_path, capsys):
    """Labels that the tuning file's own curve gave have its points."""
    export(options)
    assert "imx1.json; the images are 0." in (printed := capsys.readouterr().out)
    assert "repeats" not in printed
    curve = read_tuning(options.tuning).curve
    source = labelled(tmp_path / "own.npz", curve.temperatures, rng)
    stored = dict(np.load(source))
    colors = np.insert(curve.chromaticities, 1, 1, axis=1)
    np.savez(source, **stored | {"illuminant_rgb": colors})
    written = read_tuning(export(replace(options, source=source, out=tmp_path / "own2.json")))
    np.testing.assert_allclose(written.curve.chromaticities, curve.chromaticities, atol=1e-4)
    assert "imx1.json; the images are 0.0000 from it, thus their illuminants are its points, " in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize("kelvin", [[4000.0, 4000.04], [4000.01, 4000.02], [4000.0, 4000.3]])
def test_one_temperature_is_no_curve(options, rng, kelvin):
    """A file has one decimal, and the differences are below what anybody measures."""
    labelled(options.source, np.array(kelvin), rng)
    with pytest.raises(DataError, match=r"mine\.npz has 2 images of fewer than 2 colour temperat"):
        export(options)
    assert not options.out.exists()


@pytest.mark.parametrize("kelvin", [[4000.0, 5000.0], [2500.0, 4000.0, 6000.0]])
def test_one_color_is_no_curve(options, rng, kelvin):
    labelled(options.source, np.array(kelvin), rng)
    stored = dict(np.load(options.source))
    same = np.broadcast_to([0.6, 1, 0.5], stored["illuminant_rgb"].shape)
    np.savez(options.source, **stored | {"illuminant_rgb": same})
    with pytest.raises(DataError, match=r"mine\.npz have R/G 0\.6 and B/G 0\.5 at all temperat"):
        export(options)
    assert not options.out.exists()


def libcamera_value(temperature, temperatures, values):
    """Return a value by libcamera's `Pwl::eval`, which extends the first and last segments."""
    span = np.clip(np.searchsorted(temperatures, temperature) - 1, 0, len(temperatures) - 2)
    start, end = temperatures[span : span + 2]
    low, high = values[span : span + 2]
    return low + (temperature - start) * (high - low) / (end - start)


def test_a_short_curve_is_exported_with_a_warning(options, rng, tmp_path, capsys):
    """The tuning file's mode searches 2,500 K to 7,700 K."""
    labelled(options.source, np.array([4500.0, 5500]), rng)
    curve = read_tuning(export(options)).curve
    # At the mode's end libcamera has R/G of 0.23; a curve that is constant there has 0.45.
    extended = libcamera_value(7700, curve.temperatures, curve.chromaticities[:, 0])
    assert abs(extended - curve.chromaticities[-1, 0]) > 0.1
    printed = capsys.readouterr().out
    assert "warning: the CT curve has 4500 K to 5500 K, and the awb modes of" in printed
    assert "search 2500 K to 7700 K" in printed
    labelled(options.source, np.array([2500.0, 4000, 7700]), rng)
    export(replace(options, out=tmp_path / "long.json"))
    assert "warning" not in capsys.readouterr().out


def test_a_curve_that_bends_back_is_exported_with_a_warning(options, rng, capsys):
    labelled(options.source, KELVIN, rng)
    stored = dict(np.load(options.source))
    np.savez(options.source, **stored | {"temperature": KELVIN[[1, 0, 2]]})
    export(options)
    printed = capsys.readouterr().out
    assert "R/G does not fall from 2500 K to 4000 K" in printed
    assert "B/G does not rise from 2500 K to 4000 K" in printed


@pytest.mark.parametrize(("name", "message"), [("ct_curve", "no ct_curve"), ("ccms", "no ccms")])
def test_a_file_without_a_list_is_refused_before_photographs_are_read(
    options, name, message, tmp_path
):
    """libcamera's own uncalibrated.json has no `ct_curve`; the folder's photo cannot be read."""
    algorithm = {"ct_curve": "rpi.awb", "ccms": "rpi.ccm"}[name]
    text = TUNING.replace('"rpi.nn.awb"', '"rpi.other"').replace(f'"{algorithm}"', '"rpi.none"')
    options.tuning.write_text(text)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a_5000k.dng").write_bytes(b"")
    with pytest.raises(DataError, match=message):
        export(replace(options, source=tmp_path / "photos"))


def test_matrices_are_those_of_the_charts_of_a_temperature(rng):
    """Two charts under 5,000 K have one matrix, one under 3,000 K has another."""
    warm = np.array([[1.5, -0.4, -0.1], [-0.3, 1.5, -0.2], [0.1, -0.8, 1.7]])
    day = np.array([[1.7, -0.5, -0.2], [-0.2, 1.4, -0.2], [0.0, -0.5, 1.5]])
    balanced = rng.uniform(0.05, 0.9, (3, 20, 3))
    patches = [
        Patches(chart, chart @ matrix.T)
        for chart, matrix in zip(balanced, (day, warm, day), strict=True)
    ]
    kelvin = np.array([5000.0, 3000, 5000])
    fitted = fit_matrices(LabelledColors(("a", "b", "c"), kelvin, np.ones((3, 2)), "", patches))
    np.testing.assert_array_equal(fitted.temperatures, [3000, 5000])
    np.testing.assert_allclose(fitted.matrices, [warm, day], atol=1e-4)
    grays = [Patches(np.ones((6, 3)) * np.linspace(0.1, 0.9, 6)[:, None], np.ones((6, 3)))]
    with pytest.raises(DataError, match=r"charts at 4000 kelvin have no three independent colours"):
        fit_matrices(LabelledColors(("a",), np.array([4000.0]), np.ones((1, 2)), "", grays))


def test_the_charts_grays_are_neutral_in_srgb():
    """Published sRGB values of the ColorChecker's white and of its middle grey, neutral 5."""
    colors = reference_srgb()
    # Cyan is outside of sRGB, and has a channel below 0.
    white, middle = 255 * (1.055 * colors[[18, 21]] ** (1 / 2.4) - 0.055)
    np.testing.assert_allclose(white, [243, 243, 242], atol=3.5)
    np.testing.assert_allclose(middle, [122, 122, 121], atol=3.5)


@pytest.fixture(scope="module")
def charts(tmp_path_factory):
    """Write photographs of a chart whose names state a temperature, and their illuminants."""
    folder = tmp_path_factory.mktemp("charts")
    true = write_chart_pairs(folder, 3, seed=1)
    (folder / "own").mkdir()
    corners = {}
    for name, kelvin, chart in zip(true.names, (3000, 5000, 5000), true.charts, strict=True):
        shutil.copy(folder / "main" / f"{name}.dng", folder / "own" / f"{name}_{kelvin}K_a.dng")
        corners[f"{name}_{kelvin}K_a.dng"] = map_points(chart, CORNERS).tolist()
    (folder / "own" / "charts.json").write_text(json.dumps(corners))
    return folder / "own", true.main


def test_photographs_of_a_chart_give_curve_and_matrices(options, charts, capsys):
    folder, true = charts
    written = read_tuning(export(replace(options, source=folder)))
    ratios = true[:, ::2] / true[:, 1:2]
    expected = [ratios[0], ratios[1:].mean(axis=0)]
    np.testing.assert_allclose(written.curve.chromaticities, expected, rtol=0.02)
    np.testing.assert_array_equal(written.matrices.temperatures, [3000, 5000])
    np.testing.assert_allclose(written.matrices.matrices.sum(axis=2), 1, atol=2e-5)
    # The matrix brings the patches nearer to sRGB than white balance alone.
    for chart in read_labelled_colors(folder).patches[:1]:
        corrected = chart.balanced @ written.matrices.matrices[0].T
        before, after = (
            np.linalg.norm(colors - chart.target) for colors in (chart.balanced, corrected)
        )
        assert after < before / 2
    assert "matrices of 2 temperatures, by charts" in capsys.readouterr().out


def test_sources_that_do_not_suffice_are_refused(options, charts, tmp_path, rng):
    one = labelled(tmp_path / "one.npz", np.full(5, 4000.0), rng)
    with pytest.raises(DataError, match=r"one\.npz has 5 images of fewer than 2 colour temperatur"):
        export(replace(options, source=one))
    stored = dict(np.load(one))
    for wrong in (10.0, np.nan):
        np.savez(tmp_path / "bad.npz", **stored | {"temperature": np.full(5, wrong)})
        with pytest.raises(DataError, match="a temperature is not between 1000 and 100000 kelvin"):
            export(replace(options, source=tmp_path / "bad.npz"))
    del stored["temperature"]
    np.savez(one, **stored)
    with pytest.raises(DataError, match=r"one\.npz.*temperature has.*everlight data prepare"):
        export(replace(options, source=one))
    with pytest.raises(MissingDataError, match=r"none\.npz does not exist"):
        export(replace(options, source=tmp_path / "none.npz"))
    unnamed = tmp_path / "unnamed"
    shutil.copytree(charts[0], unnamed, ignore=shutil.ignore_patterns("charts.json"))
    first = sorted(unnamed.iterdir())[0]
    for name in ("plain.dng", "3000k_5000k.dng", "x3000k.dng", "300k.dng"):
        first = first.rename(unnamed / name)
        with pytest.raises(DataError, match=f"{name} does not state one colour temperature"):
            export(replace(options, source=unnamed))


def test_an_existing_file_is_not_replaced(options):
    options.out.parent.mkdir()
    options.out.write_text("{}")
    for out in (options.tuning, options.out):
        with pytest.raises(DataError, match=rf"--out .*{out.name} exists; move it or give another"):
            replace(options, out=out)


def test_a_file_has_a_json_name(options):
    with pytest.raises(DataError, match=r"give the name of a file that ends in \.json"):
        replace(options, out=options.out.with_suffix(".txt"))
