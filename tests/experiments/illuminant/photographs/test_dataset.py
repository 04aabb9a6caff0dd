"""The run on any set of photographs: what it reads, tests and shows."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color import ILLUMINANT_METHODS, IlluminantMethod, methods_for
from everlight.color.learned.capture_aware import CAPTURE_AWARE, IMAGE_ALONE, WITHOUT_CAPTURES
from everlight.color.learned.fourier_constancy import TUNED_HERE
from everlight.illuminant.camera_pairs import ImageInputs
from everlight.illuminant.illuminant_training import TrainingSettings
from everlight.illuminant.pair_augmentations import IMAGE_AUGMENTATIONS
from everlight.illuminant.pair_inputs import MOMENTS
from everlight_data.color.photographs.camera_names import NUS8_CAMERAS
from everlight_data.errors import DataError, MissingDataError
from everlight_data.pretrained import trunk_views
from everlight_data.sets.constancy_set import Captures
from everlight_experiments.illuminant.config import DATASET
from everlight_experiments.illuminant.core import cross_validation, image_methods
from everlight_experiments.illuminant.core.experiment import Comparison
from everlight_experiments.illuminant.core.method_inputs import moments_of, side_of
from everlight_experiments.illuminant.photographs import dataset, source
from everlight_experiments.illuminant.photographs.dataset import (
    DatasetOptions,
    run_dataset,
    split_cameras,
)
from everlight_experiments.illuminant.photographs.source import load_cameras
from everlight_experiments.illuminant.published_tables import CROSS_CAMERA, STATISTICS
from tests.experiments.illuminant.photographs.thumbnail_files import write_cameras, write_thumbnails

DUAL_MAPPING, POOLED = "DMCC", "FC4-style"
SHORT = TrainingSettings(20, batch_size=4, validate_every=2)


@pytest.fixture
def few(monkeypatch):
    """Replace all methods that learn by a single one, and use small nets."""
    monkeypatch.setattr(source, "MIN_IMAGES", 6)
    one = ILLUMINANT_METHODS["Corrected moments, 9 of colours"]

    def rows(side):
        name = f"of {side.camera}"
        return {"GW": ILLUMINANT_METHODS["GW"], name: replace(one, name=name)}

    monkeypatch.setattr(image_methods, "methods_for", rows)
    monkeypatch.setattr(cross_validation, "OTHER_DEPTHS", (2,))


def test_cameras_are_tested_in_folds_or_by_the_others(tmp_path, rng, few):
    for camera, count, side in (("A1", 10, 16), ("B2", 8, 20)):
        write_thumbnails(tmp_path / f"{camera}.npz", camera, count, rng, side)
    files = tuple(tmp_path / f"{camera}.npz" for camera in ("A1", "B2"))
    settings = DatasetOptions(thumbnails=files, runs=tmp_path)
    cameras, note = load_cameras(settings)
    assert "A1.npz, B2.npz" in note
    folded = split_cameras(cameras, settings)
    for camera, stored in (("A1", 9), ("B2", 6)):
        data = folded[camera]
        assert len(data.images) == stored
        assert sorted(np.concatenate(data.folds)) == list(range(stored))
        assert f"{len(cameras[camera].names) - stored} left out" in data.note
        rows = [
            np.flatnonzero((cameras[camera].illuminants == illuminant).all(1))
            for illuminant in data.illuminants
        ]
        for place, (row,) in enumerate(rows):
            np.testing.assert_array_equal(data.images[place], cameras[camera].images[row])

    across = split_cameras(cameras, replace(settings, split="cross-camera"))
    for camera, rows in (("A1", range(10)), ("B2", range(10, 18))):
        data = across[camera]
        (requested,) = data.folds
        assert requested.tolist() == list(rows)
        np.testing.assert_array_equal(data.illuminants[requested], cameras[camera].illuminants)
        assert data.images.shape == (18, 20, 20, 3)
        assert (data.masks[:10, 16:] == 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"release": "nus8"}, "--release and --folder belong together"),
        ({"release": "radiometric", "folder": Path()}, "radiometric is rendered and has no folder"),
        ({"cameras": ("A2",)}, "no camera 'A2'; did you mean 'A1'"),
        ({"split": "cross-camera"}, "two cameras or more"),
        ({"preset": "demo"}, "--preset demo renders its own images"),
        ({"folds": Path("f.txt"), "split": "cross-camera"}, "two cameras or more"),
        ({"camera": "A1", "cameras": ("A1",)}, "--camera names all images' camera"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path, rng, few, options, message):
    write_thumbnails(tmp_path / "A1.npz", "A1", 10, rng)
    with pytest.raises(DataError, match=message):
        load_cameras(DatasetOptions(thumbnails=(tmp_path / "A1.npz",), **options))


def test_the_radiometric_set_is_rendered_for_any_camera(real_data, monkeypatch):
    root = real_data("camspec_jiang2013").parent
    monkeypatch.setenv("EVERLIGHT_DATA", str(root))
    requested = DatasetOptions(release="radiometric", cameras=("Nokia N900",))
    cameras, note = load_cameras(requested)
    assert note.startswith("NOT photographs: 162 rendered")
    data = cameras["Nokia N900"]
    # Patches of one scene are 24 colours, and a matte surface is no brighter than its illuminant.
    blocks = data.images.reshape(162, 4, 8, 6, 8, 3)
    assert np.ptp(blocks, axis=(2, 4)).max() < 1e-6
    assert (blocks.max(axis=(1, 2, 3, 4)) <= data.illuminants * 1.001).all()
    with pytest.raises(DataError, match="did you mean 'Nokia N900'"):
        load_cameras(DatasetOptions(release="radiometric", cameras=("Nokia N90",)))


def test_too_few_images_are_refused(tmp_path, rng):
    write_thumbnails(tmp_path / "A1.npz", "A1", 10, rng)
    with pytest.raises(DataError, match=r"A1 has 10 images; .* name it by --camera"):
        load_cameras(DatasetOptions(thumbnails=(tmp_path / "A1.npz",)))


def test_relit_images_have_the_numbers_of_their_new_illuminant(tmp_path, rng, few):
    """The augmentation equals the observation of the image times the illuminants' ratio."""
    write_thumbnails(tmp_path / "A1.npz", "A1", 12, rng)
    settings = DatasetOptions(thumbnails=(tmp_path / "A1.npz",))
    data = split_cameras(load_cameras(settings)[0], settings)["A1"]
    images = ImageInputs({MOMENTS: moments_of(data)}, data.illuminants, np.stack(data.folds))
    train = np.arange(5)
    key = jax.random.key(3)
    samples = IMAGE_AUGMENTATIONS["re-illuminated"](images, train, key)
    assert len(samples.targets) == 5 * 5
    chromaticities = data.illuminants[:, ::2] / data.illuminants[:, 1:2]
    for place in range(25):
        source = place // 5
        (illuminant,) = np.flatnonzero(
            np.abs(samples.targets[place] - chromaticities).max(axis=1) < 1e-5
        )
        gains = data.illuminants[illuminant] / data.illuminants[source]
        relit = data._replace(images=data.images * (gains / gains[1]))
        np.testing.assert_allclose(
            samples.inputs[MOMENTS][place], moments_of(relit)[source], rtol=2e-3, atol=1e-5
        )
        if place % 5 == 0:
            assert illuminant == source


@pytest.mark.slow
def test_a_run_leaves_its_errors_and_is_continued(tmp_path, rng, few, monkeypatch):
    monkeypatch.setitem(DATASET, "small", SHORT)
    images, illuminants = write_thumbnails(tmp_path / "A1.npz", "A1", 24, rng)
    write_thumbnails(tmp_path / "B2.npz", "B2", 24, rng)
    files = tuple(tmp_path / f"{camera}.npz" for camera in ("A1", "B2"))
    settings = DatasetOptions(thumbnails=files, seeds=1, runs=tmp_path)
    released = []
    monkeypatch.setattr(dataset, "release_programs", lambda: released.append(None))
    report = run_dataset(settings)
    assert len(released) == len(files)  # after each camera
    results = np.load(report.parent / "results.npz")
    assert results["A1/GW"].shape == (1, 3, 8)
    gray = np.array([image[image.max(-1) < 0.95 * image.max()] for image in images], object)
    expected = []
    for colors, illuminant in zip(gray, illuminants, strict=True):
        mean = colors[colors.any(axis=1)].mean(axis=0)
        cosine = mean @ illuminant / np.linalg.norm(mean) / np.linalg.norm(illuminant)
        expected.append(np.degrees(np.arccos(cosine)))
    np.testing.assert_allclose(np.sort(results["A1/GW"].ravel()), np.sort(expected), atol=0.02)
    place = np.argsort(results["image/A1"].ravel())
    np.testing.assert_array_equal(
        results["illuminant/A1"].reshape(-1, 3)[place], np.float32(illuminants)
    )
    estimates, truth = (
        array / np.linalg.norm(array, axis=-1, keepdims=True)
        for array in (results["estimate/A1/GW"], results["illuminant/A1"])
    )
    cosines = (estimates * truth).sum(axis=-1)
    np.testing.assert_allclose(results["A1/GW"], np.degrees(np.arccos(cosines)), atol=0.03)
    assert "A1/of A1" in results.files
    assert "B2/of B2" in results.files
    page = report.read_text()
    assert page.count("data:image/png;base64,") == 3
    assert "All 2 cameras" in page
    assert ", re-illuminated<" not in page

    monkeypatch.setattr(dataset, "compare_images", lambda *arguments: pytest.fail("again"))
    again = run_dataset(settings)
    np.testing.assert_array_equal(np.load(again.parent / "results.npz")["A1/GW"], results["A1/GW"])
    write_thumbnails(tmp_path / "B2.npz", "B2", 24, rng)
    with pytest.raises(DataError, match=r"units/B2\.npz.*\(data: "):
        run_dataset(settings)


def test_stored_estimates_of_a_method_are_not_computed_again(tmp_path, rng, few):
    data = two_cameras(tmp_path, rng)["A1"]
    stored = {}

    def keep(name, compute):
        return stored.setdefault(name, compute() if name not in stored else None)

    first = image_methods.cross_validate_methods(data, keep)
    assert list(stored) == ["A1-of A1"]
    stored["A1-of A1"] = {"estimates": 2 * stored["A1-of A1"]["estimates"]}
    again = image_methods.cross_validate_methods(data, keep)
    np.testing.assert_array_equal(again["of A1"], 2 * first["of A1"])
    fewer = image_methods.cross_validate_methods(data, names=["of A1"])
    np.testing.assert_array_equal(fewer["of A1"], first["of A1"])
    assert image_methods.learned_methods(data) == ["of A1"]
    assert list(image_methods.cross_validate_methods(data, names=[])) == ["GW"]


def two_cameras(tmp_path, rng, names=("A1", "B2"), split="folds"):
    settings = DatasetOptions(thumbnails=write_cameras(tmp_path, rng, 12, names), split=split)
    return split_cameras(load_cameras(settings)[0], settings)


def available(data):
    return set(methods_for(side_of(data))) - set(image_methods.left_out(data))


@pytest.mark.parametrize("split", ["folds", "cross-camera"])
def test_training_images_have_the_numbers_of_their_cameras(tmp_path, rng, few, monkeypatch, split):
    lessons = []

    def fit(images, side):
        lessons.append((images, side.camera_number))

    spy = IlluminantMethod("spy", lambda image, mask: image, fit, lambda _, image: image[0, 0])
    monkeypatch.setattr(image_methods, "methods_for", lambda side: {"spy": spy})
    data = two_cameras(tmp_path, rng, split=split)["B2"]
    (estimates,) = image_methods.cross_validate_methods(data)["spy"]
    assert len(lessons) == len(data.folds)
    for (lesson, camera), estimate, test in zip(lessons, estimates, data.folds, strict=True):
        taught = np.setdiff1d(np.arange(len(data.images)), test)
        np.testing.assert_array_equal(lesson.features, data.images[taught])
        np.testing.assert_array_equal(estimate, data.images[test][:, 0, 0])
        np.testing.assert_array_equal(lesson.illuminants, data.illuminants[taught])
        same = np.asarray(lesson.cameras == camera)
        assert same.all() if split == "folds" else not same.any()
        assert len(taught) == (8 if split == "folds" else 12)


def test_unavailable_methods_are_left_out_with_their_reason(tmp_path, rng, real_data, monkeypatch):
    monkeypatch.setenv("EVERLIGHT_DATA", str(real_data("camera_matrices").parent))
    monkeypatch.setattr(source, "MIN_IMAGES", 6)
    known = ("NikonD5200", "SonyA57")
    of_known = two_cameras(tmp_path, rng, known, "cross-camera")["SonyA57"]
    of_others = two_cameras(tmp_path, rng, ("SonyA57", "B2"), "cross-camera")["B2"]
    in_folds = two_cameras(tmp_path, rng, known)["SonyA57"]
    monkeypatch.setattr(trunk_views, "efficientnet_lite0_folder", lambda: None)
    without = {CAPTURE_AWARE: WITHOUT_CAPTURES}
    assert image_methods.left_out(of_known) == without
    assert image_methods.left_out(in_folds) == without
    captured = in_folds._replace(captures=Captures(np.zeros((12, 1), np.float32), ("lux",)))
    assert not image_methods.left_out(captured)
    assert {CAPTURE_AWARE, IMAGE_ALONE} <= available(captured)
    assert {DUAL_MAPPING, POOLED} <= available(of_known)
    assert "none is known of B2" in image_methods.left_out(of_others)[DUAL_MAPPING]

    requested = []

    def missing():
        requested.append(1)
        raise MissingDataError("not installed")

    monkeypatch.setattr(trunk_views, "efficientnet_lite0_folder", missing)
    # A name is known, whether its method can run or not.
    assert POOLED in image_methods.learned_methods(of_known)
    assert not requested
    assert image_methods.left_out(of_known) == {POOLED: "not installed"} | without
    assert available(of_known) == available(in_folds) - {POOLED} | {TUNED_HERE}
    ones = np.ones((1, 12, 3))
    sentences = dataset.omission_notes(
        {"SonyA57": of_known}, {"SonyA57": Comparison({"GW": ones}, ones)}
    )
    assert len(sentences) == 2
    assert "FC4-style has no row for SonyA57: not installed." in sentences
    complete = {POOLED: ones, CAPTURE_AWARE: ones}
    assert not dataset.omission_notes(
        {"SonyA57": of_known}, {"SonyA57": Comparison(complete, ones)}
    )


def test_only_the_named_cameras_are_held_out(tmp_path, rng, few):
    files = write_cameras(tmp_path, rng, 8)
    settings = DatasetOptions(thumbnails=files, split="cross-camera", tested=("B2",), runs=tmp_path)
    cameras, _ = load_cameras(settings)
    sets = split_cameras(cameras, settings)
    assert list(sets) == ["B2"]
    assert sets["B2"].folds[0].tolist() == list(range(8, 16))
    with pytest.raises(DataError, match="no camera 'C3'"):
        load_cameras(replace(settings, tested=("C3",)))
    with pytest.raises(DataError, match="goes with --split cross-camera"):
        load_cameras(replace(settings, split="folds"))


@pytest.mark.parametrize(
    ("counts", "tested", "result"),
    [
        ({"A1": 8, "B2": 3, "C3": 9}, (), ["A1", "C3"]),
        ({"A1": 8, "B2": 3}, (), r"all cameras but A1 have 3 images; at least 45 are needed to tr"),
        ({"A1": 8, "B2": 3, "C3": 9}, ("B2",), r"B2 has 3 images; .* Leave it out of --tested"),
        (
            {"A1": 4, "B2": 3, "C3": 5},
            (),
            "no camera has the 45 images that a test needs .A1 4, B2 3, C3 5.",
        ),
    ],
)
def test_a_small_camera_trains_and_is_not_tested(few, counts, tested, result):
    settings = DatasetOptions(split="cross-camera", tested=tested)
    if isinstance(result, list):
        settings.check_counts(counts)
        assert settings.tested_cameras(counts) == result
        with pytest.raises(DataError, match="B2 has 3 images"):
            replace(settings, split="folds").check_counts(counts)
    else:
        with pytest.raises(DataError, match=result):
            settings.check_counts(counts)


def test_a_small_camera_s_images_train(tmp_path, rng, few):
    files = (*write_cameras(tmp_path, rng, 8), *write_cameras(tmp_path, rng, 2, ("C3",)))
    settings = DatasetOptions(thumbnails=files, split="cross-camera", runs=tmp_path)
    cameras, _ = load_cameras(settings)
    sets = split_cameras(cameras, settings)
    assert list(sets) == ["A1", "B2"]
    assert len(sets["A1"].images) == 18
    assert dataset.training_only(cameras, sets) == {"Only in training": "C3 (2 images)"}
    assert not dataset.training_only(dict(list(cameras.items())[:2]), sets)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["folds", "cross-camera"])
def test_groups_are_the_units_of_folds_and_intervals(tmp_path, rng, few, monkeypatch, split):
    monkeypatch.setitem(DATASET, "small", SHORT)
    files = write_cameras(tmp_path, rng, 24)
    lines = [
        f"{camera},{camera}_{row:04},scene {row // 3}"
        for camera in ("A1", "B2")
        for row in range(24)
    ]
    (tmp_path / "groups.csv").write_text("\n".join(["camera,image,group", *lines, ""]))
    options = {"thumbnails": files, "seeds": 1, "runs": tmp_path, "split": split}
    report = run_dataset(DatasetOptions(groups=tmp_path / "groups.csv", **options))
    results, page = np.load(report.parent / "results.npz"), report.read_text()
    assert results["A1/GW"].shape == results["A1/of A1"].shape == (1, 1, 24)
    assert sorted(results["image/A1"][0]) == [f"A1_{row:04}" for row in range(24)]
    # All cameras together, and each of both.
    assert page.count("The interval of the mean is a bootstrap over groups.") == 3
    assert "averaged over folds" not in page
    assert ("drawn by seed 0" in page) == (split == "folds")
    cameras, _ = load_cameras(DatasetOptions(groups=tmp_path / "groups.csv", **options))
    assert cameras["A1"].groups.tolist() == cameras["B2"].groups.tolist()
    assert len({*cameras["A1"].groups.tolist()}) == 8
    if split == "folds":
        # The numbers in the names give the scenes.
        sets = dataset.split_cameras(cameras, DatasetOptions(**options))
        for data in sets.values():
            scenes = [{int(data.names[row][-4:]) // 3 for row in fold} for fold in data.folds]
            assert sum(map(len, scenes)) == len(set().union(*scenes)) == 8


def test_all_cameras_images_are_pooled():
    def one(value, folds, count):
        illuminants = jnp.full((2, folds, count, 3), value)
        return Comparison(
            {"GW": illuminants, f"own {value}": illuminants}, np.full((folds, count, 3), value)
        )

    both = dataset.pooled({"a": one(1.0, 3, 2), "b": one(2.0, 1, 5)}, "folds")
    assert list(both.estimates) == ["GW"]
    assert both.estimates["GW"].shape == (2, 1, 11, 3)
    np.testing.assert_array_equal(both.truth[0, :, 0], [1] * 6 + [2] * 5)


def test_published_numbers_stand_beside_the_same_data_only():
    ones = np.ones((1, 3, 3))
    complete = {camera: Comparison({"GW": ones[None]}, ones) for camera in NUS8_CAMERAS}
    across = dataset.pooled(complete, "cross-camera")
    row = across.published["C5 with eight other images, published"]
    named = dict(zip(STATISTICS, row, strict=True))
    shown = {name: value for name, value in named.items() if not np.isnan(value)}
    assert shown == {"Mean": 1.77, "Med": 1.37, "Tri": 1.46, "B25%": 0.48, "W25%": 3.75}
    assert "also trained on the other sets" in across.caption
    assert not dataset.pooled(complete, "folds").published
    del complete["SonyA57"]
    assert not dataset.pooled(complete, "cross-camera").published
    assert dataset.published_rows("NikonD5200", "folds")["GW"][0] == 4.43
    assert dataset.published_rows("SonyA57", "folds") == {TUNED_HERE: (2.11,)}
    assert not dataset.published_rows("SonyA57", "cross-camera")
    cube = dataset.published_rows("Canon550D", "cross-camera")
    assert [cube[name][0] for name in ("GW", "CCMNet, published")] == [3.52, 1.68]
    # In every row the best quarter is below the median, and the worst above the mean.
    for rows in CROSS_CAMERA.values():
        for mean, median, best, worst, *_, trimean in rows.values():
            assert best < median < mean < worst
            assert np.isnan(trimean) or median <= trimean < mean
    assert not dataset.published_rows("A1", "folds")
