"""Reader of untrusted images with Pillow, within size limits."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

from everlight_data.errors import DataError
from everlight_data.formats.files import read_bytes, refusing
from everlight_data.formats.image_headers import PNG_MAGIC

MAX_BYTES = 500_000_000
"""Limit on the size of an image file."""
MAX_PIXELS = 100_000_000
"""Limit on the pixels of an image; decoded, it takes three or four bytes per pixel."""
FORMATS = ("JPEG", "PNG", "GIF")
"""Formats of the data sets' photographs; Pillow knows forty more."""
BACKGROUND = 255
"""Level of red, green and blue behind transparent pixels: white."""
DEPTH_REMEDY = "save with 8 bits, scaled by the greatest value that the camera gives."
_PNG_DEPTH, _PNG_COLOR, _PNG_GRAY = 24, 25, 0
"""Positions of the bits per sample and of the kind of colour in a PNG, and the kind grey."""

# A second thread could restore the limit that the first one lifted.
_LIFTED = threading.Lock()


class DeepImageError(DataError):
    """An image of more than 8 bits per channel, of which Pillow keeps only the high byte."""


@contextmanager
def opened_image(path: Path, remedy: str) -> Iterator[Image.Image]:
    """Open an image and read its header; every error while it is used names the file.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is not a regular file or an intact image, or is too large.
    """
    with refusing(path, remedy), open_image(path, remedy) as image:
        yield image


def open_image(path: Path, remedy: str) -> Image.Image:
    """Open an image and read its header; the caller closes it.

    Raises:
      MissingDataError: the file does not exist.
      DeepImageError: a PNG has 16 bits per channel.
      DataError: the file is not a regular file, or is too large.
      Exception: any error of Pillow about content that is not an image.
    """
    return decode_image(read_bytes(path, MAX_BYTES, remedy), path, remedy)


def decode_image(content: bytes, name: object, remedy: str) -> Image.Image:
    """Read an image's header from the bytes of its file.

    Raises:
      DeepImageError: a PNG has 16 bits per channel.
      DataError: the image has too many pixels.
      Exception: any error of Pillow about content that is not an image.
    """
    depth = (
        content[_PNG_DEPTH] if content.startswith(PNG_MAGIC) and len(content) > _PNG_COLOR else 8
    )
    if depth > 8:
        raise DeepImageError(
            f"{name} has {depth} bits per channel: {DEPTH_REMEDY} {remedy}".rstrip()
        )
    with _without_limit_of_pillow():
        image = Image.open(io.BytesIO(content), formats=FORMATS)
    if depth < 8 and content[_PNG_COLOR] == _PNG_GRAY and "transparency" in image.info:
        # Pillow widens the pixels to 8 bits, and not the transparent level that is compared.
        levels = (1 << depth) - 1
        image.info["transparency"] = (image.info["transparency"] & levels) * 255 // levels
    if image.width * image.height > MAX_PIXELS:
        raise DataError(
            f"{name} has {image.width}x{image.height} pixels, above the limit. {remedy}"
        )
    return image


@contextmanager
def _without_limit_of_pillow() -> Iterator[None]:
    """Lift Pillow's own, lower limit, which writes a warning into the output, for a header."""
    with _LIFTED:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = limit


class Opaque(NamedTuple):
    """An image without transparency."""

    image: Image.Image
    was_transparent: bool
    """True if a pixel was transparent before."""


def opaque(image: Image.Image) -> Opaque:
    """Return an image as grey ("L") or RGB without transparency.

    Transparent pixels are laid over white (`BACKGROUND`), so that colours hidden below them are not
    read. An image whose transparency hides nothing is read as if it had none.
    """
    mode = "L" if image.mode in ("1", "L", "LA") else "RGB"
    if not image.has_transparency_data:
        return Opaque(convert_mode(image, mode), False)
    layered = image.convert("RGBA")
    if layered.getchannel("A").getextrema() == (255, 255):
        return Opaque(layered.convert(mode), False)
    behind = Image.new("RGBA", image.size, (BACKGROUND,) * 4)
    return Opaque(Image.alpha_composite(behind, layered).convert(mode), True)


def convert_mode(image: Image.Image, mode: str) -> Image.Image:
    """Return an image in one of Pillow's modes; one that has it is not copied."""
    return image if image.mode == mode else image.convert(mode)


def square(image: Image.Image, side: int) -> UInt8[np.ndarray, "side side c"]:
    """Return the central square of a grey or RGB image, resized to `side` pixels."""
    fitted = ImageOps.fit(image, (side, side), Image.Resampling.BILINEAR)
    return np.asarray(fitted).reshape(side, side, -1)
