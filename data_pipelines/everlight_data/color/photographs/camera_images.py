"""Photographs of cameras, shrunk to one size, and the folds of one or of all cameras."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy.typing import ArrayLike
from scipy.ndimage import minimum_filter

from everlight.color.camera_calibration import CameraCalibration
from everlight.color.thumbnails import shrink_image
from everlight_data.color.photographs.image_groups import group_folds, read_assigned_folds
from everlight_data.color.photographs.published_folds import draw_folds, read_folds
from everlight_data.errors import DataError
from everlight_data.progress import progress
from everlight_data.sets.camera_tuning import Tuning
from everlight_data.sets.constancy_set import Captures, ConstancySet

THUMBNAIL_SIDE = 384
"""Longest side in pixels of the official release's images for single-image methods."""
SUPPORT = 7
"""Side of the pixels that a gradient reads, with a sigma of one pixel."""
MIN_SIDE = 32
"""Side of images that are surely large enough."""


class CameraImages(NamedTuple):
    """One camera's images in the order of their names; the mask is 0 where a pixel is left out.

    `captures` are the vectors of their captures, `groups` numbers of their scenes or sessions,
    `camera_estimates` illuminants by the camera's own white balance, and `tuning` is the camera's
    tuning file, where they are known.
    """

    images: Float[np.ndarray, "n h w 3"]
    masks: Float[np.ndarray, "n h w"]
    illuminants: Float[np.ndarray, "n 3"]
    names: tuple[str, ...]
    captures: Captures | None = None
    groups: Int[np.ndarray, "n"] | None = None
    camera_estimates: Float[np.ndarray, "n 3"] | None = None
    tuning: Tuning | None = None

    def averaged(self, side: int) -> "CameraImages":
        """Return the images as block means whose longest side is at most `side`."""
        images, masks = _shrunk(zip(self.images, self.masks, strict=True), side)
        return self._replace(images=images, masks=masks)


class IlluminantImages(NamedTuple):
    """Images with known illuminants, in folds."""

    images: Float[np.ndarray, "n h w 3"]
    """Linear raw colours."""
    masks: Float[np.ndarray, "n h w"]
    """0 where a pixel is left out."""
    illuminants: Float[np.ndarray, "n 3"]
    """Ground truth, any scale."""
    folds: Sequence[Int[np.ndarray, "_"]]
    """Sets of equally many test images; the other images are for training."""
    note: str
    """Description of the data for reports."""
    camera: str
    """Camera of the test images."""
    taken_by: Sequence[str]
    """Camera of each image."""
    names: Sequence[str]
    """Name of each image."""
    captures: Captures | None = None
    """Vector of each image's capture; None where an image has none."""
    calibrations: Mapping[str, CameraCalibration] = {}
    """Given calibrations by camera.

    Without any, those of cameras.xml below EVERLIGHT_DATA count.
    """
    groups: Int[np.ndarray, "n"] | None = None
    """Number of each image's scene or session, which images by other cameras may share; None if
    images are independent."""
    camera_estimates: Float[np.ndarray, "n 3"] | None = None
    """Illuminants by the cameras' own white balance; None where a camera's are unknown."""
    tunings: Mapping[str, Tuning] = {}
    """Tuning files with a locus by camera; without those of cameras that have none."""

    @property
    def camera_names(self) -> list[str]:
        """The cameras in the order of their numbers."""
        return sorted({*self.taken_by, self.camera})

    def on_canvas(self, side: int) -> "IlluminantImages":
        """Return the images at the upper left of squares, as a kept model reads photos."""
        height, width = self.masks.shape[1:]
        rest = (0, 0), (0, side - height), (0, side - width)
        images = np.pad(self.images, (*rest, (0, 0)))
        return self._replace(images=images, masks=np.pad(self.masks, rest))


def shrink_photographs(
    camera: ConstancySet, rows: Sequence[int], side: int = THUMBNAIL_SIDE
) -> tuple[Float[np.ndarray, "n h w 3"], Float[np.ndarray, "n h w"]]:
    """Return block means on a canvas for upright and wide images; the rest is masked.

    Images whose longest side is at most `side` stay unchanged.

    Args:
      camera: images of one camera.
      rows: places of the images among the camera's own; several images may have one name.
      side: longest side in pixels.
    """
    places = progress("images", unit="image", values=rows)
    return _shrunk(((photo.image, photo.mask) for photo in map(camera.read_image, places)), side)


def _shrunk(
    pairs: Iterable[tuple[ArrayLike, ArrayLike]], side: int
) -> tuple[Float[np.ndarray, "n h w 3"], Float[np.ndarray, "n h w"]]:
    """Return block means of images and masks, each on one canvas."""
    shrunk = [
        shrink_image(jnp.asarray(image), jnp.asarray(mask, bool), side) for image, mask in pairs
    ]
    images, masks = zip(*shrunk, strict=True)
    return join_on_canvas(images), join_on_canvas(masks)


def join_on_canvas(
    images: Sequence[Shaped[ArrayLike, "_ _ *c"]],
) -> Float[np.ndarray, "n h w *c"]:
    """Return images of several sizes as one array, with zeros to the right of and below each."""
    canvas = np.max([image.shape for image in images], axis=0)
    stacked = np.zeros((len(images), *canvas), np.float32)
    for row, image in zip(stacked, images, strict=True):
        row[: image.shape[0], : image.shape[1]] = image
    return stacked


def read_camera_images(
    camera: ConstancySet, side: int, rows: Sequence[int] | None = None
) -> CameraImages:
    """Read a camera's images, averaged down to a longest side.

    Args:
      camera: images of one camera.
      side: longest side in pixels.
      rows: places of the images; None is all in the set's own order, in which published folds
        number them.
    """
    selected = list(range(len(camera.names)) if rows is None else rows)
    images, masks = shrink_photographs(camera, selected, side)
    return CameraImages(
        images,
        masks,
        camera.illuminants[selected],
        tuple(camera.names[row] for row in selected),
        None if camera.captures is None else camera.captures.at(selected),
        camera_estimates=(
            None if camera.camera_estimates is None else camera.camera_estimates[selected]
        ),
        tuning=camera.tuning,
    )


def check_edges(camera: str, photos: CameraImages) -> None:
    """Check that edges can be measured in a camera's images, which many estimators need.

    Raises:
      DataError: all images are too small or masked, or all have one colour; the message names the
        camera.
    """
    height, width = photos.masks.shape[1:]
    # Zeros stand around the images: a support that leaves one counts as masked.
    inside = minimum_filter(photos.masks, (1, SUPPORT, SUPPORT), mode="constant") > 0
    if not inside.any():
        raise DataError(
            f"{camera}: none of the images of {height}x{width} pixels has {SUPPORT}x{SUPPORT} "
            f"unmasked pixels side by side; give images of {MIN_SIDE}x{MIN_SIDE} or more, with "
            "less of them masked or saturated"
        )
    seen = photos.masks[..., None] > 0
    least = np.min(photos.images, axis=(1, 2), where=seen, initial=np.inf)
    most = np.max(photos.images, axis=(1, 2), where=seen, initial=0)
    if not (most > least).any():
        raise DataError(f"{camera}: every image has only one colour; give photographs")


def split_within(
    camera: str, photos: CameraImages, folds: Sequence[np.ndarray]
) -> IlluminantImages:
    """Return one camera's images, without those that are in no fold."""
    used = np.unique(np.concatenate(folds))
    return IlluminantImages(
        images=photos.images[used],
        masks=photos.masks[used],
        illuminants=photos.illuminants[used],
        folds=[np.searchsorted(used, fold) for fold in folds],
        note=_note(camera, len(used), len(photos.names)),
        camera=camera,
        taken_by=[camera] * len(used),
        names=[photos.names[row] for row in used],
        captures=None if photos.captures is None else photos.captures.at(used),
        groups=None if photos.groups is None else photos.groups[used],
        camera_estimates=None if photos.camera_estimates is None else photos.camera_estimates[used],
        tunings=_tunings({camera: photos}),
    )


def split_in_folds(
    cameras: Mapping[str, CameraImages], seed: int, path: Path | None = None
) -> dict[str, IlluminantImages]:
    """Return each camera's images in the folds of a published split, or in drawn ones.

    Folds of images with groups hold whole groups, and the shorter ones repeat rows.
    """
    return {
        camera: split_within(camera, photos, _folds_of(photos, seed, path))
        for camera, photos in cameras.items()
    }


def _folds_of(photos: CameraImages, seed: int, path: Path | None) -> Sequence[Int[np.ndarray, "k"]]:
    count = len(photos.names)
    if photos.groups is not None:
        assigned = None if path is None else read_assigned_folds(path, count)
        return list(group_folds(photos.groups, assigned, seed, photos.names))
    return draw_folds(count, seed) if path is None else read_folds(path, count)


def split_across(cameras: Mapping[str, CameraImages]) -> dict[str, IlluminantImages]:
    """Return all cameras' images on one canvas, with each camera as the test fold in turn."""
    together = _join_cameras(cameras)
    sets, start = {}, 0
    for camera, photos in cameras.items():
        rows = np.arange(start, start := start + len(photos.names))
        note = _note(camera, len(rows), len(rows))
        sets[camera] = together._replace(folds=[rows], note=note, camera=camera)
    return sets


def split_by_groups(cameras: Mapping[str, CameraImages], seed: int) -> IlluminantImages:
    """Return all cameras' images on one canvas, in folds of whole groups of all cameras.

    The camera of the test images is the first one; methods that read more of a camera than an image
    do not fit such folds.

    Raises:
      DataError: images have no groups, or there are too few.
    """
    together = _join_cameras(cameras)
    if together.groups is None:
        raise DataError("folds of groups need the group of each image; give --groups")
    return together._replace(folds=list(group_folds(together.groups, None, seed, together.names)))


def _join_cameras(cameras: Mapping[str, CameraImages]) -> IlluminantImages:
    """Return all cameras' images on one canvas, in no folds yet."""
    photos = list(cameras.values())
    taken_by = [camera for camera, taken in cameras.items() for _ in taken.names]
    return IlluminantImages(
        images=join_on_canvas([image for taken in photos for image in taken.images]),
        masks=join_on_canvas([mask for taken in photos for mask in taken.masks]),
        illuminants=np.concatenate([taken.illuminants for taken in photos]),
        folds=[],
        note=f"{len(photos)} cameras: {len(taken_by)} images",
        camera=taken_by[0],
        taken_by=taken_by,
        names=[name for taken in photos for name in taken.names],
        captures=_joined_captures([taken.captures for taken in photos]),
        groups=_joined([taken.groups for taken in photos]),
        camera_estimates=_joined([taken.camera_estimates for taken in photos]),
        tunings=_tunings(cameras),
    )


def _joined(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Return the rows of all cameras, None where those of one are unknown."""
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if len(known) == len(parts) else None


def _joined_captures(parts: Sequence[Captures | None]) -> Captures | None:
    """Return the vectors of all cameras, None where one has none or has others."""
    if None in parts or len({part.sources for part in parts}) > 1:
        return None
    return parts[0]._replace(values=np.concatenate([part.values for part in parts]))


def _tunings(cameras: Mapping[str, CameraImages]) -> dict[str, Tuning]:
    """Return the cameras' tuning files with a locus."""
    return {
        camera: photos.tuning
        for camera, photos in cameras.items()
        if photos.tuning is not None and photos.tuning.curve is not None
    }


def _note(camera: str, used: int, count: int) -> str:
    left = count - used
    return f"{camera}: {used} images" + (f", {left} left out for equal folds" if left else "")
