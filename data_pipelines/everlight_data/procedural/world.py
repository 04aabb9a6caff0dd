"""The procedural world: built-in default data of all continual-learning benchmarks.

- A superclass is a family of shapes.
- A subclass is one of ten textures with one of ten palettes. All superclasses share them, so
  neither shape nor texture alone identifies a subclass.
- An instance has its own proportions, texture frequency and phase, and hue.
- A session has a background, an illuminant and a smooth path of the object over the frames.

Every frame follows from the world's seed and its ids, and can be rendered separately. This world
alone supports no claim: its difficulty was chosen.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from everlight.color.radiometry import illuminant_response
from everlight_data.color.spectra.library import embedded_library
from everlight_data.errors import DataError
from everlight_data.padded_blocks import padded_blocks
from everlight_data.procedural.render import (
    Ids,
    Layers,
    World,
    colored,
    layers,
    texture_and_palette,
)
from everlight_data.procedural.shapes import PALETTES, SHAPES, TEXTURES
from everlight_data.sets.image_set import ImageSet, PerClass

BLOCK_PIXELS = 1 << 18
"""Pixels rendered at once, even for smaller images or numbers.

This limits memory and gives one program per image size.
"""


def superclass_of(world: World, subclass: Int[np.ndarray, "*n"]) -> Int[np.ndarray, "*n"]:
    """Return the superclass of each subclass; a superclass's subclasses are consecutive."""
    return subclass // world.subclasses


@functools.cache
def illuminant_colors() -> Float[np.ndarray, "l 3"]:
    """Return the embedded illuminants' colours for a camera balanced for D65, scaled to mean 1."""
    library = embedded_library()
    sensitivity = jnp.asarray(library.sensitivities[0], jnp.float32)
    spectra = jnp.asarray(library.illuminants, jnp.float32)
    responses = np.asarray(jax.vmap(illuminant_response, (0, None))(spectra, sensitivity))
    balanced = responses / responses[library.illuminant_names.index("D65")]
    return balanced / balanced.mean(axis=1, keepdims=True)


# Two programs: in one, XLA would compute the layers again for every channel (5 times slower on
# CPU).
@functools.partial(jax.jit, static_argnames="size")
def _layers_of_block(world: World, ids: Ids, size: int) -> Layers:
    return jax.vmap(lambda one: layers(world, one, size))(ids)


@jax.jit
def _colored_block(
    world: World, illuminants: Float[Array, "l 3"], ids: Ids, layers: Layers
) -> UInt8[Array, "n 3 h w"]:
    images = jax.vmap(colored, (None, None, 0, 0))(world, illuminants, ids, layers)
    return jnp.round(255 * images).astype(jnp.uint8)


def render_frames(
    world: World,
    subclass: Int[np.ndarray, "n"],
    instance: Int[np.ndarray, "n"],
    session: Int[np.ndarray, "n"],
    frame: Int[np.ndarray, "n"],
) -> UInt8[np.ndarray, "n h w 3"]:
    """Render frames with the given ids; each is independent of the others.

    Raises:
      DataError: a setting is out of range, or ids differ in length, are negative or too large; the
        message names it.
    """
    _check_world(world)
    ids = _check_ids(world, subclass=subclass, instance=instance, session=session, frame=frame)
    block = max(1, BLOCK_PIXELS // world.size**2)
    images = np.empty((ids.shape[1], world.size, world.size, 3), np.uint8)
    for rows, count in padded_blocks(len(images), block):
        filled = Ids(*ids[:, rows])
        geometry = _layers_of_block(world, filled, size=world.size)
        rendered = _colored_block(world, illuminant_colors(), filled, geometry)
        # Channels go last here, where it costs little; the program would take twice the time.
        images[rows[:count]] = np.moveaxis(np.asarray(rendered), 1, -1)[:count]
    return images


def load_procedural(world: World, counts: PerClass) -> ImageSet:
    """Render a classification set of the world's subclasses, with the classes in turn.

    Every image shows a different object in a different session. Training images have even instances
    and test images odd ones. More images per class leave the earlier ones unchanged.

    Raises:
      DataError: a setting is out of range, or a number of images is below 1; the message names it.
    """
    _check_world(world)
    for name, count in counts._asdict().items():
        _check_range(f"PerClass.{name}", count, 1, _LARGEST_ID // 2)
    classes = world.superclasses * world.subclasses
    parts = [np.arange(count * classes) for count in counts]
    labels = [part % classes for part in parts]
    instance = np.concatenate([2 * (part // classes) + odd for odd, part in enumerate(parts)])
    subclass = np.concatenate(labels)
    images = render_frames(
        world, subclass, instance, instance * classes + subclass, np.zeros_like(subclass)
    )
    return ImageSet("procedural world", images, *labels, class_names(world))


def class_names(world: World) -> tuple[str, ...]:
    """Return texture, palette and shape of every subclass, as in "striped teal star"."""
    subclass = jnp.arange(world.superclasses * world.subclasses)
    kinds, palettes = jax.jit(jax.vmap(texture_and_palette, (None, 0)))(world, subclass)
    shapes = superclass_of(world, np.asarray(subclass))
    return tuple(
        f"{TEXTURES[kind]} {PALETTES[palette]} {SHAPES[shape]}"
        for kind, palette, shape in zip(kinds, palettes, shapes, strict=True)
    )


_LARGEST_ID = np.iinfo(np.int32).max
_RANGES = {
    "superclasses": (1, len(SHAPES)),
    "subclasses": (1, len(TEXTURES) * len(PALETTES)),
    "size": (32, 128),
    "seed": (0, _LARGEST_ID),
}


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not isinstance(value, int | np.integer) or not low <= value <= high:
        raise DataError(f"{name}={value!r}; give an integer from {low} to {high}")


def _check_world(world: World) -> None:
    for name, value in world._asdict().items():
        if name in _RANGES:
            _check_range(f"World.{name}", value, *_RANGES[name])
        elif not 0 <= value <= 1:
            raise DataError(f"World.{name}={value!r}; give a number from 0 to 1")


def _check_ids(world: World, **ids: Int[np.ndarray, "n"]) -> Int[np.ndarray, "4 n"]:
    largest = dict.fromkeys(ids, _LARGEST_ID)
    largest["subclass"] = world.superclasses * world.subclasses - 1
    count = len(ids["subclass"])
    for name, values in ids.items():
        values = np.asarray(values)
        if values.shape != (count,) or values.dtype.kind not in "iu":
            raise DataError(
                f"{name} is {values.dtype} of shape {values.shape}; give {count} integers, "
                "one per frame"
            )
        wrong = values[(values < 0) | (values > largest[name])]
        if len(wrong):
            raise DataError(f"{name} holds {wrong[0]}; give 0 to {largest[name]}")
    return np.stack([np.asarray(values, np.int32) for values in ids.values()])
