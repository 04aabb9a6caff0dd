"""The two-camera paper's radiometric set: scenes of 24 surfaces under one light, by any camera."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from data_pipelines.errors import DataError
from data_pipelines.spectra import SpectralLibrary
from everlight.color.radiometry import response_table

PATCHES = 24
Split = Literal["random", "illuminant"]


@dataclass(frozen=True)
class RadiometricSettings:
    """What is drawn; the defaults are the paper's (section 4.1)."""

    scenes: int = 18_000
    """Scenes, of which 60% train, 20% validate and 20% test."""
    split: Split = "random"
    """Random shares every light between the parts, as the paper does; illuminant shares none."""
    seed: int = 0


class Scenes(NamedTuple):
    """Which light falls on which surfaces; `train`, `valid` and `test` are slices of the rows."""

    illuminant: np.ndarray  # [n] int, into the library's lights
    surfaces: np.ndarray  # [n, 24] int, into its reflectances, all different in a row
    train: slice
    valid: slice
    test: slice


class CameraView(NamedTuple):
    """What one camera sees of all scenes; 1 is a perfect reflector under its brightest light."""

    colors: np.ndarray  # [n, 24, 3] float32
    illuminants: np.ndarray  # [n, 3] float32, the response to a perfect reflector


def draw_scenes(library: SpectralLibrary, settings: RadiometricSettings) -> Scenes:
    """Draws lights and surfaces; the same scenes serve every camera.

    Raises:
      DataError: too few scenes, surfaces or lights for the split.
    """
    if len(library.reflectances) < PATCHES:
        raise DataError(f"the library has {len(library.reflectances)} surfaces, fewer than 24")
    generator = np.random.default_rng(settings.seed)
    sizes = _part_sizes(settings.scenes, "scenes")
    pools = _illuminant_pools(len(library.illuminants), settings.split, generator)
    lights = [generator.choice(p, size) for p, size in zip(pools, sizes, strict=True)]
    ranks = generator.random((settings.scenes, len(library.reflectances)), dtype=np.float32)
    surfaces = np.argpartition(ranks, PATCHES - 1, axis=1)[:, :PATCHES]
    first, second = np.cumsum(sizes)[:2]
    parts = slice(0, first), slice(first, second), slice(second, settings.scenes)
    return Scenes(np.concatenate(lights), surfaces, *parts)


def photograph(library: SpectralLibrary, camera: str, scenes: Scenes) -> CameraView:
    """Renders the scenes for one camera.

    Raises:
      DataError: an unknown camera, with the nearest names.
    """
    table = response_table(library.illuminants, library.reflectances, library.sensitivity(camera))
    exposure = np.max(table.illuminants)
    surfaces, lights = (np.asarray(part / exposure, np.float32) for part in table)
    return CameraView(
        surfaces[scenes.illuminant[:, None], scenes.surfaces], lights[scenes.illuminant]
    )


def _part_sizes(count: int, what: str) -> tuple[int, int, int]:
    held_out = count // 5
    if held_out < 1:
        raise DataError(f"{count} {what} cannot be split 60/20/20; at least 5 are needed")
    return count - 2 * held_out, held_out, held_out


def _illuminant_pools(count: int, split: Split, generator: np.random.Generator) -> list[np.ndarray]:
    everything = np.arange(count)
    if split == "random":
        return [everything] * 3
    return np.split(generator.permutation(everything), np.cumsum(_part_sizes(count, "lights"))[:2])
