"""Renderer of the procedural world: pure functions of settings and ids, for one frame each.

A frame is rendered in two steps, geometry layers and then their colours; `render` does both.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt32

from everlight.color.rendering import encode_srgb
from everlight.precision import matrix_product
from everlight_data.procedural.shapes import (
    OUTLINES,
    PALETTES,
    TEXTURES,
    oklab_to_linear,
    palette_colors,
    polygon_distance,
    smoothstep,
    texture,
    wave,
)


class World(NamedTuple):
    """Size and difficulty of a world; each difficulty ranges from 0 (none) to 1.

    With the defaults, a small network trained jointly on 2,000 images of 5 x 4 classes recognizes
    75 to 82% of the subclasses. It recognizes 88% of the superclasses (three seeds);
    tests/data_pipelines checks this.
    """

    superclasses: int = 10
    """Number of shape families, at most 12."""
    subclasses: int = 10
    """Textures with palettes per superclass, at most 100; up to 10, neither is repeated."""
    size: int = 32
    """Side of an image in pixels, 32 to 128."""
    instances: float = 0.7
    """Variation of a subclass's instances in proportions, texture and hue."""
    contrast: float = 0.4
    """Contrast of a texture's two colours: less is harder, and 0 leaves only the first."""
    saturation: float = 0.4
    """Saturation of the objects' colours: less is harder, and 0 gives greys."""
    pose: float = 0.3
    """Range of the objects' position, rotation and scale."""
    background: float = 0.5
    """Contrast and colour of the backgrounds."""
    illuminant: float = 0.4
    """Remaining colour cast of the illuminant; 0 is perfect white balance."""
    noise: float = 0.25
    """Sensor noise; 1 is a standard deviation of 0.2 of the range."""
    seed: int = 0
    """Random seed of all the world's choices."""


class Ids(NamedTuple):
    """Identity of a frame: subclass, instance, recording session, and time in it."""

    subclass: Int[Array, "*n"]
    instance: Int[Array, "*n"]
    session: Int[Array, "*n"]
    frame: Int[Array, "*n"]


class Pose(NamedTuple):
    """Pose of an object in the image plane, which spans -1 to 1."""

    center: Float[Array, "2"]
    angle: Float[Array, ""]
    """Rotation in radians."""
    scale: Float[Array, ""]


# Independent streams of random numbers of one world.
_CLASS, _SHAPE, _HUE, _PATH, _BACKGROUND, _WALL, _ILLUMINANT, _NOISE = range(8)


def _key(world: World, stream: int, *ids: Int[Array, ""]) -> PRNGKeyArray:
    return functools.reduce(jax.random.fold_in, (stream, *ids), jax.random.key(world.seed))


def texture_and_palette(
    world: World, subclass: Int[Array, ""]
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Return the indices into `TEXTURES` and `PALETTES` of a subclass.

    They form a Latin square over shuffled textures and palettes: the first ten subclasses of a
    superclass share neither, and a hundred share no pair.
    """
    keys = jax.random.split(_key(world, _CLASS, subclass // world.subclasses))
    number = subclass % world.subclasses
    kind = jax.random.permutation(keys[0], len(TEXTURES))[number % len(TEXTURES)]
    shifted = (number + number // len(TEXTURES)) % len(PALETTES)
    return kind, jax.random.permutation(keys[1], len(PALETTES))[shifted]


def pose_at(world: World, ids: Ids) -> Pose:
    """Return the object's pose on its path: four slow waves with periods of 60 to 120 frames."""
    key = _key(world, _PATH, ids.subclass, ids.instance, ids.session)
    phase, period = jax.random.uniform(key, (2, 4))
    value = world.pose * wave(phase + ids.frame / (60 + 60 * period))
    return Pose(0.3 * value[:2], 1.2 * value[2], 0.66 * (1 + 0.35 * value[3]))


class Layers(NamedTuple):
    """Geometry of a frame, without colour."""

    distance: Float[Array, "h w"]
    """Distance to the object's outline in the image plane, negative inside."""
    second: Float[Array, "h w"]
    """Fraction of the second colour in the object's texture."""
    mixed: Float[Array, "h w"]
    """Fraction of the second colour in the background."""
    noise: UInt32[Array, "h w"]
    """Random bits of the sensor noise."""


def layers(world: World, ids: Ids, size: int) -> Layers:
    """Return the geometry of one frame, `[size, size]` each."""
    pose = pose_at(world, ids)
    axis = (jnp.arange(size) + 0.5) * (2 / size) - 1
    x, y = jnp.meshgrid(axis - pose.center[0], axis - pose.center[1])
    distance, second = _object(world, ids, pose, x, y)
    # The background moves against the object, as where a camera follows it.
    mixed = _background(world, ids, x + 1.5 * pose.center[0], y + 1.5 * pose.center[1])
    noise = jax.random.bits(_key(world, _NOISE, *ids), (size, size))
    return Layers(distance, second, mixed, noise)


def _object(
    world: World, ids: Ids, pose: Pose, x: Float[Array, "h w"], y: Float[Array, "h w"]
) -> tuple[Float[Array, "h w"], Float[Array, "h w"]]:
    """Return distance and texture at points relative to the object's centre."""
    shape = ids.subclass // world.subclasses
    aspect, shear, frequency, *phase = jax.random.uniform(
        _key(world, _SHAPE, ids.subclass, ids.instance), (5,), minval=-1
    )
    stretch = jnp.exp(0.25 * world.instances * aspect)
    outline = jnp.asarray(OUTLINES.vertices)[shape] * jnp.stack([stretch, 1 / stretch])
    outline = outline.at[:, 0].add(0.2 * world.instances * shear * outline[:, 1])
    cosine, sine = jnp.cos(pose.angle), jnp.sin(pose.angle)
    turn = jnp.array([[cosine, sine], [-sine, cosine]])
    # The pose moves the few vertices, so that distances are those of the image plane.
    vertices = pose.scale * matrix_product(outline, turn)
    distance = polygon_distance(x, y, vertices)
    distance = distance - pose.scale * jnp.asarray(OUTLINES.rounding)[shape]
    hollow = pose.scale * jnp.asarray(OUTLINES.hollow)[shape]
    distance = jnp.where(hollow > 0, jnp.abs(distance) - hollow, distance)
    second = texture(
        texture_and_palette(world, ids.subclass)[0],
        u=(x * cosine + y * sine) / pose.scale,
        v=(y * cosine - x * sine) / pose.scale,
        depth=-distance / pose.scale,
        frequency=1.5 * jnp.exp(0.4 * world.instances * frequency),
        phase=jnp.stack(phase),
        pixel=2 / x.shape[0] / pose.scale,
    )
    return distance, second


def _background(
    world: World, ids: Ids, x: Float[Array, "h w"], y: Float[Array, "h w"]
) -> Float[Array, "h w"]:
    """Return a gradient and two crossed slow waves, one bending the other."""
    turn, speed, phase = jax.random.uniform(_key(world, _BACKGROUND, ids.session), (3, 3))
    speed = jnp.stack([0.5, 0.25 + 0.35 * speed[1], 0.4 + 0.8 * speed[2]])
    across, down = speed * jnp.cos(2 * jnp.pi * turn), speed * jnp.sin(2 * jnp.pi * turn)
    gradient, slow, fast = (a * x + b * y for a, b in zip(across, down, strict=True))
    swell = wave(slow + phase[1])
    ripple = wave(fast + phase[2] + 0.3 * swell)
    return jnp.clip(0.5 + 0.5 * gradient + 0.25 * swell + 0.25 * ripple, 0, 1)


def colored(
    world: World, illuminants: Float[Array, "l 3"], ids: Ids, layers: Layers
) -> Float[Array, "3 h w"]:
    """Return the frame of given layers, encoded for a screen, in [0, 1], channels first."""
    size = layers.distance.shape[0]
    first, second = object_colors(world, ids)[..., None, None]
    near, far = _background_colors(world, ids)[..., None, None]
    # A soft shadow where the object stands parts it from a background of its own colour.
    shadow = 1 - 0.5 * jnp.clip(1 - layers.distance / 0.25, 0, 1) ** 2
    cover = smoothstep(-layers.distance, 1 / size)
    surface = first + layers.second * (second - first)
    behind = (near + layers.mixed * (far - near)) * shadow
    scene = (behind + cover * (surface - behind)) * _illuminant(world, illuminants, ids)[
        :, None, None
    ]
    encoded = jnp.moveaxis(encode_srgb(jnp.moveaxis(jnp.clip(scene, 0, 1), 0, -1)), -1, 0)
    # 1024 levels of a normal number for each channel of one random word: words cost the time.
    level = layers.noise >> jnp.array([0, 10, 20], jnp.uint32)[:, None, None] & 1023
    drawn = math.sqrt(2) * jax.lax.erf_inv((level.astype(jnp.float32) + 0.5) / 512 - 1)
    # The curve is close to a square root, which makes a sensor's shot noise uniform.
    return jnp.clip(encoded + 0.2 * world.noise * drawn, 0, 1)


def object_colors(world: World, ids: Ids) -> Float[Array, "2 3"]:
    """Return the two linear colours of an instance's palette, with shifted hue and lightness."""
    lab = jnp.asarray(palette_colors())[texture_and_palette(world, ids.subclass)[1]]
    lab = lab[0] + jnp.stack([0.0, world.contrast])[:, None] * (lab - lab[0])
    key = _key(world, _HUE, ids.subclass, ids.instance)
    hue, lightness = world.instances * jax.random.uniform(key, (2,), minval=-1)
    cosine, sine = world.saturation * jnp.cos(0.5 * hue), world.saturation * jnp.sin(0.5 * hue)
    a, b = lab[:, 1] * cosine - lab[:, 2] * sine, lab[:, 1] * sine + lab[:, 2] * cosine
    return oklab_to_linear(jnp.stack([lab[:, 0] + 0.06 * lightness, a, b], axis=-1))


def _background_colors(world: World, ids: Ids) -> Float[Array, "2 3"]:
    hue, chroma, lightness = jax.random.uniform(_key(world, _WALL, ids.session), (3, 2))
    chroma = 0.12 * world.background * chroma
    lightness = 0.5 * lightness[0] - 0.25 + 0.2 * jnp.array([-1.0, 1.0])
    a, b = chroma * jnp.cos(2 * jnp.pi * hue), chroma * jnp.sin(2 * jnp.pi * hue)
    return oklab_to_linear(jnp.stack([0.58 + world.background * lightness, a, b], axis=-1))


def _illuminant(world: World, illuminants: Float[Array, "l 3"], ids: Ids) -> Float[Array, "3"]:
    """Return the session's illuminant after white balance, with random exposure."""
    which, exposure = jax.random.split(_key(world, _ILLUMINANT, ids.session))
    drawn = jax.random.choice(which, illuminants) ** world.illuminant
    return drawn * jnp.exp(0.25 * world.illuminant * jax.random.uniform(exposure, minval=-1))


def render(
    world: World, illuminants: Float[Array, "l 3"], ids: Ids, size: int
) -> Float[Array, "h w 3"]:
    """Render one frame; the function is pure and can be vmapped, jitted or used in a training step.

    Args:
      world: settings, which may be traced; the size is not read from them.
      illuminants: linear colours of the sessions' possible illuminants, as from
        `illuminant_colors`.
      ids: identity of the frame.
      size: side of the image in pixels, static.

    Returns:
      Image encoded for a screen, in [0, 1].
    """
    return jnp.moveaxis(colored(world, illuminants, ids, layers(world, ids, size)), 0, -1)
