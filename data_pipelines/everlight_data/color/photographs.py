"""Shared readers of photographs: 16-bit images, levels, illuminants."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from everlight.color.learned.capture_aware import DAY, EVENTS, capture_features
from everlight_data.errors import DataError
from everlight_data.formats.arrays import read_npz
from everlight_data.formats.files import read_bytes, refusing
from everlight_data.formats.image_headers import png_size, tiff_header
from everlight_data.optional_packages import import_package

MAX_BYTES, MAX_PIXELS = 500_000_000, 60_000_000
"""Limits on the size and pixels of an image; the largest have 24 megapixels."""
LEAST, GREATEST = 1e-15, 1e15
"""Limits on a thumbnail's brightest pixel and on illuminants, whose squares 32 bits can hold."""


CAPTURE: dict[str, tuple[float, float, int]] = {
    "time": (0, DAY, 0),
    "sun_events": (0, DAY, len(EVENTS)),
    "iso": (1e-3, 1e9, 0),
    "exposure": (1e-9, 1e6, 0),
    "flash": (0, 1, 0),
}
"""Arrays of captures in a file of thumbnails: least and greatest value, and columns if several.

They are the arguments of `everlight.color.capture_features`, in its units.
"""


class Thumbnails(NamedTuple):
    """Linear images with names and illuminants; 1 is white, and 0 in all channels is masked.

    `masks` are the file's own, true everywhere by default; `captures` are the features of each
    image's time and settings (`everlight.color.capture_features`), or None.
    """

    images: Float[np.ndarray, "n h w 3"]
    illuminants: Float[np.ndarray, "n 3"]
    names: tuple[str, ...]
    masks: Bool[np.ndarray, "n h w"]
    captures: Float[np.ndarray, "n 15"] | None = None


def read_thumbnails(path: Path, remedy: str) -> Thumbnails:
    """Return thumbnails in an `.npz` file, as float32.

    Args:
      path: file with `images_u16` (white at 65535) or `images` (floats, white at 1), `[n, h, w,
        3]`. It also holds `illuminant_rgb`, `[n, 3]`, and optionally `names` (by default 1, 2, ...)
        and `masks`, `[n, h, w]`, 0 on reference charts (by default nothing is masked). The five
        arrays of `CAPTURE` are optional together.
      remedy: sentence that every error message ends with.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged, lacks an array, or its arrays do not match.
    """
    arrays = read_npz(path, remedy)
    images = arrays.get("images_u16", arrays.get("images"))
    if images is None or "illuminant_rgb" not in arrays:
        raise DataError(
            f"{path} is damaged or another file: of images_u16 or images, and illuminant_rgb, it "
            f"has {', '.join(arrays) or 'nothing'}. {remedy}"
        )
    if images.dtype == np.uint8:
        raise DataError(
            f"{path}: 8-bit images are not linear raw values; give uint16 (images_u16, white at "
            f"65535) or floats (images, white at 1). {remedy}"
        )
    with refusing(path, remedy):
        illuminants = checked_illuminants(arrays["illuminant_rgb"])
        whole = images.dtype == np.uint16
        shaped = images.ndim == 4 and images.shape[3] == 3 and images.size
        if not shaped or not (whole or images.dtype.kind == "f"):
            raise ValueError(f"images are {images.dtype} of {images.shape}")
        if len(images) != len(illuminants):
            raise ValueError(f"{len(images)} images, {len(illuminants)} illuminants")
        names = arrays.get("names", np.arange(1, len(images) + 1))
        # A number takes 128 bytes as text.
        if names.shape != (len(images),) or names.dtype.kind not in "USiuf":
            raise ValueError(f"{len(images)} images, names are {names.dtype} of {names.shape}")
        names = names.astype(str)
        with np.errstate(over="ignore"):
            scaled = images.astype(np.float32) / (65535 if whole else 1)
        if not (np.isfinite(scaled) & (scaled >= 0)).all():
            raise ValueError("a pixel is below 0 or not finite")
        if scaled.max() > GREATEST:
            raise ValueError(f"a pixel is {scaled.max():g}; 1 is white, give at most {GREATEST:g}")
        brightest = scaled.max(axis=(1, 2, 3), initial=0)
        if (dark := brightest[(brightest > 0) & (brightest < LEAST)]).size:
            raise ValueError(f"an image's brightest pixel is {dark[0]:g}; 1 is white, scale it")
        masks = arrays.get("masks", np.ones(images.shape[:3], bool))
        if masks.shape != images.shape[:3] or masks.dtype.kind not in "biuf":
            raise ValueError(f"masks are {masks.dtype} of {masks.shape}")
        captures = _captures(arrays, len(images))
    return Thumbnails(scaled, illuminants, tuple(names.tolist()), masks != 0, captures)


def _captures(arrays: Mapping[str, np.ndarray], count: int) -> Float[np.ndarray, "n 15"] | None:
    """Return the features of the images' captures, None without any of the arrays.

    Raises:
      ValueError: some of the arrays are missing, or one has other values or another shape.
    """
    missing = [name for name in CAPTURE if name not in arrays]
    if len(missing) == len(CAPTURE):
        return None
    if missing:
        raise ValueError(f"of {', '.join(CAPTURE)} it lacks {', '.join(missing)}")
    values = []
    for name, (low, high, width) in CAPTURE.items():
        array = arrays[name]
        shape = (count, width) if width else (count,)
        if array.shape != shape or array.dtype.kind not in "biuf":
            raise ValueError(f"{name} is {array.dtype} of {array.shape}, not numbers of {shape}")
        if not ((array >= low) & (array <= high)).all():
            raise ValueError(f"a value of {name} is not between {low:g} and {high:g}")
        values.append(array.astype(bool if name == "flash" else np.float32))
    return np.asarray(jax.vmap(capture_features)(*values))


def checked_illuminants(illuminants: np.ndarray) -> Float[np.ndarray, "n 3"]:
    """Return illuminants as float32 after checking them.

    Raises:
      ValueError: the array does not hold three numbers from `LEAST` to `GREATEST` per illuminant.
    """
    if illuminants.ndim != 2 or illuminants.shape[1] != 3 or illuminants.dtype.kind not in "fiu":
        raise ValueError(
            f"illuminants are {illuminants.dtype} of {illuminants.shape}, not three numbers each"
        )
    with np.errstate(over="ignore"):
        illuminants = illuminants.astype(np.float32)
    if not (np.isfinite(illuminants) & (illuminants > 0)).all():
        raise ValueError("an illuminant is not above 0 or not finite")
    if not LEAST <= illuminants.min(initial=1) <= illuminants.max(initial=1) <= GREATEST:
        raise ValueError(f"an illuminant is not between {LEAST:g} and {GREATEST:g}; scale it")
    return illuminants


def read_picture(path: Path, source: str) -> np.ndarray:
    """Read a release's picture; raises as `decode_picture` does."""
    return decode_picture(path, f"Download it again from {source}.")


def decode_picture(path: Path, remedy: str) -> np.ndarray:
    """Read a PNG or TIFF with three channels of 16 bits.

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
        height, width = png_size(content) if header is None else header[:2]
        if height * width > MAX_PIXELS:
            raise ValueError(f"{height}x{width} pixels")
        codecs = import_package("imagecodecs")
        pixels = (codecs.tiff_decode if tiff else codecs.png_decode)(content)
        if header is not None and header.is_planar and pixels.ndim == 3:
            pixels = np.ascontiguousarray(np.moveaxis(pixels, 0, -1))
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if channels != 3 or pixels.dtype != np.uint16:
        form = _FORMS.get(pixels.dtype.kind, "")
        raise DataError(
            f"{path} has {channels} channels of {8 * pixels.itemsize} bits{form}, not 3 of 16 "
            f"without sign; it is not a linear image. {remedy}"
        )
    if header is not None and header.photometric not in _LINEAR_COLORS:
        raise DataError(
            f"{path}: PhotometricInterpretation is {header.photometric}, not 2 (RGB); its channels "
            f"are not linear red, green and blue. {remedy}"
        )
    return pixels


# Black is zero (written for channels without a meaning), RGB, LinearRaw; files may state none.
_LINEAR_COLORS = (None, 1, 2, 34892)
_FORMS = {"i": " with sign", "f": " (floats)", "c": " (complex)"}


def linear(raw: np.ndarray, black: float | int, white: float | int) -> Float[np.ndarray, "h w 3"]:
    """Scale raw values to 0 at the black level and below and 1 at the white level, as float32."""
    scaled = (raw.astype(np.float32) - black) / (white - black)
    return np.maximum(scaled, 0, dtype=np.float32)
