"""Warnings of `estimate` about photos that may not have a sensor's values."""

import csv
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile

from everlight_experiments.illuminant.estimate.command import estimate
from everlight_experiments.illuminant.estimate.options import EstimateOptions
from everlight_experiments.illuminant.estimate.photos import white_warnings


def warnings_of(folder, pixels, capsys, **tags):
    path = folder / "a.tif"
    tifffile.imwrite(path, pixels, photometric="rgb", **tags)
    options = EstimateOptions((path,), Path("GW"), output=folder / "out", formats=("tiff",))
    estimate(options)
    (row,) = csv.DictReader((options.output / "illuminants.csv").open())
    printed = capsys.readouterr()
    assert all(f"WARNING: {path}: {text}" in printed.err for text in [row["warnings"]] if text)
    return row["warnings"], printed.out


def scene(rng, illuminant):
    reflectances = rng.uniform(0.1, 0.9, (40, 60, 1)) * rng.uniform(0.7, 1, (40, 60, 3))
    return np.uint16(50_000 * reflectances * illuminant)


def test_a_photo_of_a_sensor_has_no_warning(tmp_path, rng, capsys):
    warnings, printed = warnings_of(tmp_path, scene(rng, [0.5, 1, 0.7]), capsys)
    assert warnings == ""
    assert "white 65535, 0.0% of pixels saturated; GW" in printed


def test_a_second_estimate_names_the_table_that_it_replaces(tmp_path, rng, capsys):
    options = EstimateOptions((tmp_path / "a.tif",), Path("GW"), output=tmp_path / "out")
    warnings_of(tmp_path, scene(rng, [0.5, 1, 0.7]), capsys)
    estimate(options)
    expected = f"{tmp_path / 'out' / 'illuminants.csv'} and files of equal names will be replaced"
    assert expected in capsys.readouterr().err


def test_a_color_profile_is_named(tmp_path, rng, capsys):
    warnings, _ = warnings_of(tmp_path, scene(rng, [0.5, 1, 0.7]), capsys, iccprofile=b"profile")
    assert "states a colour profile, so its values may not be linear" in warnings


def test_saturated_pixels_are_counted(tmp_path, rng, capsys):
    pixels = scene(rng, [0.5, 1, 0.7])
    pixels[:10] = 60_000
    warnings, printed = warnings_of(tmp_path, pixels, capsys)
    assert "25% of the pixels are left out as saturated" in warnings
    assert "white 60000, 25.0% of pixels saturated" in printed


@pytest.mark.parametrize(("degrees", "warned"), [(0, True), (0.9, True), (1.1, False)])
def test_equal_channels_are_warned_of(degrees, warned):
    angle = np.radians(degrees)
    across = np.array([1, -1, 0]) / np.sqrt(2)
    color = np.cos(angle) * np.ones(3) / np.sqrt(3) + np.sin(angle) * across
    assert bool(white_warnings(7 * color)) == warned


def test_pictures_that_are_left_out_of_a_folder_are_named(tmp_path, rng, capsys):
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(scene(rng, [0.5, 1, 0.7])))
    (tmp_path / "b.JPG").write_bytes(b"")
    estimate(EstimateOptions((tmp_path,), Path("GW"), output=tmp_path / "out", formats=("tiff",)))
    assert f"left out in {tmp_path}: b.JPG, whose colours are encoded" in capsys.readouterr().err
