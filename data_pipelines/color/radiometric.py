"""The two-camera paper's radiometric set: scenes of 24 surfaces under one light, by any camera."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components

from data_pipelines.color.spectra import SpectralLibrary
from data_pipelines.errors import DataError
from everlight.color.radiometry import response_table

PATCHES = 24
Split = Literal["random", "illuminant"]

SAME_ILLUMINANT_COSINE = 0.999
"""Cosine of two spectra from which they count as one light in the split by illuminant."""


@dataclass(frozen=True)
class RadiometricSettings:
    """What is drawn; the defaults are the paper's (section 4.1)."""

    scenes: int = 18_000
    """Scenes, of which 60% train, 20% validate and 20% test."""
    split: Split = "random"
    """Random shares every light between the parts, as the paper does; illuminant shares none, and
    none that is nearly the same (`light_clusters`)."""
    seed: int = 0


class Scenes(NamedTuple):
    """Which light falls on which surfaces; `train`, `valid` and `test` are slices of the rows."""

    illuminant: np.ndarray  # [n] int, into the library's lights
    surfaces: np.ndarray  # [n, 24] int, into its reflectances, all different as drawn
    clusters: np.ndarray  # [n] int, of the light: equal for lights that are nearly the same
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
    clusters = illuminant_clusters(library.illuminants)
    pools = _illuminant_pools(clusters, settings.split, generator)
    illuminants = [generator.choice(p, size) for p, size in zip(pools, sizes, strict=True)]
    ranks = generator.random((settings.scenes, len(library.reflectances)), dtype=np.float32)
    surfaces = np.argpartition(ranks, PATCHES - 1, axis=1)[:, :PATCHES]
    first, second = np.cumsum(sizes)[:2]
    parts = slice(0, first), slice(first, second), slice(second, settings.scenes)
    drawn = np.concatenate(illuminants)
    return Scenes(drawn, surfaces, clusters[drawn], *parts)


def draw_color_counts(generator: np.random.Generator, scenes: int) -> np.ndarray:
    """How many surfaces each scene keeps, `[scenes]`: 1 to 24, evenly in the logarithm."""
    return np.clip((PATCHES + 1) ** generator.random(scenes), 1, PATCHES).astype(int)


def show_colors(scenes: Scenes, colors: np.ndarray, dominant: int = 0) -> Scenes:
    """The scenes with some of their surfaces only.

    Args:
      scenes: of 24 surfaces.
      colors: how many surfaces each scene keeps, `[n]`; they take turns on the patches.
      dominant: patches that all show the first surface.

    Raises:
      DataError: no colour, or more than there are patches.
    """
    if colors.min() < 1 or colors.max() > PATCHES or not 0 <= dominant < PATCHES:
        raise DataError(
            f"{colors.min()} to {colors.max()} colours, {dominant} patches of one; 24 patches show "
            "1 to 24 colours, of which one may take up to 23"
        )
    turns = np.maximum(np.arange(PATCHES) - max(dominant - 1, 0), 0) % colors[:, None]
    return scenes._replace(surfaces=np.take_along_axis(scenes.surfaces, turns, axis=1))


def illuminant_clusters(illuminants: np.ndarray) -> np.ndarray:
    """A number for each light, `[i]`, the same for those that a chain of near twins connects.

    Twins are lights whose spectra, `[i, w]`, have a cosine above `SAME_LIGHT`: copies of one
    standard under two names, or one lamp measured twice. The chain makes sure that no twins are
    in two clusters.
    """
    unit = illuminants / np.linalg.norm(illuminants, axis=1, keepdims=True)
    return connected_components(unit @ unit.T > SAME_ILLUMINANT_COSINE)[1]


def photograph(library: SpectralLibrary, camera: str, scenes: Scenes) -> CameraView:
    """Renders the scenes for one camera.

    Raises:
      DataError: an unknown camera, with the nearest names.
    """
    table = response_table(library.illuminants, library.reflectances, library.sensitivity(camera))
    exposure = np.max(table.illuminants)
    surfaces, illuminants = (np.asarray(part / exposure, np.float32) for part in table)
    return CameraView(
        surfaces[scenes.illuminant[:, None], scenes.surfaces], illuminants[scenes.illuminant]
    )


def _part_sizes(count: int, what: str) -> tuple[int, int, int]:
    held_out = count // 5
    if held_out < 1:
        raise DataError(f"{count} {what} cannot be split 60/20/20; at least 5 are needed")
    return count - 2 * held_out, held_out, held_out


def _illuminant_pools(
    clusters: np.ndarray, split: Split, generator: np.random.Generator
) -> list[np.ndarray]:
    """Lights to draw from for each part; under "illuminant" no cluster is in two parts."""
    everything = np.arange(len(clusters))
    if split == "random":
        return [everything] * 3
    count = clusters.max() + 1
    _part_sizes(count, "different lights")
    rank = generator.permutation(count)[clusters]
    ordered = everything[np.argsort(rank, kind="stable")]
    # A boundary inside a cluster moves to its end.
    cuts = np.cumsum(_part_sizes(len(clusters), "lights"))[:2]
    ends = [np.searchsorted(np.sort(rank), np.sort(rank)[cut - 1], side="right") for cut in cuts]
    pools = np.split(ordered, ends)
    if not all(len(pool) for pool in pools):
        raise DataError(
            f"{len(clusters)} lights make only {count} that differ by more than a cosine of "
            f"{SAME_ILLUMINANT_COSINE}, too unevenly to be split 60/20/20; give more different ones"
        )
    return pools
