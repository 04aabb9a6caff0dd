"""Cross-validation of networks and linear regressions, with selection inside each fold."""

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from everlight.color.chromaticity import chromaticity_to_illuminant
from everlight.color.learned.linear_regression import (
    LinearRegression,
    fit_linear_regression,
    linear_estimate,
)
from everlight.illuminant.camera_pairs import (
    Augment,
    CameraPairs,
    FoldedInputs,
    Samples,
    problem_of,
)
from everlight.illuminant.illuminant_batches import TrainedNetworks, index_of_lowest, predict_batch
from everlight.illuminant.illuminant_interval import ensemble_chromaticity
from everlight.illuminant.illuminant_training import IlluminantModel, chromaticity_loss
from everlight.illuminant.pair_inputs import TRANSFORM
from everlight.trees import rows_of, stacked
from everlight_experiments.illuminant.core.experiment import Comparison
from everlight_experiments.illuminant.core.networks import (
    DEPTH,
    PARAMETERS,
    NetworkTraining,
    train_networks,
)

Selection = Literal["held-out", "test-set"]
VALIDATION_SHARE = 0.15
HELD_OUT = f"held-out selection: step and augmentation on {VALIDATION_SHARE:.0%}"
"""Beginning of a selection rule in reports; the training data follow."""
RULES: dict[Selection, str] = {
    "held-out": (
        f"Held-out selection: the step is selected on {VALIDATION_SHARE:.0%} of the training "
        "folds' pairs, which are excluded from training."
    ),
    "test-set": (
        "Test-set selection: the step is selected on the test fold itself, as for the released "
        "models; optimistic by construction, for comparison with the paper only."
    ),
}
DEPTHS = {TRANSFORM: tuple(PARAMETERS)}
"""Hidden layers of the networks by input; networks on other inputs have `OTHER_DEPTHS`."""
OTHER_DEPTHS = (DEPTH,)
CHOSEN = "chosen in the fold"
"""Name for the augmentation that each fold's validation pairs select."""


class Estimator(NamedTuple):
    """A method with its augmentation: one training per run, or the ensemble of all seeds."""

    method: str
    augmentation: str = CHOSEN
    ensemble: bool = False

    @property
    def name(self) -> str:
        """Name in tables and keys of stored results."""
        return f"{self.method}, {self.augmentation}" + ", ensemble" * self.ensemble


class CrossValidation(NamedTuple):
    """Results of cross-validation.

    Attributes:
      networks: trained networks by input.
      regressions: regressions by input; the leading axis is that of the networks (augmentations,
        folds, seeds).
      estimates: chromaticities by estimator, `[runs, folds, k, 2]`.
      validation: mean validation loss by method and augmentation, `[folds]`, which selects each
        fold's augmentation.
    """

    networks: dict[str, TrainedNetworks]
    regressions: dict[str, LinearRegression]
    estimates: dict[Estimator, Float[np.ndarray, "runs folds k 2"]]
    validation: dict[str, dict[str, Float[np.ndarray, "folds"]]]

    def __or__(self, other: "CrossValidation") -> "CrossValidation":
        """Return the results on the inputs of both, which share no input."""
        return CrossValidation(
            networks=self.networks | other.networks,
            regressions=self.regressions | other.regressions,
            estimates=self.estimates | other.estimates,
            validation=self.validation | other.validation,
        )

    def illuminants(self) -> dict[str, Float[np.ndarray, "runs folds k 3"]]:
        """Return every estimator's estimates as (R/G, 1, B/G), by its name in tables."""
        return {
            estimator.name: np.asarray(chromaticity_to_illuminant(jnp.asarray(estimate)))
            for estimator, estimate in self.estimates.items()
        }

    def members(self, inputs: str, depth: int | None) -> IlluminantModel | LinearRegression:
        """Return a network's or regression's trainings of every fold and seed.

        Those of a fold have the augmentation that its validation pairs select.
        """
        trained = self.regressions[inputs] if depth is None else self.networks[inputs].models[depth]
        losses = np.stack(list(self.validation[method_name(inputs, depth)].values()))
        folds, seeds = losses.shape[1], len(jax.tree.leaves(trained)[0]) // losses.size
        firsts = (folds * index_of_lowest(losses) + np.arange(folds)) * seeds
        return rows_of(trained, (firsts[:, None] + np.arange(seeds)).ravel())


def cross_validate(
    data: FoldedInputs,
    augmentations: Mapping[str, Augment],
    selection: Selection,
    training: NetworkTraining,
    depths: Mapping[str, Sequence[int]] | None = None,
    tested: FoldedInputs | None = None,
) -> CrossValidation:
    """Train networks and regressions on every input, fold, augmentation and seed; test the folds.

    All methods get the same training samples, and the same validation pairs select each fold's
    augmentation and, where the training has several, learning rate. Estimators have one run per
    seed; of several seeds there are ensembles too, which have one run.

    Args:
      data: pairs and folds that train and select.
      augmentations: makers of training samples by name.
      selection: rule of `RULES`.
      training: training of the networks; its seeds also draw validation pairs and samples.
      depths: hidden layers by input, by default `DEPTHS`; other inputs have `OTHER_DEPTHS`.
      tested: pairs and folds that are tested, where they are not `data`.
    """
    tested = tested or data
    depths = DEPTHS if depths is None else depths
    samples = [
        split_samples(data, augment, selection, fold, seed)
        for augment in augmentations.values()
        for fold in range(len(data.folds))
        for seed in training.seeds
    ]
    by_input = [
        cross_validate_input(
            name,
            samples,
            tested.inputs[name][tested.folds],
            list(augmentations),
            depths.get(name, OTHER_DEPTHS),
            training.below(name.replace(" ", "-")),
        )
        for name in data.inputs
    ]
    return reduce(operator.or_, by_input)


def cross_validate_input(
    input_name: str,
    samples: Sequence[tuple[Samples, Samples]],
    tests: Float[np.ndarray, "folds k features"],
    augmentations: Sequence[str],
    depths: Sequence[int],
    training: NetworkTraining,
) -> CrossValidation:
    """Return the results of the networks and the regression on one input.

    Args:
      input_name: name of the input.
      samples: training and validation samples, by augmentation, fold and seed.
      tests: features of every fold's tested pairs.
      augmentations: names of the augmentations.
      depths: hidden layers of the networks.
      training: training of the networks.
    """
    shape = len(augmentations), len(tests), len(training.seeds)
    problems = [problem_of(input_name, *sample) for sample in samples]
    tests = np.repeat(tests, len(training.seeds), axis=0)
    tests = jnp.asarray(np.concatenate([tests] * len(augmentations)))
    regressions = stacked(
        [
            fit_linear_regression(jnp.asarray(problem.features), jnp.asarray(problem.targets))
            for problem in problems
        ]
    )
    valid = _regress(regressions, jnp.stack([problem.valid_features for problem in problems]))
    truth = jnp.stack([problem.valid_targets for problem in problems])
    losses = jax.vmap(chromaticity_loss)(valid, truth)
    by_method = {method_name(input_name, None): (_regress(regressions, tests), losses)}
    networks = train_networks(problems, depths, training)
    for depth, models in networks.models.items():
        # Unlike nanmin, this is silent where a network never had a finite loss.
        losses = np.fmin.reduce(np.asarray(networks.losses[depth].valid), axis=0)
        by_method[method_name(input_name, depth)] = predict_batch(depth, models, tests), losses
    estimates, validation = {}, {}
    for method, (predictions, losses) in by_method.items():
        runs = np.asarray(predictions).reshape(*shape, -1, 2).swapaxes(1, 2)
        per_fold = np.asarray(losses).reshape(shape).mean(axis=2)
        validation[method] = dict(zip(augmentations, per_fold, strict=True))
        best = index_of_lowest(per_fold)
        chosen = np.stack([runs[index, :, fold] for fold, index in enumerate(best)], axis=1)
        for name, single in zip((*augmentations, CHOSEN), (*runs, chosen), strict=True):
            estimates[Estimator(method, name)] = single
            if len(training.seeds) > 1:
                ensemble = np.asarray(ensemble_chromaticity(jnp.asarray(single)))[None]
                estimates[Estimator(method, name, ensemble=True)] = ensemble
    return CrossValidation({input_name: networks}, {input_name: regressions}, estimates, validation)


_regress = jax.vmap(linear_estimate)


def split_samples(
    data: FoldedInputs, augment: Augment, selection: Selection, fold: int, seed: int
) -> tuple[Samples, Samples]:
    """Return augmented training samples of a fold, and the pairs that select the step."""
    test = data.folds[fold]
    rest = np.setdiff1d(np.arange(len(data.illuminants)), test)
    train, valid = rest, test
    if selection == "held-out":
        drawn = np.random.default_rng((seed, fold)).permutation(rest)
        # The count is the same in every fold, also in one that repeats rows.
        count = round(VALIDATION_SHARE * (len(data.illuminants) - len(test)))
        valid, train = drawn[:count], drawn[count:]
    key = jax.random.fold_in(jax.random.key(seed), fold)
    return augment(data, train, key), data.samples(valid)


def pooled_rows(
    estimates: Float[np.ndarray, "runs folds k c"], folds: Int[np.ndarray, "folds k"], count: int
) -> Float[np.ndarray, "runs n c"]:
    """Return each row's estimates from its test fold; a row that a fold repeats has its last."""
    pooled = np.full((len(estimates), count, estimates.shape[-1]), np.nan, np.float32)
    pooled[:, folds] = estimates
    return pooled


def method_name(input_name: str, depth: int | None) -> str:
    """Return the name in tables of a network of `depth` hidden layers, or else of a regression."""
    if input_name == TRANSFORM:
        return "Linear regression" if depth is None else f"Net, {PARAMETERS[depth]} parameters"
    return f"Linear regression on {input_name}" if depth is None else f"Net on {input_name}"


class RuleComparison(NamedTuple):
    """Methods under both selection rules, and the networks of held-out selection."""

    comparisons: dict[Selection, Comparison]
    held_out: CrossValidation


def compare_rules(
    data: CameraPairs,
    augmentations: Mapping[str, Augment],
    training: NetworkTraining,
    others: Mapping[str, Float[np.ndarray, "1 folds k 3"]],
    published: Mapping[str, Sequence[float]],
) -> RuleComparison:
    """Compare networks and regressions with other methods under both selection rules.

    The published statistics are those of methods by name. Only held-out selection chooses among the
    learning rates.
    """
    comparisons, outcomes = {}, {}
    truth = data.illuminants[data.folds]
    for selection, caption in RULES.items():
        below = training.below(selection)
        if selection == "test-set":
            below = below._replace(rates=())
        outcomes[selection] = cross_validate(data, augmentations, selection, below)
        estimates = {**others, **outcomes[selection].illuminants()}
        title = f"{selection} selection"
        comparisons[selection] = Comparison(estimates, truth, title, caption, published=published)
    return RuleComparison(comparisons, outcomes["held-out"])
