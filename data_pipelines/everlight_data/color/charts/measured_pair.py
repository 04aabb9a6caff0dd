"""Measurements of a raw pair beside its charts: transform, moments and small images."""

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.alignment import area_downsample
from everlight.color.transforms import fit_color_transform
from everlight.illuminant.pair_estimate import transform_obstacle
from everlight.illuminant.pair_inputs import VIEWS
from everlight.illuminant.pair_model import nine_moments
from everlight_data.color.charts.chart_geometry import chart_mask
from everlight_data.color.charts.chart_pairs import PairCharts
from everlight_data.color.charts.pair_files import PairFiles
from everlight_data.color.pairs.view_pairs import align_thumbnails
from everlight_data.color.raw_files.raw import RawImage, read_raw
from everlight_data.errors import DataError

SIDE = 96
"""Longest side in pixels of the images for single-image methods."""


class MeasuredView(NamedTuple):
    """Moments, small image and mask of a view; the chart is masked."""

    moments: Float[np.ndarray, "9"]
    image: Float[np.ndarray, "a b 3"]
    mask: Float[np.ndarray, "a b"]


class MeasuredPair(NamedTuple):
    """Transform of a pair, and the measurements of its views."""

    transform: Float[np.ndarray, "3 3"]
    main: MeasuredView
    second: MeasuredView

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return arrays by field; those of a view by field and view, as in "moments_main"."""
        fields = {view: getattr(self, view)._asdict() for view in VIEWS}
        arrays = {f"{name}_{view}": fields[view][name] for view in VIEWS for name in fields[view]}
        return {"transform": self.transform, **arrays}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "MeasuredPair":
        """Return the pair from its arrays, as `to_arrays` names them."""
        names = MeasuredView._fields
        views = {
            view: MeasuredView(**{name: arrays[f"{name}_{view}"] for name in names})
            for view in VIEWS
        }
        return cls(arrays["transform"], **views)


def measure_pair(
    pair: PairFiles, charts: PairCharts, homography: Float[np.ndarray, "3 3"], factor: int
) -> MeasuredPair:
    """Return the transform, both images' moments and both small images, with charts masked.

    Raises:
      DataError: the views do not fit together, or the scene determines no transform.
    """
    photos = {view: read_raw(getattr(pair, view)) for view in VIEWS}
    thumbnails = align_thumbnails(photos["main"], photos["second"], homography, factor)
    free = chart_mask(thumbnails.mask.shape, pixels_to_blocks(factor) @ charts.main.homography)
    mask = thumbnails.mask & free
    colors = {view: jnp.asarray(getattr(thumbnails, view).reshape(-1, 3)) for view in VIEWS}
    weights = jnp.asarray(mask.ravel(), jnp.float32)
    if reason := transform_obstacle(thumbnails.main[mask], thumbnails.second[mask]):
        raise DataError(f"{pair.main}: outside the chart, {reason}.")
    fit = fit_color_transform(colors["main"], colors["second"], weights, "mean")
    views = {}
    for view in VIEWS:
        chart = getattr(charts, view).homography
        image, small_mask = small_without_chart(photos[view], chart, SIDE)
        moments = np.asarray(nine_moments(colors[view], weights))
        views[view] = MeasuredView(moments=moments, image=image, mask=small_mask)
    return MeasuredPair(transform=np.asarray(fit.transform), **views)


def pixels_to_blocks(factor: int) -> Float[np.ndarray, "3 3"]:
    """Return the homography from pixels to blocks of `factor` pixels."""
    shift = (1 - factor) / (2 * factor)
    return np.array([[1 / factor, 0, shift], [0, 1 / factor, shift], [0, 0, 1]])


def small_without_chart(
    photo: RawImage, chart: Float[np.ndarray, "3 3"], side: int
) -> tuple[Float[np.ndarray, "a b 3"], Float[np.ndarray, "a b"]]:
    """Return the image without chart and saturated pixels, at most `side` wide, and its mask."""
    factor = max(1, -(-max(photo.image.shape) // side))
    small = area_downsample(jnp.asarray(photo.image), factor, jnp.asarray(~photo.saturated))
    mask = np.asarray(small.mask)
    mask = mask & chart_mask(mask.shape, pixels_to_blocks(factor) @ chart)
    image = np.maximum(np.asarray(small.image), 0) * mask[..., None]
    return image, mask.astype(np.float32)
