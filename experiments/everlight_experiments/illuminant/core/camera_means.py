"""Means of two cameras' own estimates, the second camera's mapped to the main camera's colours."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

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
    main, second = (illuminant_to_chromaticity(jnp.asarray(estimates[view])) for view in VIEWS)
    mapped = [_mapped(illuminants, test, second[:, fold]) for fold, test in enumerate(folds)]
    both = jnp.stack([main, jnp.stack(mapped, axis=1)])
    return np.asarray(chromaticity_to_illuminant(ensemble_chromaticity(both)))


def _mapped(
    illuminants: Mapping[View, Float[np.ndarray, "n 3"]],
    test: Int[np.ndarray, "k"],
    second: Float[Array, "runs k 2"],
) -> Float[Array, "runs k 2"]:
    """Return the second camera's chromaticities in the main camera's colours."""
    train = np.setdiff1d(np.arange(len(illuminants["main"])), test)
    truth = {
        view: illuminant_to_chromaticity(jnp.asarray(illuminants[view][train])) for view in VIEWS
    }
    return linear_estimate(fit_linear_regression(truth["second"], truth["main"]), second)
