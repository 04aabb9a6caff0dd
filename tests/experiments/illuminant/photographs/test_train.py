"""A single-image method from training to the estimates of a folder of photos."""

import contextlib
import csv
import io
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import imagecodecs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tifffile

from everlight.color import ILLUMINANT_METHODS, SideInformation
from everlight.illuminant import image_model
from everlight.illuminant.illuminant_interval import ChromaticityInterval
from everlight.illuminant.out_of_distribution import OutOfDistributionScore
from everlight.illuminant.pair_model import Estimate
from everlight_data.color.models import image_model_files
from everlight_data.color.models.image_model_files import load_estimator, save_image_model
from everlight_data.color.models.model_files import errors_like
from everlight_data.color.models.pair_model_files import load_pair_model
from everlight_data.errors import DataError
from everlight_experiments.illuminant.core.image_methods import full_name, spread_rows
from everlight_experiments.illuminant.estimate import photos
from everlight_experiments.illuminant.estimate.command import estimate
from everlight_experiments.illuminant.estimate.options import EstimateOptions
from everlight_experiments.illuminant.photographs import source
from everlight_experiments.illuminant.photographs.dataset import DatasetOptions, run_dataset
from everlight_experiments.illuminant.photographs.train import IlluminantTrainOptions, run_train
from tests.dng_writer import write_dng
from tests.experiments.illuminant.photographs.thumbnail_files import write_cameras, write_thumbnails

SIDE = 32


def test_rendered_images_are_averaged_down_to_the_side(monkeypatch):
    monkeypatch.setattr(source, "RENDERED", 5)
    full, half = (
        source.load_cameras(IlluminantTrainOptions(preset="demo", side=side))[0].popitem()[1]
        for side in (48, 32)
    )
    blocks = np.float64(full.images).reshape(5, 16, 2, 24, 2, 3).mean(axis=(2, 4))
    assert full.masks.all()
    np.testing.assert_allclose(half.images, blocks, rtol=1e-6)


@pytest.fixture(scope="module")
def gray(tmp_path_factory):
    """Train a Gray World model on 30 thumbnails; return it with them and their illuminants."""
    folder = tmp_path_factory.mktemp("gray")
    rng = np.random.default_rng(1)
    images, illuminants = write_thumbnails(folder / "mine.npz", "Eye One", 30, rng)
    settings = IlluminantTrainOptions(
        thumbnails=(folder / "mine.npz",),
        runs=folder / "runs",
        side=SIDE,
        method="gw",
        out=folder / "model",
    )
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(source, "MIN_IMAGES", 6)
        report = run_train(settings)
    (folder / "printed.txt").write_text(f"{printed.getvalue()}\n{report}")
    return folder / "model", images, illuminants


def test_groups_are_held_out_together(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(source, "MIN_IMAGES", 6)
    _, illuminants = write_thumbnails(tmp_path / "mine.npz", "Eye One", 20, rng)
    words = [f"scene{row // 3}" for row in range(20)]
    (tmp_path / "groups.txt").write_text("\n".join(words))
    settings = IlluminantTrainOptions(
        thumbnails=(tmp_path / "mine.npz",),
        runs=tmp_path / "runs",
        side=SIDE,
        method="gw",
        out=tmp_path / "model",
        groups=tmp_path / "groups.txt",
    )
    report = run_train(settings)
    results = np.load(report.parent / "results.npz")
    assert results["held-out/GW"].shape == (1, 1, 20)
    assert results["image/held-out"][0].tolist() == [f"Eye One_{row:04}" for row in range(20)]
    np.testing.assert_array_equal(results["illuminant/held-out"][0], np.float32(illuminants))
    assert "bootstrap over groups" in report.read_text()


def test_the_median_is_the_reports_mean_over_folds(gray):
    model, _, _ = gray
    printed, path = (model.parent / "printed.txt").read_text().rsplit("\n", 1)
    errors = np.load(Path(path).parent / "results.npz")["held-out/GW"]
    assert errors.shape == (1, 3, 10)
    median, pooled = np.median(errors, axis=2).mean(), np.median(errors)
    assert f"mean error {errors.mean():.2f} degrees, median {median:.2f}\n" in printed
    assert f"{median:.2f}" != f"{pooled:.2f}"
    page = Path(path).read_text()
    assert f"<td>{median:.2f}" in page
    assert "Statistics are taken within a fold and averaged over folds." in page
    assert "folds by seed 0; trainings by a fixed key" in page


def scene(rng, illuminant, height=96, width=128):
    """Return tiles of 16 pixels in float64, with one saturated corner tile."""
    tiles = rng.uniform(0.1, 0.8, (height // 16, width // 16, 3)) * illuminant
    image = tiles.repeat(16, axis=0).repeat(16, axis=1)
    image[:16, :16] = 1
    return image


def gray_world(image):
    """Return the mean of all tiles but the saturated one, relative to green."""
    keep = np.ones(image.shape[:2], bool)
    keep[:16, :16] = False
    mean = image[keep].mean(axis=0)
    return mean / mean[1]


def conformal_width(images, illuminants):
    """Return half the width of the interval in logarithms, computed again in float64."""
    brightest = images.max(-1)
    usable = (brightest > 0) & (brightest < 0.95 * brightest.max((1, 2), keepdims=True))
    means = np.array([image[mask].mean(0) for image, mask in zip(images, usable, strict=True)])
    errors = np.abs(
        np.log(means[:, ::2] / means[:, 1:2]) - np.log(illuminants[:, ::2] / illuminants[:, 1:2])
    )
    floor = errors.mean(0)
    needed = np.sort((errors / floor).max(1))
    return floor * needed[math.ceil(0.9 * (len(images) + 1)) - 1]


def test_photos_of_every_kind_have_gray_worlds_illuminant(gray, tmp_path, capsys):
    model, images, illuminants = gray
    rng = np.random.default_rng(2)
    shot = scene(rng, np.array([0.6, 1, 0.7]))
    counts = np.round(100 + shot * 4000).astype(np.uint16)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(imagecodecs.png_encode(counts))
    tifffile.imwrite(tmp_path / "photos" / "b.tif", counts, photometric="rgb")
    (tmp_path / "photos" / "notes.txt").write_text("no photo")
    settings = EstimateOptions(
        (tmp_path / "photos",),
        model,
        output=tmp_path / "out",
        formats=("tiff", "dng"),
        main_black_level=100,
        main_white_level=4100,
    )
    results = estimate(settings)
    expected = gray_world((counts - 100.0) / 4000)
    width = conformal_width(images, illuminants)
    shown = [line for line in capsys.readouterr().out.splitlines() if "90% interval" in line]
    assert len(shown) == 2
    assumption = "; it assumes one illuminant, and photographs like those of the training"
    assert all(item.endswith(assumption) for item in shown)
    for result in results:
        np.testing.assert_allclose(result.estimate.illuminant, expected, rtol=1e-4)
        low, high = result.estimate.interval.low, result.estimate.interval.high
        np.testing.assert_allclose(low, expected[::2] * np.exp(-width), rtol=1e-3)
        np.testing.assert_allclose(high, expected[::2] * np.exp(width), rtol=1e-3)
    lines = list(csv.DictReader((tmp_path / "out" / "illuminants.csv").open()))
    assert [Path(line["photo"]).name for line in lines] == ["a.png", "b.tif"]
    np.testing.assert_allclose(float(lines[0]["r/g"]), expected[0], rtol=1e-4)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("a.tiff", "b.tiff", "illuminants.csv")
    }
    corrected = tifffile.imread(tmp_path / "out" / "a.tiff") / 65535
    # A pixel of middle exposure is divided by the illuminant, with one factor for all channels.
    ratio = corrected[60, 60] / (shot[60, 60] / expected)
    np.testing.assert_allclose(ratio, ratio[1], rtol=2e-3)
    # Python gives the same: without levels the maximum is white.
    actual = load_estimator(model)((counts - 100.0) / 4000)
    np.testing.assert_allclose(actual, expected, rtol=1e-4)


def test_raw_photos_have_the_cameras_of_their_files(gray, tmp_path, capsys):
    """A statistic was trained for no camera, and so no photo is by another one."""
    model, _, _ = gray
    shot = scene(np.random.default_rng(3), np.array([0.6, 1, 0.7])).astype(np.float32)
    for name, camera in (("own", "Maker EYE-ONE"), ("other", "Eye Two")):
        write_dng(tmp_path / f"{name}.dng", shot, 512, 16383, model=camera)
    (tmp_path / "dark.dng").write_bytes(b"II*\0")
    files = tuple(tmp_path / f"{name}.dng" for name in ("own", "dark", "other"))
    settings = EstimateOptions(files, model, output=tmp_path / "out", formats=())
    with pytest.raises(DataError, match=r"1 of 3 photos have no estimate.*dark\.dng"):
        estimate(settings)
    current, other = csv.DictReader((tmp_path / "out" / "illuminants.csv").open())
    assert (current["camera"], other["camera"]) == ("Maker EYE-ONE", "Eye Two")
    assert "trained for" not in current["warnings"] + other["warnings"]
    # Demosaicing mixes tiles at their edges.
    np.testing.assert_allclose(float(current["r/g"]), gray_world(shot)[0], rtol=0.03)


def test_images_without_an_estimate_are_refused_in_one_line(gray, tmp_path):
    model, _, _ = gray
    estimator = load_estimator(model)
    with pytest.raises(image_model.UnsuitableImageError, match="no block of the image"):
        estimator(np.zeros((40, 50, 3)))
    with pytest.raises(image_model.UnsuitableImageError, match="is not an illuminant"):
        estimator(scene(np.random.default_rng(0), np.array([0.02, 1, 0.9])))
    with pytest.raises(DataError, match="is for pairs"):
        estimate(EstimateOptions((tmp_path / "a.png",), model, second_black_level=3))
    with pytest.raises(DataError, match="is a model for images; give one for pairs"):
        load_pair_model(model)
    eight = tmp_path / "eight.png"
    eight.write_bytes(imagecodecs.png_encode(np.zeros((8, 8, 3), np.uint8)))
    with pytest.raises(DataError, match=r"eight\.png has 3 channels of 8 bits"):
        estimate(EstimateOptions((eight,), model))


def drawn_model(name, others, rng):
    """Return a model with drawn arrays, which have the shapes of a fit to seven images."""
    method = ILLUMINANT_METHODS[name]

    def drawn(like):
        return jax.tree.map(
            lambda leaf: jnp.asarray(rng.normal(0, 0.1, leaf.shape), leaf.dtype), like
        )

    image = jax.ShapeDtypeStruct((SIDE, SIDE, 3), jnp.float32)
    mask = jax.ShapeDtypeStruct((SIDE, SIDE), jnp.bool_)
    described = jax.eval_shape(
        partial(image_model.described_features, method.features), image, mask
    )
    fitted = drawn(image_model_files._fitted_like(method, described, 7, SideInformation()))
    # A variance of batch normalization is not negative.
    fitted = jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.abs(leaf) if "'var'" in jax.tree_util.keystr(path) else leaf, fitted
    )
    others = drawn(image_model_files._leading(6, described)) if others else None
    errors = image_model.ErrorCalibration(**drawn(errors_like(9)))
    wide = errors.distances._replace(distances=jnp.full(101, 1e9))
    errors = errors._replace(distances=wide)
    return image_model.ImageModel(name, method, fitted, others, SIDE, errors, ("One",), "drawn")


@pytest.mark.parametrize(
    ("name", "others"), [("APAP (GW)", False), ("Gamut Pixel", False), ("C5, small form", True)]
)
def test_a_methods_model_returns_to_the_bit(tmp_path, name, others):
    """The methods include APAP, as large as the training set, and C5 with additional images."""
    model = drawn_model(name, others, np.random.default_rng(0))
    save_image_model(tmp_path, model, 7)
    result = load_estimator(tmp_path)
    assert (result.name, result.side, result.cameras) == (name, SIDE, ("One",))
    pairs = (result.fitted, result.others), (model.fitted, model.others)
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, *pairs)))
    assert not result.needs_others


def test_c5_reads_other_photos_of_the_folder_by_the_same_camera(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(4)
    model = drawn_model("C5, small form", False, rng)
    assert model.needs_others
    image = scene(rng, np.array([0.7, 1, 0.8]))
    with pytest.raises(image_model.UnsuitableImageError, match="reads 6 other images"):
        model(image)
    current = [model.describe(scene(rng, np.array([0.7, 1, 0.8]))) for _ in range(6)]
    result = model(image, others=current)
    np.testing.assert_allclose(model(image, others=current[::-1]), result, rtol=1e-5)
    assert not np.array_equal(model(image, others=current[:1]), result)

    paths = [tmp_path / f"{number}.png" for number in range(8)]
    single = tmp_path / "alone.dng"
    cameras = {single: "Other"}
    monkeypatch.setattr(photos, "camera_name", cameras.get)
    monkeypatch.setattr(photos, "_read", lambda path, settings: path)
    monkeypatch.setattr(photos, "_described", lambda path, model: path)
    others = photos._additional_images([*paths, single], model, None)
    for path in paths:
        assert len(set(others[path])) == 6
        assert path not in others[path]
        assert set(others[path]) <= {*paths}
    assert others[single] == [single]
    assert "0 are given of Other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("camera", "fitted", "extra", "warned"),
    [
        *(("Maker C3", 0, "", True), ("B2", 0, "", False), ("Maker C3", None, "", False)),
        *(("Maker C3", 0, extra, False) for extra in ("others", "calibration")),
    ],
)
def test_methods_for_unseen_cameras_do_not_warn_of_one(monkeypatch, camera, fitted, extra, warned):
    """These are C5 and CCMNet of several cameras, and methods that learn nothing."""
    actual = Estimate(
        np.array([0.5, 1, 0.6]),
        ChromaticityInterval(0, 0, 1.0),
        OutOfDistributionScore(0.0, 1.0),
        False,
    )
    model = SimpleNamespace(
        fitted=fitted,
        needs_others=extra == "others",
        needs_calibration=extra == "calibration",
        cameras=("A1", "B2"),
        estimate=lambda *arguments: actual,
    )
    monkeypatch.setattr(photos, "_described", lambda photo, model, capture: None)
    monkeypatch.setattr(photos, "saturated_share", lambda photo: 0.0)
    monkeypatch.setattr(photos, "photo_calibration", lambda photo, matrices: None)
    stated = {"rendering": "", "has_gain_map": False}
    photo = SimpleNamespace(path=Path("a.dng"), camera=camera, **stated)
    result = photos.estimate_photo(photo, model)
    expected = "taken by Maker C3, and the model was trained for A1 or B2: across cameras"
    assert [(expected in warning) for warning in result.warnings] == [True] * warned


def test_each_of_several_cameras_is_held_out(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MIN_IMAGES", 6)
    rng = np.random.default_rng(4)
    files = write_cameras(tmp_path, rng, 12)
    settings = IlluminantTrainOptions(
        thumbnails=files,
        runs=tmp_path / "runs",
        side=SIDE,
        method="Homography (SoG)",
        out=tmp_path / "model",
    )
    report = run_train(settings)
    assert report.parent == tmp_path / "runs" / "illuminant-train-small-model"
    assert "each camera is a fold; trainings by a fixed key" in report.read_text()
    model = load_estimator(tmp_path / "model")
    assert model.cameras == ("A1", "B2")
    assert not model.needs_others
    errors = np.load(report.parent / "results.npz")["held-out/Homography (SoG)"]
    assert errors.shape == (1, 1, 24)
    stored = [np.load(report.parent / "units" / f"held-out-{number}.npz") for number in (0, 1)]
    assert [item["estimates"].shape for item in stored] == [(12, 3), (12, 3)]
    with pytest.raises(DataError, match="DMCC is for one camera"):
        run_train(replace(settings, method="dmcc", tag="again"))


@pytest.mark.parametrize(
    ("run", "options"),
    [(run_train, IlluminantTrainOptions(method="gw")), (run_dataset, DatasetOptions(seeds=1))],
)
def test_an_image_without_usable_pixels_is_named(tmp_path, rng, monkeypatch, run, options):
    """In `dataset` such an image made the losses NaN, and untrained networks had a row."""
    monkeypatch.setattr(source, "MIN_IMAGES", 6)
    file = tmp_path / "mine.npz"
    images, illuminants = write_thumbnails(file, "A1", 12, rng)
    images[4] = 0
    names = np.array([f"A1_{number:04}" for number in range(12)])
    np.savez(file, images=images, illuminant_rgb=illuminants, names=names)
    with pytest.raises(DataError, match=r"1 image without a pixel .* first: A1 A1_0004; leave"):
        run(replace(options, thumbnails=(file,), runs=tmp_path, side=SIDE))


def test_a_method_is_named_by_its_first_word():
    table = ["GW", "FFCC", "FFCC, its settings tuned", "C5, small form"]
    assert full_name("c5", table) == "C5, small form"
    assert full_name("ffcc", table) == "FFCC"
    with pytest.raises(DataError, match="no method 'c6'"):
        full_name("c6", table)
    assert spread_rows(10, 3).tolist() == [0, 4, 9]
    assert spread_rows(2, 3).tolist() == [0, 1]


@pytest.mark.parametrize("inputs", ["SoG", "sog"])
def test_an_estimator_without_training_needs_no_model(tmp_path, capsys, monkeypatch, inputs):
    """The reference is float64 Shades-of-Gray (norm 6) of the blocks that the estimate sees."""
    monkeypatch.chdir(tmp_path)
    shot = scene(np.random.default_rng(5), np.array([0.6, 1, 0.7]), 64, 64)
    counts = np.round(65535 * shot).astype(np.uint16)
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(counts))
    settings = EstimateOptions((Path("a.png"),), Path(inputs), formats=())
    (result,) = estimate(settings)
    seen = (counts / 65535)[(counts < 0.95 * 65535).all(axis=-1)]
    expected = (seen**6).mean(axis=0) ** (1 / 6)
    np.testing.assert_allclose(result.estimate.illuminant, expected / expected[1], rtol=1e-4)
    printed = capsys.readouterr().out
    assert "; no interval: this method was not compared with known illuminants\n" in printed
    assert "SoG without training" in printed
    assert "out-of-distribution" not in printed
    (line,) = csv.DictReader((tmp_path / "corrected" / "illuminants.csv").open())
    assert float(line["r/g"]) == pytest.approx(expected[0] / expected[1], rel=1e-4)
    empty = [name for name, cell in line.items() if not cell]
    assert {"r/g low", "b/g high", "interval radius, degrees", "warnings"} <= {*empty}
    # A folder of that name counts first.
    (tmp_path / inputs).mkdir()
    with pytest.raises(DataError, match=r"no complete checkpoint.*needs no training: GW, SoG"):
        estimate(settings)
