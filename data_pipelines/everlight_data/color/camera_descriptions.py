"""Inputs of networks for unseen cameras: scenes in their colours, and descriptions of sensors.

Some cameras are left out in pairs. Networks are trained on random pairs of the others, and on the
very pair for comparison.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from everlight.color.chromaticity import to_chromaticity
from everlight.color.radiometry import blackbody_power, response_table
from everlight_data.color.camera_pairs import Samples, finite_rows
from everlight_data.color.radiometric import (
    RadiometricSettings,
    Scenes,
    Split,
    draw_scenes,
    photograph,
)
from everlight_data.color.rendered_pairs import all_moments, fit_all, flat_or_nan
from everlight_data.color.spectra import WAVELENGTHS, SpectralLibrary
from everlight_data.errors import DataError

KNOWN_KELVIN = (2856.0, 6504.0)
"""Colour temperatures of the known illuminants, a lamp and daylight, as black bodies."""
FARTHEST = (-1.0, 2.0)
"""Range of the position between the transforms of the known illuminants, which are 0 and 1."""
COMPONENTS = 4
"""Number of principal components of the training cameras' sensitivities."""
VALIDATION_CAMERAS = 4
"""Number of cameras whose pairs select the best step."""
LEAST_CAMERAS = COMPONENTS + 1
"""Minimum number of training cameras; with fewer some component is rounding noise."""
SAMPLES, VALIDATION_SAMPLES = 20_000, 4_000
"""Training samples from many pairs, and validation samples."""

Inputs = Mapping[str, Float[np.ndarray, "n f"]]


class World(NamedTuple):
    """Exact responses of every camera to the scenes of one split."""

    colors: Float[Array, "c n 24 3"]
    illuminants: Float[Array, "c n 3"]
    scenes: Scenes


class Shots(NamedTuple):
    """Scenes by pairs of cameras."""

    main: Int[np.ndarray, "n"]
    second: Int[np.ndarray, "n"]
    scene: Int[np.ndarray, "n"]


class Sensors(NamedTuple):
    """Descriptions of the cameras.

    Attributes:
      transforms: transforms between each pair under the known illuminants, row by row.
      whites: logarithms of R/G and B/G of the known illuminants.
      components: principal components of the sensitivities.
    """

    transforms: Float[np.ndarray, "c c 18"]
    whites: Float[np.ndarray, "c 4"]
    components: Float[np.ndarray, "c k"]


def see_scenes(library: SpectralLibrary, count: int, split: Split, seed: int) -> World:
    """Return every camera's exact responses to the same scenes."""
    scenes = draw_scenes(library, RadiometricSettings(count, split, seed))
    views = [photograph(library, camera, scenes) for camera in library.camera_names]
    return World(
        jnp.asarray(np.stack([view.colors for view in views])),
        jnp.asarray(np.stack([view.illuminants for view in views])),
        scenes,
    )


def known_illuminants(
    library: SpectralLibrary,
) -> tuple[Float[np.ndarray, "c c 18"], Float[np.ndarray, "c 4"]]:
    """Return each pair's transforms and each camera's whites under `KNOWN_KELVIN`."""
    grid = jnp.asarray(WAVELENGTHS, jnp.float32)
    spectra = np.stack([blackbody_power(jnp.float32(kelvin), grid) for kelvin in KNOWN_KELVIN])
    tables = [
        response_table(spectra, library.reflectances, sensitivity)
        for sensitivity in library.sensitivities
    ]
    surfaces = jnp.asarray(np.stack([table.surfaces for table in tables]), jnp.float32)
    flat = surfaces.reshape(-1, *surfaces.shape[2:])
    transforms = [
        fit_all(jnp.tile(own, (len(tables), 1, 1)), flat).transform.reshape(len(tables), 18)
        for own in surfaces
    ]
    whites = jnp.stack([jnp.log(to_chromaticity(table.illuminants)).ravel() for table in tables])
    return np.stack(transforms), np.asarray(whites, np.float32)


def principal_components(
    library: SpectralLibrary, cameras: Int[np.ndarray, "t"]
) -> Float[np.ndarray, "c k"]:
    """Project every camera's sensitivities on the training cameras' principal components."""
    flat = library.sensitivities.reshape(len(library.sensitivities), -1)
    flat = flat / flat.max(axis=1, keepdims=True)
    mean = flat[cameras].mean(axis=0)
    directions = np.linalg.svd(flat[cameras] - mean, full_matrices=False)[2]
    return ((flat - mean) @ directions[:COMPONENTS].T).astype(np.float32)


def draw_shots(
    rng: np.random.Generator, cameras: Int[np.ndarray, "k"], scenes: slice, count: int
) -> Shots:
    """Draw pairs of different cameras, and scenes."""
    first = rng.integers(len(cameras), size=count)
    second = (first + rng.integers(1, len(cameras), size=count)) % len(cameras)
    return Shots(cameras[first], cameras[second], rng.integers(scenes.start, scenes.stop, count))


def all_shots(main: int, second: int, scenes: slice) -> Shots:
    """Return every scene by one pair."""
    rows = np.arange(scenes.start, scenes.stop)
    return Shots(np.full_like(rows, main), np.full_like(rows, second), rows)


def inputs_of(shots: Shots, world: World, sensors: Sensors) -> dict[str, Float[np.ndarray, "n f"]]:
    """Return all inputs of the networks; T is NaN where a scene has none."""
    main = world.colors[shots.main, shots.scene]
    transforms = np.asarray(flat_or_nan(fit_all(main, world.colors[shots.second, shots.scene])))
    components = (sensors.components[shots.main], sensors.components[shots.second])
    known = between_known(transforms, shots, sensors)
    return {
        "T": transforms,
        "moments": np.asarray(all_moments(main)),
        "whites": sensors.whites[shots.main],
        "known illuminants": known.place,
        "interpolated": known.illuminant,
        "sensitivities": np.hstack(components),
    }


def samples_of(shots: Shots, world: World, sensors: Sensors) -> Samples:
    """Return inputs and chromaticities; samples without a transform are replaced."""
    inputs = inputs_of(shots, world, sensors)
    rows = finite_rows(inputs["T"])
    targets = np.asarray(to_chromaticity(world.illuminants[shots.main, shots.scene]))
    return Samples({name: values[rows] for name, values in inputs.items()}, targets[rows])


class BetweenKnown(NamedTuple):
    """Positions of transforms relative to those of the two known illuminants.

    Attributes:
      place: share of the way from the first to the second, residual beside it, the way's
        direction and the logarithm of its length, and the whites.
      illuminant: R/G and B/G at that share of the way between the whites' logarithms.
    """

    place: Float[np.ndarray, "n 24"]
    illuminant: Float[np.ndarray, "n 2"]


def between_known(
    transforms: Float[np.ndarray, "n 9"], shots: Shots, sensors: Sensors
) -> BetweenKnown:
    """Return positions of transforms; shares are clipped to `FARTHEST`."""
    first, second = np.split(sensors.transforms[shots.main, shots.second], 2, axis=1)
    whites = sensors.whites[shots.main]
    length = np.linalg.norm(second - first, axis=1, keepdims=True)
    way, away = (second - first) / length, transforms - first
    along = np.sum(away * way, axis=1, keepdims=True)
    beside = (away - along * way) / length
    share = np.clip(along / length, *FARTHEST)
    illuminant = np.exp(whites[:, :2] + share * (whites[:, 2:] - whites[:, :2]))
    place = np.hstack([share, beside, way, np.log(length), whites])
    return BetweenKnown(place, illuminant)


class CameraFold(NamedTuple):
    """Cameras of the test pair, for validation and for training."""

    unseen: Int[np.ndarray, "2"]
    validation: Int[np.ndarray, "v"]
    training: Int[np.ndarray, "t"]

    def roles(self) -> list[tuple[int, int]]:
        """Return the unseen pair, main camera first, in both roles."""
        first, second = self.unseen.tolist()
        return [(first, second), (second, first)]


def draw_camera_folds(cameras: int, pairs: int, seed: int) -> list[CameraFold]:
    """Draw disjoint pairs to leave out in turn, with validation and training cameras.

    Raises:
      DataError: there are too few cameras.
    """
    least = max(2 * pairs, 2 + VALIDATION_CAMERAS + LEAST_CAMERAS)
    if cameras < least:
        raise DataError(f"{cameras} cameras; {pairs} pairs that are left out need {least}")
    order = np.random.default_rng(seed).permutation(cameras)
    cuts = [2, 2 + VALIDATION_CAMERAS]
    return [CameraFold(*np.split(np.roll(order, -2 * pair), cuts)) for pair in range(pairs)]


class UnseenTask(NamedTuple):
    """Training and validation samples of networks, and the inputs of their tests."""

    train: Samples
    valid: Samples
    tests: Sequence[Inputs]


def unseen_tasks(
    library: SpectralLibrary,
    folds: Sequence[CameraFold],
    worlds: Mapping[Split, World],
    seed: int,
) -> tuple[list[UnseenTask], list[UnseenTask]]:
    """Return the tasks by split and fold of networks of other pairs, and of the very pair.

    Those of other pairs are tested on the unseen pair in both roles. Networks of the very pair have
    a task for each role.

    Args:
      library: spectra and cameras.
      folds: cameras of the tests, for validation and for training.
      worlds: responses of every camera by split.
      seed: random seed of the drawn pairs and scenes.
    """
    known, others, own = known_illuminants(library), [], []
    for number, (split, fold) in enumerate(itertools.product(worlds, folds)):
        world, rng = worlds[split], np.random.default_rng((seed, number))
        scenes = world.scenes
        sensors = Sensors(*known, principal_components(library, fold.training))
        train = draw_shots(rng, fold.training, scenes.train, SAMPLES)
        valid = draw_shots(rng, fold.validation, scenes.valid, VALIDATION_SAMPLES)
        tests = [inputs_of(all_shots(*role, scenes.test), world, sensors) for role in fold.roles()]
        others.append(
            UnseenTask(*(samples_of(each, world, sensors) for each in (train, valid)), tests)
        )
        for role, test in zip(fold.roles(), tests, strict=True):
            parts = (all_shots(*role, rows) for rows in (scenes.train, scenes.valid))
            own.append(UnseenTask(*(samples_of(part, world, sensors) for part in parts), [test]))
    return others, own
