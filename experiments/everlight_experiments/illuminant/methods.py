"""Methods that estimate the illuminant of one image, cross-validated over the folds of a set."""

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree

from everlight.color.baselines.fold_methods import (
    NINE_MOMENTS,
    POOLED,
    Features,
    Fold,
    FoldMethod,
    TrunkViews,
    confidence_pooling_method,
    estimate_images,
    fold_methods,
)
from everlight.models import efficientnet_variables
from everlight.models.trunk_views import VIEWS, draw_views, view_maps
from everlight_data.color.image_sets import ImageSet
from everlight_data.errors import MissingDataError
from everlight_data.images.efficientnet import check_efficientnet_lite0, load_efficientnet_lite0
from everlight_experiments.run_folder.interruption import stop_if_asked
from everlight_experiments.run_folder.progress import progress

AT_ONCE = 16
"""Number of images in one pass through the frozen network."""
_last: dict[int, TrunkViews] = {}
"""The last views; across cameras the same images are needed once per camera."""


def trunk_views(
    images: Float[np.ndarray, "n h w 3"], masks: Float[np.ndarray, "n h w"]
) -> TrunkViews:
    """Return the maps of all views by the frozen network.

    Raises:
      MissingDataError: the network's weights are not installed.
    """
    checksum = zlib.crc32(np.ascontiguousarray(masks), zlib.crc32(np.ascontiguousarray(images)))
    if checksum not in _last:
        views = _compute(images, masks)
        _last.clear()
        _last[checksum] = views
    return _last[checksum]


def _compute(images: Float[np.ndarray, "n h w 3"], masks: Float[np.ndarray, "n h w"]) -> TrunkViews:
    weights = efficientnet_variables(load_efficientnet_lite0())
    drawn = draw_views(len(images))
    found = []
    with progress("trunk", len(images), 0, "image") as bar:
        for start in range(0, len(images), AT_ONCE):
            stop_if_asked()
            # The last step's rows beyond the end repeat the last image, for one program.
            rows = np.minimum(np.arange(start, start + AT_ONCE), len(images) - 1)
            count = min(AT_ONCE, len(images) - start)
            each = []
            for view in range(VIEWS):
                chosen = jax.tree.map(lambda leaf, v=view, r=rows: leaf[r, v], drawn)
                seen = view_maps(
                    weights, jnp.asarray(images[rows]), jnp.asarray(masks[rows]), chosen
                )
                each.append([np.asarray(part)[:count] for part in seen])
            found.append([np.stack(part, axis=1) for part in zip(*each, strict=True)])
            bar.update(count)
    maps, colors = (np.concatenate(part) for part in zip(*found, strict=True))
    return TrunkViews(maps, colors, drawn.factors)


def camera_numbers(data: ImageSet) -> tuple[list[str], Int[np.ndarray, "n"]]:
    """Return the cameras' names, and the number of each image's camera."""
    names = sorted({*data.cameras(), data.camera})
    return names, np.array([names.index(camera) for camera in data.cameras()])


def _without_trunk() -> str:
    try:
        check_efficientnet_lite0()
    except MissingDataError as error:
        return str(error)
    return ""


def methods_for(data: ImageSet) -> dict[str, FoldMethod]:
    """Return the table of all methods by name, including those that cannot run here."""
    table = fold_methods(camera_numbers(data)[0], data.camera)
    return table | {POOLED: confidence_pooling_method(trunk_views, _without_trunk)}


def learned_methods(data: ImageSet) -> list[str]:
    """Return the names that `--methods` accepts."""
    return [name for name, method in methods_for(data).items() if method.learns]


def left_out(data: ImageSet) -> dict[str, str]:
    """Return the methods that cannot run on these images, with the reason."""
    reasons = {name: method.incompatibility() for name, method in methods_for(data).items()}
    return {name: reason for name, reason in reasons.items() if reason}


def features_of(features: Features, data: ImageSet) -> Any:
    """Return a method's features of every image."""
    return estimate_images(features, jnp.asarray(data.images), jnp.asarray(data.masks))


Illuminants = Float[np.ndarray, "folds k 3"]
Keep = Callable[[str, Callable[[], Illuminants]], Illuminants]
"""Takes a method's name and a function that computes its estimates; returns them, perhaps read."""


def compute(name: str, estimates: Callable[[], Illuminants]) -> Illuminants:
    """Compute estimates and keep nothing."""
    return estimates()


def cross_validate_methods(
    data: ImageSet, keep: Keep = compute, names: Sequence[str] | None = None
) -> dict[str, Float[np.ndarray, "1 folds k 3"]]:
    """Return every method's estimates for each fold, trained on the images outside of it.

    Args:
      data: images and folds.
      keep: stores the estimates of learned methods.
      names: learned methods to run; None is all that can run.
    """
    table, missing = methods_for(data), left_out(data)
    table = {name: method for name, method in table.items() if name not in missing}
    if names is not None:
        table = {name: each for name, each in table.items() if name in names or not each.learns}
    cameras, numbers = camera_numbers(data)
    camera, illuminants = jnp.array(cameras.index(data.camera)), jnp.asarray(data.illuminants)
    kept: dict[Features, PyTree] = {}

    def by_fold(method: FoldMethod) -> Illuminants:
        if method.features not in kept:
            kept[method.features] = (
                method.features(data.images, data.masks)
                if method.at_once
                else features_of(method.features, data)
            )
        estimates = []
        for test in data.folds:
            train = np.setdiff1d(np.arange(len(data.images)), test)
            taught, tested = (
                jax.tree.map(lambda leaf, r=rows: leaf[r], kept[method.features])
                for rows in (train, test)
            )
            fold = Fold(taught, illuminants[train], tested, jnp.asarray(numbers[train]), camera)
            estimates.append(np.asarray(method.estimate(fold)))
        return np.stack(estimates)

    found = {}
    with progress(data.camera, len(table), unit="method") as bar:
        for name, method in table.items():
            bar.set_postfix_str(name)
            stored = keep if method.learns else compute
            found[name] = stored(name, partial(by_fold, method))[None]
            bar.update()
    return found


def moments_of(data: ImageSet) -> Float[np.ndarray, "n 9"]:
    """Return nine colour moments of each image's unmasked pixels."""
    return np.asarray(features_of(NINE_MOMENTS, data))
