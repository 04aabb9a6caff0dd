"""Writers of photographs: raw sensor values as DNG (Adobe, version 1.4), linear colours as TIFF."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt16

from everlight_data.color.raw_files.dng_colors import COLOR_TAGS, states_color_matrix
from everlight_data.color.raw_files.dng_mosaic import FLIPS, BlackLevels, plane_colors
from everlight_data.color.raw_files.dng_tags import COLOR_FILTER_ARRAY, raw_directories
from everlight_data.color.raw_files.raw import RawImage, read_sensor
from everlight_data.optional_packages import import_package
from everlight_data.writing import written_whole

SHORT, LONG, RATIONAL, SIGNED_RATIONAL, ASCII, BYTE = 3, 4, 5, 10, 2, 1
RGB = 2

ORIENTATIONS = {flip: orientation for orientation, flip in FLIPS.items()}
"""TIFF's orientation by LibRaw's flip."""

RGGB = ((0, 1), (3, 2))
"""Channels of a sensor's 2x2 block: 0 red, 1 green, 2 blue, 3 second green."""


def mosaic_rggb(image: Float[np.ndarray, "h w 3"]) -> Float[np.ndarray, "h w"]:
    """Return the mosaic that an `RGGB` sensor records of an image: one channel per pixel."""
    mosaic = image[..., 1].copy()
    mosaic[::2, ::2] = image[::2, ::2, 0]
    mosaic[1::2, 1::2] = image[1::2, 1::2, 2]
    return mosaic


class DngTags(NamedTuple):
    """Tags of a DNG that do not concern the scale of its values."""

    color_matrix: Float[np.ndarray, "3 3"] | None = None
    """Matrix from XYZ under D65 to camera RGB, ColorMatrix1. Without it LibRaw opens the file, but
    some programs do not."""
    as_shot_neutral: Float[np.ndarray, "3"] | None = None
    """Camera RGB of a neutral surface."""
    model: str = "unknown"
    """Camera name, UniqueCameraModel."""
    orientation: int = 1
    """TIFF orientation."""
    extra: Sequence[tuple] = ()
    """Further tags `(code, type, count, value)`, which override all others."""


NO_TAGS = DngTags()


def write_dng(
    path: Path,
    mosaic: UInt16[np.ndarray, "h w"],
    black: Sequence[float] | Float[np.ndarray, "4"],
    white: int,
    pattern: Sequence[Sequence[int]] | Int[np.ndarray, "2 2"] = RGGB,
    tags: DngTags = NO_TAGS,
) -> None:
    """Write a Bayer sensor's values as a DNG.

    Args:
      path: file to write; an existing one is replaced.
      mosaic: sensor values, `[h, w]`. LibRaw opens none with a side below 22 pixels.
      black: black levels of red, green, blue and the second green.
      white: white level.
      pattern: channel of each position in a 2×2 block, as in `RGGB`.
      tags: colours, camera and orientation.

    Raises:
      DataError: the file cannot be written.
    """
    places = np.asarray(pattern).ravel()
    channels = bytes(1 if place == 3 else int(place) for place in places)
    entries = [
        (274, SHORT, 1, tags.orientation),
        (33421, SHORT, 2, (2, 2)),  # CFARepeatPatternDim
        (33422, BYTE, 4, channels),  # CFAPattern
        (50706, BYTE, 4, b"\x01\x04\x00\x00"),  # DNGVersion
        (50707, BYTE, 4, b"\x01\x01\x00\x00"),  # DNGBackwardVersion
        (50708, ASCII, 0, tags.model.encode("ascii", "replace").decode()),  # UniqueCameraModel
        (50713, SHORT, 2, (2, 2)),  # BlackLevelRepeatDim
        (50714, RATIONAL, 4, rationals(np.asarray(black, float)[places])),  # BlackLevel
        (50717, LONG, 1, white),  # WhiteLevel
    ]
    entries += _color_tags(tags.color_matrix, tags.as_shot_neutral)
    replaced = {code for code, *_ in tags.extra}
    entries = [entry for entry in entries if entry[0] not in replaced] + list(tags.extra)
    with written_whole(path) as unfinished:
        import_package("tifffile").imwrite(
            unfinished,
            mosaic,
            photometric=COLOR_FILTER_ARRAY,
            metadata=None,
            software=False,
            extratags=[(*entry, True) for entry in entries],
        )


def _color_tags(
    color_matrix: Float[np.ndarray, "3 3"] | None, as_shot_neutral: Float[np.ndarray, "3"] | None
) -> list[tuple]:
    """Return the tags of a matrix under D65 and of a neutral, where they are given."""
    tags = []
    if color_matrix is not None:
        tags.append((50778, SHORT, 1, 21))  # CalibrationIlluminant1: D65
        tags.append((50721, SIGNED_RATIONAL, 9, rationals(color_matrix)))
    if as_shot_neutral is not None:
        tags.append((50728, RATIONAL, 3, rationals(as_shot_neutral)))
    return tags


def rewrite_with_illuminant(
    photo: RawImage, illuminant: Float[np.ndarray, "3"], path: Path
) -> None:
    """Write the photo's raw file as a DNG whose AsShotNeutral is the illuminant.

    Sensor values stay as LibRaw decodes them. Size, levels, orientation, camera name and a DNG's
    own colour tags are kept; of other files, the matrix by which LibRaw knows the camera. Pixels
    outside the visible area, opcode lists, previews and maker notes are dropped.

    Args:
      photo: photo from `read_raw`, whose levels are written.
      illuminant: illuminant (r, g, b) of any scale.
      path: file to write.

    Raises:
      DataError: the file cannot be written.
    """
    sensor = read_sensor(photo.path, photo.levels)
    neutral = np.asarray(illuminant) / np.max(illuminant)
    tags, planes = _black_tags(sensor.black), np.arange(3)
    matrix = photo.xyz_to_camera
    if states_color_matrix(photo.path):
        matrix = None
        with raw_directories(photo.path) as source:
            planes = plane_colors(source)
            copied = [source.color_tag(name) for name in COLOR_TAGS]
            tags += [(tag.code, tag.dtype, tag.count, tag.value) for tag in copied if tag]
    write_dng(
        path,
        sensor.values,
        photo.black_level,
        photo.white_level,
        sensor.pattern,
        DngTags(
            color_matrix=matrix,
            as_shot_neutral=neutral[planes],
            model=photo.camera or "unknown",
            orientation=ORIENTATIONS[sensor.flip],
            extra=tags,
        ),
    )


def _black_tags(black: BlackLevels) -> list[tuple]:
    """Return the tags of black levels, `(code, type, count, value)`."""
    tags = [
        (50713, SHORT, 2, black.pattern.shape),  # BlackLevelRepeatDim
        (50714, RATIONAL, black.pattern.size, rationals(black.pattern)),  # BlackLevel
    ]
    for code, additions in ((50715, black.column_additions), (50716, black.row_additions)):
        if additions is not None:
            fractions = rationals(additions)
            tags.append((code, SIGNED_RATIONAL, len(additions), fractions))
    return tags


def rationals(values: Float[np.ndarray, "..."]) -> tuple[int, ...]:
    """Return the nearest TIFF rationals: numerator, denominator, numerator, denominator, ..."""
    parts = []
    for value in np.ravel(values).tolist():
        # Both parts must fit into 31 bits.
        limit = min(1_000_000, (1 << 31) // (int(abs(value)) + 2))
        fraction = Fraction(value).limit_denominator(max(1, limit))
        parts += [fraction.numerator, fraction.denominator]
    return tuple(parts)


def write_linear_tiff(path: Path, linear: Float[np.ndarray, "h w 3"], description: str) -> None:
    """Write linear colours in [0, 1] as a TIFF with 16 bits per channel; 65535 is 1.

    Raises:
      DataError: the file cannot be written.
    """
    pixels = np.round(np.clip(linear, 0, 1) * 65535).astype(np.uint16)
    with written_whole(path) as unfinished:
        import_package("tifffile").imwrite(
            unfinished, pixels, photometric=RGB, metadata=None, description=description
        )
