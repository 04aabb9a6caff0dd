"""Pictures from outside, opened by Pillow within bounds."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

from data_pipelines.errors import DataError
from data_pipelines.files import read_bytes, refusing

BYTES = 500_000_000
"""Of a file."""
PIXELS = 100_000_000
"""Of a picture; what it takes decoded is three or four times as many bytes."""
FORMATS = ("JPEG", "PNG", "GIF")
"""Those in which photographs of the data sets come; Pillow knows forty more."""


@contextmanager
def opened_image(path: Path, way_out: str) -> Iterator[Image.Image]:
    """A picture whose header is read; whatever fails while it is used is named too.

    Raises:
      MissingDataError: there is no such file.
      DataError: it is no regular file, no whole picture or too large.
    """
    with refusing(path, way_out), open_image(path, way_out) as image:
        yield image


def open_image(path: Path, way_out: str) -> Image.Image:
    """A picture whose header is read; whoever asks for it closes it.

    Raises:
      MissingDataError: there is no such file.
      DataError: it is no regular file or too large.
      Exception: any that Pillow raises about what is no picture.
    """
    image = Image.open(io.BytesIO(read_bytes(path, BYTES, way_out)), formats=FORMATS)
    if image.width * image.height > PIXELS:
        raise DataError(f"{path} claims {image.width}x{image.height} pixels. {way_out}")
    return image


def square(image: Image.Image, side: int) -> UInt8[np.ndarray, "side side 3"]:
    """The middle square of an image in RGB, at so many pixels."""
    return np.asarray(ImageOps.fit(image, (side, side), Image.Resampling.BILINEAR))
