"""Writes small colour-filter-array DNG files for tests, with tags that a raw decoder reads."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tifffile

RATIONAL, SIGNED_RATIONAL = 5, 10


def rationals(values, denominator: int = 10_000) -> tuple[int, ...]:
    """TIFF rationals: numerator, denominator, numerator, denominator, ..."""
    return tuple(
        part
        for value in np.ravel(values)
        for part in (round(float(value) * denominator), denominator)
    )


def mosaic_rggb(image: np.ndarray) -> np.ndarray:
    """One colour a pixel, `[h, w]`: red at (0, 0), blue at (1, 1), green at the other two."""
    mosaic = image[..., 1].copy()
    mosaic[::2, ::2] = image[::2, ::2, 0]
    mosaic[1::2, 1::2] = image[1::2, 1::2, 2]
    return mosaic


def write_dng(
    path: Path,
    linear_rgb: np.ndarray,
    black: float | Sequence[float] = 64,
    white: int = 4095,
    color_matrix: np.ndarray | None = None,
    as_shot_neutral: Sequence[float] | None = None,
    model: str = "Everlight Test",
    extra_tags: Sequence[tuple] = (),
) -> Path:
    """Writes linear camera RGB as an RGGB DNG and returns the path.

    Args:
      path: the file to write.
      linear_rgb: camera RGB, `[h, w, 3]`, 0 at black and 1 at white; clipped to 16 bits.
        LibRaw opens none with a side below 22 pixels.
      black: the black level, or those of the four places (red, green, green, blue).
      white: the white level.
      color_matrix: XYZ under D65 to camera, `[3, 3]`, as the tag ColorMatrix1.
      as_shot_neutral: camera RGB of a neutral surface.
      model: the tag UniqueCameraModel.
      extra_tags: further tags `(code, type, count, value)`, which win over those written here.
    """
    height, width = linear_rgb.shape[:2]
    levels = np.broadcast_to(np.asarray(black, float), 4)
    tiled = np.tile(levels.reshape(2, 2), (height // 2 + 1, width // 2 + 1))[:height, :width]
    mosaic = tiled + mosaic_rggb(np.asarray(linear_rgb, float)) * (white - tiled)

    tags = [
        (33421, 3, 2, (2, 2)),  # CFARepeatPatternDim
        (33422, 1, 4, b"\x00\x01\x01\x02"),  # CFAPattern: R G G B
        (50706, 1, 4, b"\x01\x04\x00\x00"),  # DNGVersion
        (50707, 1, 4, b"\x01\x01\x00\x00"),  # DNGBackwardVersion
        (50708, 2, 0, model),  # UniqueCameraModel
        (50713, 3, 2, (2, 2)),  # BlackLevelRepeatDim
        (50714, RATIONAL, 4, rationals(levels, 256)),  # BlackLevel
        (50717, 4, 1, white),  # WhiteLevel
        (50778, 3, 1, 21),  # CalibrationIlluminant1: D65
    ]
    if color_matrix is not None:
        tags.append((50721, SIGNED_RATIONAL, 9, rationals(color_matrix)))
    if as_shot_neutral is not None:
        tags.append((50728, RATIONAL, 3, rationals(as_shot_neutral, 1_000_000)))
    replaced = {tag[0] for tag in extra_tags}
    tags = [tag for tag in tags if tag[0] not in replaced] + list(extra_tags)
    tifffile.imwrite(
        path,
        np.clip(np.round(mosaic), 0, 65535).astype(np.uint16),
        photometric=32803,
        metadata=None,
        software=False,
        extratags=[(*tag, True) for tag in tags],
    )
    return path
