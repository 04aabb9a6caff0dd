"""Augmented pairs: equally many, and inputs that belong together."""

import jax
import numpy as np
import pytest

from everlight.color.moments import color_moments
from everlight.illuminant.camera_pairs import CameraPairs, finite_rows
from everlight.illuminant.pair_augmentations import (
    IMAGE_AUGMENTATIONS,
    PHONE_AUGMENTATIONS,
    resampled,
)
from everlight.illuminant.pair_inputs import (
    MOMENTS,
    TRANSFORM,
    TRANSFORM_AND_WHITE_BALANCE,
    VIEWS,
    WHITE_BALANCE,
    alone_and_joined,
)


@pytest.fixture
def pairs(rng):
    """Return sixty pairs with drawn illuminants, whose white balance is off by up to a tenth."""
    illuminants = np.stack([rng.uniform(0.4, 1.2, 60), np.ones(60), rng.uniform(0.4, 1.2, 60)], 1)
    features = np.float32(illuminants[:, [0, 2]] @ rng.normal(size=(2, 9)) + 1)
    predicted = np.float32(illuminants[:, [0, 2]] * rng.uniform(0.9, 1.1, (60, 2)))
    return CameraPairs(
        inputs=alone_and_joined({TRANSFORM: features, WHITE_BALANCE: predicted}),
        main=np.float32(illuminants),
        second=np.float32(illuminants),
        folds=rng.permutation(60).reshape(3, 20),
        cameras=("a", "b"),
        note="",
    )


@pytest.mark.parametrize("name", list(PHONE_AUGMENTATIONS))
def test_augmentations_give_equally_many_and_inputs_that_belong_together(pairs, name):
    train = np.setdiff1d(np.arange(60), pairs.folds[0])
    samples = PHONE_AUGMENTATIONS[name](pairs, train, jax.random.key(0))
    assert len(samples.targets) == 100 * len(train)
    joined = np.hstack([samples.inputs["T"], samples.inputs[WHITE_BALANCE]])
    np.testing.assert_allclose(samples.inputs[TRANSFORM_AND_WHITE_BALANCE], joined, rtol=1e-6)
    # The camera's own estimate is off by the same factor as before, for any illuminant.
    if name != "none" and "mixed" not in name:
        ratios = np.asarray(samples.inputs[WHITE_BALANCE] / samples.targets)
        ratios = ratios.reshape(len(train), 100, 2)
        np.testing.assert_allclose(ratios, np.repeat(ratios[:, :1], 100, axis=1), rtol=1e-4)


def unchanged(data, train, key):
    return data.samples(train)


def drawn_pairs(samples, data, train):
    """Return the row of each sample, which its inputs and targets must agree on."""
    rows = [
        np.flatnonzero((data.inputs["T"] == values).all(axis=1)) for values in samples.inputs["T"]
    ]
    (places,) = np.transpose(rows)
    assert set(places) <= set(train)
    np.testing.assert_array_equal(samples.targets, data.targets(places))
    return places.tolist()


def test_trainings_of_two_seeds_resample_other_pairs(pairs):
    """Fewer samples are drawn without repetition, and more repeat a drawn order."""
    train = np.setdiff1d(np.arange(60), pairs.folds[0])
    few = resampled(unchanged, 15)
    first, again, other = (
        drawn_pairs(few(pairs, train, jax.random.key(seed)), pairs, train) for seed in (1, 1, 2)
    )
    assert first == again
    assert set(first) != set(other)
    assert len(set(first)) == len(set(other)) == 15
    many = drawn_pairs(resampled(unchanged, 100)(pairs, train, jax.random.key(1)), pairs, train)
    assert many[:40] == many[40:80] != sorted(many[:40])
    assert sorted(many[:40]) == train.tolist()
    assert many[80:] == many[:20]


def test_rows_that_are_not_finite_are_replaced_by_others_in_turn():
    inputs = np.arange(12.0).reshape(6, 2)
    inputs[[1, 4]] = np.nan, np.inf
    assert finite_rows(inputs).tolist() == [0, 2, 3, 5, 0, 2]
    assert finite_rows(inputs * np.nan).tolist() == []


def test_the_second_views_targets_are_the_second_cameras(pairs):
    other = pairs._replace(second=pairs.main[:, ::-1] ** 2, view="second")
    np.testing.assert_array_equal(other.targets(np.arange(3)), other.second[:3, ::2])
    samples = other.samples(np.array([7, 5]))
    np.testing.assert_array_equal(samples.targets, other.second[[7, 5], ::2])
    np.testing.assert_array_equal(samples.inputs["T"], other.inputs["T"][[7, 5]])


@pytest.mark.parametrize("view", VIEWS)
def test_moments_are_relit_by_the_illuminants_of_the_estimated_view(rng, view):
    """The relit means have the target's chromaticity where the surfaces average to grey."""
    illuminants = {name: np.float32(rng.uniform(0.5, 1.2, (8, 3))) for name in VIEWS}
    seen = illuminants[view] / illuminants[view][:, 1:2]
    pixels = rng.uniform(0.1, 1, (8, 200, 3))
    pixels *= (seen / pixels.mean(axis=1))[:, None]
    pairs = CameraPairs(
        inputs={MOMENTS: np.stack([color_moments(np.float32(p), degree=2) for p in pixels])},
        **illuminants,
        folds=np.zeros((1, 0), int),
        cameras=("a", "b"),
        note="",
        view=view,
    )
    samples = IMAGE_AUGMENTATIONS["re-illuminated"](pairs, np.arange(8), jax.random.key(0))
    blue, green, red = np.asarray(samples.inputs[MOMENTS])[:, :3].T
    relit = np.stack([red / green, blue / green], axis=1)
    np.testing.assert_allclose(relit, samples.targets, rtol=1e-3)
