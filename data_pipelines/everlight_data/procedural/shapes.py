"""Outlines, textures and colours of the procedural world: tables and per-image functions.

Coordinates are (x, y) with y down; an object has a radius of about 1 in its own frame.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from everlight.precision import matrix_product

VERTICES = 20


class Outlines(NamedTuple):
    """Polygons, padded by repeating the last vertex, then rounded and optionally hollowed."""

    vertices: Float[np.ndarray, "s v 2"]
    rounding: Float[np.ndarray, "s"]
    """Radius added around the polygon."""
    hollow: Float[np.ndarray, "s"]
    """Half the thickness of the remaining line of a hollow shape; 0 keeps the area."""


def _around(degrees: np.ndarray, radius: np.ndarray | float) -> np.ndarray:
    """Return points at angles from the top, clockwise."""
    angle = np.radians(degrees)
    return np.stack([radius * np.sin(angle), -radius * np.cos(angle)], axis=-1)


def _regular(corners: int, radius: np.ndarray | float) -> np.ndarray:
    return _around(np.arange(corners) * 360 / corners, radius)


def _mirror(right: Sequence[tuple[float, float]]) -> np.ndarray:
    """Return a closed outline from its right half, top to bottom; both ends lie on the axis."""
    half = np.array(right)
    return np.concatenate([half, half[-2:0:-1] * [-1, 1]])


def _crescent() -> np.ndarray:
    """Return a unit disc minus a disc of radius 0.86 whose centre is 0.38 to the right."""
    horn = (1 - 0.86**2 + 0.38**2) / (2 * 0.38)
    outer, inner = np.degrees([np.arcsin(horn), np.arcsin((horn - 0.38) / 0.86)])
    back = _around(np.linspace(180 - outer, 360 + outer, 11), 1.0)
    hollow = 0.86 * _around(np.linspace(360 + inner, 180 - inner, 11)[1:-1], 1.0)
    return np.concatenate([back, hollow + np.array([0.38, 0.0])]) + np.array([0.3, 0.0])


def _cross(arm: float) -> np.ndarray:
    corner = np.array([(1, -3), (1, -1), (3, -1)])
    quarter = np.array([[0, 1], [-1, 0]])
    turns = [np.linalg.matrix_power(quarter, turn) for turn in range(4)]
    return arm * np.concatenate([corner @ turn for turn in turns])


_HEART = (
    *((0, -0.42), (0.16, -0.62), (0.38, -0.72), (0.62, -0.66), (0.8, -0.46), (0.82, -0.2)),
    *((0.7, 0.08), (0.45, 0.4), (0.2, 0.66), (0, 0.84)),
)
_DROP = (
    *((0, -1.05), (0.14, -0.72), (0.34, -0.36), (0.54, -0.02), (0.62, 0.26), (0.56, 0.52)),
    *((0.4, 0.7), (0.2, 0.79), (0, 0.82)),
)
_ARROW = ((0, -1.0), (0.82, -0.1), (0.36, -0.1), (0.36, 0.9), (0, 0.9))
_HOURGLASS = ((0, -0.85), (0.74, -0.85), (0.2, 0), (0.74, 0.85), (0, 0.85))

# Name: polygon, rounding, hollow. A world of n superclasses takes the first n.
_SHAPES = {
    "disc": (_regular(VERTICES, 0.5), 0.3, 0.0),
    "star": (_regular(10, np.tile([1.02, 0.42], 5)), 0.04, 0.0),
    "box": (_around(np.array([45, 135, 225, 315]), 0.93), 0.06, 0.0),
    "cross": (_cross(0.28), 0.05, 0.0),
    "crescent": (_crescent(), 0.03, 0.0),
    "triangle": (_regular(3, 1.0), 0.08, 0.0),
    "ring": (_regular(VERTICES, 0.62), 0.02, 0.26),
    "heart": (_mirror(_HEART), 0.06, 0.0),
    "arrow": (_mirror(_ARROW), 0.05, 0.0),
    "drop": (_mirror(_DROP), 0.03, 0.0),
    "hourglass": (_mirror(_HOURGLASS), 0.06, 0.0),
    "pill": (np.array([(0.0, -0.68), (0.0, 0.68)]), 0.4, 0.0),
}
SHAPES = tuple(_SHAPES)
"""Names of the superclasses."""


def _pad(polygon: np.ndarray) -> np.ndarray:
    return np.pad(polygon, ((0, VERTICES - len(polygon)), (0, 0)), mode="edge")


OUTLINES = Outlines(
    np.stack([_pad(polygon) for polygon, _, _ in _SHAPES.values()]).astype(np.float32),
    np.array([rounding for _, rounding, _ in _SHAPES.values()], np.float32),
    np.array([hollow for _, _, hollow in _SHAPES.values()], np.float32),
)


def polygon_distance(
    x: Float[Array, "h w"], y: Float[Array, "h w"], vertices: Float[Array, "v 2"]
) -> Float[Array, "h w"]:
    """Return the distance to a closed polygon's outline, negative inside (even-odd rule).

    Edges of zero length count as points, so a polygon may be padded with its last vertex.
    """
    squared = jnp.full(x.shape, jnp.inf)
    inside = jnp.zeros(x.shape, bool)
    for start, end in zip(vertices, jnp.roll(vertices, -1, axis=0), strict=True):
        edge = end - start
        to_x, to_y = x - start[0], y - start[1]
        along = (to_x * edge[0] + to_y * edge[1]) / jnp.maximum(matrix_product(edge, edge), 1e-12)
        along = jnp.clip(along, 0, 1)
        away_x, away_y = to_x - along * edge[0], to_y - along * edge[1]
        squared = jnp.minimum(squared, away_x**2 + away_y**2)
        straddles = (start[1] > y) != (end[1] > y)
        # Only read where the edge straddles the row, so a level edge may have any slope.
        slope = edge[0] / jnp.where(edge[1] == 0, 1, edge[1])
        inside ^= straddles & (to_x < to_y * slope)
    return jnp.where(inside, -1, 1) * jnp.sqrt(squared)


def wave(phase: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Return a parabolic approximation of a sine of period 1, with an error below 0.06."""
    part = phase - jnp.round(phase)
    return part * (8 - 16 * jnp.abs(part))


def smoothstep(
    value: Float[Array, "*n"], half_width: Float[Array, "*n"] | float
) -> Float[Array, "*n"]:
    """Return a smooth step from 0 to 1 around value 0, of width 2 * `half_width`."""
    part = jnp.clip(0.5 + 0.5 * value / half_width, 0, 1)
    return part * part * (3 - 2 * part)


TEXTURES = (
    "plain",
    "striped",
    "checked",
    "dotted",
    "graded",
    "ringed",
    "rimmed",
    "zigzag",
    "gridded",
    "halved",
)


def texture(
    kind: Int[Array, ""],
    u: Float[Array, "h w"],
    v: Float[Array, "h w"],
    depth: Float[Array, "h w"],
    frequency: Float[Array, ""],
    phase: Float[Array, "2"],
    pixel: Float[Array, ""],
) -> Float[Array, "h w"]:
    """Return the fraction of the second colour at each pixel, 0 to 1.

    Args:
      kind: index into `TEXTURES`.
      u: abscissa in the object's frame.
      v: ordinate in the object's frame.
      depth: distance to the outline, positive inside.
      frequency: periods per unit of the object's frame.
      phase: phase of the pattern along u and v, in periods.
      pixel: side of a pixel in the object's frame.
    """
    along, across = u * frequency + phase[0], v * frequency + phase[1]
    column, row = wave(along), wave(across)
    zigzag = wave(across + jnp.abs(along * 0.7 - jnp.round(along * 0.7)))
    radius = jnp.sqrt(u**2 + v**2)
    # The waves' slope at zero is 8 per period.
    soft, edge = 4 * frequency * pixel, 0.6 * pixel
    values = (
        jnp.zeros_like(u),
        smoothstep(row, soft),
        smoothstep(row * column, soft * 0.7),
        smoothstep(row + column - 0.55, soft),
        jnp.clip(0.5 + 0.75 * v, 0, 1),
        smoothstep(wave(radius * frequency * 1.1 + phase[0]), soft),
        smoothstep(0.2 - depth, edge),
        smoothstep(zigzag, soft),
        smoothstep(jnp.maximum(row, column) - 0.7, soft),
        smoothstep(u + 0.2 * (phase[0] - 0.5), edge),
    )
    return jax.lax.select_n(kind, *values)


# Hues in Oklab, 36 degrees apart.
PALETTES = ("red", "orange", "gold", "lime", "green", "teal", "sky", "blue", "violet", "pink")


def palette_colors() -> Float[np.ndarray, "10 2 3"]:
    """Return both colours of every palette in Oklab: a strong one with a pale or a dark one."""
    hue = np.radians(24 + 36 * np.arange(len(PALETTES)))
    pale = np.arange(len(PALETTES)) % 2 == 0
    first = _lch(np.where(pale, 0.60, 0.74), 0.17, hue)
    second = _lch(np.where(pale, 0.94, 0.30), np.where(pale, 0.05, 0.08), hue + np.pi * 0.5)
    return np.stack([first, second], axis=1).astype(np.float32)


def _lch(lightness: np.ndarray, chroma: np.ndarray | float, hue: np.ndarray) -> np.ndarray:
    return np.stack([lightness, chroma * np.cos(hue), chroma * np.sin(hue)], axis=-1)


# Published constants of Oklab (B. Ottosson, "A perceptual color space for image processing", 2020).
_LMS_FROM_LAB = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ],
    np.float32,
)
_SRGB_FROM_LMS = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ],
    np.float32,
)


def oklab_to_linear(lab: Float[Array, "*n 3"]) -> Float[Array, "*n 3"]:
    """Convert Oklab colours to linear sRGB, clipped to [0, 1]."""
    cone = matrix_product(lab, _LMS_FROM_LAB.T) ** 3
    return jnp.clip(matrix_product(cone, _SRGB_FROM_LMS.T), 0, 1)
