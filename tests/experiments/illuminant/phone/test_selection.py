"""Tests of the selected candidate, in total and without a fold, from planted estimates."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.learned.linear_regression import LinearRegression
from everlight.illuminant.camera_pairs import CameraPairs
from everlight.illuminant.illuminant_batches import TrainedNetworks
from everlight.illuminant.illuminant_training import IlluminantModel, TrainingSettings
from everlight_experiments.illuminant.core.cross_validation import CrossValidation
from everlight_experiments.illuminant.core.networks import NetworkTraining
from everlight_experiments.illuminant.phone import selection
from everlight_experiments.illuminant.phone.selection import CANDIDATES, NESTED, ViewChoice, choose

FOLDS = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 6], [8, 9, 8]])
"""The last two name a row twice."""
PLANTED = [4, 2, 0, 5]
"""The candidate, by fold, that is good in trainings without this fold and another one."""
BEST = 3
"""The candidate that is best in trainings without one fold."""


@pytest.fixture
def pairs(rng):
    illuminants = np.stack([rng.uniform(0.4, 1.2, 10), np.ones(10), rng.uniform(0.4, 1.2, 10)], 1)
    illuminants = np.float32(illuminants)
    return CameraPairs(
        inputs={},
        main=illuminants,
        second=illuminants[::-1],
        folds=FOLDS,
        cameras=("a", "b"),
        note="",
        view="second",
    )


def plant(spoil=None):
    """Return a cross-validation whose estimates are 30% off but for the planted ones."""

    def cross_validate(data, augmentations, selection, training, depths):
        truth = data.targets(data.folds)
        good = np.zeros((len(CANDIDATES), *data.folds.shape), bool)
        if len(data.folds) == len(FOLDS):
            good[BEST] = True
        else:
            for index, (first, second) in enumerate(itertools.combinations(range(4), 2)):
                good[PLANTED[second], index, :3] = True
                good[PLANTED[first], index, 3:] = True
        estimates = {}
        for place, candidate in enumerate(CANDIDATES):
            off = np.where(good[place], 1.01, 1.3)[..., None] * [1, 0.9]
            estimates[candidate.estimator] = np.stack([truth * off] * len(training.seeds)).astype(
                np.float32
            )
        if spoil is not None:
            estimates[CANDIDATES[spoil].estimator][0, 0, 0] = -1
        return CrossValidation({}, {}, estimates, {})

    return cross_validate


@pytest.fixture
def chosen(pairs, monkeypatch, tmp_path):
    def run(spoil=None):
        monkeypatch.setattr(selection, "cross_validate", plant(spoil))
        return choose(pairs, {}, NetworkTraining(TrainingSettings(), range(2), tmp_path))

    return run


def test_the_choice_of_a_fold_depends_on_trainings_without_it(chosen):
    """Trainings without one fold only, or without two others, would choose differently."""
    choice = chosen()
    assert [CANDIDATES.index(item) for item in choice.without] == PLANTED
    assert CANDIDATES.index(choice.selected) == BEST


def test_nested_illuminants_are_by_the_candidate_chosen_without_their_fold(chosen, pairs):
    choice = chosen()
    expected = pairs.targets(np.arange(10)) * 1.3 * [1, 0.9]
    (illuminants,) = choice.illuminants()[NESTED]
    np.testing.assert_allclose(illuminants[:, [0, 2]], expected, rtol=1e-5)
    np.testing.assert_array_equal(illuminants[:, 1], 1)


def test_a_candidate_without_an_illuminant_for_some_pairs_is_not_chosen(chosen):
    """A regression below zero has none in the first couple, whose first half validates fold 1."""
    choice = chosen(spoil=PLANTED[1])
    assert CANDIDATES.index(choice.without[1]) != PLANTED[1]
    assert [CANDIDATES.index(choice.without[fold]) for fold in (2, 3)] == PLANTED[2:]
    assert CANDIDATES.index(chosen(spoil=BEST).selected) != BEST


@pytest.mark.parametrize("depth", [None, 5])
def test_the_members_are_all_folds_and_seeds_of_the_folds_augmentation(depth):
    """Problems are numbered by augmentation, fold and seed."""
    numbers = jnp.arange(2 * 4 * 3.0)
    regressions = {"moments": LinearRegression(numbers, numbers)}
    nets = {"moments": TrainedNetworks({5: IlluminantModel({}, numbers, numbers)}, {})}
    candidate = next(item for item in CANDIDATES if item == ("moments", depth))
    losses = {"none": np.array([0.1, 0.4, 0.1, 0.4]), "relit": np.array([0.2, 0.3, 0.2, 0.3])}
    outcome = CrossValidation(nets, regressions, {}, {candidate.name: losses})
    members = outcome.members(*candidate)
    stored = members[0] if depth is None else members.mean
    expected = [
        aug * 12 + fold * 3 + seed for fold, aug in enumerate((0, 1, 0, 1)) for seed in (0, 1, 2)
    ]
    np.testing.assert_array_equal(np.asarray(stored), expected)


def test_the_coverage_counts_each_fold_by_its_own_choice(rng, pairs):
    """The candidate kept is far off and well calibrated; those chosen without a fold are not."""
    count = 40
    illuminants = np.float32(np.exp(rng.normal(0, 0.2, (count, 3))))
    data = pairs._replace(
        main=illuminants, second=illuminants, folds=np.arange(count).reshape(4, 10)
    )
    truth = data.targets(data.folds)
    estimates = {
        item.estimator: (truth * np.exp(0.01 * rng.normal(size=truth.shape)))[None]
        for item in CANDIDATES
    }
    wide = truth * np.exp(rng.normal(0, 0.6, truth.shape))
    estimates[CANDIDATES[0].estimator] = wide[None]
    estimates = {name: np.float32(item) for name, item in estimates.items()}
    outcome = CrossValidation({}, {}, estimates, {})
    complete = tuple(CANDIDATES[1] for _ in range(4))
    predicted = ViewChoice(data, outcome, CANDIDATES[0], complete).coverage()
    assert predicted.degrees < 3
    assert predicted.uninformative == 0
    widely = ViewChoice(data, outcome, CANDIDATES[1], (CANDIDATES[0],) * 4).coverage()
    assert widely.degrees > 15
    assert widely.uninformative > 0.9


def test_one_training_per_fold_has_no_ensemble(chosen):
    """Its row would repeat that of the single training."""
    choice = chosen()
    assert sum(name.endswith(", ensemble") for name in choice.illuminants()) == 3
    first = {name: actual[:1] for name, actual in choice.outcome.estimates.items()}
    single = choice._replace(outcome=choice.outcome._replace(estimates=first))
    assert not any(name.endswith(", ensemble") for name in single.illuminants())
    assert {*single.illuminants()} < {*choice.illuminants()}
