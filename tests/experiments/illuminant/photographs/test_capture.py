"""Captures of images: in folds, in kept models that read lux, and in lists of lux."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import imagecodecs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color import lux_feature
from everlight.color.learned import capture_aware
from everlight.color.learned.capture_aware import capture_features
from everlight.illuminant.image_model import UnsuitableImageError, untrained_model
from everlight_data.color.models.image_model_files import load_estimator
from everlight_data.color.photographs.camera_images import split_across, split_within
from everlight_data.color.photographs.lux_lists import lux_of_photos
from everlight_data.errors import DataError
from everlight_experiments.illuminant.estimate.command import estimate
from everlight_experiments.illuminant.estimate.options import EstimateOptions
from everlight_experiments.illuminant.photographs import source
from everlight_experiments.illuminant.photographs.dataset import DatasetOptions
from everlight_experiments.illuminant.photographs.source import load_cameras
from everlight_experiments.illuminant.photographs.train import IlluminantTrainOptions, run_train

HOUR = 3600
SUN = np.array([5.5, 6, 12, 18, 18.5, 24]) * HOUR


def write_day(path, camera, count, rng):
    """Write scenes of one dominant colour each, in which the illuminant is hard to see."""
    time = rng.uniform(6, 18, count) * HOUR
    warm = np.abs(time / HOUR - 12) / 6
    illuminants = np.stack([0.3 + 0.3 * warm, np.full(count, 0.8), 0.5 - 0.25 * warm], axis=1)
    surfaces = np.exp(
        rng.normal(0, 0.25, (count, 1, 1, 3)) + rng.normal(0, 0.1, (count, 16, 16, 3))
    )
    np.savez(
        path,
        images=0.2 * surfaces * illuminants[:, None, None],
        illuminant_rgb=illuminants,
        names=np.array([f"{camera}_{index}" for index in range(count)]),
        time=time,
        sun_events=np.tile(SUN, (count, 1)),
        iso=np.full(count, 100),
        exposure=np.full(count, 0.01),
        flash=np.zeros(count, bool),
    )
    return time, illuminants


def test_captures_stay_with_their_images(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(source, "MIN_IMAGES", 6)
    files = tuple(tmp_path / f"{camera}.npz" for camera in ("P1", "P2"))
    times = [
        write_day(file, file.stem, count, rng)[0]
        for file, count in zip(files, (10, 8), strict=True)
    ]
    cameras, _ = load_cameras(DatasetOptions(thumbnails=files))
    across = split_across(cameras)["P1"]
    settings = jnp.float32(SUN), jnp.float32(100), jnp.float32(0.01), jnp.array(False)
    features = jax.vmap(capture_features, (0, *[None] * 4))
    inputs = features(jnp.float32(np.concatenate(times)), *settings)
    np.testing.assert_allclose(across.captures.values, inputs, rtol=1e-6)
    within = split_within("P2", cameras["P2"], [np.array([7, 0]), np.array([3, 5])])
    np.testing.assert_allclose(
        within.captures.values, inputs[10:][jnp.array([0, 3, 5, 7])], rtol=1e-6
    )
    # One camera without its captures leaves the network out for all.
    cameras["P2"] = cameras["P2"]._replace(captures=None)
    assert split_across(cameras)["P1"].captures is None


def gray_noise(rng, count):
    """Return images of grey noise with one highlight each."""
    images = rng.uniform(0.2, 0.4, (count, 32, 32, 3))
    images[:, 0, 0] = 0.9
    return images


@pytest.fixture(scope="module")
def lux_model(tmp_path_factory):
    """Train on grey images whose illuminant depends on lux alone; return the model's folder."""
    folder = tmp_path_factory.mktemp("lux")
    lux = np.geomspace(10, 10_000, 24)
    share = np.log(lux / 10) / np.log(1000)
    illuminants = np.stack([0.9 - 0.5 * share, np.full(24, 0.8), 0.3 + 0.5 * share], axis=1)
    names = np.array([f"Eye One_{index}" for index in range(24)])
    images = gray_noise(np.random.default_rng(1), 24)
    np.savez(folder / "mine.npz", images=images, illuminant_rgb=illuminants, names=names, lux=lux)
    options = IlluminantTrainOptions(
        thumbnails=(folder / "mine.npz",),
        runs=folder / "runs",
        side=32,
        method="capture-aware",
        out=folder / "model",
    )
    fit = partial(capture_aware.fit_capture_aware, steps=150)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "MIN_IMAGES", 6)
        patch.setattr(capture_aware, "fit_capture_aware", fit)
        run_train(options)
    return options.out


@pytest.fixture
def photo(tmp_path, rng):
    """Write a linear picture like the training's."""
    pixels = np.uint16(gray_noise(rng, 1)[0] * 65_535)
    (tmp_path / "photo.png").write_bytes(imagecodecs.png_encode(pixels))
    return tmp_path / "photo.png"


def test_a_kept_model_reads_lux(lux_model, photo, tmp_path):
    """Red falls and blue rises with lux in training, and so do the estimates of one photo."""

    def red_and_blue(lux):
        options = EstimateOptions((photo,), lux_model, lux=lux, output=tmp_path / "out", formats=())
        (result,) = estimate(options)
        return result.estimate.illuminant[[0, 2]]

    dark, bright = red_and_blue(20.0), red_and_blue(5000.0)
    assert dark[0] > bright[0] + 0.2
    assert dark[1] < bright[1] - 0.2
    (tmp_path / "lux.csv").write_text("photo,lux,note\nother.png,3,x\nphoto.png,20,y\n")
    np.testing.assert_array_equal(red_and_blue(tmp_path / "lux.csv"), dark)
    image = imagecodecs.imread(photo) / 65_535
    mask, lux = image.max(axis=-1) < 0.95, lux_feature(jnp.array(20.0))
    result = load_estimator(lux_model)(image, mask=mask, capture=lux)
    np.testing.assert_allclose(result[[0, 2]], dark, rtol=1e-5)


def test_only_models_that_read_lux_need_it(lux_model, photo, tmp_path):
    options = EstimateOptions((photo,), lux_model, output=tmp_path / "out", formats=())
    with pytest.raises(DataError, match=r"reads the scene's brightness; give --lux"):
        estimate(options)
    with pytest.raises(DataError, match="--lux is for models that read it, and SoG is SoG for any"):
        estimate(replace(options, model=Path("SoG"), lux=3.0))
    model = load_estimator(lux_model)
    with pytest.raises(UnsuitableImageError, match="reads lux of an image's capture; give it too"):
        model(np.ones((16, 16, 3)))
    gray = untrained_model("GW")
    with pytest.raises(UnsuitableImageError, match="GW reads no capture; leave it out"):
        gray(np.ones((16, 16, 3)), capture=np.ones(1))


def test_a_model_that_reads_the_sun_is_not_kept(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(source, "MIN_IMAGES", 6)
    write_day(tmp_path / "P1.npz", "P1", 10, rng)
    options = IlluminantTrainOptions(
        thumbnails=(tmp_path / "P1.npz",), runs=tmp_path, side=32, method="capture-aware"
    )
    with pytest.raises(DataError, match="reads time, sun_events, iso, exposure, flash of these"):
        run_train(options)


def test_a_name_of_two_photos_is_listed_with_its_folder(tmp_path):
    """Both photos had the brightness of one."""
    photos = [tmp_path / folder / "photo.png" for folder in ("a", "b")]
    path = tmp_path / "lux.csv"
    path.write_text("photo,lux\nphoto.png,3\n")
    assert lux_of_photos(path, [photos[0], photos[0]]) == {photos[0]: 3}
    with pytest.raises(DataError, match=r"has photo\.png, the name of several photos; list each"):
        lux_of_photos(path, photos)
    path.write_text(f"photo,lux\n{photos[0]},3\n{photos[1]},4\n")
    assert lux_of_photos(path, photos) == dict(zip(photos, (3, 4), strict=True))


@pytest.mark.parametrize(
    ("lux", "message"),
    [
        ("photo,lux\nb.png,3\n", "does not list .*photo.png"),
        ("photo,lux\nphoto.png,dim\n", "photo.png has dim, not a number of 0 to 1e"),
        ("photo,lux\nphoto.png,3\nphoto.png,4\n", "states two numbers for photo.png"),
        ("name,lux\nphoto.png,3\n", "lacks the columns photo"),
        (-1.0, "--lux has -1.0, not a number of 0 to 1e"),
    ],
)
def test_lists_of_lux_are_checked(tmp_path, lux, message):
    if isinstance(lux, str):
        (tmp_path / "lux.csv").write_text(lux)
        lux = tmp_path / "lux.csv"
    with pytest.raises(DataError, match=message):
        lux_of_photos(lux, [tmp_path / "photo.png"])
