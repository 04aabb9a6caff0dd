"""Shared readers of photographs: 16-bit images, levels, illuminants."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt16

from everlight_data.errors import DataError
from everlight_data.formats.files import read_bytes, refusing
from everlight_data.formats.image_headers import (
    png_orientation,
    png_rendering,
    png_size,
    tiff_header,
)
from everlight_data.optional_packages import import_package

MAX_BYTES, MAX_PIXELS = 500_000_000, 60_000_000
"""Limits on the size and pixels of an image; the largest have 24 megapixels."""
MIN_VALUE, MAX_VALUE = 1e-15, 1e15
"""Limits on a thumbnail's brightest pixel and on illuminants, whose squares 32 bits can hold."""


def checked_illuminants(illuminants: np.ndarray) -> Float[np.ndarray, "n 3"]:
    """Return illuminants as float32 after checking them.

    Raises:
      ValueError: the array does not hold three numbers per illuminant, within the limits.
    """
    if illuminants.ndim != 2 or illuminants.shape[1] != 3 or illuminants.dtype.kind not in "fiu":
        raise ValueError(
            f"illuminants have dtype {illuminants.dtype} and shape {illuminants.shape}, not (n, 3)"
        )
    with np.errstate(over="ignore"):
        illuminants = illuminants.astype(np.float32)
    if not (np.isfinite(illuminants) & (illuminants > 0)).all():
        raise ValueError("an illuminant is not above 0 or not finite")
    if not MIN_VALUE <= illuminants.min(initial=1) <= illuminants.max(initial=1) <= MAX_VALUE:
        raise ValueError(f"an illuminant is not between {MIN_VALUE:g} and {MAX_VALUE:g}; scale it")
    return illuminants


def read_picture(path: Path, source: str) -> np.ndarray:
    """Return the pixels of a release's picture as stored; raises as `decode_oriented` does."""
    return decode_oriented(path, f"Download it again from {source}.").pixels


class OrientedPicture(NamedTuple):
    """Pixels of a picture as stored, and how to turn them upright."""

    pixels: UInt16[np.ndarray, "h w 3"]
    orientation: int
    """TIFF's number from 1 to 8; 1 is upright, and stands for pictures that state none."""
    black_level: tuple[float, ...] | None = None
    """Black level that the file states, one value or one per channel; None if it states none."""
    white_level: tuple[float, ...] | None = None
    """White level that the file states, as `black_level`."""
    rendering: str = ""
    """Name of the file's statement of colours or encoding, such as "colour profile"; or ""."""


def decode_oriented(path: Path, remedy: str) -> OrientedPicture:
    """Return a PNG or TIFF of three channels of 16 bits.

    Args:
      path: path of the file, whose ending states its kind.
      remedy: sentence that every error message ends with.

    Raises:
      MissingDataError: the file does not exist.
      MissingPackageError: imagecodecs is not installed.
      DataError: the file is damaged, too large, or of another kind.
    """
    content = read_bytes(path, MAX_BYTES, remedy)
    tiff = path.suffix.lower().startswith(".tif")
    with refusing(path, remedy):
        header = tiff_header(content) if tiff else None
        height, width = (header.height, header.width) if header else png_size(content)
        orientation = png_orientation(content) if header is None else header.orientation
        if height * width > MAX_PIXELS:
            raise ValueError(f"{height}x{width} pixels; give at most {MAX_PIXELS:,}")
    if header is not None:
        # Small files hold hundreds of channels, so they are refused before they are decoded.
        _check_form(path, header.channels, header.bits, header.kind, remedy)
    with refusing(path, remedy):
        codecs = import_package("imagecodecs")
        pixels = (codecs.tiff_decode if tiff else codecs.png_decode)(content)
        if header is not None and header.is_planar and pixels.ndim == 3:
            pixels = np.ascontiguousarray(np.moveaxis(pixels, 0, -1))
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    _check_form(path, channels, 8 * pixels.itemsize, pixels.dtype.kind, remedy)
    if header is not None and header.photometric not in _LINEAR_COLORS:
        raise DataError(
            f"{path}: PhotometricInterpretation is {header.photometric}, not 2 (RGB); its channels "
            f"are not linear red, green and blue. {remedy}"
        )
    levels = (None, None) if header is None else (header.black_level, header.white_level)
    rendering = png_rendering(content) if header is None else header.rendering
    return OrientedPicture(pixels, orientation, *levels, rendering)


def _check_form(path: Path, channels: int, bits: int, kind: str, remedy: str) -> None:
    """Refuse pixels that are not 3 channels of 16 bits without sign, of NumPy's kind "u"."""
    if (channels, bits, kind) != (3, 16, "u"):
        raise DataError(
            f"{path} has {channels} channels of {bits} bits{_FORMS.get(kind, '')}, not 3 of 16 "
            f"without sign; it is not a linear image. {remedy}"
        )


# Black is zero (written for channels without a meaning), RGB, LinearRaw; files may state none.
_LINEAR_COLORS = (None, 1, 2, 34892)
_FORMS = {"i": " with sign", "f": " (floats)", "c": " (complex)"}


def linear(raw: np.ndarray, black: float | int, white: float | int) -> Float[np.ndarray, "h w 3"]:
    """Scale raw values to 0 at the black level and below and 1 at the white level, as float32."""
    return np.maximum(scale_levels(raw, black, white), 0)


def scale_levels(
    raw: np.ndarray, black: float | np.ndarray, white: float
) -> Float[np.ndarray, "h w 3"]:
    """Scale raw values to 0 at the black level and 1 at the white level, as float32."""
    scaled = (raw.astype(np.float32) - black) / (white - black)
    return scaled.astype(np.float32)
