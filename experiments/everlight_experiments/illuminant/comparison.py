"""The result of every command: all methods' estimates of the same images, and their errors."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from everlight.metrics.angular import angular_error, reproduction_error, summarize_errors
from everlight.metrics.bootstrap import grouped_mean_interval
from everlight_experiments.run_folder.folder import RunFolder

mean_interval = jax.jit(grouped_mean_interval, static_argnames="count")
summarize_all = jax.jit(jax.vmap(jax.vmap(summarize_errors)))
angular_errors = jax.jit(jnp.vectorize(angular_error, signature="(c),(c)->()"))
reproduction_errors = jax.jit(jnp.vectorize(reproduction_error, signature="(c),(c)->()"))

Errors = Float[np.ndarray, "runs folds images"]
"""Errors in degrees; statistics are taken within a fold and averaged over folds."""


class Units(NamedTuple):
    """Independent units that the bootstrap resamples: their name, and the unit of each image."""

    name: str
    of_images: Int[np.ndarray, "folds images"]


class Comparison(NamedTuple):
    """Estimates of every method for the same images under one condition.

    Attributes:
      estimates: illuminants by method.
      truth: ground truth, which runs may share.
      title: condition in a few words.
      caption: description of the data and the protocol.
      runs: name of a run, "seeds" or "camera pairs".
      published: published statistics by method, in the order of `published_tables.STATISTICS`.
      units: independent units; None for the images themselves.
    """

    estimates: Mapping[str, Float[np.ndarray, "runs folds k 3"]]
    truth: Float[np.ndarray, "*runs folds k 3"]
    title: str = ""
    caption: str = ""
    runs: str = "seeds"
    published: Mapping[str, Sequence[float]] = {}
    units: Units | None = None

    def errors(self, measure: Callable[..., Array] = angular_errors) -> dict[str, Errors]:
        """Return the errors of every method; the default are recovery angular errors."""
        return {
            name: np.asarray(measure(colors, self.truth)) for name, colors in self.estimates.items()
        }

    def interval(self, errors: Errors) -> tuple[float, float]:
        """Return the 95% bootstrap interval of the mean error, averaged over runs."""
        images = jnp.nanmean(errors, axis=0).ravel()
        owners = np.arange(images.size) if self.units is None else self.units.of_images.ravel()
        names, groups = np.unique(owners, return_inverse=True)
        interval = mean_interval(jax.random.key(0), images, groups, count=len(names))
        return float(interval.low), float(interval.high)


def record_errors(folder: RunFolder, comparisons: Mapping[str, Comparison]) -> dict[str, Errors]:
    """Log every method's mean errors, and return all errors as `condition/method`."""
    arrays = {}
    for condition, compared in comparisons.items():
        for method, errors in compared.errors().items():
            arrays[f"{condition}/{method}"] = errors
            means = np.nanmean(errors, axis=(1, 2))
            folder.log(condition=condition, method=method, mean_error=means)
    return arrays
