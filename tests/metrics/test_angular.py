"""Angular and reproduction errors by hand and in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight.metrics import angular

seeds = st.integers(0, 2**32 - 1)
channel = st.floats(0.0625, 8, width=32)
illuminant = st.tuples(channel, channel, channel)
angle_between = jax.jit(angular.angular_error)
summarize = jax.jit(angular.summarize_errors)


def vector(values):
    return jnp.asarray(values, jnp.float32)


def exact_angle(first, second):
    """Return the angle in float64 by Kahan's formula: half of it from the rhombus's sides."""
    first, second = (np.float64(v) / np.linalg.norm(np.float64(v)) for v in (first, second))
    sides = np.linalg.norm(first - second), np.linalg.norm(first + second)
    return np.degrees(2 * np.arctan2(*sides))


@pytest.mark.parametrize(
    ("first", "second", "degrees"),
    [
        ([1, 0, 0], [0, 1, 0], 90),
        ([1, 0, 0], [1, 1, 0], 45),
        ([1, 1, 1], [1, 0, 0], 54.735610317),
        ([1, 1, 1], [2, 2, 2], 0),
        ([1, 1, 1], [-1, -1, -1], 180),
        ([0, 3, 0], [0, -1, np.sqrt(3)], 120),
    ],
)
def test_angles_known_by_hand(first, second, degrees):
    assert angle_between(vector(first), vector(second)) == pytest.approx(degrees, rel=2e-7)


@pytest.mark.parametrize("degrees", [1e-4, 1e-3, 0.01, 0.03, 0.3, 3])
def test_tiny_angles_keep_their_digits(degrees):
    truth = np.array([0.6, 1.0, 0.4])
    aside = np.cross(truth, [0, 0, 1])
    aside *= np.linalg.norm(truth) / np.linalg.norm(aside)
    estimate = np.float32(truth + np.tan(np.radians(degrees)) * aside)
    truth = np.float32(truth)
    expected = exact_angle(estimate, truth)
    assert angle_between(vector(estimate), vector(truth)) == pytest.approx(expected, abs=1e-5)
    assert expected == pytest.approx(degrees, abs=1e-5)


@given(first=illuminant, second=illuminant)
def test_float64_agrees_for_any_two_illuminants(first, second):
    error = angle_between(vector(first), vector(second))
    assert error == pytest.approx(exact_angle(np.float32(first), np.float32(second)), abs=2e-5)
    # The bits may differ: a product of the cross product may be fused into the subtraction.
    assert error == pytest.approx(float(angle_between(vector(second), vector(first))), abs=2e-5)


@given(
    first=illuminant,
    second=illuminant,
    powers=st.tuples(st.integers(-90, 90), st.integers(-90, 90)),
)
def test_the_scale_of_neither_illuminant_matters(first, second, powers):
    error = angle_between(vector(first), vector(second))
    scaled = [vector(v) * vector(2.0**p) for v, p in zip((first, second), powers, strict=True)]
    # Powers of two round nothing.
    assert angle_between(*scaled) == error


@pytest.mark.parametrize("broken", [[0, 0, 0], [np.nan, 1, 1], [1, np.inf, 1], [1, 1, -np.inf]])
def test_invalid_illuminants_have_no_angle(broken):
    assert np.isnan(angle_between(vector(broken), vector([1, 1, 1])))
    assert np.isnan(angle_between(vector([1, 1, 1]), vector(broken)))


reproduced_apart = jax.jit(angular.reproduction_error)


@pytest.mark.parametrize(
    ("estimate", "truth", "degrees"),
    [
        ((1, 2, 3), (2, 4, 6), 0),
        # White becomes (1, 1, 2): its cosine with grey is 4 / sqrt(3 * 6).
        ((1, 1, 1), (1, 1, 2), 19.471220634490695),
        ((1, 1, 2), (1, 1, 1), 15.793169048263958),  # (2, 2, 1): 5 / sqrt(3 * 9)
        ((2, 1, 1), (2, 3, 0), 43.088723135362834),  # (1, 3, 0): 4 / sqrt(3 * 10)
    ],
)
def test_reproduction_errors_known_by_hand(estimate, truth, degrees):
    result = reproduced_apart(vector(estimate), vector(truth))
    np.testing.assert_allclose(result, degrees, atol=2e-5)


@settings(max_examples=50)
@given(illuminant, illuminant, illuminant)
def test_an_illuminant_on_the_scene_leaves_the_reproduction_error_as_it_is(
    estimate, truth, relight
):
    """The recovery error does change, which is why this one was defined."""
    estimate, truth, relight = map(vector, (estimate, truth, relight))
    before = reproduced_apart(estimate, truth)
    after = reproduced_apart(estimate * relight, truth * relight)
    np.testing.assert_allclose(after, before, atol=2e-3)


def test_reproduction_errors_where_there_is_none():
    truth, without_green = vector((1, 2, 3)), vector((1, 0, 3))
    assert np.isnan(reproduced_apart(without_green, truth))
    assert np.isfinite(reproduced_apart(truth, without_green))
    assert np.isnan(reproduced_apart(truth, vector((0, 0, 0))))
    for broken in (np.nan, np.inf, -np.inf):
        assert np.isnan(reproduced_apart(vector((1, broken, 3)), truth))
        assert np.isnan(reproduced_apart(truth, vector((1, broken, 3))))


def exact_summary(errors):
    """Return the summary in float64, as the paper's release: sorted, round(n / 4) at the ends."""
    ascending = np.sort(np.asarray(errors, np.float64))
    quarter = max(round(len(ascending) / 4), 1)
    q1, median, q3 = np.percentile(ascending, [25, 50, 75], method="linear")
    return angular.ErrorSummary(
        mean=np.mean(ascending),
        median=median,
        trimean=0.25 * q1 + 0.5 * median + 0.25 * q3,
        best25=np.mean(ascending[:quarter]),
        worst25=np.mean(ascending[-quarter:]),
        q1=q1,
        q3=q3,
        max=ascending[-1],
        invalid=0,
    )


def assert_same(summary, expected):
    for name, value in expected._asdict().items():
        np.testing.assert_allclose(getattr(summary, name), value, rtol=2e-6, err_msg=name)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 8, 10, 54, 162, 3600])
def test_statistics_are_those_of_float64(size, rng):
    errors = np.float32(rng.gamma(1, 2, size))
    assert_same(summarize(errors), exact_summary(errors))


def test_statistics_by_hand():
    summary = summarize(vector([8, 1, 2, 4, 3, 5]))  # round(6 / 4) = 2
    expected = angular.ErrorSummary(23 / 6, 3.5, 3.5, 1.5, 6.5, 2.25, 4.75, 8, 0)
    assert_same(summary, expected)


@settings(max_examples=30)
@given(seed=seeds, valid=st.integers(1, 11))
def test_invalid_errors_are_counted_and_take_no_part(seed, valid):
    rng = np.random.default_rng(seed)
    stored = np.float32(rng.uniform(0, 30, valid))
    broken = rng.choice([np.nan, np.inf, -np.inf], 12 - valid)
    errors = rng.permutation(np.concatenate([stored, np.float32(broken)]))
    expected = exact_summary(stored)._replace(invalid=12 - valid)
    assert_same(summarize(errors), expected)


def test_without_a_valid_error_there_are_no_statistics():
    summary = summarize(jnp.full(7, jnp.nan))
    assert summary.invalid == 7
    assert all(np.isnan(value) for value in summary[:-1])
