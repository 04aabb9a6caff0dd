"""The command on folders of made-up photographs: registration, what is left out, and the report."""

import re
from pathlib import Path

import numpy as np
import pytest

from everlight.illuminant.illuminant_training import TrainingSettings
from everlight.illuminant.pair_inputs import VIEWS
from everlight_data.errors import DataError
from everlight_experiments.illuminant.config import CALIBRATE
from everlight_experiments.illuminant.core.camera_means import camera_mean, camera_mean_name
from everlight_experiments.illuminant.pairs import sources
from everlight_experiments.illuminant.pairs.command import run_pairs
from everlight_experiments.illuminant.pairs.methods import (
    ONE_CAMERA,
    TWO_CAMERAS,
    TWO_TRAININGS,
)
from everlight_experiments.illuminant.pairs.options import PairsOptions
from tests.experiments.illuminant.pairs.pair_files import CAMERA_CHANGE, draw_pairs, write_folder

pytestmark = pytest.mark.xdist_group("pairs")

COUNT = 47


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Write 47 pairs; the second photo of the fifth is of another scene."""
    rng = np.random.default_rng(5)
    images, truth = draw_pairs(rng, COUNT)
    other, _ = draw_pairs(rng, 1)
    images["second"][4] = np.roll(other["main"][0], 17, axis=0)
    folder = tmp_path_factory.mktemp("pairs")
    for view, prefix in zip(VIEWS, ("CAM_A", "CAM_B"), strict=True):
        write_folder(folder / view, images[view], truth[view], prefix)
    return folder, images, truth


def options_of(folder, runs, **changes):
    values = {"main": folder / "main", "second": folder / "second", "runs": runs, "side": 40}
    return PairsOptions(**{**values, "seeds": 1, **changes})


@pytest.fixture(scope="module")
def usable(folders, tmp_path_factory):
    options = options_of(folders[0], tmp_path_factory.mktemp("runs"), block=2)
    return sources.measure_pairs(sources.read_pairs(options), 0)


def test_pairs_are_registered_and_one_of_another_scene_is_left_out(folders, usable):
    _, _, truth = folders
    assert len(usable.names) == COUNT - 1
    (reason,) = usable.left_out
    assert re.match(
        r"CAM_A_005 with CAM_B_005: the images' brightness correlates by 0\.\d\d", reason
    )
    assert usable.correlations.min() > 0.85
    # 37 of 40 rows and columns are seen by both.
    np.testing.assert_allclose(usable.overlaps, (37 / 40) ** 2, atol=0.06)
    stored = np.delete(np.float32(truth["main"]), 4, axis=0)
    np.testing.assert_allclose(usable.pairs.illuminants["main"], stored, rtol=1e-4)


def test_transforms_are_those_between_the_cameras_under_each_illuminant(folders, usable):
    """T is diag(1 / L1) C diag(L2) up to the exposures, with C between both sensors."""
    main, second = (np.float64(usable.pairs.illuminants[view]) for view in VIEWS)
    expected = CAMERA_CHANGE / main[:, :, None] * second[:, None]
    expected, fitted = (
        item / np.linalg.norm(item, axis=(1, 2), keepdims=True)
        for item in (expected, usable.pairs.transforms)
    )
    off = np.linalg.norm(expected - fitted, axis=(1, 2))
    assert np.median(off) < 0.1
    means = usable.pairs.means["main"][:, None] @ np.float64(usable.pairs.transforms)
    np.testing.assert_allclose(means.mean(axis=(1, 2)), 1, atol=0.02)


def test_groups_are_blocks_of_consecutive_pairs_and_lie_in_one_fold(usable):
    # The fifth pair is left out; its block has one pair left.
    np.testing.assert_array_equal(np.bincount(usable.groups), [2, 2, 1, *[2] * 20, 1])
    owners = [{*usable.groups[fold].tolist()} for fold in usable.folds]
    assert sum(map(len, owners)) == 24


def test_the_mean_of_both_cameras_is_that_of_estimates_in_the_main_cameras_colors(usable):
    """Estimates are the truth times known factors; the geometric mean has the roots of them."""
    chromaticity = {view: usable.pairs.illuminants[view][usable.folds] for view in VIEWS}
    views = {view: chromaticity[view][None].copy() for view in VIEWS}
    views["main"][..., 0] *= 1.21
    average = camera_mean(views, usable.pairs.illuminants, usable.folds)
    truth = chromaticity["main"][None] / chromaticity["main"][None][..., 1:2]
    expected = truth * np.array([1.1, 1, 1])
    # The affine map between two cameras' chromaticities is not exact.
    np.testing.assert_allclose(average, expected, rtol=0.05)


@pytest.mark.slow
def test_the_report_answers_the_question(folders, tmp_path, capsys, monkeypatch):
    training = TrainingSettings(200, 64, 1e-2, validate_every=20)
    monkeypatch.setitem(CALIBRATE, "small", training)
    options = options_of(folders[0], tmp_path, block=2)
    report = run_pairs(options)
    page, printed = report.read_text(), capsys.readouterr()
    assert "Does the second camera help here?" in printed.out
    assert re.search("(Yes|No|Not shown): ", printed.out)
    assert "LEFT OUT: CAM_A_005 with CAM_B_005" in printed.err
    assert "Left out: CAM_A_005 with CAM_B_005" in page
    assert "46 usable in 24 groups; 1 left out" in page
    results = np.load(report.parent / "results.npz")
    errors = {name: results[f"main/{name}"] for name in (ONE_CAMERA, TWO_CAMERAS)}
    assert {values.shape for values in errors.values()} == {(1, 1, 46)}
    gain = (errors[ONE_CAMERA] - errors[TWO_CAMERAS]).mean()
    assert f"equal size: {gain:+.2f} (" in printed.out
    for name in ("GW", "FFCC", camera_mean_name("FFCC")):
        assert np.isfinite(results[f"main/{name}"]).all()
        assert results[f"estimate/main/{name}"].shape == (1, 1, 46, 3)
    # One seed has one training on one camera.
    assert "mean of two trainings" not in page
    assert f"main/{TWO_TRAININGS}" not in results.files
    expected = {f"CAM_A_{row:03}" for row in range(1, 48)} - {"CAM_A_005"}
    assert sorted(results["image/main"].ravel()) == sorted(expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"second": None}, "give the photographs of both cameras"),
        ({"preset": "demo"}, "--preset demo renders its own pairs"),
        ({"groups": "groups.txt", "block": 4}, "--groups and --block both make groups"),
        ({"main": "nowhere"}, "nowhere does not exist"),
    ],
)
def test_options_that_contradict_each_other_are_refused(folders, tmp_path, changes, message):
    paths = {
        name: Path(v) if isinstance(v, str) and name != "preset" else v
        for name, v in changes.items()
    }
    with pytest.raises(DataError, match=message):
        run_pairs(options_of(folders[0], tmp_path, **paths))


def test_a_photo_without_a_partner_is_named(folders, tmp_path):
    folder, images, truth = folders
    write_folder(tmp_path / "fewer", images["second"][:-1], truth["second"][:-1], "CAM_B")
    options = options_of(folder, tmp_path, second=tmp_path / "fewer")
    with pytest.raises(DataError, match=r"1 of 47 images of the main camera \(CAM_A_047\) have no"):
        sources.read_pairs(options)
