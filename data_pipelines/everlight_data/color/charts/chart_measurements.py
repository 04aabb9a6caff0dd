"""Measurements of raw pairs with a chart, each pair's kept in a store, and scenes in folds."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.sparse.csgraph import connected_components

from everlight.color.rendering import white_balance
from everlight.illuminant.pair_model import VIEWS, View
from everlight.metrics.angular import angular_error
from everlight_data.color.charts.chart import reference_colors
from everlight_data.color.charts.chart_pairs import PairCharts, check_one_kind, read_chart_pair
from everlight_data.color.charts.measured_chart import read_chart_corners
from everlight_data.color.charts.measured_pair import MeasuredPair, measure_pair
from everlight_data.color.charts.pair_files import MIN_PAIRS, PairFiles
from everlight_data.color.pairs.quasi_real import QuasiReal
from everlight_data.color.photographs.camera_images import IlluminantImages
from everlight_data.errors import DataError, MissingPackageError
from everlight_data.progress import progress

MAX_FOLDS = 8
"""Maximum number of folds; each two folds are another training."""
SAME_SCENE = 0.5
"""Maximum angle in degrees between the illuminants of two pairs of one scene, in both cameras."""


Record = TypeVar("Record", PairCharts, MeasuredPair)


class Store(Protocol):
    """Place for finished parts, such as a run's folder; parts have a name and a fingerprint."""

    def read_part(self, name: str, fingerprint: dict) -> dict[str, np.ndarray] | None:
        """Return the arrays of a finished part, or None."""

    def save_part(self, name: str, fingerprint: dict, **arrays: np.ndarray) -> None:
        """Save the arrays of a finished part."""


class Measured(NamedTuple):
    """Measurements of all pairs.

    Attributes:
      quasi: transforms, illuminants and charts.
      images: each camera's small images, with saturated pixels and the chart masked.
      moments: nine colour moments of each camera's images, `[n, 9]`.
    """

    quasi: QuasiReal
    images: Mapping[View, IlluminantImages]
    moments: Mapping[View, Float[np.ndarray, "n 9"]]


def read_charts(folder: Path, files: Sequence[PairFiles], store: Store) -> list[PairCharts]:
    """Read every pair's charts; pairs that the store holds are not measured again.

    Raises:
      DataError: charts are not found or not usable; the message names all files.
    """
    listed, reference = read_chart_corners(folder), reference_colors()

    def read(index: int) -> PairCharts:
        return read_chart_pair(folder, files[index], listed, reference)

    fingerprints = []
    for pair in files:
        outlines = [listed.get(f"{view}/{getattr(pair, view).name}") for view in VIEWS]
        corners = [None if outline is None else outline.tolist() for outline in outlines]
        fingerprints.append({"corners": corners, "measured": list(PairCharts._fields)})
    charts = _measure_all("charts", files, fingerprints, PairCharts, read, store)
    check_one_kind(folder, files, charts)
    return charts


def _measure_all(
    kind: str,
    files: Sequence[PairFiles],
    fingerprints: Sequence[dict],
    record: type[Record],
    measure: Callable[[int], Record],
    store: Store,
) -> list[Record]:
    """Measure every pair that the store does not have, and save it there."""
    measured, failures = [], []
    for index, pair in enumerate(progress(kind, unit="pair", values=files)):
        name, known = f"{kind}-{pair.name}", {**pair.checksums} | fingerprints[index]
        arrays = store.read_part(name, known)
        if arrays is not None:
            measured.append(record(**arrays))
        else:
            try:
                measured.append(measure(index))
            except MissingPackageError:
                raise
            except DataError as error:
                failures.append(str(error))
            else:
                store.save_part(name, known, **measured[-1]._asdict())
    if failures:
        raise DataError(f"{len(failures)} of {len(files)} pairs: {' '.join(failures)}")
    return measured


def measure_pairs(
    files: Sequence[PairFiles],
    charts: Sequence[PairCharts],
    homography: Float[np.ndarray, "3 3"],
    downsample: int,
    store: Store,
    note: str,
) -> Measured:
    """Measure transforms, illuminants, moments and small images with their charts masked.

    Raises:
      DataError: pairs have no transform; the message names all of them.
    """

    def measure(index: int) -> MeasuredPair:
        return measure_pair(files[index], charts[index], homography, downsample)

    fingerprints = [
        {
            "homography": homography.tolist(),
            "chart": pair.charts[0].tolist(),
            "downsample": downsample,
        }
        for pair in charts
    ]
    measured = _measure_all("transforms", files, fingerprints, MeasuredPair, measure, store)
    stacked = jax.tree.map(lambda *arrays: np.stack(arrays), *measured)
    truth = {
        view: np.stack([pair.illuminant(place) for pair in charts]).astype(np.float32)
        for place, view in enumerate(VIEWS)
    }
    quasi = _quasi_real(files, charts, stacked.transform, truth)
    main, second = map(str, charts[0].cameras)
    images = {
        "main": IlluminantImages(
            stacked.image_main, stacked.mask_main, truth["main"], (), note, main
        ),
        "second": IlluminantImages(
            stacked.image_second, stacked.mask_second, truth["second"], (), note, second
        ),
    }
    moments = {"main": stacked.moments_main, "second": stacked.moments_second}
    return Measured(quasi, images, moments)


def _quasi_real(
    files: Sequence[PairFiles],
    charts: Sequence[PairCharts],
    transforms: Float[np.ndarray, "n 3 3"],
    truth: Mapping[View, Float[np.ndarray, "n 3"]],
) -> QuasiReal:
    """Return the pairs without folds."""
    patches = np.stack([pair.colors for pair in charts], axis=1).astype(np.float32)
    return QuasiReal(
        names=tuple((pair.name, pair.name) for pair in files),
        transforms=transforms,
        illuminants_main=truth["main"],
        illuminants_second=truth["second"],
        charts_main=patches[0],
        charts_second=patches[1],
        usable=np.stack([pair.usable.all(axis=0) for pair in charts]),
        folds=(),
    )


def sensor_differences(quasi: QuasiReal) -> Float[np.ndarray, "n"]:
    """Return the mean angle between a patch's white-balanced colours in the two cameras."""
    main, second = (
        jax.vmap(white_balance)(jnp.asarray(charts, jnp.float32), jnp.asarray(truth, jnp.float32))
        for charts, truth in (
            (quasi.charts_main, quasi.illuminants_main),
            (quasi.charts_second, quasi.illuminants_second),
        )
    )
    angles = np.asarray(jax.vmap(jax.vmap(angular_error))(main, second))
    return np.mean(angles, axis=1, where=quasi.usable)


def group_scenes(quasi: QuasiReal) -> Int[np.ndarray, "n"]:
    """Return a scene number for each pair; chains of similar illuminants are one scene.

    Raises:
      DataError: there are too few scenes.
    """
    alike = np.ones((len(quasi.names),) * 2, bool)
    for colors in (quasi.illuminants_main, quasi.illuminants_second):
        alike &= np.asarray(_angles(jnp.asarray(colors), jnp.asarray(colors))) < SAME_SCENE
    scenes = connected_components(alike)[1]
    if (count := int(scenes.max()) + 1) < MIN_PAIRS:
        raise DataError(
            f"{len(scenes)} pairs show {count} illuminant{'s' * (count != 1)} that differ by "
            f"{SAME_SCENE} degrees; {MIN_PAIRS} are the minimum. Add pairs under others."
        )
    return scenes


_angles = jax.jit(jax.vmap(jax.vmap(angular_error, (None, 0)), (0, None)))


def draw_scene_folds(scenes: Int[np.ndarray, "n"], seed: int) -> list[Int[np.ndarray, "k"]]:
    """Draw folds of whole scenes; shorter folds repeat rows, so that all have one length."""
    order = np.random.default_rng(seed).permutation(scenes.max() + 1)
    count = min(len(order), MAX_FOLDS)
    rows = [np.flatnonzero(np.isin(scenes, order[fold::count])) for fold in range(count)]
    longest = max(map(len, rows))
    return [np.resize(fold, longest) for fold in rows]
