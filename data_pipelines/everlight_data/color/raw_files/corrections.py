"""Files of a corrected raw photo: a picture, a linear TIFF and a DNG; a table of illuminants."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from PIL import Image, ImageDraw, ImageFont

from everlight.color.alignment import area_downsample
from everlight.color.rendering import encode_srgb, full_scale_balance, render, render_linear
from everlight.illuminant.pair_estimate import PairEstimate
from everlight.illuminant.pair_model import Estimate
from everlight_data.color.raw_files.dng import rewrite_with_illuminant, write_linear_tiff
from everlight_data.color.raw_files.photo_whites import PhotoWhite
from everlight_data.color.raw_files.raw import RawImage
from everlight_data.writing import written_whole

Format = Literal["png", "tiff", "dng"]

PICTURE_SIDE = 900


def write_correction(
    main: RawImage,
    illuminant: Float[np.ndarray, "3"],
    white: PhotoWhite | None,
    formats: Sequence[Format],
    stem: Path,
) -> list[Path]:
    """Write a corrected photo, one file per format, and return the paths.

    The PNG shows a small version before and after. The TIFF has all pixels, linear, 65535 where the
    sensor saturates. The DNG has the sensor's numbers, and the illuminant as AsShotNeutral.

    Args:
      main: raw photo.
      illuminant: (r, g, b) of the light in the camera's raw colours, of any scale.
      white: its white point, whose matrix serves the PNG and TIFF; None takes the file's matrix of
        daylight, if it has one.
      formats: files to write.
      stem: path of the files without their ending.

    Raises:
      DataError: a file cannot be written.
    """
    written = []
    for kind in formats:
        path = stem.with_name(f"{stem.name}.{kind}")
        if kind == "png":
            picture = draw_correction(main, illuminant, white)
            with written_whole(path) as unfinished:
                picture.save(unfinished, format="PNG")
        elif kind == "tiff":
            neutral = jnp.asarray(illuminant, jnp.float32)
            matrix = rendering_matrix(main, white)
            linear = _render(jnp.asarray(main.image), neutral, matrix)
            write_linear_tiff(path, np.asarray(linear), f"linear {color_space_name(matrix)}")
        else:
            rewrite_with_illuminant(main, illuminant, path)
        written.append(path)
    return written


_render = jax.jit(render_linear)


Row = dict[str, str]
"""A row of the table of illuminants: cells by column, empty where unknown."""


def write_illuminants(path: Path, rows: Sequence[Row]) -> None:
    """Write at least one row of estimates as CSV."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    with written_whole(path) as unfinished:
        unfinished.write_text(text.getvalue(), encoding="utf-8")


def pair_row(
    main: Path, second: Path, result: PairEstimate, whites: Mapping[str, PhotoWhite | None]
) -> Row:
    """Return the row of a pair of files, with the white point of each view."""
    row = {"main": str(main), "second": str(second)}
    for view, estimate in result.estimates._asdict().items():
        cells = _estimate_cells(estimate) | _white_cells(whites.get(view))
        row |= {f"{view} {name}": cell for name, cell in cells.items()}
    return row | {"warnings": " ".join(result.warnings)}


def photo_row(
    photo: RawImage, estimate: Estimate, white: PhotoWhite | None, warnings: Sequence[str]
) -> Row:
    """Return the row of a single photo."""
    row = {"photo": str(photo.path), "camera": photo.camera or ""}
    cells = _estimate_cells(estimate) | _white_cells(white)
    return row | cells | {"warnings": " ".join(warnings)}


def _white_cells(white: PhotoWhite | None) -> Row:
    """Return the cells of a white point, which are empty where it is unknown."""
    return {
        "temperature, K": "" if white is None else f"{white.temperature:.0f}",
        "tint": "" if white is None else f"{white.tint:.1f}",
    }


def _estimate_cells(estimate: Estimate | None) -> Row:
    """Return the cells of an estimate; what it has not, such as an interval, is empty."""
    values = {}
    for place, ratio in enumerate(("r/g", "b/g")):
        values[ratio] = estimate and f"{estimate.illuminant[2 * place]:.6f}"
        for end in ("low", "high"):
            values[f"{ratio} {end}"] = estimate and f"{getattr(estimate.interval, end)[place]:.6f}"
    values["interval radius, degrees"] = estimate and f"{estimate.interval.degrees:.3f}"
    values["out-of-distribution score"] = estimate and f"{estimate.score.distance:.3f}"
    return {name: "" if value in (None, "nan") else value for name, value in values.items()}


def rendering_matrix(photo: RawImage, white: PhotoWhite | None) -> Float[Array, "3 3"] | None:
    """Return the white point's matrix, or else that of the photo's file under D65, if it has one.

    Both map XYZ under D65 to camera colours; the white point's is adapted to its illuminant.
    """
    if white is not None:
        return white.xyz_to_camera
    return None if photo.xyz_to_camera is None else jnp.asarray(photo.xyz_to_camera)


def color_space_name(matrix: Float[Array, "3 3"] | None) -> str:
    """Return the name of the colour space of a photo that is corrected with a matrix."""
    return "camera RGB" if matrix is None else "sRGB"


def draw_correction(
    main: RawImage, illuminant: Float[np.ndarray, "3"], white: PhotoWhite | None = None
) -> Image.Image:
    """Draw a photo with a gamma only beside its corrected version, with labels.

    Args:
      main: raw photo.
      illuminant: (r, g, b) of the light in the camera's raw colours, of any scale.
      white: its white point, as for `write_correction`.
    """
    shrink = math.ceil(max(main.image.shape) / PICTURE_SIDE)
    small = area_downsample(jnp.asarray(main.image), shrink).image
    neutral, matrix = jnp.asarray(illuminant, jnp.float32), rendering_matrix(main, white)
    # One exposure serves both, at which 0.5% of the corrected pixels reach white.
    brightest = jnp.max(full_scale_balance(small, neutral), axis=-1)
    exposed = small / jnp.maximum(jnp.quantile(brightest, 0.995), 1e-3)
    before = encode_srgb(jnp.clip(exposed, 0, 1))
    after = render(exposed, neutral, matrix)
    labels = (
        "input: raw with gamma only",
        f"corrected by r/g {illuminant[0] / illuminant[1]:.3f}, "
        f"b/g {illuminant[2] / illuminant[1]:.3f}, in {color_space_name(matrix)}",
    )
    return _side_by_side([np.asarray(before), np.asarray(after)], labels)


def _side_by_side(panels: list[Float[np.ndarray, "h w 3"]], labels: tuple[str, ...]) -> Image.Image:
    height, width = panels[0].shape[:2]
    margin, size = 12, max(12, width // 36)
    strip = 2 * size
    canvas = Image.new(
        "RGB", (len(panels) * (width + margin) + margin, height + strip + margin), "white"
    )
    pen = ImageDraw.Draw(canvas)
    for index, (panel, label) in enumerate(zip(panels, labels, strict=True)):
        left = margin + index * (width + margin)
        canvas.paste(Image.fromarray(np.uint8(np.round(panel * 255))), (left, strip))
        pen.text((left, strip // 2), label, "black", ImageFont.load_default(size), anchor="lm")
    return canvas
