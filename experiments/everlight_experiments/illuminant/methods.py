"""Methods that estimate the illuminant of one image, cross-validated over the folds of a set."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree

from everlight.color.illuminant_folds import (
    Features,
    FoldMethod,
    estimate_folds,
    estimate_images,
)
from everlight.color.learned.capture_methods import capture_methods
from everlight.color.learned.fold_methods import NINE_MOMENTS
from everlight_data.color.camera_matrices import stacked_calibrations
from everlight_data.color.image_methods import image_methods
from everlight_data.color.image_sets import ImageSet
from everlight_data.progress import progress

Keep = Callable[..., dict[str, np.ndarray]]
"""Takes a name and a function `compute` of arrays by name; returns these, perhaps read."""


def camera_numbers(data: ImageSet) -> tuple[list[str], Int[np.ndarray, "n"]]:
    """Return the cameras' names, and the number of each image's camera."""
    names = sorted({*data.cameras(), data.camera})
    return names, np.array([names.index(camera) for camera in data.cameras()])


def methods_for(data: ImageSet) -> dict[str, FoldMethod]:
    """Return the table of all methods by name, including those that cannot run here."""
    names, _ = camera_numbers(data)
    known = stacked_calibrations(data.calibrations, names)
    return image_methods(names, data.camera, known) | capture_methods(data.captures)


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


def moments_of(data: ImageSet) -> Float[np.ndarray, "n 9"]:
    """Return nine colour moments of each image's unmasked pixels."""
    return np.asarray(features_of(NINE_MOMENTS, data))


def cross_validate_methods(
    data: ImageSet, keep: Keep | None = None, names: Sequence[str] | None = None
) -> dict[str, Float[np.ndarray, "1 folds k 3"]]:
    """Return every method's estimates for each fold, trained on the images outside of it.

    Args:
      data: images and folds.
      keep: stores the estimates of learned methods; None keeps nothing.
      names: learned methods to run; None is all that can run and are not costly.
    """
    missing = left_out(data)
    table = {
        name: method
        for name, method in methods_for(data).items()
        if name not in missing and _is_wanted(name, method, names)
    }
    cameras, numbers = camera_numbers(data)
    known = jnp.asarray(data.illuminants), data.folds, jnp.asarray(numbers)
    camera = jnp.array(cameras.index(data.camera))
    described: dict[Features, PyTree] = {}

    def by_fold(method: FoldMethod) -> dict[str, Float[np.ndarray, "folds k 3"]]:
        if method.features not in described:
            described[method.features] = method.describe(data.images, data.masks)
        features = described[method.features]
        return {"estimates": estimate_folds(method, features, *known, camera)}

    found = {}
    bar = progress(data.camera, unit="method", values=table.items())
    for name, method in bar:
        bar.set_postfix_str(name)
        compute = partial(by_fold, method)
        kept = keep and method.learns
        arrays = keep(f"{data.camera}-{name}", compute=compute) if kept else compute()
        found[name] = arrays["estimates"][None]
    return found


def _is_wanted(name: str, method: FoldMethod, names: Sequence[str] | None) -> bool:
    if names is None:
        return not method.costly
    return name in names or not method.learns
