"""Selection of a phone's best estimator by cross-validation over scenes, and its nested error.

Candidates are a linear regression and a network on each of T, the moments of the camera's own
image, and both. The one with the lowest mean error on left-out scenes is kept. That error is
optimistic, as it is the lowest of several. The selection is therefore repeated for every fold
without the fold's scenes, by trainings that leave out a second fold too, and tested on the fold.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.baselines.linear_regression import LinearRegression
from everlight.color.chromaticity import from_chromaticity
from everlight.models.illuminant_interval import (
    IntervalCoverage,
    cross_coverage,
    ensemble_chromaticity,
)
from everlight.models.illuminant_training import IlluminantModel, TrainingSettings
from everlight.models.pair_model import WIDTHS, Given
from everlight_data.checkpoints import Checkpoints
from everlight_data.color.camera_pairs import TRANSFORM, Augment, CameraPairs
from everlight_experiments.illuminant.comparison import angular_errors
from everlight_experiments.illuminant.cross_validation import (
    CHOSEN,
    CrossValidation,
    chosen_rows,
    cross_validate,
    network_name,
    regression_name,
)

DEPTH = 5
"""Hidden layers of the networks."""
NESTED = "Chosen without the scene"
"""Name of the estimates by the candidate selected without each scene."""


class Candidate(NamedTuple):
    """A network of `depth` hidden layers, or a regression if that is None, and its input."""

    given: Given
    depth: int | None

    @property
    def name(self) -> str:
        """Name in tables."""
        if self.depth is None:
            return regression_name(self.given)
        return network_name(self.given, self.depth)


CANDIDATES = tuple(Candidate(given, depth) for given in WIDTHS for depth in (None, DEPTH))


class Choice(NamedTuple):
    """The selected estimator of one camera's illuminant.

    Attributes:
      data: pairs and folds.
      outcome: cross-validation of every candidate.
      kept: candidate with the lowest error over all folds.
      without: for each fold, the candidate with the lowest error without the fold.
    """

    data: CameraPairs
    outcome: CrossValidation
    kept: Candidate
    without: tuple[Candidate, ...]

    def held_out(self, candidate: Candidate) -> Float[np.ndarray, "seeds n 2"]:
        """Return each pair's estimates by the trainings that left it out."""
        return by_pair(self.outcome.estimates[f"{candidate.name}, {CHOSEN}"], self.data)

    def nested(self) -> Float[np.ndarray, "n 3"]:
        """Return each pair's estimate by the ensemble of the candidate selected without it."""
        illuminants = np.full_like(self.data.illuminants, np.nan)
        for fold, candidate in zip(self.data.folds, self.without, strict=True):
            estimates = ensemble_chromaticity(jnp.asarray(self.held_out(candidate)[:, fold]))
            illuminants[fold] = from_chromaticity(estimates)
        return illuminants

    def coverage(self) -> IntervalCoverage:
        """Return the coverage, with each fold's candidate selected and calibrated without it."""
        every = [self.held_out(candidate) for candidate in self.without]
        folds = [np.unique(fold) for fold in self.data.folds]
        return cross_coverage(
            every, self.data.targets(np.arange(len(self.data.illuminants))), folds
        )

    def members(self) -> IlluminantModel | LinearRegression:
        """Return the kept candidate's trainings of every fold and seed, by its augmentation."""
        given, depth = self.kept
        losses = np.stack(list(self.outcome.validation[self.kept.name].values()))
        trained = self.outcome.regressions[given]
        if depth is not None:
            trained = self.outcome.networks[given].models[depth]
        rows = chosen_rows(losses, len(jax.tree.leaves(trained)[0]))
        return jax.tree.map(lambda leaf: leaf[rows], trained)


def choose(
    data: CameraPairs,
    augmentations: Mapping[str, Augment],
    seeds: Sequence[int],
    training: TrainingSettings,
    folder: Path,
) -> Choice:
    """Train every candidate without each fold, and without each two folds.

    The trainings without two folds have one seed, as they only select.

    Args:
      data: pairs and folds.
      augmentations: augmentations by name.
      seeds: random seeds of the trainings.
      training: optimizer settings.
      folder: folder of the checkpoints.
    """
    couples = list(itertools.combinations(range(len(data.folds)), 2))
    without_two = np.stack([np.concatenate(data.folds[[*couple]]) for couple in couples])
    outer, inner = (
        cross_validate(
            data._replace(folds=folds),
            augmentations,
            "held-out",
            own_seeds,
            training,
            Checkpoints(folder / name),
            {TRANSFORM: (DEPTH,)},
        )
        for name, folds, own_seeds in (
            ("without-one", data.folds, seeds),
            ("without-two", without_two, seeds[:1]),
        )
    )
    without = []
    for fold in range(len(data.folds)):
        errors = {}
        for candidate in CANDIDATES:
            estimates = inner.estimates[f"{candidate.name}, {CHOSEN}"]
            pooled = _without(fold, couples, estimates, data)
            errors[candidate] = mean_error(pooled, data, np.setdiff1d(data.folds, data.folds[fold]))
        without.append(min(errors, key=errors.__getitem__))
    everything = np.unique(data.folds)
    found = Choice(data, outer, CANDIDATES[0], tuple(without))
    kept = min(CANDIDATES, key=lambda each: mean_error(found.held_out(each), data, everything))
    return found._replace(kept=kept)


def _without(
    fold: int,
    couples: Sequence[tuple[int, int]],
    estimates: Float[np.ndarray, "runs couples k 2"],
    data: CameraPairs,
) -> Float[np.ndarray, "runs n 2"]:
    """Return each pair's estimates by the trainings that left out its fold and `fold`."""
    length = data.folds.shape[1]
    pooled = np.full((len(estimates), len(data.illuminants), 2), np.nan, np.float32)
    for index, couple in enumerate(couples):
        if fold in couple:
            place = 1 - couple.index(fold)
            rows = slice(place * length, (place + 1) * length)
            pooled[:, data.folds[couple[place]]] = estimates[:, index, rows]
    return pooled


def mean_error(
    estimates: Float[np.ndarray, "runs n 2"], data: CameraPairs, rows: np.ndarray
) -> float:
    """Return the mean error in degrees over runs and some pairs; infinite if one is invalid."""
    illuminants = from_chromaticity(jnp.asarray(estimates[:, rows]))
    errors = np.asarray(angular_errors(illuminants, jnp.asarray(data.illuminants[rows])))
    return float(np.mean(np.where(np.isfinite(errors), errors, np.inf)))


def by_pair(
    estimates: Float[np.ndarray, "runs folds k c"], data: CameraPairs
) -> Float[np.ndarray, "runs n c"]:
    """Return each pair's estimates from the fold that left it out."""
    shape = len(estimates), len(data.illuminants), estimates.shape[-1]
    pooled = np.full(shape, np.nan, np.float32)
    pooled[:, data.folds] = estimates
    return pooled
