"""Three folds: what is chosen is chosen inside each fold, and regression gets what nets get."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.illuminant import camera_pairs, pair_augmentations, pair_inputs
from everlight.illuminant.illuminant_training import TrainingSettings
from everlight_experiments.illuminant.core import cross_validation
from everlight_experiments.illuminant.core.cross_validation import (
    CHOSEN,
    Estimator,
    cross_validate,
    split_samples,
)
from everlight_experiments.illuminant.core.experiment import angular_errors
from everlight_experiments.illuminant.core.networks import NetworkTraining

SETTINGS = TrainingSettings(20, batch_size=8, validate_every=2)


@pytest.fixture
def pairs(rng):
    illuminants = np.stack([rng.uniform(0.4, 1.2, 60), np.ones(60), rng.uniform(0.4, 1.2, 60)], 1)
    features = np.float32(illuminants[:, [0, 2]] @ rng.normal(size=(2, 9)) + 1)
    predicted = np.float32(illuminants[:, [0, 2]] * rng.uniform(0.9, 1.1, (60, 2)))
    folds = rng.permutation(60).reshape(3, 20)
    return camera_pairs.CameraPairs(
        inputs=pair_inputs.alone_and_joined(
            {pair_inputs.TRANSFORM: features, pair_inputs.WHITE_BALANCE: predicted}
        ),
        main=np.float32(illuminants),
        second=np.float32(illuminants),
        folds=folds,
        cameras=("a", "b"),
        note="",
    )


@pytest.fixture(autouse=True)
def few_nets(monkeypatch):
    monkeypatch.setattr(cross_validation, "DEPTHS", {"T": (2,)})
    monkeypatch.setattr(cross_validation, "OTHER_DEPTHS", (2,))


def errors_of(outcome, data):
    truth = data.illuminants[data.folds]
    return {n: np.asarray(angular_errors(e, truth)) for n, e in outcome.illuminants().items()}


def good(data, train, key):
    return pair_augmentations.repeat_samples(data, train, 2)


def bad(data, train, key):
    """Permute the targets, so that they have nothing to do with the inputs."""
    samples = pair_augmentations.repeat_samples(data, train, 2)
    return camera_pairs.Samples(
        samples.inputs, jax.random.permutation(key, jnp.asarray(samples.targets))
    )


@pytest.mark.slow
def test_each_fold_takes_the_augmentation_that_its_own_validation_pairs_prefer(pairs, tmp_path):
    """A second augmentation is better on fold 1's training pairs only, and is chosen only there."""
    ones = set(np.setdiff1d(np.arange(60), pairs.folds[1]).tolist())

    def good_in_fold_1(data, train, key):
        return (good if set(train.tolist()) <= ones else bad)(data, train, key)

    def bad_in_fold_1(data, train, key):
        return (bad if set(train.tolist()) <= ones else good)(data, train, key)

    both = {"first": bad_in_fold_1, "second": good_in_fold_1}
    outcome = cross_validate(pairs, both, "held-out", NetworkTraining(SETTINGS, (0, 1), tmp_path))
    name = "Linear regression"
    losses = outcome.validation[name]
    assert np.argmin([losses["first"], losses["second"]], axis=0).tolist() == [0, 1, 0]
    chosen = outcome.estimates[Estimator(name)]
    for fold, aug in enumerate(("first", "second", "first")):
        np.testing.assert_array_equal(
            chosen[:, fold], outcome.estimates[Estimator(name, aug)][:, fold]
        )
    # Exact where the training was good: the chromaticity is linear in these features.
    assert errors_of(outcome, pairs)[f"{name}, {CHOSEN}"].max() < 0.05


def test_an_augmentation_by_which_nets_diverge_is_not_chosen(pairs, tmp_path):
    def not_finite(data, train, key):
        samples = pair_augmentations.repeat_samples(data, train, 2)
        inputs = {name: np.array(values) for name, values in samples.inputs.items()}
        for values in inputs.values():
            values[0] = np.nan
        return samples._replace(inputs=inputs)

    both = {"good": good, "diverging": not_finite}
    outcome = cross_validate(pairs, both, "held-out", NetworkTraining(SETTINGS, (0,), tmp_path))
    name = next(name for name in outcome.validation if name != "Linear regression")
    assert np.isnan(outcome.validation[name]["diverging"]).any()
    np.testing.assert_array_equal(
        outcome.estimates[Estimator(name)], outcome.estimates[Estimator(name, "good")]
    )


def test_test_pairs_have_no_part_in_what_is_chosen(pairs, tmp_path):
    """Other illuminants in a test fold change nothing that was fitted or chosen for that fold."""
    both = {"first": good, "second": bad}
    changed = pairs._replace(main=pairs.main.copy())
    changed.main[pairs.folds[2]] *= [3, 1, 0.2]
    outcomes = [
        cross_validate(data, both, "held-out", NetworkTraining(SETTINGS, (0,), tmp_path / name))
        for name, data in (("as is", pairs), ("changed", changed))
    ]
    for name in outcomes[0].estimates:
        before, after = (outcome.estimates[name][:, 2] for outcome in outcomes)
        np.testing.assert_array_equal(before, after)
    for method, losses in outcomes[0].validation.items():
        for augmentation in both:
            assert losses[augmentation][2] == outcomes[1].validation[method][augmentation][2]


@pytest.mark.slow
def test_regression_is_fitted_to_the_nets_training_samples(pairs, tmp_path):
    """Float64 least squares agree on the same augmented samples, without validation pairs."""
    only = {"mixed": pair_augmentations.PHONE_AUGMENTATIONS["mixed with 5"]}
    outcome = cross_validate(pairs, only, "held-out", NetworkTraining(SETTINGS, (3,), tmp_path))
    for fold in range(3):
        problem = camera_pairs.problem_of(
            "T", *split_samples(pairs, only["mixed"], "held-out", fold, 3)
        )
        assert len(problem.features) == 100 * (40 - 6)
        features = np.float64(np.column_stack([problem.features, np.ones(len(problem.features))]))
        weights = np.linalg.lstsq(features, np.float64(problem.targets), rcond=1e-6)[0]
        test = np.column_stack([pairs.inputs["T"][pairs.folds[fold]], np.ones(20)])
        estimates = outcome.estimates[Estimator("Linear regression", "mixed")][0, fold]
        np.testing.assert_allclose(estimates, test @ weights, atol=2e-3)


def test_each_fold_trains_at_the_rate_that_its_validation_pairs_prefer(pairs, tmp_path):
    """At a rate of 0 a net does not change."""
    only, pairs = {"good": good}, pairs._replace(inputs={"T": pairs.inputs["T"]})
    both, low, high = (
        cross_validate(
            pairs, only, "held-out", NetworkTraining(SETTINGS, (0, 1), tmp_path / name, rates)
        )
        for name, rates in (("both", (1e-9, 1e-2)), ("low", (1e-9,)), ("high", (1e-2,)))
    )
    name = "Net, 200 parameters"
    assert (high.validation[name]["good"] < low.validation[name]["good"]).all()
    np.testing.assert_array_equal(
        both.estimates[Estimator(name, "good")], high.estimates[Estimator(name, "good")]
    )


def test_the_second_cameras_illuminant_is_printed_where_it_is_requested(pairs, tmp_path):
    """The match is exact, as features are linear in it, and not in the main camera's illuminant."""
    other = pairs.main[:, ::-1] ** 2
    inputs = {"T": pairs.inputs["T"]}
    requested = pairs._replace(inputs=inputs, main=other, second=pairs.main, view="second")
    outcome = cross_validate(
        requested,
        {"good": good},
        "held-out",
        NetworkTraining(SETTINGS, (0,), tmp_path),
        {"T": (2,)},
    )
    np.testing.assert_array_equal(requested.targets(np.arange(3)), pairs.main[:3, ::2])
    assert errors_of(outcome, requested)["Linear regression, good"].max() < 0.05


def test_other_pairs_than_those_that_train_are_tested(pairs, tmp_path):
    """Every third training pair is one that is tested, as in released augmentations."""
    data = pairs._replace(inputs={"T": pairs.inputs["T"]})
    thrice = data._replace(
        inputs={"T": np.repeat(data.inputs["T"], 3, axis=0)},
        main=np.repeat(data.main, 3, axis=0),
        second=np.repeat(data.second, 3, axis=0),
        folds=np.stack([np.concatenate([3 * fold + i for i in range(3)]) for fold in data.folds]),
    )
    same = {"thrice": lambda inputs, train, key: inputs.samples(train)}
    outcome = cross_validate(
        thrice, same, "test-set", NetworkTraining(SETTINGS, (4, 5), tmp_path), tested=data
    )
    assert outcome.estimates[Estimator("Net, 200 parameters", "thrice")].shape == (2, 3, 20, 2)
    assert errors_of(outcome, data)["Linear regression, thrice"].max() < 0.05
