"""A calibration from made-up raw pairs whose illuminants, transforms and alignment are known."""

import html
import json
import re
import shlex
import shutil
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.illuminant.illuminant_training import TrainingSettings
from everlight.illuminant.pair_augmentations import relit_inputs
from everlight.illuminant.pair_inputs import VIEWS
from everlight_data.color.charts import chart_pairs, pair_files, pair_measurements, scene_folds
from everlight_data.color.charts.chart_geometry import CENTERS, CORNERS, chart_mask, map_points
from everlight_data.color.charts.chart_scenes import write_chart_pairs
from everlight_data.color.charts.measured_pair import pixels_to_blocks
from everlight_data.color.charts.pair_files import find_pairs
from everlight_data.color.pairs.view_pairs import align_thumbnails
from everlight_data.color.photographs.published_folds import draw_scene_folds
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.errors import DataError
from everlight_experiments.cli import options_of
from everlight_experiments.illuminant.config import CALIBRATE
from everlight_experiments.illuminant.core.experiment import angular_errors
from everlight_experiments.illuminant.estimate.command import estimate
from everlight_experiments.illuminant.estimate.options import EstimateOptions
from everlight_experiments.illuminant.phone.calibrate import CalibrateOptions, run_calibrate
from everlight_experiments.run_folder.folder import RunFolder
from tests import refusals
from tests.data_pipelines.color.charts.raw_pairs import write_pairs

pytestmark = pytest.mark.xdist_group("calibrate")

PAIRS = 6


def angles(first, second):
    return np.asarray(angular_errors(*(jnp.asarray(item, jnp.float32) for item in (first, second))))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    return folder, write_chart_pairs(folder, PAIRS, seed=1)


@pytest.fixture(scope="module")
def measured(written, tmp_path_factory):
    source, _ = written
    settings = CalibrateOptions(folder=source, runs=tmp_path_factory.mktemp("runs"))
    run = RunFolder("illuminant", "calibrate", settings)
    files = pair_files.find_pairs(source)
    measured_charts = pair_measurements.read_charts(source, files, run)
    charts = measured_charts.charts
    homography, residuals = chart_pairs.align_cameras(None, charts)
    pairs = pair_measurements.measure_pairs(measured_charts, homography, 6, run, "")
    return SimpleNamespace(charts=charts, homography=homography, residuals=residuals, pairs=pairs)


def test_illuminants_are_those_that_the_scenes_were_under(written, measured):
    _, true = written
    charted = measured.pairs.charted
    assert angles(charted.main.illuminants, true.main).max() < 0.3
    assert angles(charted.second.illuminants, true.second).max() < 0.3
    assert max(chart.gray_spread for pair in measured.charts for chart in pair) < 2


def test_the_homography_is_that_between_the_views(written, measured):
    _, true = written
    places = np.concatenate([map_points(chart, CORNERS) for chart in true.charts])
    np.testing.assert_allclose(
        map_points(measured.homography, places), map_points(true.homography, places), atol=0.6
    )
    assert measured.residuals.max() < 0.6


def test_transforms_are_those_of_the_two_cameras_under_each_illuminant(written, measured):
    """Transforms are compared with least squares of all 214 surfaces; scenes show some fifty."""
    _, true = written
    charted = measured.pairs.charted
    fitted, expected = (
        item / np.linalg.norm(item, axis=(1, 2), keepdims=True)
        for item in (charted.transforms, true.transforms)
    )
    assert np.linalg.norm(fitted - expected, axis=(1, 2)).max() < 0.15


def test_the_chart_has_no_part_in_the_small_images(written, measured):
    _, true = written
    masks = measured.pairs.images["main"].masks
    factor = 480 // masks.shape[2]
    for mask, chart in zip(masks, true.charts, strict=True):
        column, row = (map_points(chart, CENTERS) / factor).astype(int).T
        assert not mask[row, column].any()
        assert 0.4 < mask.mean() < 0.95


def test_training_inputs_equal_those_of_estimate(written, measured):
    """Transform and moments agree, but for the chart, which estimate does not know of."""
    source, true = written
    pairs = measured.pairs
    names = [source / view / f"{true.names[1]}.dng" for view in ("main", "second")]
    photos = [read_raw(name) for name in names]
    thumbnails = align_thumbnails(*photos, measured.homography, 6)
    free = chart_mask(thumbnails.mask.shape, pixels_to_blocks(6) @ true.charts[1])
    seen = {view: np.float64(getattr(thumbnails, view)[thumbnails.mask & free]) for view in VIEWS}
    fitted = np.linalg.lstsq(*(seen[view] / seen[view].mean() for view in VIEWS))[0]
    np.testing.assert_allclose(pairs.charted.transforms[1], fitted, atol=0.02)
    for view, colors in seen.items():
        means = colors[:, ::-1].mean(axis=0)
        upper = [(2, 2), (1, 2), (1, 1), (0, 2), (0, 1), (0, 0)]
        products = [np.sqrt((colors[:, i] * colors[:, j]).mean()) for i, j in upper]
        expected = np.concatenate([means, products])
        np.testing.assert_allclose(
            pairs.moments[view][1], expected / expected.mean(), rtol=5e-3, atol=1e-3
        )


def test_the_sensors_differ_by_what_their_white_balanced_charts_do(measured):
    charted = measured.pairs.charted
    current = np.float64(charted.main.charts[2] / charted.main.illuminants[2])
    other = np.float64(charted.second.charts[2] / charted.second.illuminants[2])
    cosines = (
        (current * other).sum(1) / np.linalg.norm(current, axis=1) / np.linalg.norm(other, axis=1)
    )
    angle = np.degrees(np.arccos(np.minimum(cosines, 1)))[charted.usable[2]].mean()
    np.testing.assert_allclose(pair_measurements.sensor_differences(charted)[2], angle, atol=0.01)
    alike = charted._replace(second=charted.main._replace(charts=2 * charted.main.charts))
    assert pair_measurements.sensor_differences(alike).max() < 0.01


def test_re_illuminated_inputs_are_those_under_the_other_illuminant(written, measured):
    """On other surfaces T equals that of the pair under that illuminant, and so do moments."""
    pairs = measured.pairs
    inputs = relit_inputs(pairs.charted, pairs.moments["second"], "second")
    rows = np.arange(PAIRS)
    np.testing.assert_allclose(
        inputs["moments"][rows, rows], pairs.moments["second"], rtol=1e-2, atol=1e-3
    )
    transforms = pairs.charted.transforms.reshape(PAIRS, 9)
    np.testing.assert_allclose(inputs["T"][rows, rows], transforms, atol=2e-3)
    # The mean's red over green is compared with that of the illuminants.
    ratio = np.asarray(inputs["moments"][..., 2] / inputs["moments"][..., 1])
    illuminants = pairs.charted.second.illuminants[:, 0] / pairs.charted.second.illuminants[:, 1]
    expected = np.diagonal(ratio)[:, None] * illuminants / illuminants[:, None]
    np.testing.assert_allclose(ratio, expected, rtol=0.1)


def test_a_pair_without_a_transform_is_named_and_left_out(written, measured, tmp_path, capsys):
    """The second camera's photo of the last of seven pairs is black."""
    source, _ = written
    files = pair_files.find_pairs(source)
    last = files[5]
    photo = read_raw(last.second)
    dark = tmp_path / "dark.dng"
    raw = last.second.read_bytes()
    dark.write_bytes(raw[: -2 * photo.saturated.size] + bytes(2 * photo.saturated.size))
    pairs = pair_measurements.MeasuredCharts(
        [*files, last._replace(name="dark", second=dark, checksums={"main": 0, "second": 0})],
        [*measured.charts, measured.charts[5]],
    )
    settings = CalibrateOptions(folder=source, runs=tmp_path)
    run = RunFolder("illuminant", "calibrate", settings)
    result = pair_measurements.measure_pairs(pairs, measured.homography, 6, run, "")
    assert result.indices == list(range(PAIRS))
    np.testing.assert_array_equal(result.charted.transforms, measured.pairs.charted.transforms)
    printed = capsys.readouterr().err
    assert re.search(r"LEFT OUT: .*dark\.dng is all black", printed)


@pytest.mark.parametrize("view", VIEWS)
def test_a_corrected_chart_is_measured_again(view, measured, monkeypatch):
    stored = []
    monkeypatch.setattr(pair_measurements, "measure_stored", lambda *args: stored.append(args[2]))
    pair = measured.charts[0]
    chart = getattr(pair, view)
    moved = pair._replace(**{view: chart._replace(homography=chart.homography + 1)})
    for changed in (pair, moved):
        source = pair_measurements.MeasuredCharts([], [changed])
        with pytest.raises(TypeError):  # of the stand-in, which returns no arrays
            pair_measurements.measure_pairs(source, measured.homography, 6, None, "")
    assert stored[0] != stored[1]


def with_illuminants(view, illuminants):
    return view._replace(illuminants=illuminants)


def test_pairs_under_one_illuminant_are_one_scene(measured):
    charted = measured.pairs.charted
    assert sorted(scene_folds.group_scenes(charted)) == list(range(PAIRS))
    twice = charted._replace(
        names=charted.names * 2,
        main=with_illuminants(charted.main, np.tile(charted.main.illuminants, (2, 1)) * 1.001),
        second=with_illuminants(charted.second, np.tile(charted.second.illuminants, (2, 1))),
    )
    scenes = scene_folds.group_scenes(twice)
    np.testing.assert_array_equal(scenes[:PAIRS], scenes[PAIRS:])
    white = with_illuminants(charted.main, np.ones((PAIRS, 3), np.float32))
    with pytest.raises(DataError, match=r"6 pairs show 1 illuminant that differ by 0.5 deg"):
        scene_folds.group_scenes(charted._replace(main=white, second=white))


@pytest.mark.parametrize("scenes", [6, 8, 30])
def test_no_scene_is_in_two_folds_and_all_are_in_one(rng, scenes):
    numbers = np.concatenate([np.arange(scenes), rng.integers(0, scenes, 9)])
    folds = draw_scene_folds(numbers, seed=0)
    assert len(folds) == min(scenes, 8)
    assert len({len(fold) for fold in folds}) == 1
    owners = [set(numbers[fold].tolist()) for fold in folds]
    assert sum(map(len, owners)) == len(set().union(*owners)) == scenes
    assert sorted(set(np.concatenate(folds).tolist())) == list(range(len(numbers)))


def test_given_groups_are_scenes(tmp_path, written):
    words = np.array(["b", "a", "d", "e", "c", "f", "f", "b"])
    scenes = scene_folds.renumbered_scenes(words)
    np.testing.assert_array_equal(scenes[:, None] == scenes, words[:, None] == words)
    assert scenes.max() == 5
    with pytest.raises(DataError, match="7 usable pairs into 5 groups; 6 are the minimum"):
        scene_folds.renumbered_scenes(np.array([7, 7, 8, 1, 2, 3, 3]))
    (tmp_path / "groups.txt").write_text("a b c d e")
    settings = CalibrateOptions(
        folder=written[0], runs=tmp_path, groups=tmp_path / "groups.txt", seeds=1
    )
    with pytest.raises(DataError, match=r"groups\.txt has 5 words for 6 pairs"):
        run_calibrate(settings)


@pytest.mark.slow
def test_nets_are_trained_evaluated_and_taken_by_estimate(written, tmp_path, capsys, monkeypatch):
    source, true = written
    training = TrainingSettings(200, 64, 1e-2, validate_every=20)
    monkeypatch.setitem(CALIBRATE, "small", training)
    settings = CalibrateOptions(folder=source, runs=tmp_path, seeds=2)
    report = run_calibrate(settings)
    page, printed = report.read_text(), capsys.readouterr().out
    assert "6 pairs in 6 scenes" in page
    assert "6 scenes are few" in page
    assert "too few pairs for an interval" in page
    assert "too wide" not in page.lower()
    results = np.load(report.parent / "results.npz")
    for illuminant in ("main", "second"):
        assert results[f"{illuminant}/Net, 470 parameters, ensemble"].shape == (1, 1, PAIRS)
        assert results[f"{illuminant}/Chosen without the scene"].shape == (1, 1, PAIRS)
    assert angles(results["illuminant/main"][0], true.main).max() < 0.3
    for illuminant in ("main", "second"):
        error = results[f"{illuminant}/Chosen without the scene"].mean()
        assert re.search(
            rf"{illuminant} illuminant: .*, mean error {error:.2f} degrees on sc", printed
        )
    # The line can be pasted: it parses, and its files are there.
    (command,) = re.findall(r"^use it: everlight illuminant estimate (.*)$", printed, re.MULTILINE)
    pasted = options_of("illuminant estimate", shlex.split(command))
    assert all(path.exists() for path in (*pasted.files, pasted.model, pasted.homography))
    assert f"everlight illuminant estimate {command}" in html.unescape(page)
    models = report.parent / "models"
    pairs = (0, 2)
    names = [source / view / f"{true.names[i]}.dng" for i in pairs for view in ("main", "second")]
    reddish, daylight = estimate(
        EstimateOptions(
            tuple(names),
            models / "calibrated",
            homography=models / "homography.json",
            output=tmp_path / "out",
            formats=("dng",),
        )
    )
    # D65 is in the training of most nets, and the chart is in the picture.
    assert angles(daylight.estimates.main.illuminant, true.main[2]) < 6
    assert angles(daylight.estimates.second.illuminant, true.second[2]) < 6
    # A is the only illuminant of its kind: networks that never saw it pull it towards the others.
    (low_red, low_blue), (red, blue) = (
        item.estimates.main.illuminant[::2] for item in (daylight, reddish)
    )
    assert red > 1.1 * low_red
    assert blue < low_blue / 1.1
    assert "no interval" in capsys.readouterr().out

    # Finished parts are not computed again, and the report is the same.
    assert (
        run_calibrate(settings).read_text().split("Duration")[1].split("</dd>", 1)[1]
        == page.split("Duration")[1].split("</dd>", 1)[1]
    )


# These folders cannot be calibrated on; they are small, since nothing is decoded.


@pytest.fixture
def folder(tmp_path):
    return write_pairs(tmp_path)


def refused(folder, tmp_path, message):
    options = CalibrateOptions(folder=folder, runs=tmp_path / "runs")
    refusals.refused(message, lambda: run_calibrate(options), DataError)


def test_a_folder_without_pairs_is_refused(folder, tmp_path):
    refused(None, tmp_path, "give the folder of raw pairs, or --preset demo")
    refused(tmp_path / "none", tmp_path / "b", r"none/main is not a folder; put the main camera's")


def test_files_that_were_found_are_not_summed_again(folder, tmp_path, monkeypatch):
    files = find_pairs(folder)
    monkeypatch.delattr(pair_files, "read_bytes")
    run = RunFolder(
        "illuminant", "calibrate", CalibrateOptions(folder=folder, runs=tmp_path / "runs")
    )
    with pytest.raises(DataError):
        pair_measurements.read_charts(folder, files, run)


def test_every_file_that_is_no_photo_is_named(folder, tmp_path):
    refused(
        folder,
        tmp_path,
        r"6 of 6 pairs: .*IMG_0\.dng is not a raw file but text.*IMG_5\.dng is not",
    )


class KnownCharts:
    """A store of the measured charts of all pairs but one, as a run's folder has them."""

    def __init__(self, names, pairs, missing):
        self.parts = {
            f"charts-{name}": {
                "charts": np.stack([pair.main.homography, pair.second.homography]),
                "colors": np.stack([pair.main.colors, pair.second.colors]),
                "usable": np.stack([pair.main.usable, pair.second.usable]),
                "shapes": np.array([pair.main.shape, pair.second.shape]),
                "flips": np.array([pair.main.flip, pair.second.flip]),
                "cameras": np.array([pair.main.camera, pair.second.camera]),
            }
            for name, pair in zip(names, pairs, strict=True)
            if name != missing
        }

    def read_part(self, name, fingerprint):
        # Runs of earlier versions have these names in the fingerprint of a pair's charts.
        names = ["charts", "colors", "usable", "shapes", "flips", "cameras"]
        assert fingerprint["measured"] == names
        return self.parts.get(name)

    def save_part(self, name, fingerprint, **arrays):
        self.parts[name] = arrays


@pytest.fixture
def copied(written, measured, tmp_path):
    """Copy the photos; return them with a maker of stores of all charts but one pair's."""
    source, true = written
    folder = shutil.copytree(source, tmp_path / "in")
    return folder, true, lambda pair: KnownCharts(true.names, measured.charts, true.names[pair])


def test_a_chart_that_is_not_found_is_named_and_can_be_given(copied):
    """The chart of one pair is covered: the pair is named; with corners from a file it is read."""
    folder, true, store_without = copied
    hidden = folder / "main" / f"{true.names[2]}.dng"
    full = hidden.read_bytes()
    pixels = np.frombuffer(full, np.uint16)[-360 * 480 :].reshape(360, 480)
    assert pixels.min() > 100, "the sensor's numbers lie last in the file"
    column, row = map_points(true.charts[2], np.array([[2.5, 1.5]]))[0].astype(int)
    shaded = pixels.copy()
    shaded[row - 90 : row + 90, max(column - 120, 0) : column + 120] = 4_000
    hidden.write_bytes(full[: -shaded.nbytes] + shaded.tobytes())

    def read():
        files = pair_files.find_pairs(folder)
        return pair_measurements.read_charts(folder, files, store_without(2)).charts

    with pytest.raises(DataError, match=r"1 of 6 pairs: .*scene-02\.dng: no chart found. Write"):
        read()
    corners = map_points(true.charts[2], CORNERS)
    listed = folder / "charts.json"
    listed.write_text(json.dumps({f"main/{hidden.name}": corners.tolist()}))
    with pytest.raises(DataError, match=r"scene-02\.dng: there is no chart at the given corners"):
        read()
    hidden.write_bytes(full)
    np.testing.assert_allclose(map_points(read()[2].main.homography, CORNERS), corners, atol=0.01)
    # The chart read from its other end is another chart.
    listed.write_text(json.dumps({f"main/{hidden.name}": corners[[2, 3, 0, 1]].tolist()}))
    with pytest.raises(DataError, match=r"scene-02\.dng: there is no chart at the given corners"):
        read()


def test_files_of_the_other_camera_among_them_are_named(copied):
    folder, true, store_without = copied
    main, second = (folder / view / f"{true.names[3]}.dng" for view in ("main", "second"))
    stored = main.read_bytes()
    main.write_bytes(second.read_bytes())
    second.write_bytes(stored)
    with pytest.raises(DataError, match=rf"different cameras, as in {true.names[3]} and"):
        pair_measurements.read_charts(folder, pair_files.find_pairs(folder), store_without(3))
