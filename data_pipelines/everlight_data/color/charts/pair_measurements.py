"""Measurements of raw pairs with a chart; those of the pairs that a store holds are read there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.rendering import white_balance
from everlight.illuminant.pair_model import VIEWS, View
from everlight.metrics.angular import angular_error
from everlight_data.color.charts.chart_colors import reference_colors
from everlight_data.color.charts.chart_pairs import PairCharts, check_one_kind, read_chart_pair
from everlight_data.color.charts.measured_chart import read_chart_corners
from everlight_data.color.charts.measured_pair import MeasuredPair, measure_pair
from everlight_data.color.charts.measurement_store import Store, measure_stored
from everlight_data.color.charts.pair_files import PairFiles
from everlight_data.color.pairs.quasi_real import QuasiReal
from everlight_data.color.photographs.camera_images import IlluminantImages


class Measured(NamedTuple):
    """Measurements of all pairs."""

    quasi: QuasiReal
    """Transforms, illuminants and charts."""
    images: Mapping[View, IlluminantImages]
    """Small images of both cameras, with saturated pixels and the chart masked."""
    moments: Mapping[View, Float[np.ndarray, "n 9"]]
    """Nine colour moments of both cameras' images."""


def read_charts(folder: Path, files: Sequence[PairFiles], store: Store) -> list[PairCharts]:
    """Read every pair's charts; pairs that the store holds are not measured again.

    Raises:
      DataError: charts are not found or not usable; the message names all files.
    """
    listed, reference = read_chart_corners(folder), reference_colors()

    def read(index: int) -> dict[str, np.ndarray]:
        return read_chart_pair(folder, files[index], listed, reference)._asdict()

    fingerprints = []
    for pair in files:
        outlines = [listed.get(f"{view}/{getattr(pair, view).name}") for view in VIEWS]
        corners = [None if outline is None else outline.tolist() for outline in outlines]
        fingerprints.append({"corners": corners, "measured": list(PairCharts._fields)})
    arrays = measure_stored("charts", files, fingerprints, read, store)
    charts = [PairCharts(**pair) for pair in arrays]
    check_one_kind(folder, files, charts)
    return charts


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

    def measure(index: int) -> dict[str, np.ndarray]:
        return measure_pair(files[index], charts[index], homography, downsample).to_arrays()

    fingerprints = [
        {
            "homography": homography.tolist(),
            "chart": pair.charts[0].tolist(),
            "downsample": downsample,
        }
        for pair in charts
    ]
    arrays = measure_stored("transforms", files, fingerprints, measure, store)
    pairs = map(MeasuredPair.from_arrays, arrays)
    stacked = jax.tree.map(lambda *values: np.stack(values), *pairs)
    truth = {
        view: np.stack([pair.illuminant(place) for pair in charts]).astype(np.float32)
        for place, view in enumerate(VIEWS)
    }
    images = {
        view: IlluminantImages(
            images=getattr(stacked, view).image,
            masks=getattr(stacked, view).mask,
            illuminants=truth[view],
            folds=(),
            note=note,
            camera=str(camera),
            taken_by=[str(camera)] * len(files),
        )
        for view, camera in zip(VIEWS, charts[0].cameras, strict=True)
    }
    moments = {view: getattr(stacked, view).moments for view in VIEWS}
    return Measured(_quasi_real(files, charts, stacked.transform, truth), images, moments)


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
