"""An illuminant experiment: methods' estimates of the same images, and how they are reported."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from everlight.illuminant.illuminant_training import TrainingSettings
from everlight.metrics.angular import angular_error, reproduction_error, summarize_errors
from everlight.metrics.bootstrap import grouped_mean_interval
from everlight_experiments.report.writer import Figure, Section, Table
from everlight_experiments.run_folder.folder import RunFolder

mean_interval = jax.jit(grouped_mean_interval, static_argnames="count")
summarize_all = jax.jit(jax.vmap(jax.vmap(summarize_errors)))
angular_errors = jax.jit(jnp.vectorize(angular_error, signature="(c),(c)->()"))
reproduction_errors = jax.jit(jnp.vectorize(reproduction_error, signature="(c),(c)->()"))

Errors = Float[np.ndarray, "runs folds images"]
"""Errors in degrees; statistics are taken within a fold and averaged over folds."""


class ResamplingUnits(NamedTuple):
    """Independent units that the bootstrap resamples: their name, and the unit of each image."""

    name: str
    of_images: Int[np.ndarray, "folds images"]


class Gain(NamedTuple):
    """Mean error of a reference minus that of a method on the same images, with its 95% interval.

    Attributes:
      method: name of the method.
      reference: name of the method that it is compared with.
      errors: mean errors of the method and of the reference in degrees.
      degrees: their paired difference, positive where the method errs less.
      low, high: ends of the bootstrap interval in degrees.
    """

    method: str
    reference: str
    errors: tuple[float, float]
    degrees: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """The gain in degrees and its interval."""
        return f"{self.degrees:+z.2f} ({self.low:+z.2f}, {self.high:+z.2f})"


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
      names: name of each image; None if unknown.
    """

    estimates: Mapping[str, Float[np.ndarray, "runs folds k 3"]]
    truth: Float[np.ndarray, "*runs folds k 3"]
    title: str = ""
    caption: str = ""
    runs: str = "seeds"
    published: Mapping[str, Sequence[float]] = {}
    units: ResamplingUnits | None = None
    names: Shaped[np.ndarray, "folds k"] | None = None

    def errors(self, metric: Callable[..., Array] = angular_errors) -> dict[str, Errors]:
        """Return the errors of every method; the default are recovery angular errors."""
        return {
            name: np.asarray(metric(colors, self.truth)) for name, colors in self.estimates.items()
        }

    def by_groups(
        self, folds: Sequence[Int[np.ndarray, "k"]], groups: Int[np.ndarray, "n"]
    ) -> "Comparison":
        """Return the tested images in one fold, each once, with their groups as units.

        Args:
          folds: test rows of the comparison's folds, which may repeat rows.
          groups: group of every row.
        """
        rows, first = np.unique(np.concatenate(folds), return_index=True)

        def pooled(
            colors: Float[np.ndarray, "*runs folds k 3"],
        ) -> Float[np.ndarray, "*runs 1 n 3"]:
            return colors.reshape(*colors.shape[:-3], 1, -1, 3)[..., first, :]

        return self._replace(
            estimates={name: pooled(colors) for name, colors in self.estimates.items()},
            truth=pooled(self.truth),
            units=ResamplingUnits("groups", groups[rows][None]),
            names=None if self.names is None else self.names.reshape(1, -1)[:, first],
        )

    @property
    def unit_name(self) -> str:
        """Return the name of what the bootstrap resamples."""
        return "images" if self.units is None else self.units.name

    def interval(self, errors: Errors) -> tuple[float, float]:
        """Return the 95% bootstrap interval of the mean error, averaged over runs."""
        images = jnp.nanmean(errors, axis=0).ravel()
        owners = np.arange(images.size) if self.units is None else self.units.of_images.ravel()
        names, groups = np.unique(owners, return_inverse=True)
        interval = mean_interval(jax.random.key(0), images, groups, count=len(names))
        return float(interval.low), float(interval.high)

    def interval_in_words(self, errors: Errors, separator: str = "–") -> str:
        """Return the ends of the interval, or a dash if a fold without an error leaves no mean."""
        if not np.isfinite(errors).any(axis=-1).all():
            return "–"
        low, high = self.interval(errors)
        return f"{low:.2f}{separator}{high:.2f}"

    def gains(self, pairs: Iterable[tuple[str, str]]) -> list[Gain]:
        """Return gains of methods over references, paired by image, with errors averaged over runs.

        Args:
          pairs: names of a method and of its reference.
        """
        errors, gains = self.errors(), []
        for names in pairs:
            by_image = [np.asarray(jnp.nanmean(errors[name], axis=0)) for name in names]
            difference = by_image[1] - by_image[0]
            means = float(np.nanmean(errors[names[0]])), float(np.nanmean(errors[names[1]]))
            low, high = self.interval(difference[None])
            gains.append(Gain(*names, means, float(np.nanmean(difference)), low, high))
        return gains


def lowest_row(means: Sequence[float]) -> frozenset[int]:
    """Return the row of the lowest mean; none if no mean is a number."""
    return frozenset() if np.isnan(means).all() else frozenset({int(np.nanargmin(means))})


def record_errors(folder: RunFolder, comparisons: Mapping[str, Comparison]) -> dict[str, Errors]:
    """Log every method's mean errors, and return all errors as `condition/method`."""
    arrays = {}
    for condition, compared in comparisons.items():
        for method, errors in compared.errors().items():
            arrays[f"{condition}/{method}"] = errors
            means = np.nanmean(errors, axis=(1, 2))
            folder.log(condition=condition, method=method, mean_error=means)
    return arrays


def estimate_arrays(comparisons: Mapping[str, Comparison]) -> dict[str, np.ndarray]:
    """Return what the errors are computed from, by name in a run's results.

    `estimate/condition/method` are estimates, `illuminant/condition` the ground truth, and
    `image/condition` names of the images where they are known.
    """
    arrays = {}
    for condition, compared in comparisons.items():
        for method, estimates in compared.estimates.items():
            arrays[f"estimate/{condition}/{method}"] = estimates
        arrays[f"illuminant/{condition}"] = compared.truth
        if compared.names is not None:
            arrays[f"image/{condition}"] = compared.names
    return arrays


BASELINES = ("GW", "The phone's white balance")
"""Baselines of a report's summary; the first available one is shown."""


@dataclass(frozen=True)
class IlluminantExperiment:
    """Compared methods with the data and protocol, from which the report is written.

    Attributes:
      title: title of the report.
      question: question that the summary answers.
      data: description of the data.
      comparisons: estimates by condition, in the order of the summary.
      protocol: rows of the report's facts beside those of the other attributes.
      selection_rule: how steps, augmentations and settings were selected.
      seeds: seeds in words.
      illuminants: ground truth by panel and camera.
      training: optimizer settings of the networks.
      curves: methods whose error curves are drawn, beside each condition's best one.
      headline: method reported in place of the best one, which is optimistic.
      baselines: baselines of the summary, of which the first available one is shown.
      notes: paragraphs above the tables.
      tables: tables of errors; by default one per comparison.
      figures: figures after that of the illuminants.
      before, after: further sections before and after that of illuminants and figures.
      command: command line that uses the kept model.
      answer: sentences that answer the question; by default they name the best or reported method.
      answer_figure: figure of the answer; by default the error curves.
    """

    title: str
    question: str
    data: str
    comparisons: Mapping[str, Comparison]
    protocol: Mapping[str, str]
    selection_rule: str
    seeds: str
    illuminants: Mapping[str, Mapping[str, Float[np.ndarray, "n 3"]]]
    training: TrainingSettings | None = None
    curves: Sequence[str] = ()
    headline: str = ""
    baselines: Sequence[str] = BASELINES
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    before: Sequence[Section] = ()
    after: Sequence[Section] = ()
    command: str = ""
    answer: tuple[str, ...] = ()
    answer_figure: Figure | None = None

    @property
    def conditions(self) -> list[Comparison]:
        """The compared conditions in order."""
        return list(self.comparisons.values())
