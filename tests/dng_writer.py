"""Small colour-filter-array DNG files for tests, made of linear colours."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from everlight_data.color.raw_files import dng


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
    """Write linear camera RGB, 0 at black and 1 at white, as an RGGB DNG; return the path.

    LibRaw opens none with a side below 22 pixels. `black` is one level or those of the four places
    (red, green, green, blue). Tags `(code, type, count, value)` win over those written here.
    """
    height, width = linear_rgb.shape[:2]
    places = np.broadcast_to(np.asarray(black, float), 4)
    tiled = np.tile(places.reshape(2, 2), (height // 2 + 1, width // 2 + 1))[:height, :width]
    mosaic = tiled + dng.mosaic_rggb(np.asarray(linear_rgb, float)) * (white - tiled)
    dng.write_dng(
        path,
        np.clip(np.round(mosaic), 0, 65535).astype(np.uint16),
        places[[0, 1, 3, 2]],
        white,
        tags=dng.DngTags(
            color_matrix=color_matrix,
            as_shot_neutral=None if as_shot_neutral is None else np.asarray(as_shot_neutral),
            model=model,
            extra=extra_tags,
        ),
    )
    return path
