"""Estimates of a pair of colour arrays, and the reasons to distrust or refuse them."""

import numpy as np
import pytest

from everlight.illuminant.out_of_distribution import OutOfDistributionScore
from everlight.illuminant.pair_estimate import UnsuitablePairError, estimate_pair
from tests.illuminant.closed_form_net import (
    ILLUMINANT,
    ClosedFormNet,
    pair_estimates,
    pair_transform,
)


class Planted(ClosedFormNet):
    """A model whose estimates are given."""

    def __init__(self, estimates):
        self.estimate = lambda inputs: estimates


@pytest.fixture
def colors(rng):
    return np.float32(rng.uniform(0.05, 0.6, (5, 7, 3)))


def estimated(model, main, second=None):
    second = main @ np.float32(pair_transform(ILLUMINANT)) if second is None else second
    return estimate_pair(model, main, second, np.ones(main.shape[:2], bool))


def test_the_closed_form_answer_is_returned_with_its_transform(colors):
    result = estimated(ClosedFormNet(), colors)
    np.testing.assert_allclose(result.transform, pair_transform(ILLUMINANT), atol=1e-4)
    np.testing.assert_allclose(result.estimates.main.illuminant, ILLUMINANT, rtol=1e-3)
    np.testing.assert_allclose(result.condition, np.linalg.cond(colors.reshape(-1, 3)), rtol=1e-4)
    assert result.warnings == ()


def test_unusable_places_take_no_part(colors):
    second = colors @ np.float32(pair_transform(ILLUMINANT))
    usable = np.ones(colors.shape[:2], bool)
    usable[2, 3] = False
    second[2, 3] = 100
    result = estimate_pair(ClosedFormNet(), colors, second, usable)
    np.testing.assert_allclose(result.transform, pair_transform(ILLUMINANT), atol=1e-4)


def test_an_uninformative_interval_is_warned_of(colors):
    predicted = pair_estimates([0.5, 1, 0.6])
    wide = predicted._replace(main=predicted.main._replace(uninformative=True))
    (warning,) = estimated(Planted(wide), colors).warnings
    assert "its interval has a radius of 3.2 degrees, no less than that of the training" in warning
    assert "THE ESTIMATE IS UNINFORMATIVE" in warning


def test_a_second_camera_too_far_from_training_is_left_out(colors):
    predicted = pair_estimates([0.5, 1, 0.6], [0.8, 1, 0.4])
    far = predicted.second._replace(score=OutOfDistributionScore(9.0, 0.0))
    result = estimated(Planted(predicted._replace(second=far)), colors)
    assert result.estimates.second is None
    assert "second illuminant: out-of-distribution score 9.00" in result.warnings[0]


def test_a_model_on_moments_needs_no_colorful_scene():
    class Moments(ClosedFormNet):
        needs_transform = False

        def estimate(self, inputs):
            return pair_estimates([inputs.moments["main"][2], 1, inputs.moments["main"][0]])

    gray = np.full((5, 7, 3), [0.2, 0.4, 0.3], np.float32)
    result = estimated(Moments(), gray, gray)
    assert result.transform is None
    # All moments of one colour are that colour; their mean is one.
    mean = np.mean([0.3, 0.4, 0.2, 0.3, 0.12**0.5, 0.4, 0.06**0.5, 0.08**0.5, 0.2])
    expected = np.array([0.2, 0.3]) / mean
    np.testing.assert_allclose(result.estimates.main.illuminant[::2], expected, rtol=1e-3)


@pytest.mark.parametrize(
    "scene",
    [
        lambda colors, rng: np.full_like(colors, [0.2, 0.4, 0.3]),
        lambda colors, rng: colors[..., :1] * np.float32([1.0, 0.0, 0.5]),
        # The rank is 1 but for a noise of 0.2%.
        lambda colors, rng: np.float32(
            np.linspace(0.1, 0.2, 7)[:, None] * [0.5, 1, 0.7] + rng.normal(0, 2e-4, colors.shape)
        ),
    ],
    ids=["one colour", "one hue", "a grey wall"],
)
def test_too_few_colors_are_refused(colors, rng, scene):
    with pytest.raises(UnsuitablePairError, match=r"three independent colours.*colourful"):
        estimated(ClosedFormNet(), scene(colors, rng), colors)


def test_a_transform_without_the_models_scale_is_refused_for_this_reason(rng):
    """The colours determine a transform; the model's scale, its mean row sum, is below 0."""

    class RowSums(ClosedFormNet):
        fit = "scale"

    transform = np.array([[-1.9, -2.0, -0.4], [2.4, 2.6, 0.9], [-0.9, -0.7, -0.4]])
    greens = np.array([0.45, 1, 0.5]) * rng.uniform(0.2, 0.8, (64, 1))
    main = np.float32(greens + rng.uniform(-0.02, 0.02, (64, 3)))[None]
    second = np.float32(main @ transform)
    assert np.linalg.cond(main[0]) < 300
    with pytest.raises(UnsuitablePairError, match=r"mean row sum, which is not positive"):
        estimated(RowSums(), main, second)

    class Means(RowSums):
        fit = "mean"

        def estimate(self, inputs):
            return pair_estimates([0.5, 1, 0.6])

    expected = np.linalg.lstsq(*(np.float64(v[0]) / v.mean() for v in (main, second)))[0]
    np.testing.assert_allclose(estimated(Means(), main, second).transform, expected, rtol=2e-2)


@pytest.mark.parametrize(
    ("spoiled", "cause"),
    [(0, "second camera have a mean of 0 or less"), (np.nan, "second camera is NaN or infinite")],
)
def test_the_true_cause_is_named(colors, spoiled, cause):
    with pytest.raises(UnsuitablePairError, match=cause):
        estimated(ClosedFormNet(), colors, np.full_like(colors, spoiled))


def test_spoilt_and_missing_colors_of_the_main_camera_are_named(colors):
    spoilt = colors.copy()
    spoilt[2, 3, 1] = np.nan
    with pytest.raises(UnsuitablePairError, match="a colour of the main camera is NaN"):
        estimated(ClosedFormNet(), spoilt, colors)
    with pytest.raises(UnsuitablePairError, match="no place is seen by both cameras"):
        estimate_pair(ClosedFormNet(), colors, colors, np.zeros(colors.shape[:2], bool))


def test_an_estimate_that_is_no_illuminant_is_refused(colors):
    with pytest.raises(
        UnsuitablePairError, match=r"is not an illuminant; .*Main Eye and Second Eye"
    ):
        estimated(Planted(pair_estimates([np.inf, 1, 0.5])), colors)
