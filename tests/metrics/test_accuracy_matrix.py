"""Metrics of the accuracy matrix by hand and in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from everlight.metrics import accuracy_matrix
from everlight.metrics.accuracy_matrix import (
    gem_forward_transfer,
    intransigence,
    learning_curve_area,
)

NAMES = (
    "accuracy",
    "backward_transfer",
    "remembering",
    "positive_backward_transfer",
    "forward_transfer",
    "gem_backward_transfer",
    "forgetting",
    "average_incremental_accuracy",
    "final_average_accuracy",
)
METRICS = {name: jax.jit(getattr(accuracy_matrix, name)) for name in NAMES}
COMPARING = {name for name in NAMES if "accuracy" not in name}
fractions = st.floats(0, 1, width=32)
matrices = st.sampled_from([2, 3, 6]).flatmap(
    lambda n: hnp.arrays(np.float32, (n, n), elements=fractions)
)


def matrix(values):
    return jnp.asarray(values, jnp.float32)


FORGETS = matrix([[0.8, 0.3, 0.1], [0.6, 0.9, 0.2], [0.5, 0.7, 1.0]])
IMPROVES = matrix([[0.5, 0.2, 0.6], [0.7, 0.4, 0.1], [0.6, 0.8, 0.9]])
BASELINE = matrix([0.7, 0.2, 0.4])


@pytest.mark.parametrize(
    ("name", "forgets", "improves"),
    [
        # In tenths: (8 + 6 + 9 + 5 + 7 + 10) / 6 and (5 + 7 + 4 + 6 + 8 + 9) / 6.
        ("accuracy", 3 / 4, 13 / 20),
        # ((6 - 8) + (5 - 8) + (7 - 9)) / 3 and ((7 - 5) + (6 - 5) + (8 - 4)) / 3.
        ("backward_transfer", -7 / 30, 7 / 30),
        ("remembering", 23 / 30, 1),
        ("positive_backward_transfer", 0, 7 / 30),
        # (3 + 1 + 2) / 3 and (2 + 6 + 1) / 3.
        ("forward_transfer", 1 / 5, 3 / 10),
        # ((5 - 8) + (7 - 9)) / 2 and ((6 - 5) + (8 - 4)) / 2.
        ("gem_backward_transfer", -1 / 4, 1 / 4),
        # ((8 - 5) + (9 - 7)) / 2 and ((7 - 6) + (4 - 8)) / 2.
        ("forgetting", 1 / 4, -3 / 20),
        # (8 + 15 / 2 + 22 / 3) / 3 and (5 + 11 / 2 + 23 / 3) / 3.
        ("average_incremental_accuracy", 137 / 180, 109 / 180),
        # (5 + 7 + 10) / 3 and (6 + 8 + 9) / 3.
        ("final_average_accuracy", 11 / 15, 23 / 30),
    ],
)
def test_metrics_by_hand(name, forgets, improves):
    result = METRICS[name](FORGETS)
    assert result.dtype == jnp.float32
    assert result == pytest.approx(forgets, abs=2e-7)
    assert METRICS[name](IMPROVES) == pytest.approx(improves, abs=2e-7)


def test_gem_forward_transfer_by_hand():
    # ((3 - 2) + (2 - 4)) / 2 and ((2 - 2) + (1 - 4)) / 2 tenths.
    assert gem_forward_transfer(FORGETS, BASELINE) == pytest.approx(-1 / 20, abs=1e-7)
    assert gem_forward_transfer(IMPROVES, BASELINE) == pytest.approx(-3 / 20, abs=1e-7)


def test_forgetting_counts_the_best_accuracy_before_a_task_was_learned():
    accuracies = matrix([[0.5, 0.9, 0.1], [0.5, 0.6, 0.1], [0.5, 0.7, 1.0]])
    # ((5 - 5) + (9 - 7)) / 2 tenths; from the diagonal on it would be ((5 - 5) + (6 - 7)) / 2.
    assert METRICS["forgetting"](accuracies) == pytest.approx(1 / 10, abs=1e-7)


def exact(accuracies):
    """Return all metrics in float64, by the papers' sums with 1-based i and j."""
    tasks = len(accuracies)
    r = {(i + 1, j + 1): float(v) for (i, j), v in np.ndenumerate(accuracies)}
    numbers = range(1, tasks + 1)
    pairs = tasks * (tasks - 1) / 2
    bwt = sum(r[i, j] - r[j, j] for i in range(2, tasks + 1) for j in range(1, i)) / pairs
    return {
        "accuracy": sum(v for (i, j), v in r.items() if i >= j) / (tasks * (tasks + 1) / 2),
        "backward_transfer": bwt,
        "remembering": 1 - abs(min(bwt, 0)),
        "positive_backward_transfer": max(bwt, 0),
        "forward_transfer": sum(v for (i, j), v in r.items() if i < j) / pairs,
        "gem_backward_transfer": sum(r[tasks, i] - r[i, i] for i in range(1, tasks)) / (tasks - 1),
        "forgetting": sum(
            max(r[i, j] for i in range(1, tasks)) - r[tasks, j] for j in range(1, tasks)
        )
        / (tasks - 1),
        "average_incremental_accuracy": sum(
            sum(r[i, j] for j in range(1, i + 1)) / i for i in numbers
        )
        / tasks,
        "final_average_accuracy": sum(r[tasks, j] for j in numbers) / tasks,
    }


@settings(max_examples=60)
@given(accuracies=matrices)
def test_float64_agrees_and_bounds_hold(accuracies):
    values = {name: float(metric(accuracies)) for name, metric in METRICS.items()}
    assert values == pytest.approx(exact(accuracies), abs=1e-6)
    signed = {"backward_transfer", "gem_backward_transfer", "forgetting"}
    for name, value in values.items():
        assert (-1 if name in signed else 0) <= value <= 1, name
    assert values["gem_backward_transfer"] >= -values["forgetting"] - 1e-6


@pytest.mark.parametrize("tasks", [1, 2, 10])
def test_a_learner_that_keeps_everything(tasks):
    accuracies = jnp.tri(tasks)
    for name in ("accuracy", "average_incremental_accuracy", "final_average_accuracy"):
        # Sums of ones are exact. On a GPU XLA divides by div.full.f32, which errs by up to two
        # units in the last place, and a mean of means divides twice.
        assert METRICS[name](accuracies) == pytest.approx(1, abs=5e-7)
    if tasks > 1:
        assert METRICS["remembering"](accuracies) == 1
        for name in COMPARING - {"remembering"}:
            assert METRICS[name](accuracies) == 0


def test_metrics_that_compare_tasks_are_undefined_for_one():
    single = matrix([[0.75]])
    for name, metric in METRICS.items():
        assert metric(single) == pytest.approx(np.nan if name in COMPARING else 0.75, nan_ok=True)
    assert np.isnan(gem_forward_transfer(single, matrix([0.1])))


BELOW = np.tri(4, k=-1, dtype=bool)
ON = np.eye(4, dtype=bool)
FINAL = np.arange(4)[:, None] == 3
LAST = FINAL.T
READ = {
    "accuracy": BELOW | ON,
    "backward_transfer": BELOW | (ON & ~LAST),
    "remembering": BELOW | (ON & ~LAST),
    "positive_backward_transfer": BELOW | (ON & ~LAST),
    "forward_transfer": ~BELOW & ~ON,
    "gem_backward_transfer": (FINAL | ON) & ~LAST,
    "forgetting": np.broadcast_to(~LAST, (4, 4)),
    "average_incremental_accuracy": BELOW | ON,
    "final_average_accuracy": np.broadcast_to(FINAL, (4, 4)),
}


@pytest.mark.parametrize("name", NAMES)
def test_nan_shows_exactly_where_an_entry_is_read(name, rng):
    accuracies = np.float32(rng.uniform(size=(4, 4)))
    unmeasured = matrix(np.where(READ[name], accuracies, np.nan))
    assert METRICS[name](unmeasured) == METRICS[name](matrix(accuracies))
    for place in np.argwhere(READ[name]):
        assert np.isnan(METRICS[name](matrix(accuracies).at[tuple(place)].set(jnp.nan))), place


def test_over_time_each_row_is_averaged_over_the_tasks_that_it_has_learned():
    over_time = accuracy_matrix.accuracy_over_time(FORGETS)
    # (6 + 9) / 2 and (5 + 7 + 10) / 3, in tenths.
    np.testing.assert_allclose(over_time, [0.8, 0.75, 2.2 / 3], rtol=1e-6)


def test_intransigence_by_hand_per_task():
    # 9 - 8, 7 - 9 and 10 - 10 tenths.
    result = intransigence(FORGETS, matrix([0.9, 0.7, 1.0]))
    np.testing.assert_allclose(result, [0.1, -0.2, 0], atol=1e-7)
    off_diagonal = jnp.where(jnp.eye(3, dtype=bool), FORGETS, jnp.nan)
    np.testing.assert_array_equal(intransigence(off_diagonal, matrix([0.9, 0.7, 1.0])), result)


def test_learning_curve_area_by_hand():
    curves = matrix([[0.1, 0.5, 0.9], [0.2, 0.8, 0.8]])
    # Z = 1.5, 6.5 and 8.5 tenths; their mean is 5.5.
    assert learning_curve_area(curves) == pytest.approx(0.55, abs=1e-7)
    # LCA_0 is the mean accuracy before training on a task.
    assert learning_curve_area(curves[:, :1]) == pytest.approx(0.15, abs=1e-7)
    # A curve that rises at once has the greater area, though both end alike.
    late, soon = matrix([[0, 0, 0, 1.0]]), matrix([[0, 1.0, 1.0, 1.0]])
    assert learning_curve_area(late) == 0.25
    assert learning_curve_area(soon) == 0.75


def test_learning_curve_area_is_the_paper_s_sum_not_the_authors_trapezoids():
    """The end points have a whole share here, and half of one in the authors' notebook."""
    curve = np.array([0.1, 0.5, 0.7, 0.9])
    result = learning_curve_area(matrix([curve]))
    assert result == pytest.approx(2.2 / 4, abs=1e-7)
    assert np.trapezoid(curve, np.arange(4)) / 3 == pytest.approx(1.7 / 3)
