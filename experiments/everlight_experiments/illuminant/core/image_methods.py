"""Methods that estimate the illuminant of one image, cross-validated over the folds of a set."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from jaxtyping import Float, Int, PyTree

from everlight.color import IlluminantMethod, estimate_folds, methods_for
from everlight_data.color.photographs.camera_images import IlluminantImages
from everlight_data.names import check_name
from everlight_data.progress import progress
from everlight_experiments.illuminant.core.method_inputs import labelled, side_of

Keep = Callable[..., dict[str, np.ndarray]]
"""Function of a name and a function `compute`; it returns the arrays of `compute`, perhaps read."""


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


def spread_rows(count: int, limit: int) -> Int[np.ndarray, "k"]:
    """Return at most `limit` rows, evenly spaced from the first to the last."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).round().astype(int))


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
            described[function] = method.image_features(data.images, data.masks, side)
        images = labelled(method.with_capture(described[function], side.captures), data)
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
