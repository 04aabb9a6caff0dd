"""Thumbnails with known illuminants, from raw photographs that show the chart of 24 patches."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFont

from everlight.color.alignment import area_downsample
from everlight.color.rendering import encode_srgb
from everlight_data.color.charts.chart_geometry import CORNERS, map_points
from everlight_data.color.charts.measured_chart import measure_chart
from everlight_data.color.charts.measured_pair import pixels_to_blocks, small_without_chart
from everlight_data.color.photographs.camera_images import join_on_canvas
from everlight_data.color.raw_files.photos import usable_pixels
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.errors import DataError
from everlight_data.sets.preparing import npz
from everlight_data.writing import written_whole

PICTURE_SIDE = 240
"""Longest side in pixels of a photograph on the contact sheet."""
COLUMNS, STRIP = 5, 34
"""Photographs per row of the contact sheet, and height in pixels of the text below each."""


class ChartThumbnail(NamedTuple):
    """A photograph of a chart, averaged down."""

    file: str
    """Name of the file."""
    camera: str
    """Camera in the file, with "-" for characters that no thumbnails' name may have."""
    image: Float[np.ndarray, "a b 3"]
    """Linear raw colours, 0 on the chart and where a pixel is saturated."""
    illuminant: Float[np.ndarray, "3"]
    """(R/G, 1, B/G) of the grey patches."""
    picture: Float[np.ndarray, "c d 3"]
    """The whole photograph for the contact sheet, linear."""
    outline: Float[np.ndarray, "4 2"]
    """Centres of the chart's corner patches in pixels of `picture`."""


def measure_thumbnail(
    path: Path,
    corners: Float[np.ndarray, "4 2"] | None,
    reference: Float[np.ndarray, "24 3"],
    side: int,
) -> ChartThumbnail:
    """Read a raw photograph, and measure its illuminant on the chart.

    Args:
      path: raw file.
      corners: chart's corners (`charts.chart_geometry`); None searches the chart.
      reference: colours of the patches.
      side: longest side of the thumbnail in pixels.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged, its chart is not found or not usable, or nothing else is.
    """
    photo = read_raw(path)
    seen = measure_chart(photo, corners, reference)
    # Models that learn from the image estimate photos with the same pixels masked.
    masked = photo._replace(saturated=~usable_pixels(photo))
    image, _ = small_without_chart(masked, seen.homography, side)
    if not image.any():
        raise DataError(f"{path}: every block outside of the chart has a saturated or black pixel")
    factor = -(-max(photo.image.shape) // PICTURE_SIDE)
    return ChartThumbnail(
        path.name,
        re.sub(r"[^\w .+-]", "-", seen.camera),
        image,
        seen.illuminant,
        np.asarray(area_downsample(jnp.asarray(photo.image), factor).image),
        map_points(pixels_to_blocks(factor) @ seen.homography, CORNERS),
    )


def write_thumbnails(path: Path, photos: Sequence[ChartThumbnail]) -> None:
    """Write a file for `read_thumbnails`; images of other sizes are padded with 0.

    Raises:
      DataError: the file cannot be written.
    """
    content = npz(
        images=join_on_canvas([photo.image for photo in photos]),
        illuminant_rgb=np.array([photo.illuminant for photo in photos], np.float32),
        names=np.array([f"{photo.camera}_{n:04}" for n, photo in enumerate(photos, start=1)]),
        files=np.array([photo.file for photo in photos]),
        saturated_masked=np.array(True),
    )
    with written_whole(path) as unfinished:
        unfinished.write_bytes(content)


def write_contact_sheet(path: Path, photos: Sequence[ChartThumbnail]) -> None:
    """Write a PNG of all photographs, each with its chart outlined and its illuminant's colour.

    A circle marks the chart's first patch, dark skin.

    Raises:
      DataError: the file cannot be written.
    """
    tiles = [_tile(photo) for photo in photos]
    height = max(tile.height for tile in tiles)
    rows = -(-len(tiles) // COLUMNS)
    width = PICTURE_SIDE + 8
    sheet = Image.new("RGB", (min(len(tiles), COLUMNS) * width + 8, rows * height + 8), "white")
    for place, tile in enumerate(tiles):
        sheet.paste(tile, (8 + place % COLUMNS * width, 8 + place // COLUMNS * height))
    with written_whole(path) as unfinished:
        sheet.save(unfinished, format="PNG")


def _tile(photo: ChartThumbnail) -> Image.Image:
    """Draw one photograph, with a gamma only, above its name and illuminant."""
    exposed = photo.picture / max(float(np.quantile(photo.picture.max(axis=-1), 0.99)), 1e-6)
    picture = Image.fromarray(_bytes(exposed))
    tile = Image.new("RGB", (PICTURE_SIDE, picture.height + STRIP), "white")
    tile.paste(picture)
    pen, corners = ImageDraw.Draw(tile), [tuple(point) for point in photo.outline.tolist()]
    pen.line([*corners, corners[0]], "red", 2)
    pen.circle(corners[0], 5, outline="red", width=2)
    top, font = picture.height + 2, ImageFont.load_default(12)
    red, _, blue = photo.illuminant
    color = tuple(_bytes(photo.illuminant / photo.illuminant.max()).tolist())
    pen.rectangle((0, top, 26, top + 26), color, "black")
    pen.text((32, top), photo.file, "black", font)
    pen.text((32, top + 14), f"r/g {red:.3f}, b/g {blue:.3f}", "black", font)
    return tile


def _bytes(linear: np.ndarray) -> np.ndarray:
    encoded = encode_srgb(jnp.clip(jnp.asarray(linear, jnp.float32), 0, 1))
    return np.uint8(np.round(255 * np.asarray(encoded)))
