"""Methods that estimate the illuminant of one image, cross-validated over the folds of a set."""

from collections.abc import Callable, Sequence
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree

from everlight.color import (
    IlluminantMethod,
    LabelledImages,
    SideInformation,
    estimate_folds,
    map_images,
    methods_for,
    pixel_moments,
)
from everlight_data.color.photographs.camera_images import IlluminantImages
from everlight_data.color.raw_files.calibrations import stack_calibrations
from everlight_data.names import check_name
from everlight_data.progress import progress
from everlight_experiments.illuminant.side_information import side_information

Keep = Callable[..., dict[str, np.ndarray]]
"""Takes a name and a function `compute` of arrays by name; returns these, perhaps read."""


def camera_numbers(data: IlluminantImages) -> tuple[list[str], Int[np.ndarray, "n"]]:
    """Return the cameras' names, and the number of each image's camera."""
    names = sorted({*data.cameras(), data.camera})
    return names, np.array([names.index(camera) for camera in data.cameras()])


def side_of(data: IlluminantImages, camera: str | None = None) -> SideInformation:
    """Return side information on the images, by default for the test images' camera."""
    names, _ = camera_numbers(data)
    known = None
    if data.calibrations:
        known = stack_calibrations([data.calibrations[name] for name in names])
    return side_information(names, data.camera if camera is None else camera, known, data.captures)


def learned_methods(data: IlluminantImages) -> list[str]:
    """Return the names that `--methods` accepts."""
    return [name for name, row in methods_for(side_of(data)).items() if row.is_selectable]


def left_out(data: IlluminantImages) -> dict[str, str]:
    """Return the methods that cannot run on these images, with the reason."""
    side = side_of(data)
    reasons = {name: row.incompatibility(side) for name, row in methods_for(side).items()}
    return {name: reason for name, reason in reasons.items() if reason}


def full_name(name: str, known: Sequence[str]) -> str:
    """Return a method's name among those known, also for its first word in any case, such as c5.

    Raises:
      DataError: there is no such method, or several; the message gives the nearest names and all.
    """
    plain = name.casefold()
    exact = [method for method in known if method.casefold() == plain]
    matches = exact or [method for method in known if method.casefold().split(",")[0] == plain]
    if len(matches) != 1:
        check_name("method", name, known)
    return matches[0]


def labelled(features: PyTree, data: IlluminantImages) -> LabelledImages:
    """Return all images of a set with a method's features of them."""
    _, numbers = camera_numbers(data)
    return LabelledImages(features, jnp.asarray(data.illuminants), jnp.asarray(numbers))


def features_of(features: Callable[..., PyTree], data: IlluminantImages) -> PyTree:
    """Return the features of every image by a function of one image and its mask."""
    return map_images(features, jnp.asarray(data.images), jnp.asarray(data.masks))


def moments_of(data: IlluminantImages) -> Float[np.ndarray, "n 9"]:
    """Return nine colour moments of each image's unmasked pixels."""
    return np.asarray(features_of(pixel_moments, data))


def cross_validate_methods(
    data: IlluminantImages, keep: Keep | None = None, names: Sequence[str] | None = None
) -> dict[str, Float[np.ndarray, "1 folds k 3"]]:
    """Return every method's estimates for each fold, trained on the images outside of it.

    Args:
      data: images and folds.
      keep: stores the estimates of learned methods; None keeps nothing.
      names: learned methods to run; None is all that can run and are not costly.
    """
    side, missing = side_of(data), left_out(data)
    selected = {
        name: method
        for name, method in methods_for(side).items()
        if name not in missing and _is_wanted(method, names)
    }
    described: dict[Callable, PyTree] = {}

    def by_fold(method: IlluminantMethod) -> dict[str, Float[np.ndarray, "folds k 3"]]:
        function = method.features or method.set_features
        if function not in described:
            described[function] = method.describe(data.images, data.masks, side)
        images = labelled(described[function], data)
        return {"estimates": estimate_folds(method, images, data.folds, side)}

    estimates = {}
    bar = progress(data.camera, unit="method", values=selected.items())
    for name, method in bar:
        bar.set_postfix_str(name)
        compute = partial(by_fold, method)
        stored = keep and method.is_selectable
        arrays = keep(f"{data.camera}-{name}", compute=compute) if stored else compute()
        estimates[name] = arrays["estimates"][None]
    return estimates


def _is_wanted(method: IlluminantMethod, names: Sequence[str] | None) -> bool:
    if names is None:
        return not method.costly
    return method.name in names or not method.is_selectable
