"""Estimates with a tuning file: colour temperature, distance from the CT curve, and correction."""

import csv
from dataclasses import replace
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile

from everlight.color.white_points import neutral_white_point
from everlight.illuminant.image_model import untrained_model
from everlight_data.color.raw_files.calibrations import read_dng_calibration
from everlight_data.errors import DataError
from everlight_experiments.illuminant.core.locus_rows import CurvePoint
from everlight_experiments.illuminant.estimate.command import estimate
from everlight_experiments.illuminant.estimate.options import EstimateOptions
from everlight_experiments.illuminant.estimate.photos import deferred_photo_estimates
from tests.data_pipelines.color.tuning_files.tuning_text import TUNING
from tests.dng_writer import write_dng

CANON = np.array([[0.6941, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.154, 0.6039]])
ILLUMINANT = np.array([0.6, 1, 0.55])


@pytest.fixture
def options(tmp_path, rng):
    """Write a picture whose mean has the illuminant's ratios, and a tuning file."""
    gray = rng.uniform(0.1, 0.8, (40, 48, 1))
    pixels = np.rint(gray * ILLUMINANT * 65_535).astype(np.uint16)
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(pixels))
    (tmp_path / "imx1.json").write_text(TUNING)
    return EstimateOptions(
        (tmp_path / "a.png",),
        Path("GW"),
        tuning=tmp_path / "imx1.json",
        output=tmp_path / "out",
        formats=("tiff",),
    )


def nearest():
    """Return kelvin and colour of the nearest of many points of the curve, and the distance."""
    kelvin = np.linspace(3000, 7600, 46_001)
    points = [3000, 5000, 7600]
    red = np.interp(kelvin, points, [0.7451, 0.5, 0.3847])
    blue = np.interp(kelvin, points, [0.3213, 0.5, 0.6921])
    distances = np.hypot(red - ILLUMINANT[0], blue - ILLUMINANT[2])
    best = distances.argmin()
    return kelvin[best], np.array([red[best], 1, blue[best]]), distances[best]


def test_temperature_and_distance_are_printed_and_listed(options, capsys):
    estimate(options)
    kelvin, color, distance = nearest()
    (row,) = csv.DictReader((options.output / "illuminants.csv").open())
    np.testing.assert_allclose(float(row["r/g"]), 0.6, atol=1e-3)
    np.testing.assert_allclose(float(row["temperature on CT curve, K"]), kelvin, rtol=3e-3)
    np.testing.assert_allclose(
        float(row["mired on CT curve"]), 1e6 / float(row["temperature on CT curve, K"]), rtol=1e-4
    )
    np.testing.assert_allclose(float(row["r/g on CT curve"]), color[0], atol=1e-3)
    np.testing.assert_allclose(float(row["b/g on CT curve"]), color[2], atol=1e-3)
    # Both ratios are larger than on the curve.
    np.testing.assert_allclose(float(row["distance from CT curve"]), distance, atol=1e-3)
    printed = capsys.readouterr().out
    assert "on the magenta side" in printed
    assert "corrected by it" not in printed


@pytest.mark.parametrize("on_curve", [False, True])
def test_a_photo_is_corrected_by_the_estimate_or_by_the_nearest_point(options, on_curve, capsys):
    estimate(replace(options, on_curve=on_curve))
    corrected = tifffile.imread(options.output / "a.tiff").reshape(-1, 3).astype(float)
    # Bright pixels are clipped.
    shown = np.median(corrected / corrected[:, 1:2], axis=0)
    divisor = nearest()[1] if on_curve else ILLUMINANT
    expected = ILLUMINANT / divisor
    np.testing.assert_allclose(shown, expected / expected[1], rtol=3e-3)
    assert ("the photo is corrected by it" in capsys.readouterr().out) == on_curve


def test_the_white_point_is_that_of_the_color_that_corrects(options, tmp_path, capsys, rng):
    matrices = write_dng(tmp_path / "m.dng", rng.uniform(0.1, 1, (32, 32, 3)), color_matrix=CANON)
    tables = {}
    for on_curve in (False, True):
        output = tmp_path / f"{on_curve}"
        estimate(replace(options, matrices=matrices, on_curve=on_curve, output=output))
        (tables[on_curve],) = csv.DictReader((output / "illuminants.csv").open())
        name = "white point of the CT curve's point: " if on_curve else "white point: "
        assert f"\n{name}" in capsys.readouterr().out
    calibration = read_dng_calibration(matrices).calibration
    for on_curve, color in ((False, ILLUMINANT), (True, nearest()[1])):
        white = neutral_white_point(calibration, np.float32(color))
        np.testing.assert_allclose(float(tables[on_curve]["tint"]), white.tint, atol=1.5)
    # On the magenta side of the curve the distance is above 0, and the tint is lower.
    assert float(tables[False]["tint"]) < float(tables[True]["tint"])
    assert float(tables[False]["distance from CT curve"]) > 0


def test_a_curve_is_needed_where_it_is_used(options, tmp_path):
    with pytest.raises(DataError, match="--on-curve needs the file with the CT curve"):
        EstimateOptions(options.files, Path("GW"), on_curve=True)
    mono = '{"version": 2.0, "target": "pisp", "algorithms": []}'
    options.tuning.write_text(mono)
    with pytest.raises(DataError, match=r"imx1\.json has no ct_curve"):
        estimate(options)


def test_a_tuning_file_of_another_camera_than_the_photos_is_refused(options, tmp_path, rng, capsys):
    """A picture names no camera, which is printed; a DNG's camera has the name of a module."""
    estimate(options)
    printed = capsys.readouterr().out
    assert f"CT curve of {options.tuning}; GW without training; no name tells whether" in printed
    gray = rng.uniform(0.1, 0.8, (40, 48, 1))
    photo = write_dng(tmp_path / "pi.dng", gray * ILLUMINANT, model="imx708")
    tunings = {stem: tmp_path / f"{stem}.json" for stem in ("imx219", "imx708")}
    for path in tunings.values():
        path.write_text(TUNING)
    raw = replace(options, files=(photo,), formats=())
    message = r"imx219\.json is named after imx219, and the camera of .*pi\.dng after imx708"
    with pytest.raises(DataError, match=message):
        estimate(replace(raw, tuning=tunings["imx219"]))
    estimate(replace(raw, tuning=tunings["imx708"]))
    assert "no name tells" not in capsys.readouterr().out


def test_a_photo_without_a_camera_is_by_the_models_only_one(options, tmp_path):
    tuning = tmp_path / "imx219.json"
    tuning.write_text(TUNING)
    model = replace(untrained_model("GW"), cameras=("imx708",))
    message = r"imx219\.json is named after imx219, and the camera of the model after imx708"
    with pytest.raises(DataError, match=message):
        deferred_photo_estimates(replace(options, tuning=tuning), model)
    # A model of several cameras may be used for another one.
    several = replace(model, cameras=("imx708", "imx477"))
    assert deferred_photo_estimates(replace(options, tuning=tuning), several)


@pytest.mark.parametrize(
    ("distance", "warned"), [(0.11, True), (-0.11, True), (0.1, False), (-0.02, False)]
)
def test_an_estimate_far_from_the_curve_is_warned_of(distance, warned):
    assert bool(CurvePoint(4000.0, 0.6, 0.5, distance).warnings()) == warned
