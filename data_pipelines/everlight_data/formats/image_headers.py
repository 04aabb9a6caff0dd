"""Sizes and colours that the headers of PNG, TIFF and JPEG files state; no pixel is decoded."""

import struct
from typing import NamedTuple

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
# Tags and types of numbers of TIFF 6.0.
_WIDTH, _HEIGHT, _PHOTOMETRIC, _PLANAR, _SHORT, _LONG = 256, 257, 262, 284, 3, 4


class TiffHeader(NamedTuple):
    """Statements of a TIFF's first directory."""

    height: int
    width: int
    is_planar: bool
    """True if every channel has a plane of its own."""
    photometric: int | None
    """The tag PhotometricInterpretation; None where there is none."""


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
      ValueError: the content is not a TIFF, is truncated, or states no size.
    """
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(content[:4])
    if content[:4] in (b"II+\0", b"MM\0+"):
        raise ValueError("it is a BigTIFF; save it as a classic TIFF")
    if order is None:
        raise ValueError("not a TIFF file")
    numbers = {}
    try:
        (place,) = struct.unpack_from(f"{order}I", content, 4)
        (count,) = struct.unpack_from(f"{order}H", content, place)
        for start in range(place + 2, place + 2 + 12 * count, 12):
            tag, kind, _ = struct.unpack_from(f"{order}HHI", content, start)
            if kind in (_SHORT, _LONG):
                code = "H" if kind == _SHORT else "I"
                (numbers[tag],) = struct.unpack_from(f"{order}{code}", content, start + 8)
        height, width = numbers[_HEIGHT], numbers[_WIDTH]
    except (struct.error, KeyError):
        raise ValueError("the TIFF states no size") from None
    return TiffHeader(height, width, numbers.get(_PLANAR, 1) == 2, numbers.get(_PHOTOMETRIC))


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
