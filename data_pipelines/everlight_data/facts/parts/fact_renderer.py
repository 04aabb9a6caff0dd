"""Rendered images for facts with boxes.

A sample's image is the square around its boxes. Every annotated object of the scene fills its box,
large ones behind small ones. Each category has an outline, a texture and a palette of the
procedural world; each scene has its own background.

Renderings of real facts are not photographs. Results on them must say so, and appear beside those
of `boxes.box_features`, which uses no pixels.
"""

import functools
import zlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8

from everlight.color.rendering import encode_srgb
from everlight_data.errors import DataError
from everlight_data.facts.parts.boxes import (
    AnnotatedScenes,
    BoxedSamples,
    scale_to_squares,
    squares,
)
from everlight_data.padded_blocks import padded_blocks
from everlight_data.procedural.render import Ids, World, object_colors, texture_and_palette
from everlight_data.procedural.shapes import (
    OUTLINES,
    SHAPES,
    oklab_to_linear,
    polygon_distance,
    smoothstep,
    texture,
    wave,
)

CATEGORIES = 100
"""Number of pairs of a texture and a palette, and so of distinct categories."""
BLOCK_PIXELS = 1 << 19
"""Pixels rendered at once; limits memory and the number of programs per image size."""
FILLING_SHAPES = tuple(name for name in SHAPES if name not in ("crescent", "ring", "pill"))
"""Outlines of objects; the others are hollow or have no width, and would not fill every box."""
_LOOKS = World(superclasses=1, subclasses=CATEGORIES, contrast=0.9, saturation=0.9, instances=0.25)
_PHASE, _BACKGROUND = range(2)


class Placed(NamedTuple):
    """Objects to draw, back to front, in image coordinates (y, x) from -1 to 1."""

    center: Float[Array, "n k 2"]
    half: Float[Array, "n k 2"]
    """Half the height and width; 0 if there is no object."""
    category: Int[Array, "n k"]
    instance: Int[Array, "n k"]
    """Object number, which determines its hue and its texture's phase."""


def render_facts(samples: BoxedSamples, side: int) -> UInt8[np.ndarray, "n side side 3"]:
    """Render an image for each sample; it does not depend on the other samples.

    On one core, VRD's samples take 0.2 ms each at 32x32 and 0.6 ms at 64x64. To render a subset,
    pass only its rows of `subject` and `other`.

    Raises:
      DataError: there are more than 100 categories, or `side` is below 1.
    """
    scenes = samples.scenes
    if side < 1 or scenes.category.max() >= CATEGORIES:
        raise DataError(
            f"side={side} and {scenes.category.max() + 1} categories; give a side of 1 or more and "
            f"at most {CATEGORIES} categories, the number of distinct appearances"
        )
    scene = np.array([zlib.crc32(name.encode()) >> 1 for name in scenes.images], np.int32)
    square = squares(samples)
    row, count = _visible(samples, square)
    first = np.cumsum(count) - count
    # Images with as many objects are rendered together, for the loop over objects takes the most.
    order = np.argsort(count, kind="stable")
    places = np.arange(1 << max(3, int(count.max()).bit_length()))
    block = max(1, BLOCK_PIXELS // side**2)
    images = np.empty((len(order), side, side, 3), np.uint8)
    for block_rows, real in padded_blocks(len(order), block):
        filled = order[block_rows]
        mask = places < count[filled][:, None]
        rows = row[np.where(mask, first[filled][:, None] + places, 0)]
        drawn = _render(
            _place(scenes, scene, rows, square[filled], mask),
            scene[scenes.image[samples.subject[filled]]],
            (square[filled] / 256).astype(np.float32),
            count[filled].max(),
            side,
        )
        images[filled[:real]] = np.moveaxis(np.asarray(drawn), 1, -1)[:real]
    return images


def _visible(
    samples: BoxedSamples, square: Float[np.ndarray, "n 4"]
) -> tuple[Int[np.ndarray, "r"], Int[np.ndarray, "n"]]:
    """Return the objects that overlap each sample's square, largest first, and their number."""
    scenes = samples.scenes
    starts = np.searchsorted(scenes.image, np.arange(len(scenes.images) + 1))
    image = scenes.image[samples.subject]
    count = starts[image + 1] - starts[image]
    sample = np.repeat(np.arange(len(image)), count)
    row = np.arange(len(sample)) - np.repeat(np.cumsum(count) - count - starts[image], count)
    center, half = scale_to_squares(scenes.box[row], square[sample])
    reaches = (np.abs(center) - half < 1).all(axis=1)
    area = np.prod(scenes.box[:, [1, 3]] - scenes.box[:, [0, 2]], axis=1)
    sample, row = sample[reaches], row[reaches]
    order = np.lexsort((row, -area[row], sample))
    return row[order], np.bincount(sample, minlength=len(image))


def _place(
    scenes: AnnotatedScenes,
    scene: Int[np.ndarray, "i"],
    rows: Int[np.ndarray, "n k"],
    square: Float[np.ndarray, "n 4"],
    mask: Bool[np.ndarray, "n k"],
) -> Placed:
    center, half = scale_to_squares(scenes.box[rows], square[:, None])
    image = scenes.image[rows]
    # Objects of an image are numbered from its first, so that other images change nothing.
    number = rows - np.searchsorted(scenes.image, image)
    return Placed(
        center.astype(np.float32),
        (half * mask[..., None]).astype(np.float32),
        scenes.category[rows].astype(np.int32),
        (scene[image] // 64 + number).astype(np.int32),
    )


@functools.partial(jax.jit, static_argnames="side")
def _render(
    placed: Placed,
    scene: Int[Array, "n"],
    square: Float[Array, "n 4"],
    count: Int[Array, ""],
    side: int,
) -> UInt8[Array, "n 3 h w"]:
    """Render blocks of images; objects at index `count` or later are absent."""
    axis = (jnp.arange(side) + 0.5) * (2 / side) - 1

    def draw(k: Int[Array, ""], scene: Float[Array, "n 3 h w"]) -> Float[Array, "n 3 h w"]:
        one = Placed(*(part[:, k] for part in placed))
        distance, second = jax.vmap(_object, (None, 0))(axis, one)
        # Otherwise XLA would compute both again for every channel.
        distance, second = jax.lax.optimization_barrier((distance[:, None], second[:, None]))
        colors = jax.vmap(_object_colors)(one)[..., None, None]
        surface = colors[:, 0] + second * (colors[:, 1] - colors[:, 0])
        # A soft shadow separates an object from one of equal colour behind it.
        behind = scene * (1 - 0.4 * jnp.clip(1 - distance / 0.12, 0, 1) ** 2)
        covered = behind + smoothstep(-distance, 1 / side) * (surface - behind)
        return jnp.where(one.half[:, 0, None, None, None] > 0, covered, scene)

    behind = jax.vmap(_background, (None, 0, 0))(axis, scene, square)
    linear = jax.lax.fori_loop(0, count, draw, behind)
    encoded = jnp.moveaxis(encode_srgb(jnp.moveaxis(jnp.clip(linear, 0, 1), 1, -1)), -1, 1)
    return jnp.round(255 * encoded).astype(jnp.uint8)


def _object_colors(one: Placed) -> Float[Array, "2 3"]:
    return object_colors(_LOOKS, Ids(one.category, one.instance, 0, 0))


def _outlines() -> tuple[Float[np.ndarray, "s v 2"], Float[np.ndarray, "s"]]:
    """Return vertices (x, y) scaled to span -1 to 1, and the rounding around them."""
    chosen = [SHAPES.index(name) for name in FILLING_SHAPES]
    vertices = OUTLINES.vertices[chosen]
    low, high = vertices.min(axis=1, keepdims=True), vertices.max(axis=1, keepdims=True)
    return (2 * vertices - low - high) / (high - low), OUTLINES.rounding[chosen]


def _object(
    axis: Float[Array, "s"], one: Placed
) -> tuple[Float[Array, "s s"], Float[Array, "s s"]]:
    """Return the distance to an object's outline, negative inside, and its texture."""
    half = jnp.maximum(one.half, 1 / len(axis))
    x, y = jnp.meshgrid(axis - one.center[1], axis - one.center[0])
    vertices, rounding = (jnp.asarray(part) for part in _outlines())
    # The first nine categories differ in outline, texture and palette alike.
    shape = (one.category + one.category // 10) % len(FILLING_SHAPES)
    radius = rounding[shape] * half.min()
    distance = polygon_distance(x, y, vertices[shape] * (half[::-1] - radius)) - radius
    size = jnp.sqrt(half[0] * half[1])
    second = texture(
        texture_and_palette(_LOOKS, one.category)[0],
        u=x / size,
        v=y / size,
        depth=-distance / size,
        frequency=jnp.float32(1.2),
        phase=_draw(_PHASE, one.instance, 2),
        pixel=2 / len(axis) / size,
    )
    return distance, second


def _draw(stream: int, number: Int[Array, ""], count: int) -> Float[Array, "c"]:
    return jax.random.uniform(jax.random.fold_in(jax.random.key(stream), number), (count,))


def _background(
    axis: Float[Array, "s"], scene: Int[Array, ""], square: Float[Array, "4"]
) -> Float[Array, "3 s s"]:
    """Return crossed slow waves between two muted colours, equal in all squares of a scene."""
    turn, slow, fast, *drawn = _draw(_BACKGROUND, scene, 8)
    y, x = ((square[i] + square[i + 1] + axis * (square[i + 1] - square[i])) / 2 for i in (0, 2))
    x, y = jnp.meshgrid(x, y)
    cosine, sine = jnp.cos(2 * jnp.pi * turn), jnp.sin(2 * jnp.pi * turn)
    swell = wave(0.25 * (x * cosine + y * sine) + slow)
    mixed = 0.5 + 0.4 * swell + 0.1 * wave(1.5 * (y * cosine - x * sine) + fast)
    hue, chroma = 2 * jnp.pi * jnp.stack(drawn[:2]), 0.05 * jnp.stack(drawn[2:4])
    lightness = 0.45 + 0.3 * drawn[4] + jnp.array([-0.08, 0.08])
    lab = jnp.stack([lightness, chroma * jnp.cos(hue), chroma * jnp.sin(hue)], axis=-1)
    near, far = oklab_to_linear(lab)[..., None, None]
    return near + mixed * (far - near)
