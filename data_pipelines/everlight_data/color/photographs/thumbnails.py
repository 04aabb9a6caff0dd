"""Files of linear thumbnails with their illuminants, and the vectors of their captures."""

import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from everlight.color.learned.capture_aware import DAY, EVENTS, capture_features, lux_feature
from everlight.color.thumbnails import SATURATION
from everlight_data.color.photographs.camera_names import DATA_SET_CAMERAS
from everlight_data.color.photographs.linear_pictures import (
    MAX_VALUE,
    MIN_VALUE,
    checked_illuminants,
)
from everlight_data.errors import DataError
from everlight_data.formats.arrays import dtype_and_shape, read_npz
from everlight_data.formats.files import refusing
from everlight_data.names import name_first
from everlight_data.sets.constancy_set import Captures, ConstancySet, Photograph

LUX = "lux"
SATURATED_MASKED = "saturated_masked"
"""Array of one value: true if saturated pixels are 0 or in the file's masks."""
LUX_RANGE = 0, 1e9
CAPTURE: dict[str, tuple[float, float, int]] = {
    "time": (0, DAY, 0),
    "sun_events": (0, DAY, len(EVENTS)),
    "iso": (1e-3, 1e9, 0),
    "exposure": (1e-9, 1e6, 0),
    "flash": (0, 1, 0),
}
"""Arrays of captures in a file of thumbnails: least and greatest value, and columns if several.

They are the arguments of `everlight.color.capture_features`, in its units. `LUX` is another one.
"""
IMAGES = "images_u16", "images"
"""Arrays of the images: integers whose white is 65535, or floats whose white is 1."""
OTHERS = "files", "temperature", "camera_temperature"
"""Arrays in files of this project that are not of thumbnails; some commands read them."""
ALIKE = 0.8
"""Similarity (`difflib`) from which an array's name is a misspelling of one that is read."""

Saturated = Literal["highlights", "plateaus", "none"]
"""Name of the pixels of a thumbnail that count as saturated.

Highlights are all from `SATURATION` of the image's maximum on, and none in a file that states
that saturated pixels are masked already. Plateaus are those at the maximum
where several pixels share it: an image that is scaled to its maximum no longer has the sensor's
level, and a single brightest pixel need not be clipped.
"""


class Thumbnails(NamedTuple):
    """Linear images with names and illuminants; 1 is white, and 0 in all channels is masked.

    `masks` are the file's own, true everywhere by default; `captures` are the vectors of time and
    settings (`everlight.color.capture_features`), lux (`lux_feature`) or both, or None.
    `saturated_masked` is true if no other pixel is saturated.
    """

    images: Float[np.ndarray, "n h w 3"]
    illuminants: Float[np.ndarray, "n 3"]
    names: tuple[str, ...]
    masks: Bool[np.ndarray, "n h w"]
    captures: Captures | None = None
    saturated_masked: bool = False


def read_thumbnails(path: Path, remedy: str) -> Thumbnails:
    """Return thumbnails in an `.npz` file, as float32.

    Args:
      path: file with `images_u16` (white at 65535) or `images` (floats, white at 1), `[n, h, w,
        3]`. It also holds `illuminant_rgb`, `[n, 3]`, and optionally `names` (by default 1, 2, ...)
        and `masks`, `[n, h, w]`, 0 on reference charts (by default nothing is masked).
        `saturated_masked`, one value, is true if saturated pixels are masked or 0 too. The five
        arrays of `CAPTURE` are optional together, and `lux`, `[n]`, without them.
      remedy: sentence that every error message ends with.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged, lacks an array, has both kinds of images or a misspelled
        array, or its arrays do not match.
    """
    arrays = read_npz(path, remedy)
    _check_names(path, list(arrays), remedy)
    stored = _find_images(arrays, path, remedy)
    with refusing(path, remedy):
        illuminants = checked_illuminants(arrays["illuminant_rgb"])
        images = _scale_images(stored)
        if len(images) != len(illuminants):
            raise ValueError(f"{len(images)} images, {len(illuminants)} illuminants")
        names, masks = _names(arrays, len(images)), _masks(arrays, images.shape[:3])
        captures = _captures(arrays, len(images))
        complete = arrays.get(SATURATED_MASKED, np.array(False))
        if complete.shape or complete.dtype != bool:
            raise ValueError(f"{SATURATED_MASKED} has {dtype_and_shape(complete)}, not one bool")
    return Thumbnails(images, illuminants, names, masks, captures, bool(complete))


def _check_names(path: Path, names: Sequence[str], remedy: str) -> None:
    """Refuse misspelled arrays and two arrays of images; warn of others that are not read."""
    if {*IMAGES} <= {*names}:
        raise DataError(f"{path} has images_u16 and images; give one of them. {remedy}")
    optional = [*CAPTURE, LUX, "names", "masks", SATURATED_MASKED]
    unread = [name for name in names if name not in (*IMAGES, "illuminant_rgb", *optional, *OTHERS)]
    absent = [name for name in optional if name not in names]
    for name in unread:
        if near := difflib.get_close_matches(name.strip().casefold(), absent, 1, ALIKE):
            raise DataError(
                f"{path} has an array {name!a}, which is not read; name it {near[0]}, or otherwise "
                f"if it is something else. {remedy}"
            )
    if unread:
        print(f"WARNING: {path}: arrays not read: {name_first(unread)}", file=sys.stderr)


def _find_images(arrays: Mapping[str, np.ndarray], path: Path, remedy: str) -> np.ndarray:
    """Return the images as stored; the file has illuminants beside them."""
    name = next((name for name in IMAGES if name in arrays), "")
    images = arrays.get(name)
    if images is None or "illuminant_rgb" not in arrays:
        raise DataError(
            f"{path} is damaged or not the expected file: it needs images_u16 or images, and "
            f"illuminant_rgb; it has {', '.join(arrays) or 'no array'}. {remedy}"
        )
    if images.dtype == np.uint8:
        raise DataError(
            f"{path}: 8-bit images are not linear raw values; give uint16 (images_u16, white at "
            f"65535) or floats (images, white at 1). {remedy}"
        )
    if images.dtype.kind == "u" and images.dtype.itemsize == 2:
        images = images.astype(np.uint16)
    if name == IMAGES[0] and images.dtype != np.uint16:
        raise DataError(
            f"{path}: images_u16 has {dtype_and_shape(images)}, not uint16 (white at 65535); name "
            f"floats images (white at 1). {remedy}"
        )
    return images


def _scale_images(images: np.ndarray) -> Float[np.ndarray, "n h w 3"]:
    """Return images whose white is 1, as float32."""
    is_integer = images.dtype == np.uint16
    shaped = images.ndim == 4 and images.shape[3] == 3 and images.size
    if not shaped or not (is_integer or images.dtype.kind == "f"):
        raise ValueError(f"images have {dtype_and_shape(images)}")
    with np.errstate(over="ignore"):
        scaled = images.astype(np.float32) / (65535 if is_integer else 1)
    if not (np.isfinite(scaled) & (scaled >= 0)).all():
        raise ValueError("a pixel is below 0 or not finite")
    if scaled.max() > MAX_VALUE:
        raise ValueError(f"a pixel is {scaled.max():g}; 1 is white, give at most {MAX_VALUE:g}")
    brightest = scaled.max(axis=(1, 2, 3), initial=0)
    if (dark := brightest[(brightest > 0) & (brightest < MIN_VALUE)]).size:
        raise ValueError(f"an image's brightest pixel is {dark[0]:g}; 1 is white, scale it")
    return scaled


def _names(arrays: Mapping[str, np.ndarray], count: int) -> tuple[str, ...]:
    """Return the images' names, by default 1, 2 and so on."""
    names = arrays.get("names", np.arange(1, count + 1))
    # A number takes 128 bytes as text.
    if names.shape != (count,) or names.dtype.kind not in "USiuf":
        raise ValueError(f"{count} images, names have {dtype_and_shape(names)}")
    return tuple(names.astype(str).tolist())


def _masks(arrays: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> Bool[np.ndarray, "n h w"]:
    """Return the images' masks, by default true everywhere."""
    masks = arrays.get("masks", np.ones(shape, bool))
    if masks.shape != shape or masks.dtype.kind not in "biuf":
        raise ValueError(f"masks have {dtype_and_shape(masks)}")
    return masks != 0


def _captures(arrays: Mapping[str, np.ndarray], count: int) -> Captures | None:
    """Return the vectors of the images' captures, None without any of the arrays."""
    missing = [name for name in CAPTURE if name not in arrays]
    if 0 < len(missing) < len(CAPTURE):
        raise ValueError(f"of {', '.join(CAPTURE)} it lacks {', '.join(missing)}")
    vectors, sources = [], ()
    if not missing:
        *rest, flash = (_checked(arrays, name, count, *form) for name, form in CAPTURE.items())
        vectors.append(jax.vmap(capture_features)(*rest, flash.astype(bool)))
        sources += tuple(CAPTURE)
    if LUX in arrays:
        vectors.append(jax.vmap(lux_feature)(_checked(arrays, LUX, count, *LUX_RANGE)))
        sources += (LUX,)
    return Captures(np.concatenate(vectors, axis=1), sources) if sources else None


def _checked(
    arrays: Mapping[str, np.ndarray], name: str, count: int, low: float, high: float, width: int = 0
) -> Float[np.ndarray, "n *width"]:
    """Return an array of captures, whose shape and values are in order."""
    array = arrays[name]
    shape = (count, width) if width else (count,)
    if array.shape != shape or array.dtype.kind not in "biuf":
        raise ValueError(f"{name} has {dtype_and_shape(array)}, not numbers of {shape}")
    if not ((array >= low) & (array <= high)).all():
        raise ValueError(f"a value of {name} is not between {low:g} and {high:g}")
    return array.astype(np.float32)


def thumbnail_set(
    path: Path, camera: str = "", saturated: Saturated = "highlights"
) -> dict[str, ConstancySet]:
    """Return thumbnails of one or several cameras in an `.npz` file, by camera.

    Args:
      path: file as for `read_thumbnails`. Names such as "SonyA57_0001" assign images to cameras;
        other images belong to the camera after which the file is named.
      camera: camera of all images, whatever their names are.
      saturated: pixels to mask as saturated.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged, lacks an array, or its arrays do not match.
    """
    stored = read_thumbnails(path, "docs/pages/guide/data.md describes its content.")
    if stored.saturated_masked and saturated == "highlights":
        saturated = "none"
    named = [re.fullmatch(r"(.*[A-Za-z].*)_\d+", name) for name in stored.names]
    cameras = np.array([camera or (path.stem if match is None else match[1]) for match in named])
    # Folders are named after cameras, and .. is another folder.
    form = re.compile(r"(?=.*\w)[\w .+-]+")
    odd = [camera for camera in np.unique(cameras).tolist() if not form.fullmatch(camera)]
    if odd:
        raise DataError(
            f"{path}: {odd[0]!a} is not a camera's name; use letters or digits, and _ . + -"
        )
    read = {match[1] for match in named if match is not None and not camera}
    if read and not read & {*DATA_SET_CAMERAS, path.stem}:
        print(
            f"{path}: the names of the images state {name_first(sorted(read))} as camera; "
            "otherwise name the camera of all images by --camera",
            file=sys.stderr,
        )
    sets = {}
    for name in np.unique(cameras):
        rows = cameras == name
        images = stored.images[rows]
        sets[str(name)] = ConstancySet(
            names=tuple(np.array(stored.names)[rows].tolist()),
            illuminants=stored.illuminants[rows],
            read_image=partial(_mask_thumbnail, images, stored.masks[rows], saturated),
            captures=None if stored.captures is None else stored.captures.at(rows),
            file=path,
        )
    return sets


def thumbnail_cameras(
    files: Sequence[Path], camera: str = "", saturated: Saturated = "highlights"
) -> dict[str, ConstancySet]:
    """Return the thumbnails of several files by camera.

    Args:
      files: `.npz` files as for `thumbnail_set`.
      camera: camera of all images, where their names do not say it.
      saturated: pixels to mask as saturated.

    Raises:
      DataError: two files hold images of one camera, or a file is damaged.
    """
    sets: dict[str, ConstancySet] = {}
    for file in files:
        for name, thumbnails in thumbnail_set(file, camera, saturated).items():
            if name in sets:
                raise DataError(
                    f"{file} has images of {name}, as another file has; give one of them"
                )
            sets[name] = thumbnails
    return sets


def _mask_thumbnail(
    images: Float[np.ndarray, "n h w 3"],
    masks: Bool[np.ndarray, "n h w"],
    saturated: Saturated,
    index: int,
) -> Photograph:
    """Return an image and its mask, without pixels of 0 and saturated ones."""
    brightest = images[index].max(axis=-1)
    lit = (brightest > 0) & masks[index]
    return Photograph(images[index], lit & ~_saturated_pixels(brightest, saturated))


def _saturated_pixels(
    brightest: Float[np.ndarray, "h w"], saturated: Saturated
) -> Bool[np.ndarray, "h w"]:
    """Return the saturated pixels by their brightest channels."""
    if saturated == "highlights":
        return brightest >= SATURATION * brightest.max()
    at_maximum = brightest == brightest.max()
    is_plateau = saturated == "plateaus" and np.count_nonzero(at_maximum) > 1
    return at_maximum & is_plateau
