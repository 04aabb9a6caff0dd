"""A camera profile from photographs of a chart under two illuminants, on rendered photographs."""

import re

import numpy as np
import pytest

from everlight_data.color.charts.chart_scenes import ILLUMINANTS, write_chart_pairs
from everlight_data.color.raw_files.photo_whites import photo_white
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.errors import DataError
from everlight_experiments.illuminant.photographs.profile import ProfileOptions, make_profile
from tests.dng_writer import write_dng

TUNGSTEN, BETWEEN, DAYLIGHT = ILLUMINANTS.index("A"), ILLUMINANTS.index("D50"), 2
MATRIX = np.array([[0.9, -0.2, -0.1], [-0.5, 1.3, 0.2], [-0.1, 0.2, 0.6]])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    scenes = write_chart_pairs(folder, 3)
    return [folder / "main" / f"{name}.dng" for name in scenes.names], scenes


@pytest.mark.parametrize("turned", [False, True])
def test_two_photos_give_the_temperature_of_a_third(written, tmp_path, capsys, turned):
    """D50 lies between the illuminants of the profile, A and D65, whose order is free."""
    photos, scenes = written
    charts = [(photos[TUNGSTEN], "A"), (photos[DAYLIGHT], "D65")]
    paths, illuminants = zip(*(reversed(charts) if turned else charts), strict=True)
    out = tmp_path / "folder" / "camera.dcp"
    assert make_profile(ProfileOptions(paths, illuminants, out)) == out
    printed = capsys.readouterr()
    errors = re.findall(r"CIEDE2000 mean ([\d.]+)", printed.out)
    assert len(errors) == 2
    assert all(float(error) < 3 for error in errors)
    assert printed.err == ""
    photo = read_raw(photos[BETWEEN])
    expected = {TUNGSTEN: (2856, 60), BETWEEN: (5003, 100), DAYLIGHT: (6504, 130)}
    for number, (kelvin, margin) in expected.items():
        white = photo_white(photo, scenes.main[number], out)
        assert abs(white.temperature - kelvin) < margin


def test_another_illuminant_than_the_stated_one_is_warned_of(written, tmp_path, capsys):
    photos, _ = written
    photo = read_raw(photos[DAYLIGHT])
    path = write_dng(tmp_path / "own.dng", photo.image, 512, 16383, MATRIX, model="Own")
    make_profile(ProfileOptions((path,), ("A",), tmp_path / "one.dcp"))
    assert re.search(r"WARNING: .*own\.dng: by .* and A has 2856 K", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"out": "camera.xml"}, r"--out .*camera\.xml: give the name of a file that ends in \.dcp"),
        ({"out": "old.dcp"}, r"old\.dcp exists; move it"),
        ({"illuminants": ("A",)}, "2 photos and 1 illuminants; give one or two"),
        ({"illuminants": ("A", "A")}, "both photos are under A"),
        ({"photos": ("main", "picture.png")}, r"picture\.png does not state its camera"),
        ({"photos": ("main", "second")}, "give photos of one camera"),
        ({"photos": ("main", "bare")}, r"bare\.dng: no chart found"),
    ],
)
def test_what_gives_no_profile_is_refused(written, tmp_path, changes, message):
    photos, _ = written
    (tmp_path / "old.dcp").write_bytes(b"")
    named = {
        "main": photos[0],
        "second": photos[2].parents[1] / "second" / photos[2].name,
        "bare": write_dng(tmp_path / "bare.dng", np.full((60, 84, 3), 0.3)),
        "picture.png": tmp_path / "picture.png",
    }
    options = {"photos": (photos[0], photos[2]), "illuminants": ("A", "D65"), "out": "camera.dcp"}
    options |= changes
    options["photos"] = tuple(named.get(photo, photo) for photo in options["photos"])
    with pytest.raises(DataError, match=message):
        make_profile(ProfileOptions(**options | {"out": tmp_path / options["out"]}))
