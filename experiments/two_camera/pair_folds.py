"""Nets and linear regression on pairs of real cameras in three folds: what S20 and NUS share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from data_pipelines.errors import DataError
from everlight.color.chromagenic import fit_linear_regression, linear_estimate
from everlight.color.chromaticity import from_chromaticity, to_chromaticity
from everlight.models.illuminant_training import Problem, TrainingSettings
from experiments.common.checkpoint import Checkpoints
from experiments.two_camera.model_files import ensemble_chromaticity
from experiments.two_camera.tables import angular_errors
from experiments.two_camera.training import (
    PARAMETERS,
    TrainedNets,
    predict_all,
    stack_problems,
    train_nets,
)

Selection = Literal["honest", "paper"]
VALIDATION_SHARE = 0.15
RULES: dict[Selection, str] = {
    "honest": (
        f"Selection honest: the best step is chosen on {VALIDATION_SHARE:.0%} of the training "
        "folds' pairs, which are taken out of the training."
    ),
    "paper": (
        "Selection paper: the best step is chosen on the test fold itself, as the released models "
        "were; too good by construction, and shown only to compare with the paper."
    ),
}


class CameraPairs(NamedTuple):
    """Pairs of one scene's images by two cameras; `folds` are test rows."""

    transforms: Float[np.ndarray, "n 3 3"]
    main: Float[np.ndarray, "n 3"]
    second: Float[np.ndarray, "n 3"]
    folds: Int[np.ndarray, "3 k"]
    cameras: tuple[str, str]
    note: str

    def features(self, rows: np.ndarray) -> Float[np.ndarray, "*k 9"]:
        """Transforms flattened row by row."""
        return self.transforms[rows].reshape(*rows.shape, 9)

    def targets(self, rows: np.ndarray) -> Float[np.ndarray, "*k 2"]:
        """The main camera's true chromaticities."""
        return np.asarray(to_chromaticity(jnp.asarray(self.main[rows])))


class Samples(NamedTuple):
    """Flattened transforms and chromaticities."""

    features: Float[Array, "n 9"]
    targets: Float[Array, "n 2"]


# From training rows to training samples. All that stand in one table must give equally many, so
# that their trainings run in one program.
Augment = Callable[[CameraPairs, Int[np.ndarray, "k"], PRNGKeyArray], Samples]


class CrossValidation(NamedTuple):
    """What cross-validation gives: the nets, and every method's estimates `[runs, 3, k, 2]`."""

    nets: TrainedNets
    estimates: dict[str, Float[np.ndarray, "runs 3 k 2"]]

    def errors(self, data: CameraPairs) -> dict[str, Float[np.ndarray, "runs 3 k"]]:
        """Angular errors in degrees."""
        truth = data.main[data.folds]
        return {
            name: np.asarray(angular_errors(from_chromaticity(jnp.asarray(estimate)), truth))
            for name, estimate in self.estimates.items()
        }


def cross_validate(
    data: CameraPairs,
    augmentations: Mapping[str, Augment],
    selection: Selection,
    seeds: Sequence[int],
    training: TrainingSettings,
    checkpoints: Checkpoints,
) -> CrossValidation:
    """Trains nets of every size on every fold, augmentation and seed, and asks them the test fold.

    Methods are named "Linear regression", "Net, 200 parameters, <augmentation>" (runs: the seeds)
    and the same with ", ensemble" (one run).

    Raises:
      DataError: no seed at all.
    """
    if not seeds:
        raise DataError("--seeds gives no seed; at least one training per fold is needed")
    problems = [
        make_problem(data, fold, augment, selection, seed)
        for augment in augmentations.values()
        for fold in range(3)
        for seed in seeds
    ]
    nets = train_nets(stack_problems(problems), tuple(PARAMETERS), training, seeds[0], checkpoints)
    estimates = {"Linear regression": _linear_estimates(data)}
    estimates |= _net_estimates(data, nets, tuple(augmentations), len(seeds))
    return CrossValidation(nets, estimates)


def make_problem(
    data: CameraPairs, fold: int, augment: Augment, selection: Selection, seed: int
) -> Problem:
    """Training and validation samples of one training."""
    test = data.folds[fold]
    rest = np.setdiff1d(np.arange(len(data.main)), test)
    train, valid = rest, test
    if selection == "honest":
        drawn = np.random.default_rng((seed, fold)).permutation(rest)
        count = round(VALIDATION_SHARE * len(rest))
        valid, train = drawn[:count], drawn[count:]
    key = jax.random.fold_in(jax.random.key(seed), fold)
    samples = augment(data, train, key)
    return Problem(*samples, data.features(valid), data.targets(valid))


def repeat_samples(data: CameraPairs, train: np.ndarray, times: int) -> Samples:
    """No augmentation, but as many samples as one gives."""
    return Samples(
        np.tile(data.features(train), (times, 1)), np.tile(data.targets(train), (times, 1))
    )


def _linear_estimates(data: CameraPairs) -> Float[np.ndarray, "1 3 k 2"]:
    estimates = []
    for test in data.folds:
        train = np.setdiff1d(np.arange(len(data.main)), test)
        model = fit_linear_regression(
            jnp.asarray(data.transforms[train]), jnp.asarray(data.targets(train))
        )
        estimate = jax.vmap(linear_estimate, (None, 0))(model, jnp.asarray(data.transforms[test]))
        estimates.append(estimate)
    return np.stack(estimates)[None]


def _net_estimates(
    data: CameraPairs, nets: TrainedNets, augmentations: Sequence[str], seeds: int
) -> dict[str, Float[np.ndarray, "runs 3 k 2"]]:
    """Of single nets, `[seeds, 3, k, 2]`, and of the seeds' ensemble, `[1, 3, k, 2]`."""
    features = np.repeat(data.features(data.folds), seeds, axis=0)
    features = jnp.asarray(np.concatenate([features] * len(augmentations)))
    named = {}
    for depth, models in nets.models.items():
        estimates = predict_all(depth, models, features)
        estimates = estimates.reshape(len(augmentations), 3, seeds, -1, 2).swapaxes(1, 2)
        for name, single in zip(augmentations, estimates, strict=True):
            label = f"Net, {PARAMETERS[depth]} parameters, {name}"
            named[label] = np.asarray(single)
            named[f"{label}, ensemble"] = np.asarray(ensemble_chromaticity(single))[None]
    return named
