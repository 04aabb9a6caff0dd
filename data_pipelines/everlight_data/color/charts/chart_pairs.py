"""Charts of raw pairs, one in each picture, and the alignment of the two cameras by them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from everlight.color.alignment import fit_homography
from everlight.metrics.angular import angular_error
from everlight_data.color.charts.chart_geometry import CENTERS, map_points
from everlight_data.color.charts.measured_chart import chart_grays, chart_illuminant, measure_chart
from everlight_data.color.charts.pair_files import PairFiles
from everlight_data.color.pairs.view_pairs import read_homography
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.errors import DataError

ONE_KIND = {
    "shapes": "photos of one view differ in size",
    "flips": "photos of one view were held differently",
    "cameras": "photos of one view are by different cameras",
}


class PairCharts(NamedTuple):
    """Both photos' `MeasuredChart` of a pair, main first."""

    charts: Float[np.ndarray, "2 3 3"]
    colors: Float[np.ndarray, "2 24 3"]
    usable: Bool[np.ndarray, "2 24"]
    shapes: Int[np.ndarray, "2 2"]
    flips: Int[np.ndarray, "2"]
    cameras: np.ndarray

    def points(self, view: int) -> Float[np.ndarray, "24 2"]:
        """Return the centres of the patches in pixels."""
        return map_points(self.charts[view], CENTERS)

    def illuminant(self, view: int) -> Float[np.ndarray, "3"]:
        """Return (R/G, 1, B/G) of the sum of the grey patches except black."""
        return chart_illuminant(self.colors[view], self.usable[view])

    def gray_spread(self, view: int) -> float:
        """Return the largest angle between a grey patch and the illuminant, in degrees.

        Shade, glare and a second illuminant make it large.
        """
        grays = jnp.asarray(chart_grays(self.colors[view], self.usable[view]), jnp.float32)
        illuminant = jnp.asarray(self.illuminant(view), jnp.float32)
        return float(jnp.max(jax.vmap(angular_error, (0, None))(grays, illuminant)))


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
    views = [
        measure_chart(read_raw(path), corners.get(str(path.relative_to(folder))), reference)
        for path in (pair.main, pair.second)
    ]
    return PairCharts(
        charts=np.stack([view.chart for view in views]),
        colors=np.stack([view.colors for view in views]),
        usable=np.stack([view.usable for view in views]),
        shapes=np.stack([view.shape for view in views]),
        flips=np.stack([view.flip for view in views]),
        cameras=np.stack([view.camera for view in views]),
    )


def check_one_kind(folder: Path, files: Sequence[PairFiles], charts: Sequence[PairCharts]) -> None:
    """Refuse photos of one view that differ in size, orientation or camera.

    Raises:
      DataError: the message names two of them.
    """
    for kind, differ in ONE_KIND.items():
        first = getattr(charts[0], kind)
        for pair, pair_charts in zip(files, charts, strict=True):
            if np.any(getattr(pair_charts, kind) != first):
                raise DataError(
                    f"{folder}: {differ}, as in {pair.name} and {files[0].name}; give one "
                    "camera's photos in main/, the other's in second/, all in the same orientation"
                )


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
    main, second = (np.stack([pair.points(view) for pair in charts]) for view in (0, 1))
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
