"""Two made-up cameras' files of a real photo."""

import json
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from everlight.color.alignment import warp_image
from everlight_data.color.raw_files.raw import RawImage
from tests.color.references import mapped
from tests.dng_writer import write_dng

# Main pixels to second pixels: scale 0.9, a shift of 20 pixels, small rotation and perspective.
ALIGNMENT = np.array([[0.9, -0.02, 25.0], [0.015, 0.91, -4.0], [2e-5, -1e-5, 1.0]])
CANON = np.array([[0.6461, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.154, 0.6039]])

# In colorchart.dng: the chart, and its three lightest neutral patches.
CHART = np.s_[540:1020, 600:1380]
NEUTRALS = [np.s_[910:950, column : column + 40] for column in (680, 790, 900)]


class Pair(NamedTuple):
    """Files of the two views and of their point pairs."""

    main: Path
    second: Path
    points: Path


def write_pair(
    folder: Path, photo: RawImage, white, crop, illuminant, transform, homography, peak: float = 0.9
) -> Pair:
    """Write both views of a photo, whose illuminant is `white`, as under another illuminant.

    The main view is the crop of the re-illuminated photo; the second is that photo through
    `transform`, on its own pixel grid under `homography` (main to second pixels).
    """
    scene = photo.image * (illuminant / white).astype(np.float32)
    scene *= peak / scene[crop].max()
    main = scene[crop]
    to_scene = np.array([[1, 0, crop[1].start], [0, 1, crop[0].start], [0, 0, 1]])
    second = warp_image(
        jnp.asarray(scene @ transform.astype(np.float32)),
        jnp.asarray(to_scene @ np.linalg.inv(homography), jnp.float32),
        main.shape[:2],
    ).image
    second = np.asarray(second)
    assert second.max() < 1, "transform must not saturate the second view"

    height, width = main.shape[:2]
    points = np.random.default_rng(0).uniform(0, [width - 1, height - 1], (16, 2)).round()
    pairs = {"main": points.tolist(), "second": mapped(homography, points).round(1).tolist()}
    (folder / "points.json").write_text(json.dumps(pairs))
    return Pair(
        write_dng(folder / "main.dng", main, 512, 16383, CANON, illuminant, "Main Eye"),
        write_dng(folder / "second.dng", second, 64, 16383, model="Second Eye"),
        folder / "points.json",
    )
