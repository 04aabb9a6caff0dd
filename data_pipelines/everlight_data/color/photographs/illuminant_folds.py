"""Photographs of cameras, shrunk to one size, and the folds that cross-validation tests in turn."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy.typing import ArrayLike
from scipy.ndimage import minimum_filter

from everlight.color.camera_calibration import CameraCalibration
from everlight.color.thumbnails import shrink_image
from everlight_data.color.dmcc_thumbnails import load_same_scene_pairs
from everlight_data.color.nus8 import DATA_SETS, OfficialNus, load_official
from everlight_data.color.pairs.quasi_real import FOLDS, QuasiReal, build_quasi_real
from everlight_data.color.photographs.thumbnails import thumbnail_set
from everlight_data.errors import DataError
from everlight_data.formats.files import read_text, refusing
from everlight_data.formats.matlab import read_mat
from everlight_data.progress import progress
from everlight_data.sets.constancy_set import ConstancySet

THUMBNAIL_SIDE = 384
"""Longest side in pixels of the official release's images for single-image methods."""
SUPPORT = 7
"""Side of the pixels that a gradient reads, with a sigma of one pixel."""
LEAST_SIDE = 32
"""Side of images that are surely large enough."""
FOLD_LAYOUT = (
    "Give a text file or `indices` with each image's fold, 1 to 3, in the order of the images' "
    "names, or `te_split` and `tr_split` with each fold's image numbers, from 1."
)


class CameraImages(NamedTuple):
    """One camera's images in the order of their names; the mask is 0 where a pixel is left out.

    `captures` are the features of their time and settings, where they are known.
    """

    images: Float[np.ndarray, "n h w 3"]
    masks: Float[np.ndarray, "n h w"]
    illuminants: Float[np.ndarray, "n 3"]
    names: tuple[str, ...]
    captures: Float[np.ndarray, "n 15"] | None = None


class IlluminantImages(NamedTuple):
    """Images with known illuminants, in folds.

    Attributes:
      images: linear raw colours.
      masks: 0 where a pixel is left out.
      illuminants: ground truth, any scale.
      folds: sets of equally many test images; the other images are for training.
      note: description of the data for reports.
      camera: camera of the test images.
      taken_by: camera of each image, where there are several; empty for `camera` alone.
      captures: features of each image's time and settings; None where an image has none.
      calibrations: given calibrations by camera; without any, those of cameras.xml below
        EVERLIGHT_DATA count.
    """

    images: Float[np.ndarray, "n h w 3"]
    masks: Float[np.ndarray, "n h w"]
    illuminants: Float[np.ndarray, "n 3"]
    folds: Sequence[Int[np.ndarray, "_"]]
    note: str
    camera: str
    taken_by: Sequence[str] = ()
    captures: Float[np.ndarray, "n 15"] | None = None
    calibrations: Mapping[str, CameraCalibration] = {}

    def cameras(self) -> Sequence[str]:
        """Return the camera of each image."""
        return self.taken_by or [self.camera] * len(self.images)

    @property
    def camera_names(self) -> list[str]:
        """The cameras in the order of their numbers."""
        return sorted({*self.cameras(), self.camera})

    def on_canvas(self, side: int) -> "IlluminantImages":
        """Return the images at the upper left of squares, as a kept model reads photos."""
        height, width = self.masks.shape[1:]
        rest = (0, 0), (0, side - height), (0, side - width)
        images = np.pad(self.images, (*rest, (0, 0)))
        return self._replace(images=images, masks=np.pad(self.masks, rest))


def thumbnail_cameras(files: Sequence[Path], camera: str = "") -> dict[str, ConstancySet]:
    """Return the thumbnails of several files by camera.

    Args:
      files: `.npz` files as for `thumbnail_set`.
      camera: camera of all images, where their names do not say it.

    Raises:
      DataError: two files hold images of one camera, or a file is damaged.
    """
    sets: dict[str, ConstancySet] = {}
    for file in files:
        for name, thumbnails in thumbnail_set(file, camera).items():
            if name in sets:
                raise DataError(f"{file} has images of {name}, as another file has; give one")
            sets[name] = thumbnails
    return sets


def shrink_photographs(
    camera: ConstancySet | OfficialNus, rows: Sequence[int], side: int = THUMBNAIL_SIDE
) -> tuple[Float[np.ndarray, "n h w 3"], Float[np.ndarray, "n h w"]]:
    """Return block means on a canvas for upright and wide images; the rest is masked.

    Images whose longest side is at most `side` stay unchanged.

    Args:
      camera: images of one camera.
      rows: places of the images among the camera's own; several images may have one name.
      side: longest side in pixels.
    """
    shrunk = []
    for place in progress("images", unit="image", values=rows):
        image, mask = camera.read_image(place)
        shrunk.append(shrink_image(jnp.asarray(image), jnp.asarray(mask), side))
    return on_one_canvas([image for image, _ in shrunk]), on_one_canvas([m for _, m in shrunk])


def on_one_canvas(images: Sequence[Shaped[ArrayLike, "_ _ *c"]]) -> Float[np.ndarray, "n h w *c"]:
    """Return images of several sizes as one array, with zeros to the right of and below each."""
    canvas = np.max([image.shape for image in images], axis=0)
    stacked = np.zeros((len(images), *canvas), np.float32)
    for row, image in zip(stacked, images, strict=True):
        row[: image.shape[0], : image.shape[1]] = image
    return stacked


def read_images(camera: ConstancySet, side: int) -> CameraImages:
    """Read a camera's images, averaged down to a longest side, in the set's own order.

    Published folds number the images in that order.
    """
    images, masks = shrink_photographs(camera, range(len(camera.names)), side)
    names = tuple(camera.names)
    return CameraImages(images, masks, camera.illuminants, names, camera.captures)


def check_edges(camera: str, data: CameraImages) -> None:
    """Check that edges can be measured in a camera's images, which many estimators need.

    Raises:
      DataError: all images are too small or masked, or all have one colour; the message names the
        camera.
    """
    height, width = data.masks.shape[1:]
    # Zeros stand around the images: a support that leaves one counts as masked.
    inside = minimum_filter(data.masks, (1, SUPPORT, SUPPORT), mode="constant") > 0
    if not inside.any():
        raise DataError(
            f"{camera}: none of the images of {height}x{width} pixels has {SUPPORT}x{SUPPORT} "
            f"unmasked pixels side by side; give images of {LEAST_SIDE}x{LEAST_SIDE} or more, with "
            "less of them masked or saturated"
        )
    seen = data.masks[..., None] > 0
    least = np.min(data.images, axis=(1, 2), where=seen, initial=np.inf)
    most = np.max(data.images, axis=(1, 2), where=seen, initial=0)
    if not (most > least).any():
        raise DataError(f"{camera}: every image has only one colour; give photographs")


def draw_folds(count: int, seed: int) -> list[Int[np.ndarray, "k"]]:
    """Draw disjoint sets of test images of equal size; up to two images are in none."""
    drawn = np.random.default_rng(seed).permutation(count)
    return np.split(drawn[: count // FOLDS * FOLDS], FOLDS)


def read_folds(path: Path, count: int) -> list[Int[np.ndarray, "k"]]:
    """Read three sets of test images of equal size from a published split.

    Larger folds lose their last images. Two layouts are known: each image's fold (text, or a MATLAB
    file with `indices`), and FC4's MATLAB file with the image numbers of `te_split` and `tr_split`.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file does not assign every image to one of three folds.
    """
    if path.suffix == ".mat":
        folds = _matlab_folds(path, count)
    else:
        text = read_text(path, FOLD_LAYOUT)
        with refusing(path, FOLD_LAYOUT):
            parts = np.array(text.split(), int)
        folds = _parted(path, parts, count)
    size = min(map(len, folds))
    if sum(map(len, folds)) < count or not size:
        raise DataError(f"{path} leaves images of {count} in no fold. {FOLD_LAYOUT}")
    return [fold[:size] for fold in folds]


def _matlab_folds(path: Path, count: int) -> list[Int[np.ndarray, "k"]]:
    try:
        (parts,) = read_mat(path, ["indices"])
    except DataError as error:
        try:
            tests, trains = read_mat(path, ["te_split", "tr_split"])
        except DataError:
            raise DataError(f"{error} {FOLD_LAYOUT}") from None
    else:
        return _parted(path, parts.ravel(), count)
    with refusing(path, FOLD_LAYOUT):
        folds, taught = (
            [np.sort(np.asarray(cell, int).ravel()) - 1 for cell in cells.ravel()]
            for cells in (tests, trains)
        )
        if len(folds) != FOLDS or len(taught) != FOLDS:
            raise ValueError(f"{len(folds)} folds")
        if sorted(np.concatenate(folds)) != list(range(count)):
            raise ValueError(f"test images are not 1 to {count}, each once")
        if any(np.intersect1d(*both).size for both in zip(folds, taught, strict=True)):
            raise ValueError("a test image is in its own training part")
    return folds


def _parted(path: Path, parts: np.ndarray, count: int) -> list[Int[np.ndarray, "k"]]:
    if len(parts) != count:
        raise DataError(f"{path} has {len(parts)} entries for {count} images. {FOLD_LAYOUT}")
    return [np.flatnonzero(parts == part) for part in range(1, FOLDS + 1)]


def split_within(camera: str, data: CameraImages, folds: Sequence[np.ndarray]) -> IlluminantImages:
    """Return one camera's images, without those that are in no fold."""
    used = np.sort(np.concatenate(folds))
    return IlluminantImages(
        data.images[used],
        data.masks[used],
        data.illuminants[used],
        folds=[np.searchsorted(used, fold) for fold in folds],
        note=_note(camera, len(used), len(data.names)),
        camera=camera,
        captures=None if data.captures is None else data.captures[used],
    )


def split_in_folds(
    cameras: Mapping[str, CameraImages], seed: int, path: Path | None = None
) -> dict[str, IlluminantImages]:
    """Return each camera's images in the folds of a published split, or in drawn ones."""
    sets = {}
    for camera, data in cameras.items():
        count = len(data.names)
        folds = draw_folds(count, seed) if path is None else read_folds(path, count)
        sets[camera] = split_within(camera, data, folds)
    return sets


def split_across(cameras: Mapping[str, CameraImages]) -> dict[str, IlluminantImages]:
    """Return all cameras' images on one canvas, with each camera as the test fold in turn."""
    images = on_one_canvas([image for data in cameras.values() for image in data.images])
    masks = on_one_canvas([mask for data in cameras.values() for mask in data.masks])
    illuminants = np.concatenate([data.illuminants for data in cameras.values()])
    taken_by = [camera for camera, data in cameras.items() for _ in data.names]
    known = [data.captures for data in cameras.values() if data.captures is not None]
    captures = np.concatenate(known) if len(known) == len(cameras) else None
    sets, start = {}, 0
    for camera, data in cameras.items():
        rows = np.arange(start, start := start + len(data.names))
        note = _note(camera, len(rows), len(rows))
        sets[camera] = IlluminantImages(
            images, masks, illuminants, [rows], note, camera, taken_by, captures
        )
    return sets


def official_pairs(main: str, second: str, seed: int) -> tuple[QuasiReal, IlluminantImages]:
    """Return the quasi-real pairs of two cameras, and the main images at `THUMBNAIL_SIDE` pixels.

    Folds are of equal size: if the list does not divide, the least similar pairs are left out.
    """
    folder = DATA_SETS["nus8"].locate()
    both = [load_official(folder, camera) for camera in (main, second)]
    listed = load_same_scene_pairs()
    alike = np.argsort(-listed.similarity, kind="stable")
    used = np.sort(alike[: len(alike) // FOLDS * FOLDS])
    names = [(listed.main[i], listed.second[i]) for i in used]
    dropped = [listed.main[i] for i in np.setdiff1d(alike, used)]
    quasi = build_quasi_real(*both, names, seed)
    images, masks = shrink_photographs(both[0], [both[0].names.index(name) for name, _ in names])
    note = (
        f"NUS-8 release: {len(names)} quasi-real pairs of {main} and {second} (the paper's own "
        "list has 195); charts and saturation masked"
    )
    if dropped:
        note += f"; left out for folds of equal size: {', '.join(dropped)}"
    return quasi, IlluminantImages(images, masks, quasi.illuminants_main, quasi.folds, note, main)


def _note(camera: str, used: int, count: int) -> str:
    left = count - used
    return f"{camera}: {used} images" + (f", {left} left out for equal folds" if left else "")
