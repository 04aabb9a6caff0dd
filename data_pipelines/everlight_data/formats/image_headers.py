"""Sizes, colours and orientations in the headers of PNG, TIFF and JPEG; no pixel is decoded."""

import operator
import struct
from collections.abc import Iterator
from typing import NamedTuple

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
# Tags and types of numbers of TIFF 6.0.
_WIDTH, _HEIGHT, _PHOTOMETRIC, _ORIENTATION, _PLANAR = 256, 257, 262, 274, 284
_SHORT, _LONG, _RATIONAL = 3, 4, 5
_LEVEL_CODES = {_SHORT: "H", _LONG: "I", _RATIONAL: "II"}
# Tags of DNG 1.7 that pictures of sensor values may have, too.
_BLACK_LEVEL, _WHITE_LEVEL = 50714, 50717
_PROFILE = 34675
_PNG_RENDERINGS = {b"iCCP": "colour profile", b"sRGB": "sRGB encoding", b"gAMA": "gamma"}


class TiffHeader(NamedTuple):
    """Statements of a TIFF's first directory."""

    height: int
    width: int
    is_planar: bool
    """True if every channel has a plane of its own."""
    photometric: int | None
    """The tag PhotometricInterpretation; None where there is none."""
    orientation: int
    """The tag Orientation, from 1 to 8; 1 (upright) where there is none."""
    black_level: tuple[float, ...] | None = None
    """The tag BlackLevel; None where there is none."""
    white_level: tuple[float, ...] | None = None
    """The tag WhiteLevel; None where there is none."""
    rendering: str = ""
    """"colour profile" where there is one, else ""."""


def png_size(content: bytes) -> tuple[int, int]:
    """Return height and width stated in a PNG's header.

    Raises:
      ValueError: the content is not a PNG.
    """
    if not content.startswith(PNG_MAGIC + b"\x00\x00\x00\rIHDR") or len(content) < 24:
        raise ValueError("not a PNG file")
    width, height = struct.unpack(">II", content[16:24])
    return height, width


def tiff_header(content: bytes) -> TiffHeader:
    """Return the statements of a TIFF's first directory.

    Raises:
      ValueError: the content is not a TIFF, is truncated, states no size, or has an unknown
        PlanarConfiguration or Orientation.
    """
    entries = _tiff_entries(content)
    numbers = _first_numbers(entries)
    if _HEIGHT not in numbers or _WIDTH not in numbers:
        raise ValueError("the TIFF states no size")
    planar = numbers.get(_PLANAR, 1)
    if planar not in (1, 2):
        raise ValueError(f"PlanarConfiguration is {planar}, not 1 (chunky) or 2 (planar)")
    return TiffHeader(
        numbers[_HEIGHT],
        numbers[_WIDTH],
        planar == 2,
        numbers.get(_PHOTOMETRIC),
        _orientation(numbers),
        _level_values(content, entries.get(_BLACK_LEVEL)),
        _level_values(content, entries.get(_WHITE_LEVEL)),
        "colour profile" if _PROFILE in entries else "",
    )


def png_orientation(content: bytes) -> int:
    """Return the orientation in a PNG's chunk eXIf, from 1 to 8 as in TIFF; 1 where there is none.

    Raises:
      ValueError: the chunk is damaged or states an unknown orientation.
    """
    for kind, data in _png_chunks(content):
        if kind == b"eXIf":
            return _orientation(_first_numbers(_tiff_entries(data)))
    return 1


def png_rendering(content: bytes) -> str:
    """Return the name of a PNG's first statement on its colours or encoding; "" without any."""
    names = (_PNG_RENDERINGS.get(kind, "") for kind, _ in _png_chunks(content))
    return next(filter(None, names), "")


def _png_chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the names and data of a PNG's chunks, the last one perhaps truncated."""
    place = len(PNG_MAGIC)
    while place + 8 <= len(content):
        length = int.from_bytes(content[place : place + 4])
        yield content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        place += 12 + length


def _orientation(numbers: dict[int, int]) -> int:
    orientation = numbers.get(_ORIENTATION, 1)
    if not 1 <= orientation <= 8:
        raise ValueError(f"Orientation is {orientation}, not 1 to 8")
    return orientation


class _Entry(NamedTuple):
    """An entry of a TIFF's directory; `field` has its values, or the place where they are."""

    order: str
    kind: int
    count: int
    field: bytes


def _tiff_entries(content: bytes) -> dict[int, _Entry]:
    """Return the entries of a TIFF's first directory by their tags."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(content[:4])
    if content[:4] in (b"II+\0", b"MM\0+"):
        raise ValueError("it is a BigTIFF; save it as a classic TIFF")
    if order is None:
        raise ValueError("not a TIFF file")
    entries = {}
    try:
        (place,) = struct.unpack_from(f"{order}I", content, 4)
        (length,) = struct.unpack_from(f"{order}H", content, place)
        for start in range(place + 2, place + 2 + 12 * length, 12):
            tag, kind, count, field = struct.unpack_from(f"{order}HHI4s", content, start)
            entries[tag] = _Entry(order, kind, count, field)
    except struct.error:
        raise ValueError("the TIFF's first directory is truncated") from None
    return entries


def _first_numbers(entries: dict[int, _Entry]) -> dict[int, int]:
    """Return the first number of each tag of whole numbers."""
    return {
        tag: struct.unpack_from(f"{entry.order}{_LEVEL_CODES[entry.kind]}", entry.field)[0]
        for tag, entry in entries.items()
        if entry.kind in (_SHORT, _LONG)
    }


def _level_values(content: bytes, entry: _Entry | None) -> tuple[float, ...] | None:
    """Return the levels that an entry states, one or one per channel; None without the entry."""
    if entry is None:
        return None
    if entry.kind not in _LEVEL_CODES or entry.count not in (1, 3):
        raise ValueError(
            f"its levels are {entry.count} values of type {entry.kind}, not 1 or 3 of SHORT, LONG "
            "or RATIONAL"
        )
    code = f"{entry.order}{entry.count * _LEVEL_CODES[entry.kind]}"
    try:
        if struct.calcsize(code) <= len(entry.field):
            numbers = struct.unpack_from(code, entry.field)
        else:
            numbers = struct.unpack_from(
                code, content, *struct.unpack(f"{entry.order}I", entry.field)
            )
    except struct.error:
        raise ValueError("the TIFF's levels are truncated") from None
    if entry.kind != _RATIONAL:
        return numbers
    if 0 in numbers[1::2]:
        raise ValueError("a level is a fraction whose denominator is 0")
    return tuple(map(operator.truediv, numbers[::2], numbers[1::2]))


# The markers of a frame (ITU T.81, table B.1) but those of tables among them.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def jpeg_size(content: bytes) -> tuple[int, int]:
    """Return height and width stated in a JPEG's first frame.

    Raises:
      ValueError: the content is not a JPEG, or has no frame.
    """
    if not content.startswith(b"\xff\xd8"):
        raise ValueError("not a JPEG file")
    place = 2
    while place + 9 <= len(content) and content[place] == 0xFF:
        marker, length = content[place + 1], int.from_bytes(content[place + 2 : place + 4])
        if marker in _FRAMES:
            height, width = struct.unpack(">HH", content[place + 5 : place + 9])
            return height, width
        # A marker may be filled up with any number of bytes 0xFF before it.
        place += 1 if marker == 0xFF else 2 + length
    raise ValueError("the JPEG has no frame")
