"""Reader of untrusted images with Pillow, within size limits."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

from everlight_data.errors import DataError
from everlight_data.files import read_bytes, refusing

MAX_BYTES = 500_000_000
"""Limit on the size of an image file."""
MAX_PIXELS = 100_000_000
"""Limit on the pixels of an image; decoded, it takes three or four bytes per pixel."""
# Pillow's own, lower limit writes a warning into the output; `open_image` checks ours instead.
Image.MAX_IMAGE_PIXELS = None
FORMATS = ("JPEG", "PNG", "GIF")
"""Formats of the data sets' photographs; Pillow knows forty more."""


@contextmanager
def opened_image(path: Path, way_out: str) -> Iterator[Image.Image]:
    """Open an image and read its header; every error while it is used names the file.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is not a regular file or an intact image, or is too large.
    """
    with refusing(path, way_out), open_image(path, way_out) as image:
        yield image


def open_image(path: Path, way_out: str) -> Image.Image:
    """Open an image and read its header; the caller closes it.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is not a regular file, or is too large.
      Exception: any error of Pillow about content that is not an image.
    """
    image = Image.open(io.BytesIO(read_bytes(path, MAX_BYTES, way_out)), formats=FORMATS)
    if image.width * image.height > MAX_PIXELS:
        raise DataError(
            f"{path} has {image.width}x{image.height} pixels, above the limit. {way_out}"
        )
    return image


def square(image: Image.Image, side: int) -> UInt8[np.ndarray, "side side c"]:
    """Return the central square of a grey or RGB image, resized to `side` pixels."""
    fitted = ImageOps.fit(image, (side, side), Image.Resampling.BILINEAR)
    return np.asarray(fitted).reshape(side, side, -1)
