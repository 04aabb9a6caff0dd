"""Rejection curves against scikit-learn and against counting, partial test sets by counting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight.metrics import open_set

SIZE, PADDED = 40, 45
curve_of = jax.jit(open_set.rejection_curve)


def created(seed, levels):
    """Return confidences of few levels, many of them equal; the last five samples are padding."""
    rng = np.random.default_rng(seed)
    known = rng.random(PADDED) < 0.6
    known[:2] = True, False
    correct = rng.random(PADDED) < 0.7
    confidence = (rng.integers(1, levels + 1, PADDED) + known * levels // 3) / (2 * levels)
    mask = np.arange(PADDED) < SIZE
    return confidence.astype(np.float32), correct, known, mask


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from([2, 5, 1000]))
def test_the_curve_is_scikit_learns(seed, levels):
    metrics = pytest.importorskip("sklearn.metrics")
    confidence, correct, known, mask = created(seed, levels)
    curve = curve_of(*map(jnp.asarray, (confidence, correct, known, mask)))
    unknown, true, thresholds = metrics.roc_curve(
        known[mask], confidence[mask], drop_intermediate=False
    )
    actual = np.unique(np.stack(curve[:3], axis=1)[: SIZE + 1], axis=0)
    reference = np.unique(np.stack([thresholds, true, unknown], axis=1), axis=0)
    np.testing.assert_allclose(actual, reference, atol=1e-6)
    area = metrics.roc_auc_score(known[mask], confidence[mask])
    np.testing.assert_allclose(open_set.roc_area(curve), area, atol=1e-5)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from([2, 5, 1000]))
def test_every_point_counts_what_its_threshold_accepts(seed, levels):
    confidence, correct, known, mask = created(seed, levels)
    curve = curve_of(*map(jnp.asarray, (confidence, correct, known, mask)))
    assert curve.threshold[0] == np.inf
    for point in range(PADDED + 1):
        accepted = mask & (confidence >= float(curve.threshold[point]))
        right = (accepted & known & correct) | (~accepted & ~known)
        np.testing.assert_allclose(curve.accuracy[point], right[mask].mean(), rtol=1e-6)
        shares = accepted[mask & known].mean(), accepted[mask & ~known].mean()
        both = curve.known_accepted[point], curve.unknown_accepted[point]
        np.testing.assert_allclose(both, shares, rtol=1e-6)


def test_without_unknown_samples_their_part_is_nan():
    everything = jnp.ones(3, bool)
    curve = open_set.rejection_curve(jnp.array([0.2, 0.9, 0.5]), everything, everything, everything)
    assert np.isnan(curve.unknown_accepted).all()
    np.testing.assert_allclose(curve.accuracy, [0, 1 / 3, 2 / 3, 1], rtol=1e-6)


def test_the_partial_test_set_is_that_of_known_classes():
    correct, known, mask = (
        jnp.array(bits, bool) for bits in ([1, 0, 1, 1, 0], [1, 1, 1, 0, 1], [1, 1, 1, 1, 0])
    )
    np.testing.assert_allclose(
        open_set.partial_test_accuracy(correct, known, mask), 2 / 3, rtol=1e-6
    )
    assert np.isnan(open_set.partial_test_accuracy(correct, ~mask, mask))


def test_confidence_is_the_greatest_probability(rng):
    scores = rng.normal(size=(6, 4)) * 30
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = (powers / powers.sum(axis=1, keepdims=True)).max(axis=1)
    result = open_set.maximum_softmax_probability(jnp.asarray(scores, jnp.float32))
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_scores_over_time_are_those_of_every_task():
    rows = [
        np.stack(item) for item in zip(*(created(seed, 4)[:3] for seed in range(3)), strict=True)
    ]
    mask, points = jnp.arange(PADDED) < SIZE, jnp.linspace(0, 1, 5)
    result = open_set.open_set_scores_over_time(*map(jnp.asarray, rows), mask, points)
    for task in range(3):
        single = open_set.open_set_scores(*(jnp.asarray(row[task]) for row in rows), mask, points)
        for actual, part in zip(result, single, strict=True):
            np.testing.assert_allclose(actual[task], part, rtol=1e-6)


def test_the_roc_ends_at_1_and_takes_the_top_of_a_vertical_step():
    """The unknown sample is the second of three: the curve goes (0, ½), (1, ½), (1, 1)."""
    scores, everything = jax.jit(open_set.open_set_scores), jnp.ones(3, bool)
    confidence, points = jnp.array([0.9, 0.5, 0.3]), jnp.array([0, 0.5, 1])
    known = jnp.array([True, False, True])
    result = scores(confidence, everything, known, everything, points)
    np.testing.assert_allclose(result.roc, [0.5, 0.5, 1])
    known_only = scores(confidence, everything, everything, everything, points)
    assert np.isnan(known_only.roc).all()
