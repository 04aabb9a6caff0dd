"""Reader of the tags of a mosaic: colour pattern, black and white levels, area, orientation.

After the DNG specification 1.7, chapters 4 ("BlackLevel" and its neighbours) and 5 ("Mapping Raw
Values to Linear Reference Values"). LibRaw rounds black levels, averages their changes by row and
column, and reads unknown patterns and orientations as others.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from everlight_data.color.raw_files.dng_tags import DAMAGED, RawDirectories

RED, GREEN, BLUE = 0, 1, 2
SECOND_GREEN = 3
"""Channel of the green photosites in the rows of blue."""
FLIPS = {1: 0, 2: 1, 3: 3, 4: 2, 5: 4, 6: 6, 7: 7, 8: 5}
"""LibRaw's flip by TIFF orientation: 1 mirrors the columns, 2 the rows, then 4 swaps the axes."""
UNSIGNED = 1
"""SampleFormat of integers without sign."""
INTERLEAVED = ("RowInterleaveFactor", "ColumnInterleaveFactor", "SubTileBlockSize")
"""Tags of rows, columns and blocks that are stored in another order, unless they are 1."""
BLACK_TAGS = ("BlackLevel", "BlackLevelRepeatDim", "BlackLevelDeltaV", "BlackLevelDeltaH")
_CONVERT = (
    "give a DNG of a plain 2x2 Bayer mosaic, as by the camera's full-resolution or binned mode"
)
OPCODE_LISTS = "OpcodeList2", "OpcodeList3"
"""Tags of operations on the mosaic and on its demosaiced values."""
GAIN_MAP = 9
"""Number of the operation GainMap, which phones write against lens shading."""
_LEVELS = "give the sensor's own as black_level and white_level"


class LevelArguments(NamedTuple):
    """A user's levels in sensor units that replace a file's; None keeps the file's."""

    black_level: float | Sequence[float] | None = None
    """One value, or four for R, G, B and the second G."""
    white_level: int | None = None
    """Value."""


FILE_LEVELS = LevelArguments()


class BlackLevels(NamedTuple):
    """Black levels of an active area in sensor units; a pixel's is the sum of the three."""

    pattern: Float[np.ndarray, "rows columns"]
    """Levels that repeat from the top left, `[rows, columns]`."""
    row_additions: Float[np.ndarray, "h"] | None = None
    """Addition per row, `[h]`; None adds nothing."""
    column_additions: Float[np.ndarray, "w"] | None = None
    """Addition per column, `[w]`; None adds nothing."""


class MosaicTags(NamedTuple):
    """Tags of a mosaic; None stands for what the file does not state."""

    flip: int
    """Orientation, as LibRaw counts it."""
    pattern: Int[np.ndarray, "2 2"] | None = None
    """Channel of each position of a 2×2 block."""
    black: BlackLevels | None = None
    """Black levels."""
    white: int | None = None
    """White level."""
    area: tuple[int, int, int, int] | None = None
    """Top, left, bottom and right of the active area, of which pattern and levels speak."""
    has_gain_map: bool = False
    """True if a list of operations has a gain map."""


def black_map(black: BlackLevels, height: int, width: int) -> Float[np.ndarray, "h w"]:
    """Return the black level of each pixel."""
    rows, columns = black.pattern.shape
    tiled = np.tile(black.pattern, (-(-height // rows), -(-width // columns)))[:height, :width]
    if black.row_additions is not None:
        tiled = tiled + black.row_additions[:, None]
    return tiled if black.column_additions is None else tiled + black.column_additions


def shifted_black(black: BlackLevels, rows: int, columns: int) -> BlackLevels:
    """Return the levels of the area that begins so many rows and columns further on."""
    return BlackLevels(
        np.roll(black.pattern, (-rows, -columns), (0, 1)),
        None if black.row_additions is None else black.row_additions[rows:],
        None if black.column_additions is None else black.column_additions[columns:],
    )


def bayer_pattern(colors: Int[np.ndarray, "rows columns"]) -> Int[np.ndarray, "2 2"] | None:
    """Return the channels of the 2×2 Bayer block that a colour pattern repeats; None if it is none.

    Args:
      colors: colour of each position: 0 red, 1 green, 2 blue.
    """
    block = colors[:2, :2]
    rows, columns = colors.shape
    if rows % 2 or columns % 2 or (np.tile(block, (rows // 2, columns // 2)) != colors).any():
        return None
    diagonals = sorted((tuple(sorted(np.diag(block))), tuple(sorted(np.diag(block[:, ::-1])))))
    if diagonals != [(RED, BLUE), (GREEN, GREEN)]:
        return None
    in_blue_row = (block == BLUE).any(axis=1, keepdims=True) & (block == GREEN)
    return np.where(in_blue_row, SECOND_GREEN, block)


def read_mosaic_tags(
    raw: RawDirectories, shape: tuple[int, int], levels: LevelArguments = FILE_LEVELS
) -> MosaicTags:
    """Return what the tags state about the mosaic.

    Args:
      raw: directories of the file.
      shape: height and width of the decoded sensor.
      levels: levels that the user gives; the file's own are then not read.

    Raises:
      DataError: a tag is damaged, or states what is not supported.
    """
    flip = _flip(raw)
    if raw.mosaic is None:
        return MosaicTags(flip)
    pattern = _pattern(raw)
    _refuse_other_values(raw)
    stored = tuple(int(raw.mosaic[name].value) for name in ("ImageLength", "ImageWidth"))
    if raw.is_dng and stored != shape:
        raise raw.refusal(
            "ImageLength and ImageWidth",
            f"are {stored[0]}x{stored[1]}, and LibRaw decodes {shape[0]}x{shape[1]}",
            "give a DNG whose full image is its only mosaic",
        )
    area = _area(raw, shape)
    black = _black(raw, area) if levels.black_level is None else None
    white = _white(raw) if levels.white_level is None else None
    return MosaicTags(flip, pattern, black, white, area, _has_gain_map(raw))


def _has_gain_map(raw: RawDirectories) -> bool:
    """Return True if a list of operations, which are not applied, has a gain map."""
    tags = (raw.mosaic_tag(name) for name in OPCODE_LISTS)
    lists = (tag.value for tag in tags if tag is not None)
    return any(GAIN_MAP in _opcodes(stored) for stored in lists if isinstance(stored, bytes))


def _opcodes(content: bytes) -> Iterator[int]:
    """Yield the numbers of a list's operations: after its length, four big-endian numbers each.

    They are the operation, its version, its flags, and the number of bytes that follow.
    """
    place = 4
    while place + 16 <= len(content):
        number, _, _, size = struct.unpack_from(">4I", content, place)
        yield number
        place += 16 + size


def _flip(raw: RawDirectories) -> int:
    """Return LibRaw's flip of the orientation."""
    tag = raw.color_tag("Orientation")
    if tag is None:
        return 0
    (value,) = raw.numbers(tag)[:1].astype(int)
    if tag.count != 1 or value not in FLIPS:
        raise raw.refusal(
            "Orientation", f"is {value}, not 1 to 8", "set it, as by exiftool -n -Orientation=1"
        )
    return FLIPS[value]


def _pattern(raw: RawDirectories) -> Int[np.ndarray, "2 2"] | None:
    """Return the channels of the mosaic's 2×2 block; None for a file that is not a DNG."""
    tag = raw.mosaic_tag("CFAPattern")
    if tag is None and raw.is_dng:
        raise raw.refusal("CFAPattern", "is missing", _CONVERT)
    if tag is None:
        return None
    dims = raw.mosaic_tag("CFARepeatPatternDim")
    shape = (2, 2) if dims is None else tuple(raw.numbers(dims).astype(int).tolist())
    colors = raw.numbers(tag).astype(int)
    if len(shape) != 2 or min(shape) < 1 or np.prod(shape) != len(colors):
        raise raw.refusal("CFAPattern", f"has {len(colors)} colours for {shape}", DAMAGED)
    pattern = bayer_pattern(colors.reshape(shape))
    if pattern is None:
        reason = f"is {shape[0]}x{shape[1]}" if shape != (2, 2) else "is 2x2 with other colours"
        raise raw.refusal(
            "CFARepeatPatternDim" if shape != (2, 2) else "CFAPattern",
            f"{reason}, not a Bayer pattern of red, two green and blue",
            _CONVERT,
        )
    return pattern


def plane_colors(raw: RawDirectories) -> Int[np.ndarray, "3"]:
    """Return the colour of each plane, in whose order matrices and neutrals are: 0 is red.

    Raises:
      DataError: the planes are not red, green and blue.
    """
    tag = raw.mosaic_tag("CFAPlaneColor") or raw.color_tag("CFAPlaneColor")
    colors = np.arange(3) if tag is None else raw.numbers(tag).astype(int)
    if sorted(colors.tolist()) != [RED, GREEN, BLUE]:
        raise raw.refusal(
            "CFAPlaneColor", f"is {colors.tolist()}, not red, green and blue in any order", _CONVERT
        )
    return colors


def _refuse_other_values(raw: RawDirectories) -> None:
    """Refuse layouts and numbers that are read as others."""
    plane_colors(raw)
    name = "LinearizationTable"
    if raw.is_dng and raw.mosaic_tag(name) is None and name in raw.first:
        reason = "stands in the first directory, and LibRaw applies it to the mosaic of another"
        raise raw.refusal(name, reason, "write it into the mosaic's directory")
    for name in ("CFALayout", "SamplesPerPixel", *INTERLEAVED):
        tag = raw.mosaic_tag(name)
        if tag is not None and (raw.numbers(tag) != 1).any():
            stated = raw.numbers(tag).astype(int).tolist()
            raise raw.refusal(name, f"is {stated}, and only 1 is supported", _CONVERT)
    sample = raw.mosaic_tag("SampleFormat")
    if sample is not None and (raw.numbers(sample) != UNSIGNED).any():
        raise raw.refusal(
            "SampleFormat",
            f"is {raw.numbers(sample).astype(int).tolist()}, and only unsigned integers (1) are "
            "supported",
            "save the mosaic as 16-bit unsigned integers",
        )


def _area(raw: RawDirectories, shape: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the active area; by default it is the whole image."""
    tag = raw.mosaic_tag("ActiveArea")
    if tag is None:
        return (0, 0, *shape)
    values = raw.numbers(tag).astype(int).tolist()
    if len(values) == 4:
        top, left, bottom, right = values
        if 0 <= top < bottom <= shape[0] and 0 <= left < right <= shape[1]:
            return top, left, bottom, right
    raise raw.refusal("ActiveArea", f"is {values} in {shape[0]}x{shape[1]} pixels", DAMAGED)


def _black(raw: RawDirectories, area: tuple[int, int, int, int]) -> BlackLevels | None:
    """Return the black levels; without any tag a DNG's are 0, and other files' not stated."""
    top, left, bottom, right = area
    tag, dims, *deltas = (raw.level_tag(name, BLACK_TAGS) for name in BLACK_TAGS)
    shape, levels = (1, 1), np.zeros(1)
    if tag is not None:
        shape = shape if dims is None else tuple(raw.numbers(dims).astype(int).tolist())
        levels = raw.numbers(tag)
    if len(shape) != 2 or min(shape) < 1 or np.prod(shape) != levels.size:
        raise raw.refusal("BlackLevel", f"has {levels.size} levels for {shape}", _LEVELS)
    additions = []
    for delta, count in zip(deltas, (bottom - top, right - left), strict=True):
        additions.append(None if delta is None else raw.numbers(delta))
        if delta is not None and additions[-1].size != count:
            raise raw.refusal(
                delta.name,
                f"has {additions[-1].size} values for {count} of the active area",
                _LEVELS,
            )
    if tag is None and not raw.is_dng:
        return None
    if tag is None and raw.mosaic_tag("MaskedAreas") is not None:
        raise raw.refusal("BlackLevel", "is missing, although MaskedAreas is present", _LEVELS)
    return BlackLevels(levels.reshape(shape), *additions)


def _white(raw: RawDirectories) -> int | None:
    """Return the white level; without the tag a DNG's is the greatest value of its bits."""
    tag = raw.level_tag("WhiteLevel", ["WhiteLevel"])
    if tag is not None:
        values = raw.numbers(tag)
        if (values != values[0]).any() or values[0] < 1 or values[0] % 1:
            reason = f"is {values.tolist()}, not one whole number above 0"
            raise raw.refusal("WhiteLevel", reason, _LEVELS)
        return int(values[0])
    if not raw.is_dng:
        return None
    if raw.mosaic_tag("LinearizationTable") is not None:
        raise raw.refusal("WhiteLevel", "is missing for the LinearizationTable", _LEVELS)
    return int(2 ** raw.numbers(raw.mosaic_tag("BitsPerSample"))[0]) - 1
