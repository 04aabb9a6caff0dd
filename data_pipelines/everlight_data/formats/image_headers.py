"""Sizes, colours and orientations in the headers of PNG, TIFF and JPEG; no pixel is decoded."""

import operator
import struct
from collections.abc import Iterator
from typing import NamedTuple

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
# Tags and types of numbers of TIFF 6.0.
_WIDTH, _HEIGHT, _PHOTOMETRIC, _ORIENTATION, _PLANAR = 256, 257, 262, 274, 284
_PAGE_KIND, _BITS, _SAMPLES, _TRANSFER, _FORMAT = 254, 258, 277, 301, 339
_REDUCED, _MASK = 1, 4
"""Bits of the tag NewSubfileType: a smaller version of another page, and a mask of one."""
_MAX_CHANNELS = 65_535
"""Limit on the numbers of a tag: SamplesPerPixel has 16 bits."""
_MAX_PAGES = 16
"""Limit on the directories that are searched for a second picture."""
_FORMAT_KINDS = {2: "i", 3: "f", 5: "c", 6: "c"}
"""NumPy's kinds of the numbers of the tag SampleFormat."""
_SHORT, _LONG, _RATIONAL = 3, 4, 5
_LEVEL_CODES = {_SHORT: "H", _LONG: "I", _RATIONAL: "II"}
# Tags of DNG 1.7 that pictures of sensor values may have, too.
_BLACK_LEVEL, _WHITE_LEVEL = 50714, 50717
_PROFILE = 34675
_TIFF_RENDERINGS = {_PROFILE: "colour profile", _TRANSFER: "transfer function"}
_PNG_RENDERINGS = {
    b"iCCP": "colour profile",
    b"cICP": "video encoding",
    b"sRGB": "sRGB encoding",
    b"gAMA": "gamma",
}


class TiffHeader(NamedTuple):
    """Statements of a TIFF's first directory."""

    height: int
    width: int
    channels: int
    """The tag SamplesPerPixel."""
    bits: int
    """The greatest number of the tag BitsPerSample."""
    kind: str
    """NumPy's kind of the values by the tag SampleFormat; "u" where it is undefined."""
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
    """Name of the first statement on colours or encoding, such as "colour profile"; or ""."""


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
        PlanarConfiguration or Orientation. Or the first directory is not of the full picture, or
        another one is of a second picture.
    """
    entries, after = _tiff_entries(content)
    numbers = _first_numbers(entries)
    if _HEIGHT not in numbers or _WIDTH not in numbers:
        raise ValueError("the TIFF states no size")
    planar = numbers.get(_PLANAR, 1)
    if planar not in (1, 2):
        raise ValueError(f"PlanarConfiguration is {planar}, not 1 (chunky) or 2 (planar)")
    _check_pages(content, numbers, after)
    formats = _entry_numbers(content, entries.get(_FORMAT)) or (1,)
    return TiffHeader(
        height=numbers[_HEIGHT],
        width=numbers[_WIDTH],
        channels=numbers.get(_SAMPLES, 1),
        bits=max(_entry_numbers(content, entries.get(_BITS)) or (1,)),
        kind=_FORMAT_KINDS.get(formats[0], "u"),
        is_planar=planar == 2,
        photometric=numbers.get(_PHOTOMETRIC),
        orientation=_orientation(numbers),
        black_level=_level_values(content, entries.get(_BLACK_LEVEL)),
        white_level=_level_values(content, entries.get(_WHITE_LEVEL)),
        rendering=next((name for tag, name in _TIFF_RENDERINGS.items() if tag in entries), ""),
    )


def _check_pages(content: bytes, numbers: dict[int, int], after: int) -> None:
    """Refuse a first page that is no full picture, and further pages that are."""
    remedy = "save the full picture as a file of one page"
    if numbers.get(_PAGE_KIND, 0) & (_REDUCED | _MASK):
        raise ValueError(f"its first page is a smaller version or a mask of another; {remedy}")
    order = _byte_order(content)
    for _ in range(_MAX_PAGES):
        if not after:
            return
        try:
            entries, after = _directory(content, order, after)
        # Decoders of the first page do not follow the chain either.
        except struct.error:
            return
        if entries and not _first_numbers(entries).get(_PAGE_KIND, 0) & (_REDUCED | _MASK):
            raise ValueError(f"it has several pages; {remedy}")


def png_orientation(content: bytes) -> int:
    """Return the orientation in a PNG's chunk eXIf, from 1 to 8 as in TIFF; 1 where there is none.

    Raises:
      ValueError: the chunk is damaged or states an unknown orientation.
    """
    for kind, data in _png_chunks(content):
        if kind == b"eXIf":
            return _orientation(_first_numbers(_tiff_entries(data)[0]))
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


def _byte_order(content: bytes) -> str:
    """Return the byte order of a TIFF as `struct` names it."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(content[:4])
    if content[:4] in (b"II+\0", b"MM\0+"):
        raise ValueError("it is a BigTIFF; save it as a classic TIFF")
    if order is None:
        raise ValueError("not a TIFF file")
    return order


def _tiff_entries(content: bytes) -> tuple[dict[int, _Entry], int]:
    """Return the entries of a TIFF's first directory by their tags, and the next one's place."""
    order = _byte_order(content)
    try:
        (place,) = struct.unpack_from(f"{order}I", content, 4)
        return _directory(content, order, place)
    except struct.error:
        raise ValueError("the TIFF's first directory is truncated") from None


def _directory(content: bytes, order: str, place: int) -> tuple[dict[int, _Entry], int]:
    """Return the entries of the directory at a place, and the place of the next one or 0.

    Raises:
      struct.error: the directory is truncated.
    """
    (length,) = struct.unpack_from(f"{order}H", content, place)
    end = place + 2 + 12 * length
    entries = {}
    for start in range(place + 2, end, 12):
        tag, kind, count, field = struct.unpack_from(f"{order}HHI4s", content, start)
        entries[tag] = _Entry(order, kind, count, field)
    after = content[end : end + 4]
    return entries, struct.unpack(f"{order}I", after)[0] if len(after) == 4 else 0


def _first_numbers(entries: dict[int, _Entry]) -> dict[int, int]:
    """Return the first number of each tag of whole numbers."""
    return {
        tag: struct.unpack_from(f"{entry.order}{_LEVEL_CODES[entry.kind]}", entry.field)[0]
        for tag, entry in entries.items()
        if entry.kind in (_SHORT, _LONG)
    }


def _entry_numbers(content: bytes, entry: _Entry | None) -> tuple[int, ...]:
    """Return an entry's whole numbers, two of each fraction; () without any.

    Raises:
      ValueError: they are truncated, or too many.
    """
    if entry is None or entry.kind not in _LEVEL_CODES:
        return ()
    if entry.count > _MAX_CHANNELS:
        raise ValueError(f"a tag has {entry.count:,} numbers, above the limit")
    code = f"{entry.order}{entry.count * _LEVEL_CODES[entry.kind]}"
    try:
        if struct.calcsize(code) <= len(entry.field):
            return struct.unpack_from(code, entry.field)
        return struct.unpack_from(code, content, *struct.unpack(f"{entry.order}I", entry.field))
    except struct.error:
        raise ValueError("the TIFF's numbers are truncated") from None


def _level_values(content: bytes, entry: _Entry | None) -> tuple[float, ...] | None:
    """Return the levels that an entry states, one or one per channel; None without the entry."""
    if entry is None:
        return None
    if entry.kind not in _LEVEL_CODES or entry.count not in (1, 3):
        raise ValueError(
            f"its levels are {entry.count} values of type {entry.kind}, not 1 or 3 of SHORT, LONG "
            "or RATIONAL"
        )
    numbers = _entry_numbers(content, entry)
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
