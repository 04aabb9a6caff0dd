"""What nets for cameras that they never saw are given: scenes as cameras take them, and sensors."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from everlight.color.chromaticity import to_chromaticity
from everlight.color.radiometry import blackbody_power, response_table
from everlight.color.transforms import fit_color_transform
from everlight_data.color.radiometric import (
    RadiometricSettings,
    Scenes,
    Split,
    draw_scenes,
    photograph,
)
from everlight_data.color.spectra import WAVELENGTHS, SpectralLibrary
from everlight_experiments.illuminant.radiometric_methods import all_moments

KNOWN_KELVIN = (2856.0, 6504.0)
"""Black bodies, a lamp's and daylight's, under which the two cameras are taken to be known."""
FARTHEST = (-1.0, 2.0)
"""Of the way from one known light's transform to the other's, where they are 0 and 1."""
COMPONENTS = 4
"""Principal components of the teaching cameras' sensitivities that describe a camera."""


class World(NamedTuple):
    """Exact responses of every camera to the scenes of one split."""

    colors: Float[Array, "c n 24 3"]
    lights: Float[Array, "c n 3"]
    scenes: Scenes


class Shots(NamedTuple):
    """Scenes taken by pairs of cameras."""

    main: Int[np.ndarray, "n"]
    second: Int[np.ndarray, "n"]
    scene: Int[np.ndarray, "n"]


class Sensors(NamedTuple):
    """What is known of the cameras before any scene.

    Attributes:
      transforms: between each pair under the known lights, row by row.
      whites: logarithms of R/G and B/G of the known lights.
      components: of the sensitivities.
    """

    transforms: Float[np.ndarray, "c c 18"]
    whites: Float[np.ndarray, "c 4"]
    components: Float[np.ndarray, "c k"]


def see_scenes(library: SpectralLibrary, count: int, split: Split, seed: int) -> World:
    """Every camera's exact responses to the same scenes."""
    scenes = draw_scenes(library, RadiometricSettings(count, split, seed))
    views = [photograph(library, camera, scenes) for camera in library.camera_names]
    return World(
        jnp.asarray(np.stack([view.colors for view in views])),
        jnp.asarray(np.stack([view.illuminants for view in views])),
        scenes,
    )


_fit_all = jax.jit(jax.vmap(partial(fit_color_transform, normalize="scale")))


def known_lights(
    library: SpectralLibrary,
) -> tuple[Float[np.ndarray, "c c 18"], Float[np.ndarray, "c 4"]]:
    """Each pair's transforms under `KNOWN_KELVIN`, and each camera's logarithms of R/G and B/G."""
    grid = jnp.asarray(WAVELENGTHS, jnp.float32)
    spectra = np.stack([blackbody_power(jnp.float32(kelvin), grid) for kelvin in KNOWN_KELVIN])
    tables = [
        response_table(spectra, library.reflectances, sensitivity)
        for sensitivity in library.sensitivities
    ]
    surfaces = jnp.asarray(np.stack([table.surfaces for table in tables]), jnp.float32)
    flat = surfaces.reshape(-1, *surfaces.shape[2:])
    transforms = [
        _fit_all(jnp.tile(own, (len(tables), 1, 1)), flat).transform.reshape(len(tables), 18)
        for own in surfaces
    ]
    whites = jnp.stack([jnp.log(to_chromaticity(table.illuminants)).ravel() for table in tables])
    return np.stack(transforms), np.asarray(whites, np.float32)


def principal_components(
    library: SpectralLibrary, teachers: Int[np.ndarray, "t"]
) -> Float[np.ndarray, "c k"]:
    """Every camera's sensitivities in the teachers' principal components."""
    flat = library.sensitivities.reshape(len(library.sensitivities), -1)
    flat = flat / flat.max(axis=1, keepdims=True)
    mean = flat[teachers].mean(axis=0)
    directions = np.linalg.svd(flat[teachers] - mean, full_matrices=False)[2]
    return ((flat - mean) @ directions[:COMPONENTS].T).astype(np.float32)


def draw_shots(
    rng: np.random.Generator, cameras: Int[np.ndarray, "k"], scenes: slice, count: int
) -> Shots:
    """Random pairs of different cameras, and random scenes."""
    first = rng.integers(len(cameras), size=count)
    second = (first + rng.integers(1, len(cameras), size=count)) % len(cameras)
    return Shots(cameras[first], cameras[second], rng.integers(scenes.start, scenes.stop, count))


def all_shots(main: int, second: int, scenes: slice) -> Shots:
    """Every scene by one pair."""
    rows = np.arange(scenes.start, scenes.stop)
    return Shots(np.full_like(rows, main), np.full_like(rows, second), rows)


def inputs_of(shots: Shots, world: World, sensors: Sensors) -> dict[str, Float[np.ndarray, "n f"]]:
    """All that nets may be given; T is NaN where a scene has none."""
    main = world.colors[shots.main, shots.scene]
    fit = _fit_all(main, world.colors[shots.second, shots.scene])
    transforms = jnp.where(fit.valid[:, None, None], fit.transform, jnp.nan).reshape(-1, 9)
    transforms = np.asarray(transforms)
    components = (sensors.components[shots.main], sensors.components[shots.second])
    known = between_known(transforms, shots, sensors)
    return {
        "T": transforms,
        "moments": np.asarray(all_moments(main)),
        "whites": sensors.whites[shots.main],
        "known lights": known.place,
        "interpolated": known.light,
        "sensitivities": np.hstack(components),
    }


class BetweenKnown(NamedTuple):
    """Transforms beside those under the two known lights.

    Attributes:
      place: share of the way from the first to the second, what is left beside it, the way's
        direction and the logarithm of its length, and the whites.
      light: R/G and B/G at that share of the way between the whites' logarithms.
    """

    place: Float[np.ndarray, "n 24"]
    light: Float[np.ndarray, "n 2"]


def between_known(
    transforms: Float[np.ndarray, "n 9"], shots: Shots, sensors: Sensors
) -> BetweenKnown:
    """Where transforms lie; shares are held to `FARTHEST`."""
    first, second = np.split(sensors.transforms[shots.main, shots.second], 2, axis=1)
    whites = sensors.whites[shots.main]
    length = np.linalg.norm(second - first, axis=1, keepdims=True)
    way, away = (second - first) / length, transforms - first
    along = np.sum(away * way, axis=1, keepdims=True)
    beside = (away - along * way) / length
    share = np.clip(along / length, *FARTHEST)
    light = np.exp(whites[:, :2] + share * (whites[:, 2:] - whites[:, :2]))
    place = np.hstack([share, beside, way, np.log(length), whites])
    return BetweenKnown(place, light)
