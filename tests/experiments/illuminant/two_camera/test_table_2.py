"""The NUS run: its estimators on small images, its nets on a made-up release."""

import csv
import re
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color import ESTIMATORS, ILLUMINANT_METHODS, methods_for
from everlight.illuminant.camera_pairs import charted_camera_pairs, problem_of
from everlight.illuminant.illuminant_training import TrainingSettings
from everlight.illuminant.pair_augmentations import chart_augmentations
from everlight_data.color.dmcc_thumbnails import thumbnail_files
from everlight_data.color.pairs.quasi_real import official_pairs
from everlight_data.color.photographs.camera_images import IlluminantImages, read_camera_images
from everlight_data.color.photographs.published_folds import draw_folds
from everlight_data.color.photographs.thumbnails import thumbnail_cameras
from everlight_experiments.cli import main
from everlight_experiments.illuminant.config import PRESETS
from everlight_experiments.illuminant.core import image_methods
from everlight_experiments.illuminant.core.cross_validation import (
    CHOSEN,
    RULES,
    split_samples,
)
from everlight_experiments.illuminant.core.method_inputs import moments_of, side_of
from everlight_experiments.illuminant.core.networks import PARAMETERS, NetworkTraining
from everlight_experiments.illuminant.photographs.corrections import correction_columns
from everlight_experiments.illuminant.photographs.dataset import compare_images
from everlight_experiments.illuminant.two_camera.command import run_two_camera
from everlight_experiments.illuminant.two_camera.options import TwoCameraOptions
from tests.color.references import degrees
from tests.experiments.illuminant.short_rows import set_settings
from tests.nus_files import BLACK, MAIN, SECOND, WHITE, render, write_camera

# One worker runs the group, so that the module's fixtures are computed once.
pytestmark = pytest.mark.xdist_group("nus run")

SHORT = TrainingSettings(20, batch_size=16, validate_every=2)
PAIRS = 19
LEAST_ALIKE = 4
COSTLY = {"C5 at the authors' size", "SIIE at the paper's size"}
"""Applicable methods that run by name alone."""


class Release(NamedTuple):
    """The written release: raw images of the main camera, its illuminants, and transforms."""

    raw: np.ndarray
    illuminants: np.ndarray
    transforms: np.ndarray


@pytest.fixture(scope="module")
def release_files(tmp_path_factory):
    """Write nineteen pairs in the official format, and their list."""
    folder = tmp_path_factory.mktemp("data")
    responses, images, charts, illuminants = render(np.random.default_rng(3), PAIRS)
    for camera, *part in zip((MAIN, SECOND), images, charts, illuminants, strict=True):
        write_camera(folder / "nus8", camera, *part)
    (folder / "nus8_64x64").mkdir()
    with (folder / f"nus8_64x64/pairs_{MAIN}_{SECOND}.csv").open("w", newline="") as lines:
        rows = csv.writer(lines)
        rows.writerow(["nikon", "canon", "structure_similarity"])
        for i in range(PAIRS):
            alike = 0.5 if i == LEAST_ALIKE else 0.9 - 0.01 * i
            rows.writerow([f"{MAIN}_{i + 1:04}", f"{SECOND}_{i + 1:04}", alike])
    raw = np.round(images[0] * (WHITE - BLACK))
    return folder, Release(raw, illuminants[0], np.linalg.inv(responses[0]) @ responses[1])


@pytest.fixture
def release(release_files, monkeypatch):
    folder, written = release_files
    monkeypatch.setenv("EVERLIGHT_DATA", str(folder))
    return written


@pytest.mark.slow
def test_table_2_on_a_made_up_release(release, tmp_path, monkeypatch):
    few = ["SIIE", "C5, small form", "CCMNet, small form", "FC4-style"]
    set_settings(monkeypatch, few, steps=2)
    set_settings(monkeypatch, ["DMCC"], steps=20)
    settings = TwoCameraOptions("nus-paper", seeds=1, runs=tmp_path)
    monkeypatch.setitem(PRESETS, "nus-paper", replace(PRESETS["nus-paper"], training=SHORT))
    report = run_two_camera(settings)
    results = np.load(report.parent / "results.npz")
    words = ("moments", "T and moments")
    learners = [
        *(f"Net, {size} parameters" for size in PARAMETERS.values()),
        *(f"Net on {name}" for name in words),
        "Linear regression",
        *(f"Linear regression on {name}" for name in words),
    ]
    # One seed has no ensembles.
    networks = {f"{m}, {a}" for m in learners for a in ("none", "re-illuminated", CHOSEN)}
    for rule in RULES:
        names = {name.split("/")[1] for name in results.files if name.startswith(rule)}
        assert networks < names
        images = official_pairs(MAIN, SECOND, 0).images
        applicable = methods_for(side_of(images)).keys() - image_methods.left_out(images).keys()
        assert names - networks == applicable - COSTLY
    errors = [
        name for name in results.files if name.startswith(tuple(f"{rule}/" for rule in RULES))
    ]
    assert {results[name].shape for name in errors} == {(1, 3, 6)}
    assert all(np.isfinite(results[name]).all() for name in results.files)
    assert {results[f"estimate/{name}"].shape for name in errors} == {(1, 3, 6, 3)}

    unmasked = np.ones((26, 40), bool)
    unmasked[7:15, 10:22] = False
    gray = np.array([raw[unmasked].mean(axis=0) for raw in release.raw])
    expected = np.delete(degrees(gray, release.illuminants), LEAST_ALIKE)
    np.testing.assert_allclose(
        np.sort(results["held-out/GW"].ravel()), np.sort(expected), rtol=1e-3
    )

    page = report.read_text()
    assert "18 quasi-real pairs" in page
    assert f"left out for folds of equal size: {MAIN}_{LEAST_ALIKE + 1:04}" in page
    assert "15% of the training folds" in page
    for reference in ("2.39", "4.74"):
        assert re.search(rf'class="paper">\s*{reference}<', page)


@pytest.mark.parametrize(("selection", "fold"), [("held-out", 0), ("test-set", 2)])
def test_reilluminated_pairs_have_the_transform_of_their_new_illuminant(release, selection, fold):
    """In this world a pair under another's illuminant has exactly the other's transform."""
    charted, images = official_pairs(MAIN, SECOND, seed=0)
    pairs = charted_camera_pairs(charted, moments_of(images), (MAIN, SECOND), "")
    augmentations = chart_augmentations(charted)
    augment = augmentations["re-illuminated"]
    samples = split_samples(pairs, augment, selection, fold, 5)
    problem = problem_of("T", *samples)

    chromaticities = release.illuminants[:, ::2] / release.illuminants[:, 1:2]
    distance = np.abs(np.asarray(problem.targets)[:, None] - chromaticities).max(axis=-1)
    assert distance.min(axis=1).max() < 1e-5
    lit_by = distance.argmin(axis=1)
    expected = release.transforms.reshape(-1, 9)
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    lengths = np.linalg.norm(problem.features, axis=1, keepdims=True)
    np.testing.assert_allclose(problem.features / lengths, expected[lit_by], atol=2e-3)
    assert np.abs(expected - expected.mean(axis=0)).max() > 0.1, "lights must matter"

    originals = np.delete(np.arange(PAIRS), LEAST_ALIKE)
    held_out = {*originals[pairs.folds[fold]]}
    valid = np.abs(np.asarray(problem.valid_targets)[:, None] - chromaticities).max(axis=-1)
    chosen_on = {*valid.argmin(axis=1)}
    assert len(chosen_on) == (2 if selection == "held-out" else 6)
    assert not {*lit_by} & (held_out | chosen_on)
    assert chosen_on.isdisjoint(held_out) if selection == "held-out" else chosen_on == held_out

    count = 10 if selection == "held-out" else 12
    assert len(problem.features) == count * count
    assert {*np.bincount(lit_by, minlength=PAIRS)} == {0, count}
    on_moments = problem_of("moments", *samples)
    np.testing.assert_array_equal(on_moments.targets, problem.targets)
    both = problem_of("T and moments", *samples)
    np.testing.assert_array_equal(both.features, np.hstack([problem.features, on_moments.features]))
    repeated = problem_of("T", *split_samples(pairs, augmentations["none"], selection, fold, 5))
    assert repeated.features.shape == problem.features.shape
    assert len(np.unique(repeated.features, axis=0)) == count


@pytest.fixture(scope="module")
def small():
    """Return twelve images of random tiles under twelve illuminants, with a masked corner."""
    rng = np.random.default_rng(1)
    illuminants = rng.uniform(0.4, 1, (12, 3)).astype(np.float32)
    tiles = rng.uniform(0.05, 0.9, (12, 5, 6, 3)).repeat(4, axis=1).repeat(4, axis=2)
    images = (tiles * illuminants[:, None, None]).astype(np.float32)
    masks = np.ones(images.shape[:3], np.float32)
    masks[:, :4, :4] = 0
    tags = "one", ["one"] * 12, [""] * 12
    return IlluminantImages(images, masks, illuminants, draw_folds(12, 0), "", *tags)


@pytest.fixture
def one_learner(monkeypatch):
    """Replace all methods that learn by a single one."""
    fixed = {name: row for name, row in ILLUMINANT_METHODS.items() if not row.is_selectable}
    homography = replace(ILLUMINANT_METHODS["Homography (SoG)"], features=ESTIMATORS["GW"].features)
    rows = fixed | {"Homography (GW)": replace(homography, name="Homography (GW)")}
    monkeypatch.setattr(image_methods, "methods_for", lambda side: rows)


@pytest.mark.slow
def test_figure_9_shows_scenes_by_difficulty_and_grays_them(small, tmp_path, one_learner):
    training = TrainingSettings(20, batch_size=4, validate_every=2)
    columns = correction_columns(
        small, compare_images(small, NetworkTraining(training, (0,), tmp_path))
    )
    assert [*columns] == ["input", "GW", "SoG", "PCA", "Gamut Pixel", "truth"]
    gray = [image[mask > 0].mean(axis=0) for image, mask in zip(*small[:2], strict=True)]
    ranked = np.argsort(degrees(np.array(gray, float), small.illuminants.astype(float)))
    rows = ranked[[1, 6, 10]]  # of 12: 0.1, 0.5 and 0.9 of the way, rounded half to even
    for index, row in enumerate(rows):
        error = degrees(gray[row].astype(float), small.illuminants[row].astype(float))
        assert columns["GW"][index][1] == f"{error:.1f}°"
        illuminant = small.illuminants[row].astype(float)
        balanced = small.images[row] * (illuminant[1] / illuminant)
        exposed = np.clip(balanced / np.quantile(balanced.max(axis=-1), 0.97), 0, 1)
        linear = 12.92 * exposed
        curve = 1.055 * exposed ** (1 / 2.4) - 0.055
        expected = np.where(exposed <= 0.0031308, linear, curve)
        np.testing.assert_allclose(columns["truth"][index][0], expected, atol=1e-4)


def test_the_demo_leaves_a_report_that_does_not_pass_for_nus(tmp_path, monkeypatch, one_learner):
    monkeypatch.setitem(PRESETS, "nus-demo", replace(PRESETS["nus-demo"], training=SHORT))
    words = ["--preset", "nus-demo", "--seeds", "1", "--runs", str(tmp_path)]
    main(["paper", "two-camera", *words])
    folder = tmp_path / "two-camera-nus-demo"
    page = (folder / "report.html").read_text()
    assert "NOT photographs: 162 rendered thumbnails" in page
    assert "NUS" not in page.split("</h1>")[0]
    assert page.count("data:image/png;base64,") == 3
    results = np.load(folder / "results.npz")
    camera = "Nikon 5100 (NPL)"
    errors = [name for name in results.files if name.startswith(f"{camera}/")]
    assert {results[name].shape for name in errors} == {(1, 3, 54)}
    # Nine estimators, the one that learns, and on moments net and regression under two
    # augmentations and the chosen one; one seed has no ensembles.
    assert len(errors) == 9 + 1 + 2 * 3
    assert {*results.files} == {
        *errors,
        *(f"estimate/{name}" for name in errors),
        f"illuminant/{camera}",
        f"image/{camera}",
    }


def test_thumbnails_mask_charts_and_saturation(real_data, monkeypatch):
    root = real_data("nus8_64x64").parent
    monkeypatch.setenv("EVERLIGHT_DATA", str(root))
    data = read_camera_images(thumbnail_cameras(thumbnail_files())[MAIN], 64)
    with np.load(root / "nus8_64x64/NikonD5200.npz") as stored:
        selected = np.char.startswith(stored["names"], "NikonD5200_")
        raw = stored["images_u16"][selected].astype(float) / 65535
        illuminants = stored["illuminant_rgb"][selected]
    trusted = raw.any(axis=-1) & (raw.max(axis=-1) < 0.95)
    np.testing.assert_array_equal(data.masks, trusted)
    gray = np.array([image[mask].mean(axis=0) for image, mask in zip(raw, trusted, strict=True)])
    from_run = jnp.asarray(data.images * data.masks[..., None]).sum(axis=(1, 2))
    assert degrees(gray, illuminants).mean() == pytest.approx(4.63, abs=0.01)
    np.testing.assert_allclose(degrees(np.asarray(from_run, float), gray), 0, atol=0.05)
