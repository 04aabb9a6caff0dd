"""The two-camera paper's radiometric set: 24 surfaces under one illuminant, seen by any camera."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse.csgraph import connected_components

from everlight.color.radiometry import response_table
from everlight_data.color.spectra.library import SpectralLibrary
from everlight_data.errors import DataError

PATCHES = 24
IlluminantSplit = Literal["random", "illuminant"]

SAME_ILLUMINANT_COSINE = 0.999
"""Minimum cosine of two spectra that count as one illuminant in the split by illuminant."""


@dataclass(frozen=True)
class RadiometricSettings:
    """Settings of the random scenes; the defaults are the paper's (section 4.1)."""

    scenes: int = 18_000
    """Number of scenes, of which 60% train, 20% validate and 20% test."""
    split: IlluminantSplit = "random"
    """"random" gives all parts the same illuminants, as the paper does (seen illuminants).

    "illuminant" gives them disjoint ones (unseen illuminants), and no near duplicates
    (`illuminant_clusters`).
    """
    seed: int = 0


class Scenes(NamedTuple):
    """Illuminant and surfaces of each scene; `train`, `valid` and `test` are slices of the rows."""

    illuminant: Int[np.ndarray, "n"]
    """Index into the library's illuminants."""
    surfaces: Int[np.ndarray, "n 24"]
    """Indices into its reflectances, all different as drawn."""
    clusters: Int[np.ndarray, "n"]
    """Cluster of the illuminant, equal for illuminants that are nearly the same."""
    train: slice
    valid: slice
    test: slice


class CameraView(NamedTuple):
    """Responses of one camera; 1 is a perfect reflector under the camera's brightest illuminant."""

    colors: Float[np.ndarray, "n 24 3"]
    illuminants: Float[np.ndarray, "n 3"]
    """Response to a perfect reflector."""


def draw_scenes(library: SpectralLibrary, settings: RadiometricSettings) -> Scenes:
    """Draw illuminants and surfaces; the same scenes serve every camera.

    Raises:
      DataError: there are too few scenes, surfaces or illuminants for the split.
    """
    if len(library.reflectances) < PATCHES:
        raise DataError(f"the library has {len(library.reflectances)} surfaces; give at least 24")
    generator = np.random.default_rng(settings.seed)
    sizes = _part_sizes(settings.scenes, "scenes")
    clusters = illuminant_clusters(library.illuminants)
    pools = _illuminant_pools(clusters, settings.split, generator)
    illuminants = [generator.choice(p, size) for p, size in zip(pools, sizes, strict=True)]
    ranks = generator.random((settings.scenes, len(library.reflectances)), dtype=np.float32)
    surfaces = np.argpartition(ranks, PATCHES - 1, axis=1)[:, :PATCHES]
    first, second = np.cumsum(sizes)[:2]
    drawn = np.concatenate(illuminants)
    return Scenes(
        drawn,
        surfaces,
        clusters[drawn],
        train=slice(0, first),
        valid=slice(first, second),
        test=slice(second, settings.scenes),
    )


def draw_color_counts(generator: np.random.Generator, scenes: int) -> Int[np.ndarray, "n"]:
    """Draw the number of surfaces of each scene: 1 to 24, log-uniform."""
    return np.clip((PATCHES + 1) ** generator.random(scenes), 1, PATCHES).astype(int)


def show_colors(scenes: Scenes, colors: Int[np.ndarray, "n"], dominant: int = 0) -> Scenes:
    """Return the scenes with a reduced number of distinct surfaces.

    Args:
      scenes: scenes of 24 surfaces.
      colors: number of distinct surfaces per scene; they take turns on the patches.
      dominant: number of patches that all show the first surface.

    Raises:
      DataError: a number is below 1 or above the number of patches.
    """
    if colors.min() < 1 or colors.max() > PATCHES or not 0 <= dominant < PATCHES:
        raise DataError(
            f"{colors.min()} to {colors.max()} colours, {dominant} patches of one; give 1 to 24 "
            "colours and at most 23 patches of one"
        )
    turns = np.maximum(np.arange(PATCHES) - max(dominant - 1, 0), 0) % colors[:, None]
    return scenes._replace(surfaces=np.take_along_axis(scenes.surfaces, turns, axis=1))


def illuminant_clusters(illuminants: Float[np.ndarray, "i w"]) -> Int[np.ndarray, "i"]:
    """Return a cluster number for each illuminant, equal for chains of near duplicates.

    Near duplicates are illuminants whose spectra have a cosine above
    `SAME_ILLUMINANT_COSINE`: one standard under two names, or one lamp measured twice. Chaining
    keeps all near duplicates in one cluster.
    """
    unit = illuminants / np.linalg.norm(illuminants, axis=1, keepdims=True)
    return connected_components(unit @ unit.T > SAME_ILLUMINANT_COSINE)[1]


def photograph(library: SpectralLibrary, camera: str, scenes: Scenes) -> CameraView:
    """Render the scenes for one camera.

    Raises:
      DataError: the camera is unknown; the message gives the nearest names.
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
        raise DataError(f"{count} {what} cannot be split 60/20/20; give at least 5")
    return count - 2 * held_out, held_out, held_out


def _illuminant_pools(
    clusters: np.ndarray, split: IlluminantSplit, generator: np.random.Generator
) -> list[np.ndarray]:
    """Return the illuminants of each part; under "illuminant" no cluster is in two parts."""
    everything = np.arange(len(clusters))
    if split == "random":
        return [everything] * 3
    count = clusters.max() + 1
    _part_sizes(count, "different illuminants")
    rank = generator.permutation(count)[clusters]
    ordered = everything[np.argsort(rank, kind="stable")]
    # A boundary inside a cluster moves to its end.
    cuts = np.cumsum(_part_sizes(len(clusters), "illuminants"))[:2]
    ends = [np.searchsorted(np.sort(rank), np.sort(rank)[cut - 1], side="right") for cut in cuts]
    pools = np.split(ordered, ends)
    if not all(len(pool) for pool in pools):
        raise DataError(
            f"{len(clusters)} illuminants make only {count} that differ by more than a cosine of "
            f"{SAME_ILLUMINANT_COSINE}, too unevenly for a 60/20/20 split; give more different ones"
        )
    return pools
