"""Measurements of raw pairs with a chart; those of the pairs that a store holds are read there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.color.rendering import white_balance
from everlight.illuminant.charted_pairs import ChartedPairs, PairedView
from everlight.illuminant.pair_inputs import VIEWS, View
from everlight.metrics.angular import angular_error
from everlight_data.color.charts.chart_colors import reference_colors
from everlight_data.color.charts.chart_pairs import (
    STORED_NAMES,
    PairCharts,
    check_one_kind,
    read_chart_pair,
)
from everlight_data.color.charts.measured_chart import read_chart_corners
from everlight_data.color.charts.measured_pair import MeasuredPair, measure_pair
from everlight_data.color.charts.measurement_store import Store, measure_stored
from everlight_data.color.charts.pair_files import PairFiles
from everlight_data.color.photographs.camera_images import IlluminantImages


class MeasuredCharts(NamedTuple):
    """Pairs whose charts were read."""

    files: Sequence[PairFiles]
    charts: Sequence[PairCharts]

    def subset(self, indices: Sequence[int]) -> "MeasuredCharts":
        """Return some of the pairs."""
        return MeasuredCharts(*([part[index] for index in indices] for part in self))


class MeasuredPairs(NamedTuple):
    """Measurements of the pairs that have a transform."""

    indices: Sequence[int]
    """Places of these pairs among the given ones."""
    charted: ChartedPairs
    """Transforms, illuminants and charts."""
    images: Mapping[View, IlluminantImages]
    """Small images of both cameras, with saturated pixels and the chart masked."""
    moments: Mapping[View, Float[np.ndarray, "n 9"]]
    """Nine colour moments of both cameras' images."""


def read_charts(folder: Path, files: Sequence[PairFiles], store: Store) -> MeasuredCharts:
    """Read the pairs' charts; pairs that the store holds are not measured again.

    Pairs without a usable chart are named and left out.

    Raises:
      DataError: too few pairs remain, or they are of several cameras.
    """
    listed, reference = read_chart_corners(folder, VIEWS), reference_colors()

    def read(index: int) -> dict[str, np.ndarray]:
        return read_chart_pair(folder, files[index], listed, reference).to_arrays()

    fingerprints = []
    for pair in files:
        outlines = [listed.get(f"{view}/{getattr(pair, view).name}") for view in VIEWS]
        corners = [None if outline is None else outline.tolist() for outline in outlines]
        fingerprints.append({"corners": corners, "measured": list(STORED_NAMES.values())})
    arrays = measure_stored("charts", files, fingerprints, read, store)
    charts = [PairCharts.from_arrays(pair) for pair in arrays.values()]
    measured_charts = MeasuredCharts([files[index] for index in arrays], charts)
    check_one_kind(folder, *measured_charts)
    return measured_charts


def measure_pairs(
    measured_charts: MeasuredCharts,
    homography: Float[np.ndarray, "3 3"],
    downsample: int,
    store: Store,
    note: str,
) -> MeasuredPairs:
    """Measure transforms, illuminants, moments and small images with their charts masked.

    Pairs without a transform are named and left out.

    Raises:
      DataError: too few pairs remain.
    """

    def measure(index: int) -> dict[str, np.ndarray]:
        files, charts = measured_charts.files[index], measured_charts.charts[index]
        return measure_pair(files, charts, homography, downsample).to_arrays()

    fingerprints = [
        {
            "homography": homography.tolist(),
            "charts": [getattr(pair, view).homography.tolist() for view in VIEWS],
            "downsample": downsample,
            "normalize": "mean",
        }
        for pair in measured_charts.charts
    ]
    arrays = measure_stored("transforms", measured_charts.files, fingerprints, measure, store)
    indices = list(arrays)
    usable = measured_charts.subset(indices)
    charts = usable.charts
    pairs = map(MeasuredPair.from_arrays, arrays.values())
    stacked = jax.tree.map(lambda *values: np.stack(values), *pairs)
    truth = {
        view: np.stack([getattr(pair, view).illuminant for pair in charts]).astype(np.float32)
        for view in VIEWS
    }
    images = {
        view: IlluminantImages(
            images=getattr(stacked, view).image,
            masks=getattr(stacked, view).mask,
            illuminants=truth[view],
            folds=(),
            note=note,
            camera=getattr(charts[0], view).camera,
            taken_by=[getattr(charts[0], view).camera] * len(charts),
            names=[files.name for files in usable.files],
        )
        for view in VIEWS
    }
    moments = {view: getattr(stacked, view).moments for view in VIEWS}
    charted = _charted_pairs(usable, stacked.transform, truth, moments)
    return MeasuredPairs(indices, charted, images, moments)


def _charted_pairs(
    pairs: MeasuredCharts,
    transforms: Float[np.ndarray, "n 3 3"],
    truth: Mapping[View, Float[np.ndarray, "n 3"]],
    moments: Mapping[View, Float[np.ndarray, "n 9"]],
) -> ChartedPairs:
    """Return the pairs without folds; transforms are between images divided by their means."""
    files, charts = pairs
    views = {}
    for view in VIEWS:
        colors = np.stack([getattr(pair, view).colors for pair in charts]).astype(np.float32)
        # The first three moments are the means of blue, green and red.
        means = moments[view][:, 2::-1]
        means = means / means.mean(axis=1, keepdims=True)
        views[view] = PairedView(illuminants=truth[view], charts=colors, means=means)
    return ChartedPairs(
        names=tuple((pair.name, pair.name) for pair in files),
        transforms=transforms,
        **views,
        usable=np.stack([pair.main.usable & pair.second.usable for pair in charts]),
        folds=(),
    )


def sensor_differences(charted: ChartedPairs) -> Float[np.ndarray, "n"]:
    """Return the mean angle between a patch's white-balanced colours in the two cameras."""
    main, second = _white_balanced(charted.main), _white_balanced(charted.second)
    angles = np.asarray(jax.vmap(jax.vmap(angular_error))(main, second))
    return np.mean(angles, axis=1, where=charted.usable)


def _white_balanced(view: PairedView) -> Float[Array, "n 24 3"]:
    charts = jnp.asarray(view.charts, jnp.float32)
    return jax.vmap(white_balance)(charts, jnp.asarray(view.illuminants, jnp.float32))
