"""Nets and linear regression on real images in folds: what S20, NUS and other sets share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from everlight.color.chromagenic import (
    LinearRegression,
    fit_linear_regression,
    linear_estimate,
)
from everlight.color.chromaticity import from_chromaticity, to_chromaticity
from everlight.models.illuminant_interval import ensemble_chromaticity
from everlight.models.illuminant_training import Problem, TrainingSettings, chromaticity_loss
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.common.trees import stacked
from everlight_experiments.illuminant.networks import (
    PARAMETERS,
    TrainedNets,
    best_of_rates,
    index_of_least,
    predict_all,
    stack_problems,
    train_nets,
)
from everlight_experiments.illuminant.radiometric_methods import Light
from everlight_experiments.illuminant.tables import angular_errors

Selection = Literal["honest", "paper"]
VALIDATION_SHARE = 0.15
RULES: dict[Selection, str] = {
    "honest": (
        f"Held-out selection: the step is selected on {VALIDATION_SHARE:.0%} of the training "
        "folds' pairs, which are excluded from training."
    ),
    "paper": (
        "Test-set selection: the step is selected on the test fold itself, as for the released "
        "models; optimistic by construction, for comparison with the paper only."
    ),
}

SELECTIONS: dict[Selection, str] = {
    "honest": "held-out selection",
    "paper": "test-set selection",
}
"""Short names for titles and columns."""

TRANSFORM = "T"
"""The input that nets of every size are given; on others there is one of five layers."""
DEPTHS = {TRANSFORM: tuple(PARAMETERS)}
OTHER_DEPTHS = (5,)
CHOSEN = "chosen in the fold"


class CameraPairs(NamedTuple):
    """Images of one scene each by a main camera and a second; `folds` are test rows.

    `inputs` are what nets and regressions may be given: the transform row by row under
    `TRANSFORM`, what one image says alone, or both. `asked` is the camera whose light they tell.
    """

    inputs: Mapping[str, Float[np.ndarray, "n f"]]
    main: Float[np.ndarray, "n 3"]
    second: Float[np.ndarray, "n 3"]
    folds: Int[np.ndarray, "folds k"]
    cameras: tuple[str, str]
    note: str
    asked: Light = "main"

    @property
    def lights(self) -> Float[np.ndarray, "n 3"]:
        """The lights that are asked for."""
        return self.main if self.asked == "main" else self.second

    def targets(self, rows: np.ndarray) -> Float[np.ndarray, "*k 2"]:
        """Their chromaticities."""
        return np.asarray(to_chromaticity(jnp.asarray(self.lights[rows])))


class Samples(NamedTuple):
    """Inputs by name, and chromaticities."""

    inputs: Mapping[str, Float[Array, "n f"]]
    targets: Float[Array, "n 2"]


# From training rows to training samples. All that stand in one table must give equally many, so
# that their trainings run in one program.
Augment = Callable[[CameraPairs, Int[np.ndarray, "k"], PRNGKeyArray], Samples]


class CrossValidation(NamedTuple):
    """What cross-validation gives.

    Attributes:
      nets: by input.
      regressions: by input, arrays with a leading axis over problems, as those of the nets:
        augmentations, folds, seeds.
      estimates: every method's chromaticities, `[runs, folds, k, 2]`.
      validation: mean loss on the validation pairs by method and augmentation, `[folds]`: what
        chooses the augmentation of each fold.
      rates: the learning rate by net and augmentation, `[folds]`, as the validation pairs chose it.
    """

    nets: dict[str, TrainedNets]
    regressions: dict[str, LinearRegression]
    estimates: dict[str, Float[np.ndarray, "runs folds k 2"]]
    validation: dict[str, dict[str, Float[np.ndarray, "folds"]]]
    rates: dict[str, dict[str, Float[np.ndarray, "folds"]]]

    def lights(self) -> dict[str, Float[np.ndarray, "runs folds k 3"]]:
        """Every method's estimates as (R/G, 1, B/G)."""
        return {
            name: np.asarray(from_chromaticity(jnp.asarray(estimate)))
            for name, estimate in self.estimates.items()
        }

    def errors(self, data: CameraPairs) -> dict[str, Float[np.ndarray, "runs folds k"]]:
        """Angular errors in degrees."""
        truth = data.lights[data.folds]
        return {
            name: np.asarray(angular_errors(lights, truth))
            for name, lights in self.lights().items()
        }


def cross_validate(
    data: CameraPairs,
    augmentations: Mapping[str, Augment],
    selection: Selection,
    seeds: Sequence[int],
    training: TrainingSettings,
    checkpoints: Checkpoints,
    depths: Mapping[str, Sequence[int]] | None = None,
    rates: Sequence[float] = (),
) -> CrossValidation:
    """Trains nets and regressions on every input, fold, augmentation and seed; asks the test fold.

    Nets are of the `depths` of their input, by default of `DEPTHS`, and of five layers on others.
    Of several `rates` each fold's validation pairs choose one for each augmentation and net;
    without any it is the `training`'s. All get the same training samples, and the same validation
    pairs choose each fold's augmentation. Methods are named "<method>, <augmentation>" (runs: the
    seeds) and the same with ", ensemble" (one run); `CHOSEN` stands for the augmentation that each
    fold's validation pairs choose.
    """
    depths = DEPTHS if depths is None else depths
    nets, regressions, estimates, validation, chosen_rates = {}, {}, {}, {}, {}
    folds = range(len(data.folds))
    augmentations = {name: _once(augment) for name, augment in augmentations.items()}
    for given in data.inputs:
        problems = [
            make_problem(data, given, fold, augment, selection, seed)
            for augment in augmentations.values()
            for fold in folds
            for seed in seeds
        ]
        # In the order of the problems: augmentation, fold, seed.
        tests = np.repeat(data.inputs[given][data.folds], len(seeds), axis=0)
        tests = np.concatenate([tests] * len(augmentations))
        regressions[given] = _regressions(problems)
        by_method = {regression_name(given): _regressed(regressions[given], problems, tests)}
        stacked, folder = stack_problems(problems), checkpoints.folder / given.replace(" ", "-")
        by_rate = {
            rate: train_nets(
                stacked,
                depths.get(given, OTHER_DEPTHS),
                replace(training, learning_rate=rate),
                seeds[0],
                Checkpoints(folder / f"rate-{rate:g}" if rates else folder),
            )
            for rate in rates or (training.learning_rate,)
        }
        nets[given], chosen = best_of_rates(by_rate, len(seeds))
        for depth, of_groups in chosen.items():
            per_fold = of_groups.reshape(len(augmentations), len(folds))
            chosen_rates[net_name(given, depth)] = dict(zip(augmentations, per_fold, strict=True))
        by_method |= _nets(given, nets[given], tests)
        for method, (all_estimates, losses) in by_method.items():
            shape = len(augmentations), len(folds), len(seeds)
            runs = all_estimates.reshape(*shape, -1, 2).swapaxes(1, 2)
            per_fold = losses.reshape(shape).mean(axis=2)
            validation[method] = dict(zip(augmentations, per_fold, strict=True))
            best = index_of_least(per_fold)
            chosen = np.stack([runs[best[fold], :, fold] for fold in folds], axis=1)
            for name, single in zip((*augmentations, CHOSEN), (*runs, chosen), strict=True):
                estimates[f"{method}, {name}"] = single
                ensemble = np.asarray(ensemble_chromaticity(jnp.asarray(single)))[None]
                estimates[f"{method}, {name}, ensemble"] = ensemble
    return CrossValidation(nets, regressions, estimates, validation, chosen_rates)


def _once(augment: Augment) -> Augment:
    """The augmentation, which every input asks anew, with its first answer remembered."""
    drawn: dict[tuple[bytes, bytes], Samples] = {}

    def ask(data: CameraPairs, train: np.ndarray, key: PRNGKeyArray) -> Samples:
        asked = train.tobytes(), np.asarray(jax.random.key_data(key)).tobytes()
        if asked not in drawn:
            drawn[asked] = augment(data, train, key)
        return drawn[asked]

    return ask


def net_name(given: str, depth: int) -> str:
    """A net's name in tables."""
    return f"Net, {PARAMETERS[depth]} parameters" if given == TRANSFORM else f"Net on {given}"


def regression_name(given: str) -> str:
    """A regression's name in tables."""
    return "Linear regression" if given == TRANSFORM else f"Linear regression on {given}"


def make_problem(
    data: CameraPairs, given: str, fold: int, augment: Augment, selection: Selection, seed: int
) -> Problem:
    """Training and validation samples of one training."""
    test = data.folds[fold]
    rest = np.setdiff1d(np.arange(len(data.main)), test)
    train, valid = rest, test
    if selection == "honest":
        drawn = np.random.default_rng((seed, fold)).permutation(rest)
        # The same in every fold, also where one names a row twice to be as long as the others.
        count = round(VALIDATION_SHARE * (len(data.main) - len(test)))
        valid, train = drawn[:count], drawn[count:]
    key = jax.random.fold_in(jax.random.key(seed), fold)
    samples = augment(data, train, key)
    return Problem(
        samples.inputs[given], samples.targets, data.inputs[given][valid], data.targets(valid)
    )


def repeat_samples(data: CameraPairs, train: np.ndarray, times: int) -> Samples:
    """No augmentation, but as many samples as one gives."""
    inputs = {name: np.tile(values[train], (times, 1)) for name, values in data.inputs.items()}
    return Samples(inputs, np.tile(data.targets(train), (times, 1)))


def _regressions(problems: Sequence[Problem]) -> LinearRegression:
    """Fitted to each problem, stacked."""
    fitted = [
        fit_linear_regression(jnp.asarray(problem.features), jnp.asarray(problem.targets))
        for problem in problems
    ]
    return stacked(fitted)


def _regressed(
    models: LinearRegression, problems: Sequence[Problem], tests: Float[np.ndarray, "p k f"]
) -> tuple[Float[np.ndarray, "p k 2"], Float[np.ndarray, "p"]]:
    """Estimates of each problem's test fold, and losses on its validation pairs."""
    tell = jax.vmap(linear_estimate)
    valid = tell(models, jnp.stack([each.valid_features for each in problems]))
    truth = jnp.stack([each.valid_targets for each in problems])
    losses = jax.vmap(chromaticity_loss)(valid, truth)
    return np.asarray(tell(models, jnp.asarray(tests))), np.asarray(losses)


def _nets(
    given: str, trained: TrainedNets, tests: Float[np.ndarray, "p k f"]
) -> dict[str, tuple[Float[np.ndarray, "p k 2"], Float[np.ndarray, "p"]]]:
    """The same of every size of net."""
    return {
        net_name(given, depth): (
            np.asarray(predict_all(depth, models, jnp.asarray(tests))),
            np.nanmin(trained.losses[depth].valid, axis=0),
        )
        for depth, models in trained.models.items()
    }
