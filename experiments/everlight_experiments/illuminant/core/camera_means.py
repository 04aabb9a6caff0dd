"""Means of two cameras' own estimates, the second camera's mapped to the main camera's colours."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from everlight.color.chromaticity import chromaticity_to_illuminant, illuminant_to_chromaticity
from everlight.color.learned.linear_regression import fit_linear_regression, linear_estimate
from everlight.illuminant.illuminant_interval import ensemble_chromaticity
from everlight.illuminant.pair_inputs import VIEWS, View

Estimates = Float[np.ndarray, "runs folds k 3"]


def camera_mean_name(method: str) -> str:
    """Return the name in tables of the mean of both cameras' estimates by a method."""
    return f"{method}, mean of both cameras"


def camera_mean(
    estimates: Mapping[View, Estimates],
    illuminants: Mapping[View, Float[np.ndarray, "n 3"]],
    folds: Sequence[Int[np.ndarray, "k"]],
) -> Estimates:
    """Return the means of both cameras' estimates in the main camera's colours.

    An affine map of chromaticities, fitted to the illuminants of the pairs outside of a fold,
    brings the second camera's estimates of the fold to the main camera's.

    Args:
      estimates: one method's estimates of each camera's illuminant.
      illuminants: true illuminants of all pairs by camera.
      folds: tested pairs of each fold.
    """
    rows, means = np.arange(len(illuminants["main"])), []
    for fold, test in enumerate(folds):
        train = np.setdiff1d(rows, test)
        tested = {view: estimates[view][:, fold] for view in VIEWS}
        means.append(average_views(tested, {view: illuminants[view][train] for view in VIEWS}))
    return np.stack(means, axis=1)


def average_views(
    estimates: Mapping[View, Float[np.ndarray, "runs k 3"]],
    train: Mapping[View, Float[np.ndarray, "n 3"]],
) -> Float[np.ndarray, "runs k 3"]:
    """Return the means of both cameras' estimates of the same scenes in the main camera's colours.

    Args:
      estimates: one method's estimates of each camera's illuminant.
      train: true illuminants of the training pairs by camera, which give the map between cameras.
    """
    main, second = (illuminant_to_chromaticity(jnp.asarray(estimates[view])) for view in VIEWS)
    truth = {view: illuminant_to_chromaticity(jnp.asarray(train[view])) for view in VIEWS}
    mapped = linear_estimate(fit_linear_regression(truth["second"], truth["main"]), second)
    return np.asarray(chromaticity_to_illuminant(ensemble_chromaticity(jnp.stack([main, mapped]))))
