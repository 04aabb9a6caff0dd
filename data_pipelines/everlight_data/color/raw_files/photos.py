"""Single photos as linear camera colours: raw files, and pictures of three channels of 16 bits."""

from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, UInt16

from everlight.color.thumbnails import below_saturation
from everlight_data.color.photographs.linear_pictures import (
    OrientedPicture,
    decode_oriented,
    scale_levels,
)
from everlight_data.color.raw_files.dng_mosaic import FILE_LEVELS, FLIPS, LevelArguments
from everlight_data.color.raw_files.raw import RawImage, read_raw, upright
from everlight_data.color.raw_files.raw_refusals import check_level_arguments
from everlight_data.errors import DataError, MissingDataError
from everlight_data.texts import one_line

PICTURES = (".png", ".tif", ".tiff")
"""Endings of pictures; every other file is read as a raw file."""
ENCODED = (".jpg", ".jpeg", ".heic", ".heif", ".webp", ".avif")
"""Endings of pictures whose colours are encoded for display."""
# fmt: off
RAW = (
    ".dng", ".arw", ".cr2", ".cr3", ".crw", ".erf", ".iiq", ".kdc", ".mef", ".mos", ".mrw",
    ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw",
)
"""Endings of the raw files that are taken from a folder."""
# fmt: on
CLIPPED = 16
"""Least number of values at a picture's maximum at which they count as clipped."""
REMEDY = "Give a DNG or camera raw file, or a linear PNG or TIFF of 3 channels of 16 bits."


def list_photos(paths: Sequence[Path]) -> list[Path]:
    """Return files as they are given, and the photos of folders by name.

    Other files and hidden ones are left out of folders.

    Raises:
      MissingDataError: a file or folder does not exist, or a folder holds no photo.
    """
    photos = []
    for path in paths:
        if not path.is_dir():
            photos.append(path)
            continue
        # Hidden files such as ._a.dng, which macOS writes beside a.dng on other file systems.
        visible = [file for file in sorted(path.iterdir()) if not file.name.startswith(".")]
        files = [file for file in visible if file.suffix.lower() in (*RAW, *PICTURES)]
        if not files:
            raise MissingDataError(f"{path} holds no photo. {REMEDY}")
        photos += files
    return photos


def left_out_pictures(folder: Path) -> list[str]:
    """Return the names of a folder's files of encoded colours, such as JPEG, which are not read."""
    return sorted(path.name for path in folder.iterdir() if path.suffix.lower() in ENCODED)


def is_picture(path: Path) -> bool:
    """Return True if a file is read as a PNG or TIFF and not as a raw file."""
    return path.suffix.lower() in PICTURES


def usable_pixels(photo: RawImage) -> Bool[np.ndarray, "h w"]:
    """Return the pixels that estimates read, and thumbnails for them: none that is saturated."""
    return ~photo.saturated & np.asarray(below_saturation(jnp.asarray(photo.image)))


def read_photo(path: Path, levels: LevelArguments = FILE_LEVELS) -> RawImage:
    """Read a raw file as `read_raw` does, or a linear picture without white balance.

    Both are turned upright by the orientation that the file states, and clipped at white but not at
    black (`RawImage.image`).

    Args:
      path: path of the file.
      levels: levels that replace the file's; of a picture that states none they are 0 and that of
        `unstated_white` by default.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged or of another kind, or the black level is not below the white
        level.
    """
    if not is_picture(path):
        return read_raw(path, levels)
    picture = decode_oriented(path, REMEDY)
    flip = FLIPS[picture.orientation]
    pixels = upright(picture.pixels, flip)
    black, white = _picture_levels(path, picture, levels)
    image = np.minimum(scale_levels(pixels, black[:3].astype(np.float32), white), 1)
    return RawImage(
        image=image,
        saturated=~np.asarray(below_saturation(jnp.asarray(image))),
        black_level=black,
        white_level=white,
        xyz_to_camera=None,
        as_shot_neutral=None,
        camera=None,
        flip=flip,
        path=path,
        levels=levels,
        rendering=picture.rendering,
    )


def stated_warnings(photo: RawImage) -> tuple[str, ...]:
    """Return warnings about what a photo's file states of its values."""
    warnings = []
    if photo.rendering:
        warnings.append(
            f"the file states a {photo.rendering}, so its values may not be linear sensor values, "
            "of which an illuminant is estimated"
        )
    if photo.has_gain_map:
        warnings.append(
            "the file states a gain map against lens shading, which is not applied; brightness and "
            "colours change towards the corners"
        )
    return tuple(warnings)


def _picture_levels(
    path: Path, picture: OrientedPicture, levels: LevelArguments
) -> tuple[Float[np.ndarray, "4"], int]:
    """Return the levels that are given, or else those that the picture states, or the default."""
    check_level_arguments(path, levels)
    black = picture.black_level or 0 if levels.black_level is None else levels.black_level
    black = np.ravel(np.asarray(black, float))
    black = black[[0, 1, 2, 1]] if len(black) == 3 else np.broadcast_to(black, 4)
    white = levels.white_level
    if white is None:
        white = max(picture.white_level or (unstated_white(picture.pixels),))
        if picture.white_level and min(picture.white_level) < white:
            raise DataError(
                f"{path} states different white levels {one_line(picture.white_level)}; give one "
                "for all channels as white_level."
            )
    if not 0 <= black.min() <= black.max() < white:
        text = " to ".join(f"{level:g}" for level in sorted({black.min(), black.max()}))
        raise DataError(
            f"{path}: black level {text} does not lie between 0 and the white level {white}; give "
            "both levels of the sensor."
        )
    return black, int(white)


def unstated_white(pixels: UInt16[np.ndarray, "h w 3"]) -> int:
    """Return the white level of a picture that states none.

    It is the maximum if `CLIPPED` values or more are at it, as where a sensor clips. Else nothing
    is taken as clipped, and white is the greatest number of as many bits as the maximum needs.

    Args:
      pixels: values of the picture, `[h, w, 3]`.
    """
    maximum = int(pixels.max())
    if np.count_nonzero(pixels == maximum) >= CLIPPED:
        return maximum
    return 2 ** maximum.bit_length() - 1
