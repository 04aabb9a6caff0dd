"""A user's thumbnails whose illuminants are gains, or whose images are not linear."""

import re
from pathlib import Path

import numpy as np
import pytest

from everlight_data.color.photographs.camera_images import CameraImages, read_camera_images
from everlight_data.color.photographs.camera_names import NUS8_CAMERAS
from everlight_data.color.photographs.thumbnail_checks import check_thumbnails
from everlight_data.color.photographs.thumbnails import thumbnail_cameras, thumbnail_set
from everlight_data.errors import DataError

COUNT, FILE = 12, Path("mine.npz")


def dull_thumbnails(rng):
    """Return tiles that are nearly grey, and their illuminants, which are far from white."""
    illuminants = np.array([0.5, 1, 0.6]) * rng.uniform(0.8, 1, (COUNT, 3))
    grays, tints = rng.uniform(0.1, 0.9, (COUNT, 4, 4, 1)), rng.uniform(0.7, 1, (COUNT, 4, 4, 3))
    tiles = (grays * tints).repeat(4, axis=1).repeat(4, axis=2)
    return tiles * illuminants[:, None, None], illuminants


def below_saturation(image):
    return image.max(axis=-1) < 0.95 * image.max()


def warnings(images, illuminants, capsys):
    """Return the lines that the check prints, and the numbers of degrees in them."""
    masks = np.array([below_saturation(image) for image in images], float)
    check_thumbnails(FILE, "eye", CameraImages(np.float32(images), masks, illuminants, ()))
    lines = capsys.readouterr().err.splitlines()
    return lines, [float(n) for line in lines for n in re.findall(r"(\d+\.\d) (?:deg|from)", line)]


def median_angle(images, illuminants, power=1):
    """Return the median angle to Shades-of-Gray (norm 6) below 95% of each image's maximum."""
    angles = []
    for image, illuminant in zip(np.float64(images), illuminants, strict=True):
        # Masks are of the images as they are given, before they are decoded.
        colors = image[below_saturation(image)]
        estimate = (colors ** (6 * power)).sum(axis=0) ** (1 / 6)
        cosine = estimate @ illuminant / np.linalg.norm(estimate) / np.linalg.norm(illuminant)
        angles.append(np.degrees(np.arccos(cosine)))
    return np.median(angles)


def test_gains_in_place_of_illuminants_are_refused(rng, capsys):
    images, illuminants = dull_thumbnails(rng)
    assert warnings(images, illuminants, capsys) == ([], [])
    with pytest.raises(DataError, match=r"white-balance gains; give .* 1 / gain") as refused:
        warnings(images, 1 / illuminants, capsys)
    message = str(refused.value)
    assert message.startswith(f"{FILE}: the illuminants of eye have")
    medians = [float(number) for number in re.findall(r"\d+\.\d", message)]
    expected = [median_angle(images, 1 / illuminants), median_angle(images, illuminants)]
    np.testing.assert_allclose(medians, expected, atol=0.06)
    # Illuminants that are wrong otherwise are not called gains.
    warnings(images, illuminants * [0.1, 1, 0.5], capsys)


def test_gamma_encoded_images_are_warned_of_in_one_line(rng, capsys):
    images, illuminants = dull_thumbnails(rng)
    encoded = images ** (1 / 2.2)
    (line,), medians = warnings(encoded, illuminants, capsys)
    assert "these seem to be gamma-encoded; give linear raw values" in line
    expected = [median_angle(encoded, illuminants), median_angle(encoded, illuminants, 2.2)]
    np.testing.assert_allclose(medians, expected, atol=0.06)
    assert expected[0] > 6


@pytest.mark.parametrize("power", [1, 2.2], ids=["linear", "gamma-encoded"])
@pytest.mark.parametrize("exchanged", ["images", "illuminants"])
def test_bgr_order_is_warned_of(rng, capsys, power, exchanged):
    images, illuminants = dull_thumbnails(rng)
    # Blue is far from red, as of a camera under a blue sky.
    images, illuminants = images * [0.4, 1, 1], illuminants * [0.4, 1, 1]
    encoded, backwards = images ** (1 / power), illuminants[:, ::-1]
    swapped = (encoded[..., ::-1], illuminants) if exchanged == "images" else (encoded, backwards)
    (line,), medians = warnings(*swapped, capsys)
    assert line.startswith(f"WARNING: {FILE}: the illuminants of eye have a median angle of")
    assert "seem to be in BGR order; give both as R, G, B" in line
    assert ("gamma-encoded" in line) == (power != 1)
    expected = [median_angle(encoded, backwards), median_angle(encoded, illuminants, power)]
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
def test_other_orders_of_channels_are_warned_of(real_data, capsys, order, words):
    """The check warns on nine images of a camera and on all."""
    (thumbnails,) = thumbnail_cameras([real_data("nus8_64x64/SonyA57.npz")]).values()
    data = read_camera_images(thumbnails, 64)
    for count in (9, len(data.images)):
        few = data._replace(**{name: getattr(data, name)[:count] for name in data._fields[:3]})
        check_thumbnails(FILE, "A", few)
        assert "WARNING" not in capsys.readouterr().err
        check_thumbnails(FILE, "A", few._replace(images=few.images[..., list(order)]))
        (line,) = [text for text in capsys.readouterr().err.splitlines() if "WARNING" in text]
        assert f"{words}; images or illuminants seem to be in another order of channels" in line


def test_images_of_8_bits_are_refused_plainly(tmp_path, rng):
    images, illuminants = dull_thumbnails(rng)
    np.savez(tmp_path / "eight.npz", images=np.uint8(255 * images), illuminant_rgb=illuminants)
    with pytest.raises(
        DataError, match=r"eight\.npz: 8-bit images are not linear raw values"
    ) as no:
        thumbnail_set(tmp_path / "eight.npz")
    assert "damaged" not in str(no.value)
    assert "give uint16 (images_u16, white at 65535) or floats" in str(no.value)


def test_illuminants_of_other_images_are_warned_of(rng, capsys):
    """Rows of a list stood in another order than the images, and the training was only worse."""
    illuminants = rng.uniform(0.3, 1, (COUNT, 3))
    images = dull_thumbnails(rng)[0]
    images = images / images.mean(axis=(1, 2), keepdims=True) * illuminants[:, None, None] * 0.4
    assert warnings(images, illuminants, capsys) == ([], [])
    (line,), (angle, other) = warnings(images, np.roll(illuminants, 5, axis=0), capsys)
    assert "they may stand in another order than the images" in line
    assert angle > 0.9 * other
    # No order can be wrong where all images have one illuminant.
    one = np.tile([0.2, 1, 0.9], (COUNT, 1))
    assert not any("another order than" in text for text in warnings(images, one, capsys)[0])


def test_no_real_camera_is_near_the_bounds(real_data, capsys):
    """Medians are 1.5 (Cube+) to 2.8 degrees (Olympus), 31.0 to 43.8 to the reciprocals.

    On the images to the power of 1/2.2 they are 9.2 to 11.1, on the images in BGR order 6.7 to
    20.3.
    """
    files = [real_data(f"nus8_64x64/{camera}.npz") for camera in NUS8_CAMERAS]
    files.append(real_data("cube_plus_64x64/Canon550D.npz"))
    for camera, thumbnails in (item for f in files for item in thumbnail_cameras([f]).items()):
        data = read_camera_images(thumbnails, 64)
        images = np.where(data.masks[..., None] > 0, data.images, 0)
        assert median_angle(images, data.illuminants) < 5
        check_thumbnails(FILE, camera, data)
        assert "WARNING" not in capsys.readouterr().err
        check_thumbnails(FILE, camera, data._replace(images=data.images ** (1 / 2.2)))
        warning = capsys.readouterr().err
        assert "gamma-encoded" in warning
        assert "BGR" not in warning
        assert 6.5 < median_angle(images[..., ::-1], data.illuminants) < 21
        check_thumbnails(FILE, camera, data._replace(images=data.images[..., ::-1]))
        warning = capsys.readouterr().err
        assert "seem to be in BGR order" in warning
        assert "gamma-encoded" not in warning
        gains = data._replace(illuminants=1 / data.illuminants)
        assert median_angle(images, gains.illuminants) > 30
        with pytest.raises(DataError, match="white-balance gains"):
            check_thumbnails(FILE, camera, gains)
