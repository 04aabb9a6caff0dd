"""Training with whole contributors held out, errors in mired, and estimates on the locus."""

import html
import re
import shlex
import shutil
from dataclasses import replace

import imagecodecs
import numpy as np
import pytest

from everlight.color import Locus, locus_chromaticity
from everlight_data.color.photographs.camera_images import read_camera_images, split_across
from everlight_data.color.tuning_files.libcamera import parse_tuning
from everlight_data.errors import DataError
from everlight_data.registry import PHOTOGRAPH_SETS
from everlight_data.sets.constancy_set import ConstancySet, Photograph
from everlight_experiments.cli import main
from everlight_experiments.illuminant.core import locus_rows
from everlight_experiments.illuminant.core.experiment import Comparison
from everlight_experiments.illuminant.photographs import source
from everlight_experiments.illuminant.photographs.train import IlluminantTrainOptions, run_train
from tests.data_pipelines.color.tuning_files.tuning_text import TUNING
from tests.experiments.illuminant.photographs.thumbnail_files import write_cameras, write_thumbnails

COUNT = 12
NEAR_CURVE = {"low": (0.45, 0.8, 0.35), "high": (0.65, 1, 0.6)}
"""Ends of random illuminants that are near the tuning file's CT curve."""


@pytest.fixture
def options(tmp_path, monkeypatch):
    """Write two cameras' images by five contributors; one of them has two images."""
    monkeypatch.setattr(source, "MIN_IMAGES", 20)
    files = write_cameras(tmp_path, np.random.default_rng(3), COUNT, **NEAR_CURVE)
    rows = ["camera,image,group"]
    for camera in ("A1", "B2"):
        contributors = [f"c{row % 4}" for row in range(COUNT - 1)] + ["small"]
        rows += [f"{camera},{camera}_{row:04},{name}" for row, name in enumerate(contributors)]
    (tmp_path / "who.csv").write_text("\n".join(rows))
    for camera in ("A1", "B2"):
        (tmp_path / f"{camera}.json").write_text(TUNING)
    return IlluminantTrainOptions(
        thumbnails=files,
        runs=tmp_path / "runs",
        side=32,
        method="gw",
        split="groups",
        groups=tmp_path / "who.csv",
        tunings=(tmp_path / "A1.json", tmp_path / "B2.json"),
    )


def test_all_cameras_images_are_tested_in_folds_of_contributors(options):
    report = run_train(options)
    with np.load(report.parent / "results.npz") as results:
        names = {name for name in results.files if name.startswith("held-out/")}
        assert {
            f"held-out/{name}{end}" for name in ("GW", "SoG") for end in ("", locus_rows.ON_LOCUS)
        } == names
        images = results["image/held-out"].ravel().tolist()
        moved = results[f"estimate/held-out/GW{locus_rows.ON_LOCUS}"][0, 0]
    assert sorted(images) == sorted(f"{c}_{row:04}" for c in ("A1", "B2") for row in range(COUNT))
    curve = parse_tuning("a.json", TUNING).curve
    kelvin = np.linspace(3000, 7600, 4601)
    dense = np.stack([np.interp(kelvin, curve.temperatures, c) for c in curve.chromaticities.T], 1)
    assert np.abs(moved[:, None, ::2] / moved[:, None, 1:2] - dense).sum(-1).min(1).max() < 1e-3
    text = report.read_text()
    assert "folds of whole groups" in text
    assert "bootstrap over groups" in text.replace("bootstraps", "bootstrap")
    assert "Colour temperature" in text


def test_folds_of_groups_need_groups_and_enough_images(options, monkeypatch):
    with pytest.raises(DataError, match="--split groups needs the group of each image"):
        run_train(replace(options, groups=None))
    monkeypatch.setattr(source, "MIN_IMAGES", 30)
    with pytest.raises(DataError, match="all cameras together have 24 images"):
        run_train(options)
    monkeypatch.setattr(source, "MIN_IMAGES", 20)
    with pytest.raises(DataError, match="all cameras but A1 have 12 images; at least"):
        run_train(replace(options, split="cross-camera"))


def test_methods_that_read_more_of_a_camera_are_refused(options):
    with pytest.raises(DataError, match="C5, small form reads more of a camera than one image"):
        run_train(replace(options, method="c5"))


def test_tuning_files_are_named_after_cameras(options, tmp_path):
    (tmp_path / "imx1.json").write_text(TUNING)
    with pytest.raises(DataError, match=r"imx1\.json is named after no camera of A1, B2"):
        run_train(replace(options, tunings=(tmp_path / "imx1.json",)))


def test_the_distance_of_labels_from_a_tuning_files_curve_is_printed(options, capsys):
    run_train(options)
    printed = capsys.readouterr().out
    with np.load(options.thumbnails[1]) as stored:
        labels = stored["illuminant_rgb"][:, ::2] / stored["illuminant_rgb"][:, 1:2]
    curve = parse_tuning("a.json", TUNING).curve
    kelvin = np.linspace(3000, 7600, 4601)
    dense = np.stack([np.interp(kelvin, curve.temperatures, c) for c in curve.chromaticities.T], 1)
    median = np.median(np.linalg.norm(labels[:, None] - dense, axis=2).min(axis=1))
    (line,) = [line for line in printed.splitlines() if line.startswith("tuning file of B2: ")]
    assert f"B2.json; the median illuminant of the images is {median:.3f} from its CT" in line


def test_a_tuning_file_of_another_camera_is_refused(options, tmp_path, capsys):
    """One camera's file may have any name that states no other module."""
    rng = np.random.default_rng(3)
    write_thumbnails(tmp_path / "imx708.npz", "imx708", 2 * COUNT, rng, **NEAR_CURVE)
    (tmp_path / "who.txt").write_text("\n".join(f"c{row % 4}" for row in range(2 * COUNT)))
    one = replace(
        options, thumbnails=(tmp_path / "imx708.npz",), groups=tmp_path / "who.txt", tunings=()
    )
    for stem in ("imx219", "imx708_wide"):
        (tmp_path / f"{stem}.json").write_text(TUNING)
        with pytest.raises(
            DataError, match=rf"{stem}\.json is named after {stem}, and .* after imx7"
        ):
            run_train(replace(one, tunings=(tmp_path / f"{stem}.json",)))
    (tmp_path / "mine.json").write_text(TUNING)
    run_train(replace(one, tunings=(tmp_path / "mine.json",)))
    assert "tuning file of imx708: " in capsys.readouterr().out
    write_thumbnails(tmp_path / "imx708.npz", "imx708", 2 * COUNT, rng)
    with pytest.raises(DataError, match=r"mine\.json cannot be the tuning file of imx708: half of"):
        run_train(replace(one, tunings=(tmp_path / "mine.json",)))


@pytest.fixture
def released(options, monkeypatch, tmp_path):
    """Patch a release whose illuminants and cameras' estimates are points of the locus."""
    tuning = parse_tuning("a.json", TUNING)
    rng = np.random.default_rng(0)

    def at(kelvin):
        colors = [
            np.interp(kelvin, tuning.curve.temperatures, c) for c in tuning.curve.chromaticities.T
        ]
        return np.stack([colors[0], np.ones(len(kelvin)), colors[1]], 1).astype(np.float32)

    def read(folder):
        sets = {}
        for camera in ("A1", "B2"):
            kelvin = rng.uniform(3200, 7000, COUNT)
            images = rng.uniform(0.1, 0.9, (COUNT, 16, 16, 3)) * at(kelvin)[:, None, None]
            sets[camera] = ConstancySet(
                tuple(f"{camera}_{row:04}" for row in range(COUNT)),
                at(kelvin),
                lambda row, images=images: Photograph(images[row], np.ones((16, 16), bool)),
                camera_estimates=at(1e6 / (1e6 / kelvin + 10)),
                tuning=tuning,
            )
        return sets

    monkeypatch.setitem(PHOTOGRAPH_SETS, "raspberry-pi-awb", read)
    return replace(options, thumbnails=(), tunings=(), release="raspberry-pi-awb", folder=tmp_path)


def test_the_cameras_own_estimates_are_compared_in_mired(released):
    """The camera's estimates are 10 mired from the truth in every image."""
    report = run_train(released)
    section = report.read_text().split("Colour temperature")[-1]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in section.split("<tr")]
    (row,) = [row for row in rows if row and html.unescape(row[0]) == locus_rows.CAMERA]
    assert row[1:3] == ["10.00", "10.00 to 10.00"]
    assert row[5] == "0.000"


def test_the_console_has_the_rows_of_the_report(released, capsys):
    """Every method, on the curve and off it, and the camera's own estimates, also in mired."""
    report = run_train(released)
    printed = capsys.readouterr().out
    names = [name + end for name in ("GW", "SoG") for end in ("", locus_rows.ON_LOCUS)]
    for name in (*names, locus_rows.CAMERA):
        (line,) = re.findall(rf"^{re.escape(name)}  +(\d.*)$", printed, re.MULTILINE)
        assert len(re.findall(r"\d\.\d\d \(\d+\.\d\d to \d+\.\d\d\)", line)) == 3
    assert re.search(
        rf"^{locus_rows.CAMERA} .* 10\.00 \(10\.00 to 10\.00\) ", printed, re.MULTILINE
    )
    assert "degrees at 5,000 K" in printed
    # The images have 16 pixels, and --side is 32.
    assert "as released, longest side 16 pixels; larger images are averaged" in report.read_text()


def test_the_printed_command_has_the_tuning_file(options, tmp_path, capsys):
    """The test repeats it as it stands, with a picture in place of the first word."""
    folder = tmp_path / "with space"
    folder.mkdir()
    shutil.copy(tmp_path / "A1.json", folder / "A1.json")
    one = replace(
        options, cameras=("A1",), tunings=(folder / "A1.json",), split="cross-camera", groups=None
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "MIN_IMAGES", COUNT)
        run_train(replace(one, out=folder / "model"))
    (command,) = re.findall(r"^use it: everlight (.*)$", capsys.readouterr().out, re.MULTILINE)
    words = shlex.split(command)
    pixels = np.uint16(np.random.default_rng(0).uniform(1e4, 6e4, (40, 40, 3)))
    (folder / "a.png").write_bytes(imagecodecs.png_encode(pixels))
    words[words.index("PHOTO_OR_FOLDER")] = str(folder / "a.png")
    assert words[-2:] == ["--tuning", str(folder / "A1.json")]
    main([*words, "--output", str(folder / "out"), "--formats"])
    assert f"CT curve of {folder / 'A1.json'}; GW trained for A1" in capsys.readouterr().out
    run_train(options)
    assert capsys.readouterr().out.endswith("--tuning TUNING_FILE_OF_THE_CAMERA\n")


def test_one_camera_without_groups_has_its_errors_in_mired(released, monkeypatch):
    """The folds hold the images in another order than the set; the camera errs by 10 mired."""
    monkeypatch.setattr(source, "MIN_IMAGES", COUNT)
    one = replace(released, groups=None, split="cross-camera", cameras=("A1",))
    report = run_train(one).read_text()
    section = report.split("Colour temperature")[-1]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in section.split("<tr")]
    (row,) = [row for row in rows if row and html.unescape(row[0]) == locus_rows.CAMERA]
    assert row[1:3] == ["10.00", "10.00 to 10.00"]


def test_the_locus_of_a_tuning_is_that_of_the_library():
    curve = parse_tuning("a.json", TUNING).curve
    locus = locus_rows.locus_of(curve)
    assert isinstance(locus, Locus)
    np.testing.assert_allclose(locus_chromaticity(locus, np.float32(4000)), [0.62255, 0.41065])


def test_tests_of_one_camera_have_the_rows_of_the_locus_too(released):
    """Rows of methods that reports hide have no second one."""
    photos = PHOTOGRAPH_SETS["raspberry-pi-awb"](released.folder)["A1"]
    images = read_camera_images(photos, 16)
    data = split_across({"A1": images, "B2": images})["A1"]
    estimates = {
        "GW": np.full((2, 1, COUNT, 3), [0.6, 1, 0.4]),
        "hidden": np.ones((1, 1, COUNT, 3)),
    }
    rows = locus_rows.with_tested_locus(estimates, data, {"hidden"})
    assert [*rows] == ["GW", "hidden", f"GW{locus_rows.ON_LOCUS}", locus_rows.CAMERA]
    # The foot of (0.6, 0.4) on the line from (0.7451, 0.3213) to (0.5, 0.5), by hand.
    along = np.array([0.5 - 0.7451, 0.5 - 0.3213])
    start = np.array([0.7451, 0.3213])
    foot = start + along * ((np.array([0.6, 0.4]) - start) @ along / (along @ along))
    moved = rows[f"GW{locus_rows.ON_LOCUS}"]
    np.testing.assert_allclose(moved[1, 0, 3], [foot[0], 1, foot[1]], rtol=1e-5)
    np.testing.assert_array_equal(rows[locus_rows.CAMERA][0, 0], photos.camera_estimates)


def test_a_method_without_every_estimate_has_no_interval_in_mired_and_is_not_the_best(released):
    """Its row was printed bold, as "nan" beside an interval of the other images."""
    photos = PHOTOGRAPH_SETS["raspberry-pi-awb"](released.folder)["A1"]
    data = split_across({"A1": read_camera_images(photos, 16)})["A1"]
    missing = data.illuminants.copy()
    missing[2] = np.nan
    by_row = {"missing": missing, "GW": np.full((COUNT, 3), [0.6, 1, 0.4], np.float32)}
    estimates = {name: values[None, None] for name, values in by_row.items()}
    comparison = Comparison(estimates, data.illuminants[None])
    table = locus_rows.temperature_table(comparison, by_row, data)
    assert table.rows[0][1:5] == ["nan", "–", "nan", "–"]
    assert " to " in table.rows[1][2]
    assert table.strong_rows == {1}
    del by_row["GW"]
    assert not locus_rows.temperature_table(comparison, by_row, data).strong_rows


def test_a_small_camera_takes_part_where_the_others_suffice(options):
    """Three cameras of 12 images: 20 are needed, and the two others have 24."""
    counts = dict.fromkeys(("A1", "B2", "C3"), COUNT)
    replace(options, split="cross-camera").check_counts(counts)
    with pytest.raises(DataError, match="A1 has 12 images"):
        replace(options, split="cross-camera").check_counts({"A1": COUNT})
