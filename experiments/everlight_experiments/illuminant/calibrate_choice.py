"""What tells a phone's lights best: chosen by leave-scene-out validation, and that nested.

Candidates are a linear regression and a net on each of T, the moments of the light's own image, and
both. What is kept errs least, in the mean over scenes that its training left out. How good that
will be is another question, as the least of several is too good by chance: so the choice is made
again for every fold without the fold's scenes, by trainings that leave out a second fold too, and
its error is counted on the fold.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.chromagenic import LinearRegression
from everlight.color.chromaticity import from_chromaticity
from everlight.models.illuminant_interval import ensemble_chromaticity
from everlight.models.illuminant_training import IlluminantModel, TrainingSettings
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.illuminant.intervals import Coverage, cross_coverage
from everlight_experiments.illuminant.model_files import WIDTHS, Given
from everlight_experiments.illuminant.networks import index_of_least
from everlight_experiments.illuminant.pair_folds import (
    CHOSEN,
    TRANSFORM,
    Augment,
    CameraPairs,
    CrossValidation,
    cross_validate,
    net_name,
    regression_name,
)
from everlight_experiments.illuminant.tables import angular_errors

DEPTH = 5
"""Hidden layers of the nets."""


class Candidate(NamedTuple):
    """What is given to nets of `depth` hidden layers, or to regressions where that is None."""

    given: Given
    depth: int | None

    @property
    def name(self) -> str:
        """As in tables."""
        if self.depth is None:
            return regression_name(self.given)
        return net_name(self.given, self.depth)


CANDIDATES = tuple(Candidate(given, depth) for given in WIDTHS for depth in (None, DEPTH))


class Choice(NamedTuple):
    """What tells one camera's light.

    Attributes:
      data: the pairs and their folds.
      outcome: every candidate, each fold left out in turn.
      kept: errs least over all folds.
      without: by fold, what errs least without the fold.
    """

    data: CameraPairs
    outcome: CrossValidation
    kept: Candidate
    without: tuple[Candidate, ...]

    def held_out(self, candidate: Candidate) -> Float[np.ndarray, "seeds n 2"]:
        """Each pair's, by the trainings that left it out."""
        return by_pair(self.outcome.estimates[f"{candidate.name}, {CHOSEN}"], self.data)

    def nested(self) -> Float[np.ndarray, "n 3"]:
        """Each pair's light by the ensemble of what was chosen without it."""
        lights = np.full_like(self.data.lights, np.nan)
        for fold, candidate in zip(self.data.folds, self.without, strict=True):
            estimates = ensemble_chromaticity(jnp.asarray(self.held_out(candidate)[:, fold]))
            lights[fold] = from_chromaticity(estimates)
        return lights

    def coverage(self) -> Coverage:
        """Of the intervals: each fold's candidate is chosen and calibrated without the fold."""
        every = [self.held_out(candidate) for candidate in self.without]
        folds = [np.unique(fold) for fold in self.data.folds]
        return cross_coverage(every, self.data.targets(np.arange(len(self.data.lights))), folds)

    def members(self) -> IlluminantModel | LinearRegression:
        """Every fold's and seed's training of what is kept, by its fold's augmentation."""
        given, depth = self.kept
        losses = np.stack(list(self.outcome.validation[self.kept.name].values()))
        trained = self.outcome.regressions[given]
        if depth is not None:
            trained = self.outcome.nets[given].models[depth]
        folds = losses.shape[1]
        seeds = len(jax.tree.leaves(trained)[0]) // losses.size
        best = index_of_least(losses)
        rows = ((folds * best + np.arange(folds)) * seeds)[:, None] + np.arange(seeds)
        return jax.tree.map(lambda leaf: leaf[rows.ravel()], trained)


def choose(
    data: CameraPairs,
    augmentations: Mapping[str, Augment],
    seeds: Sequence[int],
    training: TrainingSettings,
    folder: Path,
) -> Choice:
    """Trains every candidate without every fold, and without every two; `folder` keeps the nets.

    The trainings without two folds are of one seed: they choose, and are not used.
    """
    couples = list(itertools.combinations(range(len(data.folds)), 2))
    without_two = np.stack([np.concatenate(data.folds[[*couple]]) for couple in couples])
    outer, inner = (
        cross_validate(
            data._replace(folds=folds),
            augmentations,
            "honest",
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
    """Each pair's, by the trainings that left out its fold and `fold`."""
    length = data.folds.shape[1]
    pooled = np.full((len(estimates), len(data.lights), 2), np.nan, np.float32)
    for index, couple in enumerate(couples):
        if fold in couple:
            place = 1 - couple.index(fold)
            rows = slice(place * length, (place + 1) * length)
            pooled[:, data.folds[couple[place]]] = estimates[:, index, rows]
    return pooled


def mean_error(
    estimates: Float[np.ndarray, "runs n 2"], data: CameraPairs, rows: np.ndarray
) -> float:
    """Mean angle over runs and some pairs, in degrees; infinite where one has no light."""
    lights = from_chromaticity(jnp.asarray(estimates[:, rows]))
    errors = np.asarray(angular_errors(lights, jnp.asarray(data.lights[rows])))
    return float(np.mean(np.where(np.isfinite(errors), errors, np.inf)))


def by_pair(
    estimates: Float[np.ndarray, "runs folds k c"], data: CameraPairs
) -> Float[np.ndarray, "runs n c"]:
    """Each pair's, from the fold that left it out."""
    shape = len(estimates), len(data.lights), estimates.shape[-1]
    pooled = np.full(shape, np.nan, np.float32)
    pooled[:, data.folds] = estimates
    return pooled
