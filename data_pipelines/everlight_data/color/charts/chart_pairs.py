"""Charts of raw pairs, one in each picture, and the alignment of the two cameras by them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.alignment import fit_homography
from everlight.illuminant.pair_inputs import VIEWS, View
from everlight_data.color.charts.chart_geometry import map_points
from everlight_data.color.charts.measured_chart import MeasuredChart, measure_chart
from everlight_data.color.charts.pair_files import PairFiles
from everlight_data.color.pairs.view_pairs import read_homography
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.errors import DataError

ONE_KIND = {
    "shape": "photos of one view differ in size",
    "flip": "photos of one view were held differently",
    "camera": "photos of one view are by different cameras",
}
STORED_NAMES = {
    "homography": "charts",
    "colors": "colors",
    "usable": "usable",
    "shape": "shapes",
    "flip": "flips",
    "camera": "cameras",
}
"""Names under which a run's folder keeps the fields of both charts, main first."""


class PairCharts(NamedTuple):
    """The charts of both photos of a pair."""

    main: MeasuredChart
    second: MeasuredChart

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return arrays by stored name, each with the values of both charts."""
        return {
            stored: np.stack([getattr(self.main, field), getattr(self.second, field)])
            for field, stored in STORED_NAMES.items()
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "PairCharts":
        """Return the charts from their arrays, as `to_arrays` names them."""
        return cls(main=_parse_chart(arrays, 0), second=_parse_chart(arrays, 1))


def _parse_chart(arrays: Mapping[str, np.ndarray], row: int) -> MeasuredChart:
    fields = {field: arrays[stored][row] for field, stored in STORED_NAMES.items()}
    return MeasuredChart(
        homography=fields["homography"],
        colors=fields["colors"],
        usable=fields["usable"],
        shape=tuple(fields["shape"].tolist()),
        flip=int(fields["flip"]),
        camera=str(fields["camera"]),
    )


def read_chart_pair(
    folder: Path,
    pair: PairFiles,
    corners: Mapping[str, Float[np.ndarray, "4 2"]],
    reference: Float[np.ndarray, "24 3"],
) -> PairCharts:
    """Read both charts of a pair.

    Args:
      folder: folder of the pairs.
      pair: raw files.
      corners: corners by file, where they are given.
      reference: colours of the patches.

    Raises:
      DataError: a chart is not found or not usable.
    """
    views = {
        view: measure_chart(read_raw(path), corners.get(str(path.relative_to(folder))), reference)
        for view, path in (("main", pair.main), ("second", pair.second))
    }
    return PairCharts(**views)


def check_one_kind(folder: Path, files: Sequence[PairFiles], charts: Sequence[PairCharts]) -> None:
    """Refuse photos of one view that differ in size, orientation or camera.

    Raises:
      DataError: the message names two of them.
    """
    for kind, differ in ONE_KIND.items():
        first = _chart_property(kind, charts[0])
        for pair, pair_charts in zip(files, charts, strict=True):
            if _chart_property(kind, pair_charts) != first:
                raise DataError(
                    f"{folder}: {differ}, as in {pair.name} and {files[0].name}; give one "
                    "camera's photos in main/, the other's in second/, all in the same orientation"
                )


def _chart_property(field: str, charts: PairCharts) -> dict[View, Any]:
    """Return one property of both charts by view."""
    return {view: getattr(getattr(charts, view), field) for view in VIEWS}


def align_cameras(
    path: Path | None, charts: Sequence[PairCharts]
) -> tuple[Float[np.ndarray, "3 3"], Float[np.ndarray, "n"]]:
    """Return one homography for all pairs, and each pair's root mean square residual in pixels.

    Args:
      path: file of the homography; None fits it to the patches of all charts.
      charts: charts of all pairs.

    Raises:
      DataError: the charts determine no homography, or the file is damaged.
    """
    main = np.stack([pair.main.points for pair in charts])
    second = np.stack([pair.second.points for pair in charts])
    if path is not None:
        homography = read_homography(path)
    else:
        fit = fit_homography(jnp.asarray(main.reshape(-1, 2)), jnp.asarray(second.reshape(-1, 2)))
        if not fit.valid:
            raise DataError(
                "the charts give no homography between the two cameras; give it by --homography"
            )
        homography = np.asarray(fit.homography)
    mapped = map_points(homography, main.reshape(-1, 2)).reshape(second.shape)
    return homography, np.sqrt(np.mean(np.sum((mapped - second) ** 2, axis=2), axis=1))
