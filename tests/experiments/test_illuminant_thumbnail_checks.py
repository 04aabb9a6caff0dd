"""A user's thumbnails whose illuminants are gains, or whose images are not linear."""

import re

import numpy as np
import pytest

from everlight_data.color.dmcc_thumbnails import CAMERAS
from everlight_data.color.photographs.camera_images import read_images
from everlight_data.color.photographs.thumbnails import thumbnail_cameras
from everlight_data.errors import DataError
from everlight_experiments.illuminant import image_source
from everlight_experiments.illuminant.dataset import DatasetRun
from everlight_experiments.illuminant.image_source import load_cameras
from everlight_experiments.illuminant.thumbnail_checks import check_thumbnails
from everlight_experiments.illuminant.train import TrainRun

COUNT = 12


def dull_thumbnails(rng):
    """Tiles that are nearly grey, under illuminants far from white; also their illuminants."""
    lights = np.array([0.5, 1, 0.6]) * rng.uniform(0.8, 1, (COUNT, 3))
    grays, tints = rng.uniform(0.1, 0.9, (COUNT, 4, 4, 1)), rng.uniform(0.7, 1, (COUNT, 4, 4, 3))
    tiles = (grays * tints).repeat(4, axis=1).repeat(4, axis=2)
    return tiles * lights[:, None, None], lights


def written(path, images, lights):
    np.savez(path, images=images, illuminant_rgb=lights)
    return path


def median_angle(images, lights, power=1):
    """Median angle in degrees to Shades-of-Gray (norm 6) below 95% of each image's maximum."""
    angles = []
    for image, light in zip(np.float64(images), lights, strict=True):
        # Masks are of the images as they are given, before they are decoded.
        colors = image[image.max(axis=-1) < 0.95 * image.max()]
        estimate = (colors ** (6 * power)).sum(axis=0) ** (1 / 6)
        cosine = estimate @ light / np.linalg.norm(estimate) / np.linalg.norm(light)
        angles.append(np.degrees(np.arccos(cosine)))
    return np.median(angles)


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(image_source, "MIN_IMAGES", 6)


@pytest.mark.parametrize("command", [DatasetRun, TrainRun])
def test_gains_in_place_of_illuminants_are_refused(tmp_path, rng, few, capsys, command):
    images, lights = dull_thumbnails(rng)
    load_cameras(command(thumbnails=(written(tmp_path / "right.npz", images, lights),)))
    assert "WARNING" not in capsys.readouterr().err
    file = written(tmp_path / "gains.npz", images, 1 / lights)
    with pytest.raises(DataError, match=r"white-balance gains; give .* 1 / gain") as refused:
        load_cameras(command(thumbnails=(file,)))
    message = str(refused.value)
    assert message.startswith(f"{file}: the illuminants of gains have")
    medians = [float(item) for item in re.findall(r"\d+\.\d", message.removeprefix(str(file)))]
    expected = [median_angle(images, 1 / lights), median_angle(images, lights)]
    np.testing.assert_allclose(medians, expected, atol=0.06)


def test_illuminants_that_are_wrong_otherwise_are_not_called_gains(tmp_path, rng, few):
    images, lights = dull_thumbnails(rng)
    file = written(tmp_path / "green.npz", images, lights * [0.1, 1, 0.5])
    load_cameras(DatasetRun(thumbnails=(file,)))


def test_gamma_encoded_images_are_reported_in_one_line(tmp_path, rng, few, capsys):
    images, lights = dull_thumbnails(rng)
    encoded = images ** (1 / 2.2)
    file = written(tmp_path / "encoded.npz", encoded, lights)
    load_cameras(TrainRun(thumbnails=(file,)))
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
    assert "these seem to be gamma-encoded; give linear raw values" in line
    medians = [float(item) for item in re.findall(r"(\d+\.\d) (?:degrees|from)", line)]
    expected = [median_angle(encoded, lights), median_angle(encoded, lights, 2.2)]
    np.testing.assert_allclose(medians, expected, atol=0.06)
    assert expected[0] > 6


@pytest.mark.parametrize("command", [DatasetRun, TrainRun])
@pytest.mark.parametrize("power", [1, 2.2], ids=["linear", "gamma-encoded"])
@pytest.mark.parametrize("exchanged", ["images", "illuminants"])
def test_bgr_order_is_warned_of(tmp_path, rng, few, capsys, command, power, exchanged):
    images, lights = dull_thumbnails(rng)
    # Blue far from red, as of a camera under a blue sky.
    images, lights = images * [0.4, 1, 1], lights * [0.4, 1, 1]
    encoded = images ** (1 / power)
    backwards = lights[:, ::-1]
    words = (encoded[..., ::-1], lights) if exchanged == "images" else (encoded, backwards)
    file = written(tmp_path / "bgr.npz", *words)
    load_cameras(command(thumbnails=(file,)))
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
    assert line.startswith(f"WARNING: {file}: the illuminants of bgr have a median angle of")
    assert "seem to be in BGR order; give both as R, G, B" in line
    assert ("gamma-encoded" in line) == (power != 1)
    medians = [float(item) for item in re.findall(r"(\d+\.\d) (?:degrees|from)", line)]
    expected = [median_angle(encoded, backwards), median_angle(encoded, lights, power)]
    np.testing.assert_allclose(medians, expected, atol=0.06)


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ((1, 0, 2), "with red and green exchanged"),
        ((0, 2, 1), "with green and blue exchanged"),
        ((1, 2, 0), "with channels in the order 3, 1, 2"),
        ((2, 0, 1), "with channels in the order 2, 3, 1"),
    ],
)
def test_other_orders_of_channels_are_warned_of(real_data, tmp_path, capsys, order, words):
    """On images of cameras, of which nine and all are taken; they were trained without a word."""
    ((_, item),) = thumbnail_cameras([real_data("nus8_64x64/SonyA57.npz")]).items()
    data = read_images(item, 64)
    for count in (9, len(data.images)):
        few = data._replace(**{name: getattr(data, name)[:count] for name in data._fields[:3]})
        check_thumbnails(tmp_path, "A", few)
        assert "WARNING" not in capsys.readouterr().err
        check_thumbnails(tmp_path, "A", few._replace(images=few.images[..., list(order)]))
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
        assert f"{words}; images or illuminants seem to be in another order of channels" in line


def test_images_of_8_bits_are_refused_plainly(tmp_path, rng):
    images, lights = dull_thumbnails(rng)
    file = written(tmp_path / "eight.npz", np.uint8(255 * images), lights)
    with pytest.raises(
        DataError, match=r"eight\.npz: 8-bit images are not linear raw values"
    ) as no:
        load_cameras(DatasetRun(thumbnails=(file,)))
    assert "damaged" not in str(no.value)
    assert "give uint16 (images_u16, white at 65535) or floats" in str(no.value)


def real_cameras(real_data):
    files = [real_data(f"nus8_64x64/{camera}.npz") for camera in CAMERAS]
    files.append(real_data("cube_plus_64x64/Canon550D.npz"))
    for file in files:
        for camera, item in thumbnail_cameras([file]).items():
            yield camera, read_images(item, 64)


def test_no_real_camera_is_near_the_bounds(real_data, tmp_path, capsys):
    """Medians of 1.5 (Cube+) to 2.8 degrees (Olympus), 31.0 to 43.8 to the reciprocals.

    On the images to the power of 1/2.2 they are 9.2 to 11.1, on the images in BGR order 6.7 to
    20.3.
    """
    for camera, data in real_cameras(real_data):
        images = np.where(data.masks[..., None] > 0, data.images, 0)
        assert median_angle(images, data.illuminants) < 5
        check_thumbnails(tmp_path, camera, data)
        assert "WARNING" not in capsys.readouterr().err
        check_thumbnails(tmp_path, camera, data._replace(images=data.images ** (1 / 2.2)))
        message = capsys.readouterr().err
        assert "gamma-encoded" in message
        assert "BGR" not in message
        assert 6.5 < median_angle(images[..., ::-1], data.illuminants) < 21
        check_thumbnails(tmp_path, camera, data._replace(images=data.images[..., ::-1]))
        message = capsys.readouterr().err
        assert "seem to be in BGR order" in message
        assert "gamma-encoded" not in message
        gains = data._replace(illuminants=1 / data.illuminants)
        assert median_angle(images, gains.illuminants) > 30
        with pytest.raises(DataError, match="white-balance gains"):
            check_thumbnails(tmp_path, camera, gains)
