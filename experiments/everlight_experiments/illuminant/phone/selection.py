"""Selection of a phone's best estimator by cross-validation over scenes, and its nested error.

Candidates are a linear regression and a network on each of T, the moments of the camera's own
image, and both. The one with the lowest mean error on left-out scenes is kept. That error is
optimistic, as it is the lowest of several. The selection is therefore repeated for every fold
without the fold's scenes, by trainings that leave out a second fold too, and tested on the fold.
"""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.chromaticity import chromaticity_to_illuminant
from everlight.illuminant.camera_pairs import Augment, CameraPairs
from everlight.illuminant.illuminant_interval import (
    IntervalCoverage,
    cross_coverage,
    ensemble_chromaticity,
)
from everlight.illuminant.out_of_distribution import DistanceCalibration
from everlight.illuminant.pair_inputs import TRANSFORM, WIDTHS, InputNames
from everlight.illuminant.pair_model import ViewModel, calibrated_view
from everlight_experiments.illuminant.core.cross_validation import (
    CrossValidation,
    Estimator,
    cross_validate,
    method_name,
    pooled_rows,
)
from everlight_experiments.illuminant.core.experiment import angular_errors
from everlight_experiments.illuminant.core.networks import DEPTH, NetworkTraining

NESTED = "Chosen without the scene"
"""Name of the estimates by the candidate selected without each scene."""


class Candidate(NamedTuple):
    """A network of `depth` hidden layers, or a regression if `depth` is None, and its input."""

    input_name: InputNames
    depth: int | None

    @property
    def name(self) -> str:
        """Name in tables."""
        return method_name(self.input_name, self.depth)

    @property
    def ensemble_name(self) -> str:
        """Name of the ensemble over seeds in tables."""
        return f"{self.name}, ensemble"

    @property
    def estimator(self) -> Estimator:
        """Single trainings with the augmentation that is chosen in the fold."""
        return Estimator(self.name)


CANDIDATES = tuple(Candidate(input_name, depth) for input_name in WIDTHS for depth in (None, DEPTH))


class ViewChoice(NamedTuple):
    """The selected estimator of one camera's illuminant.

    Attributes:
      data: pairs and folds.
      outcome: cross-validation of every candidate.
      selected: candidate with the lowest mean error of single trainings over all folds.
      without: for each fold, the candidate with the lowest error without the fold.
    """

    data: CameraPairs
    outcome: CrossValidation
    selected: Candidate
    without: tuple[Candidate, ...]

    @property
    def seeds(self) -> int:
        """Number of trainings per fold; a single one makes no ensemble."""
        return len(self.outcome.estimates[self.selected.estimator])

    @property
    def truth(self) -> Float[np.ndarray, "n 2"]:
        """Chromaticities of all illuminants."""
        return self.data.targets(np.arange(len(self.data.illuminants)))

    def held_out(self, candidate: Candidate) -> Float[np.ndarray, "seeds n 2"]:
        """Return each pair's estimates by the trainings that left it out."""
        estimates = self.outcome.estimates[candidate.estimator]
        return pooled_rows(estimates, self.data.folds, len(self.data.main))

    def illuminants(self) -> dict[str, Float[np.ndarray, "runs n 3"]]:
        """Return each pair's held-out estimates by candidate, ensemble and nested selection."""
        single = {candidate: jnp.asarray(self.held_out(candidate)) for candidate in CANDIDATES}
        ensembles = {method: ensemble_chromaticity(runs)[None] for method, runs in single.items()}
        nested = np.full((1, len(self.data.main), 2), np.nan, np.float32)
        for fold, candidate in zip(self.data.folds, self.without, strict=True):
            nested[:, fold] = ensembles[candidate][:, fold]
        estimates = {NESTED: jnp.asarray(nested)}
        for candidate in CANDIDATES:
            estimates[candidate.name] = single[candidate]
            # Regressions of other validation pairs hardly differ, so their ensemble is left out.
            if candidate.depth is not None and self.seeds > 1:
                estimates[candidate.ensemble_name] = ensembles[candidate]
        return {
            name: np.asarray(chromaticity_to_illuminant(colors))
            for name, colors in estimates.items()
        }

    def coverage(self) -> IntervalCoverage:
        """Return the coverage, with each fold's candidate selected and calibrated without it."""
        estimates = [self.held_out(candidate) for candidate in self.without]
        return cross_coverage(estimates, self.truth, [np.unique(fold) for fold in self.data.folds])

    def view_model(self, distances: DistanceCalibration) -> ViewModel:
        """Return the kept candidate with its interval, and the distances of its inputs."""
        held_out, truth = jnp.asarray(self.held_out(self.selected)), jnp.asarray(self.truth)
        members = self.outcome.members(self.selected.input_name, self.selected.depth)
        return calibrated_view(
            inputs=self.selected.input_name,
            depth=self.selected.depth,
            members=members,
            held_out=held_out,
            truth=truth,
            distances=distances,
        )


def choose(
    data: CameraPairs, augmentations: Mapping[str, Augment], training: NetworkTraining
) -> ViewChoice:
    """Train every candidate without each fold, and without each two folds.

    The trainings without two folds have one seed, as they only select.
    """
    folds, depths = range(len(data.folds)), {TRANSFORM: (DEPTH,)}
    couples = list(itertools.combinations(folds, 2))
    without_two = np.stack([np.concatenate(data.folds[[*couple]]) for couple in couples])
    first_seed = training.below("without-two")._replace(seeds=training.seeds[:1])
    outer, inner = (
        cross_validate(part, augmentations, "held-out", trained, depths)
        for part, trained in (
            (data, training.below("without-one")),
            (data._replace(folds=without_two), first_seed),
        )
    )
    # Errors in each tested fold, summed over its pairs, of trainings without it and another fold.
    sums = np.zeros((len(CANDIDATES), len(folds), len(folds)))
    for errors, candidate in zip(sums, CANDIDATES, strict=True):
        single, pairwise = (runs.estimates[candidate.estimator] for runs in (outer, inner))
        for fold in folds:
            errors[fold, fold] = _summed_error(single[:, fold], data, fold)
        for index, (first, second) in enumerate(couples):
            halves = np.split(pairwise[:, index], 2, axis=1)
            errors[first, second] = _summed_error(halves[0], data, first)
            errors[second, first] = _summed_error(halves[1], data, second)
    selected = CANDIDATES[np.argmin(np.trace(sums, axis1=1, axis2=2))]
    others = [np.delete(sums[:, :, fold], fold, axis=1) for fold in folds]
    without = [CANDIDATES[np.argmin(matrix.sum(axis=1))] for matrix in others]
    return ViewChoice(data, outer, selected, tuple(without))


def _summed_error(estimates: Float[np.ndarray, "runs k 2"], data: CameraPairs, fold: int) -> float:
    """Return a fold's mean errors over runs in degrees, summed; infinite if one is invalid.

    A row that occurs twice in the fold counts once.
    """
    rows, first = np.unique(data.folds[fold], return_index=True)
    illuminants = chromaticity_to_illuminant(jnp.asarray(estimates[:, first]))
    errors = np.asarray(angular_errors(illuminants, jnp.asarray(data.illuminants[rows])))
    return float(np.sum(np.mean(np.where(np.isfinite(errors), errors, np.inf), axis=0)))
