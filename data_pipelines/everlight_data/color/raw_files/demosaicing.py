"""Bilinear demosaicing of a Bayer mosaic."""

import numpy as np
from jaxtyping import Float, Int

from everlight_data.color.raw_files.dng_mosaic import BLUE, GREEN, RED, SECOND_GREEN

MOSAIC_CHANNELS = ((RED,), (GREEN, SECOND_GREEN), (BLUE,))
"""Channels of the mosaic that make red, green and blue."""


def demosaic(
    mosaic: Float[np.ndarray, "h w"], pattern: Int[np.ndarray, "2 2"]
) -> Float[np.ndarray, "h w 3"]:
    """Return an image whose missing colours are the mean of the nearest photosites of the colour.

    The two or four nearest count, at borders fewer. No colour is mixed with another.

    Args:
      mosaic: values, at least 2×2.
      pattern: channel of each position of a 2×2 block.
    """
    height, width = mosaic.shape
    image = np.empty((height, width, 3), mosaic.dtype)
    for color, channels in enumerate(MOSAIC_CHANNELS):
        values, weights = np.zeros_like(mosaic), np.zeros_like(mosaic)
        for row, column in np.argwhere(np.isin(pattern, channels)):
            values[row::2, column::2] = mosaic[row::2, column::2]
            weights += np.outer(
                _smooth(_comb(height, row, mosaic.dtype)),
                _smooth(_comb(width, column, mosaic.dtype)),
            )
        image[..., color] = _smooth(_smooth(values).T).T / weights
        for row, column in np.argwhere(np.isin(pattern, channels)):
            image[row::2, column::2, color] = mosaic[row::2, column::2]
    return image


def halve(
    mosaic: Float[np.ndarray, "h w"], pattern: Int[np.ndarray, "2 2"]
) -> Float[np.ndarray, "a b 3"]:
    """Return one pixel per complete 2×2 block, whose green is the mean of the two."""
    height, width = mosaic.shape[0] // 2 * 2, mosaic.shape[1] // 2 * 2
    planes = {
        int(pattern[row, column]): mosaic[row:height:2, column:width:2]
        for row in (0, 1)
        for column in (0, 1)
    }
    green = (planes[GREEN] + planes[SECOND_GREEN]) / 2
    return np.stack([planes[RED], green, planes[BLUE]], axis=-1)


def _comb(length: int, first: int, dtype: np.dtype) -> Float[np.ndarray, "n"]:
    """Return ones at every second place from `first`, zeros between."""
    return (np.arange(length) % 2 == first).astype(dtype)


def _smooth(values: np.ndarray) -> np.ndarray:
    """Return the sums along the first axis with the weights 1, 2, 1."""
    sums = 2 * values
    sums[1:] += values[:-1]
    sums[:-1] += values[1:]
    return sums
