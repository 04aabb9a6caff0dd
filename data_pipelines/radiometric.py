"""The two-camera paper's radiometric set: scenes of 24 surfaces seen by two cameras."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from data_pipelines.errors import DataError
from data_pipelines.spectra import SpectralLibrary
from everlight.color.radiometry import response_table


@dataclass(frozen=True)
class RadiometricSettings:
    """What is drawn; the defaults are the paper's (section 4.1)."""

    pairs: int = 18_000
    """Image pairs, of which 60% train, 20% validate and 20% test."""
    split: Literal["random", "illuminant"] = "random"
    """"random" shares every light between the parts, as the paper does; "illuminant" shares none."""
    seed: int = 0


class RadiometricPart(NamedTuple):
    """Scenes of one part; colours are raw, rows are pairs."""

    main: np.ndarray  # [n, 24, 3] float32
    second: np.ndarray  # [n, 24, 3] float32
    illuminants_main: np.ndarray  # [n, 3] float32
    illuminants_second: np.ndarray  # [n, 3] float32
    illuminant_index: np.ndarray  # [n] into the library's lights


class RadiometricSet(NamedTuple):
    """The three parts, drawn independently of the cameras: the same scenes for every pair."""

    train: RadiometricPart
    valid: RadiometricPart
    test: RadiometricPart


PATCHES = 24


def build_radiometric(
    library: SpectralLibrary, cameras: tuple[str, str], settings: RadiometricSettings
) -> RadiometricSet:
    """Draws scenes and renders them for two cameras.

    A scene is one light and 24 different surfaces. Raw colours are scaled so that the brightest
    light of the library gives the main camera 1 on a perfect reflector.

    Raises:
      DataError: an unknown camera (with the nearest names), or too few lights or pairs to split.
    """
    tables = [
        response_table(library.illuminants, library.reflectances, library.sensitivity(camera))
        for camera in cameras
    ]
    exposure = np.max(np.asarray(tables[0].illuminants))
    surfaces = [np.asarray(t.surfaces, np.float32) / exposure for t in tables]
    lights = [np.asarray(t.illuminants, np.float32) / exposure for t in tables]
    generator = np.random.default_rng(settings.seed)
    pools = _illuminant_pools(len(library.illuminants), settings.split, generator)
    parts = []
    for pool, count in zip(pools, _part_sizes(settings.pairs), strict=True):
        light = generator.choice(pool, size=count)
        ranks = generator.random((count, len(library.reflectances)), dtype=np.float32)
        surface = np.argpartition(ranks, PATCHES, axis=1)[:, :PATCHES]
        main, second = (s[light[:, None], surface] for s in surfaces)
        parts.append(RadiometricPart(main, second, lights[0][light], lights[1][light], light))
    return RadiometricSet(*parts)


def _part_sizes(pairs: int) -> tuple[int, int, int]:
    held_out = pairs // 5
    if held_out == 0:
        raise DataError(f"pairs={pairs}; at least 5 are needed for a 60/20/20 split")
    return pairs - 2 * held_out, held_out, held_out


def _illuminant_pools(count: int, split: str, generator: np.random.Generator) -> list[np.ndarray]:
    everything = np.arange(count)
    if split == "random":
        return [everything] * 3
    if count < 5:
        raise DataError(f"the library has {count} lights; a split by illuminant needs at least 5")
    return np.split(generator.permutation(everything), np.cumsum(_part_sizes(count))[:2])
