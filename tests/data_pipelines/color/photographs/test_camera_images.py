"""Images averaged down to one canvas."""

from typing import NamedTuple

import numpy as np
import pytest

from everlight_data.color.photographs.camera_images import (
    CameraImages,
    check_edges,
    read_camera_images,
    shrink_photographs,
)
from everlight_data.color.photographs.thumbnails import read_thumbnails, thumbnail_cameras
from everlight_data.errors import DataError
from everlight_data.sets.constancy_set import Photograph


def test_cameras_without_a_name_and_masks_are_arguments(tmp_path, rng):
    images = rng.uniform(0.1, 0.5, (3, 4, 4, 3))
    images[:, 3, 3] = 0.9
    masks = np.ones((3, 4, 4))
    masks[1, :2] = 0
    arrays = {"images": images, "illuminant_rgb": np.ones((3, 3)), "masks": masks}
    np.savez(tmp_path / "x.npz", names=["8_8D5U5524", "100_IMG_0295", "101_IMG_2"], **arrays)
    assert len(thumbnail_cameras([tmp_path / "x.npz"])) > 1
    (camera,) = thumbnail_cameras([tmp_path / "x.npz"], "Canon5D").items()
    assert camera[0] == "Canon5D"
    assert len(camera[1].names) == 3
    seen = np.stack([camera[1].read_image(index)[1] for index in range(3)])
    expected = masks > 0
    expected[:, 3, 3] = False
    np.testing.assert_array_equal(seen, expected)
    np.savez(tmp_path / "y.npz", **(arrays | {"masks": masks[:2]}))
    with pytest.raises(DataError, match=r"masks have dtype float64 and shape \(2, 4, 4\)"):
        thumbnail_cameras([tmp_path / "y.npz"])


class Camera(NamedTuple):
    """Images as the release has them, of which one stands upright."""

    names: tuple[str, ...]
    images: tuple[np.ndarray, ...]

    def read_image(self, i):
        return Photograph(self.images[i], self.images[i][..., 0] < 0.95)


def test_upright_and_wide_images_share_a_canvas(rng):
    images = [rng.uniform(0, 0.9, shape).astype(np.float32) for shape in ((45, 60, 3), (60, 45, 3))]
    images[0][3, 4, 0] = 1
    shrunk, masks = shrink_photographs(Camera(("a", "b"), tuple(images)), [1, 0], 20)
    assert shrunk.shape == (2, 20, 20, 3)
    upright = images[1].reshape(20, 3, 15, 3, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(shrunk[0, :, :15], upright, rtol=1e-5)
    covered = np.zeros((2, 20, 20))
    covered[0, :, :15] = covered[1, :15] = 1
    covered[1, 1, 1] = 0
    np.testing.assert_array_equal(masks, covered)
    assert (shrunk[masks == 0] == 0).all()
    wide, _ = shrink_photographs(Camera(("a",), (images[0],)), [0], 20)
    assert wide.shape == (1, 15, 20, 3)


@pytest.mark.parametrize("names", [["Canon"] * 4, ["a", "b", "a", "b"], [7, 7, 7, 7], [""] * 4])
def test_images_of_equal_names_are_taken_at_their_own_places(tmp_path, rng, names):
    images = rng.uniform(0.1, 0.9, (4, 6, 8, 3)).astype(np.float32)
    illuminants = rng.uniform(0.2, 1, (4, 3)).astype(np.float32)
    np.savez(tmp_path / "x.npz", images=images, illuminant_rgb=illuminants, names=np.array(names))
    ((_, camera),) = thumbnail_cameras([tmp_path / "x.npz"]).items()
    data = read_camera_images(camera, 64)
    np.testing.assert_array_equal(data.images, images)
    np.testing.assert_array_equal(data.illuminants, illuminants)
    some = read_camera_images(camera, 64, [3, 1])
    np.testing.assert_array_equal(some.images, images[[3, 1]])
    np.testing.assert_array_equal(some.illuminants, illuminants[[3, 1]])
    assert some.names == (str(names[3]), str(names[1]))


def camera_images(images, masks=None):
    count, height, width, _ = images.shape
    masks = np.ones((count, height, width), np.float32) if masks is None else masks
    return CameraImages(np.float32(images), masks, np.ones((count, 3), np.float32), ("a",) * count)


def test_images_without_edges_are_refused_with_their_camera():
    noise = np.random.default_rng(0).uniform(0.1, 1, (2, 16, 16, 3))
    check_edges("phone", camera_images(noise))
    check_edges("phone", camera_images(np.concatenate([noise[:1], np.ones((1, 16, 16, 3))])))
    # Every seventh row and column is masked, so that no 7x7 pixels are left.
    masks = np.ones((2, 16, 16), np.float32)
    masks[:, ::7], masks[:, :, ::7] = 0, 0
    for wrong, message in (
        (camera_images(noise[:, :1, :1]), "phone: none of the images of 1x1 .* 32x32 or more"),
        (camera_images(noise, masks), "phone: none of the images of 16x16 pixels has 7x7 unmasked"),
        (camera_images(np.full((2, 16, 16, 3), 0.5)), "phone: every image has only one colour"),
    ):
        with pytest.raises(DataError, match=message):
            check_edges("phone", wrong)


def test_pixels_whose_squares_would_be_infinite_are_refused(tmp_path):
    path = tmp_path / "thumbnails.npz"
    np.savez(path, images=np.full((2, 8, 8, 3), 1e38), illuminant_rgb=np.ones((2, 3)))
    with pytest.raises(DataError, match=r"a pixel is 1e\+38; 1 is white"):
        read_thumbnails(path, "Again.")
