"""Cross-validation of networks and linear regressions, with selection inside each fold."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.color.baselines.linear_regression import (
    LinearRegression,
    fit_linear_regression,
    linear_estimate,
)
from everlight.color.chromaticity import from_chromaticity, to_chromaticity
from everlight.models.illuminant_interval import (
    Interval,
    calibrate_interval,
    chromaticity_interval,
    ensemble_chromaticity,
    uninformative_interval,
)
from everlight.models.illuminant_training import Problem, TrainingSettings, chromaticity_loss
from everlight.trees import stacked
from everlight_data.checkpoints import Checkpoints
from everlight_experiments.illuminant.networks import (
    PARAMETERS,
    TrainedNetworks,
    best_of_rates,
    index_of_lowest,
    predict_all,
    stack_problems,
    train_networks,
)

View = Literal["main", "second"]
VIEWS: tuple[View, ...] = ("main", "second")
Selection = Literal["held-out", "test-set"]
VALIDATION_SHARE = 0.15
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
TRANSFORM = "T"
MOMENTS = "moments"
DEPTHS = {TRANSFORM: tuple(PARAMETERS)}
"""Hidden layers of the networks by input; networks on other inputs have `OTHER_DEPTHS`."""
OTHER_DEPTHS = (5,)
CHOSEN = "chosen in the fold"


class CameraPairs(NamedTuple):
    """Inputs and illuminants of image pairs, one scene each.

    Attributes:
      inputs: features by name: `TRANSFORM` row by row, numbers of one image alone, or both.
      main: illuminants in the main camera.
      second: illuminants in the second camera.
      folds: test rows of each fold.
      cameras: names of the two cameras.
      note: description of the data for reports.
      view: camera whose illuminant is estimated.
    """

    inputs: Mapping[str, Float[np.ndarray, "n f"]]
    main: Float[np.ndarray, "n 3"]
    second: Float[np.ndarray, "n 3"]
    folds: Int[np.ndarray, "folds k"]
    cameras: tuple[str, str]
    note: str
    view: View = "main"

    @property
    def illuminants(self) -> Float[np.ndarray, "n 3"]:
        """Illuminants to be estimated."""
        return self.main if self.view == "main" else self.second

    def targets(self, rows: np.ndarray) -> Float[np.ndarray, "*k 2"]:
        """Return the chromaticities of the illuminants."""
        return np.asarray(to_chromaticity(jnp.asarray(self.illuminants[rows])))


class Samples(NamedTuple):
    """Training inputs by name, and chromaticities."""

    inputs: Mapping[str, Float[Array, "n f"]]
    targets: Float[Array, "n 2"]


Augment = Callable[[CameraPairs, Int[np.ndarray, "k"], PRNGKeyArray], Samples]
"""Makes training samples of training rows.

All augmentations of one table give equally many, so that their trainings share a program.
"""


class CrossValidation(NamedTuple):
    """Results of cross-validation.

    Attributes:
      networks: trained networks by input.
      regressions: regressions by input; the leading axis is that of the networks (augmentations,
        folds, seeds).
      estimates: chromaticities by method, `[runs, folds, k, 2]`.
      validation: mean validation loss by method and augmentation, `[folds]`, which selects each
        fold's augmentation.
      rates: selected learning rate by network and augmentation, `[folds]`.
    """

    networks: dict[str, TrainedNetworks]
    regressions: dict[str, LinearRegression]
    estimates: dict[str, Float[np.ndarray, "runs folds k 2"]]
    validation: dict[str, dict[str, Float[np.ndarray, "folds"]]]
    rates: dict[str, dict[str, Float[np.ndarray, "folds"]]]

    def illuminants(self) -> dict[str, Float[np.ndarray, "runs folds k 3"]]:
        """Return every method's estimates as (R/G, 1, B/G)."""
        return {
            name: np.asarray(from_chromaticity(jnp.asarray(estimate)))
            for name, estimate in self.estimates.items()
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
    """Train networks and regressions on every input, fold, augmentation and seed; test the folds.

    All methods get the same training samples, and the same validation pairs select each fold's
    augmentation and, where several are given, learning rate. Methods are named "<method>,
    <augmentation>" (one run per seed) and "..., ensemble" (one run); `CHOSEN` stands for the
    augmentation that each fold's validation pairs select.

    Args:
      data: pairs and folds.
      augmentations: augmentations by name.
      selection: samples that select the training step.
      seeds: random seeds of trainings and validation pairs.
      training: optimizer settings.
      checkpoints: folder of the trainings' checkpoints.
      depths: hidden layers by input, by default `DEPTHS`; other inputs have `OTHER_DEPTHS`.
      rates: learning rates to select from; by default the rate of `training`.
    """
    depths = DEPTHS if depths is None else depths
    networks, regressions, estimates, validation, chosen_rates = {}, {}, {}, {}, {}
    folds = range(len(data.folds))
    augmentations = {name: _once(augment) for name, augment in augmentations.items()}
    for given in data.inputs:
        problems = [
            make_problem(data, given, fold, augment, selection, seed)
            for augment in augmentations.values()
            for fold in folds
            for seed in seeds
        ]
        # The order of the problems is augmentation, fold, seed.
        tests = np.repeat(data.inputs[given][data.folds], len(seeds), axis=0)
        tests = np.concatenate([tests] * len(augmentations))
        regressions[given] = stacked(
            [
                fit_linear_regression(jnp.asarray(each.features), jnp.asarray(each.targets))
                for each in problems
            ]
        )
        by_method = {regression_name(given): _regressed(regressions[given], problems, tests)}
        together, folder = stack_problems(problems), checkpoints.folder / given.replace(" ", "-")
        by_rate = {
            rate: train_networks(
                together,
                depths.get(given, OTHER_DEPTHS),
                replace(training, learning_rate=rate),
                seeds[0],
                Checkpoints(folder / f"rate-{rate:g}" if rates else folder),
            )
            for rate in rates or (training.learning_rate,)
        }
        networks[given], chosen = best_of_rates(by_rate, len(seeds))
        for depth, of_groups in chosen.items():
            per_fold = of_groups.reshape(len(augmentations), len(folds))
            named = zip(augmentations, per_fold, strict=True)
            chosen_rates[network_name(given, depth)] = dict(named)
        by_method |= _predicted(given, networks[given], tests)
        for method, (every, losses) in by_method.items():
            shape = len(augmentations), len(folds), len(seeds)
            runs = every.reshape(*shape, -1, 2).swapaxes(1, 2)
            per_fold = losses.reshape(shape).mean(axis=2)
            validation[method] = dict(zip(augmentations, per_fold, strict=True))
            best = index_of_lowest(per_fold)
            chosen = np.stack([runs[best[fold], :, fold] for fold in folds], axis=1)
            for name, single in zip((*augmentations, CHOSEN), (*runs, chosen), strict=True):
                estimates[f"{method}, {name}"] = single
                ensemble = np.asarray(ensemble_chromaticity(jnp.asarray(single)))[None]
                estimates[f"{method}, {name}, ensemble"] = ensemble
    return CrossValidation(networks, regressions, estimates, validation, chosen_rates)


def chosen_rows(losses: Float[np.ndarray, "augmentations folds"], count: int) -> np.ndarray:
    """Return the rows of the chosen augmentation's trainings of every fold and seed.

    Args:
      losses: validation losses of one method.
      count: number of all trainings.
    """
    folds, seeds = losses.shape[1], count // losses.size
    best = index_of_lowest(losses)
    return (((folds * best + np.arange(folds)) * seeds)[:, None] + np.arange(seeds)).ravel()


def _once(augment: Augment) -> Augment:
    """Return the augmentation with its results kept, as every input needs them."""
    drawn: dict[tuple[bytes, bytes], Samples] = {}

    def kept(data: CameraPairs, train: np.ndarray, key: PRNGKeyArray) -> Samples:
        place = train.tobytes(), np.asarray(jax.random.key_data(key)).tobytes()
        if place not in drawn:
            drawn[place] = augment(data, train, key)
        return drawn[place]

    return kept


def network_name(given: str, depth: int) -> str:
    """Return a network's name in tables."""
    return f"Net, {PARAMETERS[depth]} parameters" if given == TRANSFORM else f"Net on {given}"


def regression_name(given: str) -> str:
    """Return a regression's name in tables."""
    return "Linear regression" if given == TRANSFORM else f"Linear regression on {given}"


def make_problem(
    data: CameraPairs, given: str, fold: int, augment: Augment, selection: Selection, seed: int
) -> Problem:
    """Return training and validation samples of one training."""
    test = data.folds[fold]
    rest = np.setdiff1d(np.arange(len(data.main)), test)
    train, valid = rest, test
    if selection == "held-out":
        drawn = np.random.default_rng((seed, fold)).permutation(rest)
        # The count is the same in every fold, also in one that repeats rows.
        count = round(VALIDATION_SHARE * (len(data.main) - len(test)))
        valid, train = drawn[:count], drawn[count:]
    key = jax.random.fold_in(jax.random.key(seed), fold)
    samples = augment(data, train, key)
    return Problem(
        samples.inputs[given], samples.targets, data.inputs[given][valid], data.targets(valid)
    )


def repeat_samples(data: CameraPairs, train: np.ndarray, times: int) -> Samples:
    """Return the training rows repeated, as many samples as an augmentation gives."""
    inputs = {name: np.tile(values[train], (times, 1)) for name, values in data.inputs.items()}
    return Samples(inputs, np.tile(data.targets(train), (times, 1)))


def _regressed(
    models: LinearRegression, problems: Sequence[Problem], tests: Float[np.ndarray, "p k f"]
) -> tuple[Float[np.ndarray, "p k 2"], Float[np.ndarray, "p"]]:
    """Return estimates of each problem's test fold, and losses on its validation pairs."""
    estimate = jax.vmap(linear_estimate)
    valid = estimate(models, jnp.stack([each.valid_features for each in problems]))
    truth = jnp.stack([each.valid_targets for each in problems])
    losses = jax.vmap(chromaticity_loss)(valid, truth)
    return np.asarray(estimate(models, jnp.asarray(tests))), np.asarray(losses)


def _predicted(
    given: str, trained: TrainedNetworks, tests: Float[np.ndarray, "p k f"]
) -> dict[str, tuple[Float[np.ndarray, "p k 2"], Float[np.ndarray, "p"]]]:
    """Return estimates and validation losses of every network size."""
    return {
        network_name(given, depth): (
            np.asarray(predict_all(depth, models, jnp.asarray(tests))),
            # Unlike nanmin, this is silent where a network never had a finite loss.
            np.fmin.reduce(np.asarray(trained.losses[depth].valid), axis=0),
        )
        for depth, models in trained.models.items()
    }


calibrate_all = jax.jit(calibrate_interval)
intervals = jax.jit(jax.vmap(chromaticity_interval, (None, 1)))
uninformative = jax.jit(uninformative_interval)


class Coverage(NamedTuple):
    """Quality of intervals.

    Attributes:
      share: share of pairs whose illuminant is in its interval.
      degrees: mean radius of the intervals.
      uninformative: share of intervals no smaller than that of the calibration illuminants alone.
    """

    share: float
    degrees: float
    uninformative: float


def inside(found: Interval, truth: Float[Array, "n 2"]) -> Bool[Array, "n"]:
    """Return which illuminants are in their intervals."""
    return jnp.all((found.low <= truth) & (truth <= found.high), axis=1)


def cross_coverage(
    estimates: Sequence[Float[np.ndarray, "m n 2"]],
    truth: Float[np.ndarray, "n 2"],
    folds: Sequence[Int[np.ndarray, "_"]],
) -> Coverage:
    """Return the coverage of each fold's intervals, calibrated on the other folds.

    Args:
      estimates: for each fold, the estimates of every pair by the fold's method; each pair's were
        trained without its fold.
      truth: chromaticities of the pairs.
      folds: rows of each fold; every pair is in one.
    """
    held, degrees, empty = [], [], []
    for own, fold in zip(estimates, folds, strict=True):
        others = np.setdiff1d(np.arange(len(truth)), fold)
        scale = calibrate_all(jnp.asarray(own[:, others]), jnp.asarray(truth[others]))
        found = intervals(scale, jnp.asarray(own[:, fold]))
        held.append(inside(found, jnp.asarray(truth[fold])))
        degrees.append(found.degrees)
        empty.append(found.degrees >= uninformative(jnp.asarray(truth[others])).degrees)
    return Coverage(*(float(np.mean(np.concatenate(each))) for each in (held, degrees, empty)))
