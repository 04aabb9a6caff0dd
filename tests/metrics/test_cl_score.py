"""Criteria and score of the continual-learning metrics paper, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight.metrics.cl_score import (
    CRITERIA,
    WEIGHTINGS,
    Costs,
    cl_score,
    cl_stability,
    computational_efficiency,
    count_model_memory,
    count_sample_memory,
    measure_criteria,
    model_size_efficiency,
    samples_storage_efficiency,
    summarize_runs,
)

EQUAL = WEIGHTINGS["W1"]
fraction = st.floats(0, 1, width=32)
criteria = st.fixed_dictionaries(dict.fromkeys(CRITERIA, fraction))
amount = st.floats(1, 1e6, width=32)
amounts = st.sampled_from([1, 2, 5]).flatmap(lambda n: st.lists(amount, min_size=n, max_size=n))


def vector(values):
    return jnp.asarray(values, jnp.float32)


def random_costs(rng, runs, tasks):
    def amount(low, high):
        return vector(rng.uniform(low, high, (runs, tasks)))

    return Costs(
        model_memory=amount(100, 300),
        sample_memory=amount(0, 50),
        lifetime_memory=jnp.full(runs, 60.0),
        operations=amount(2e12, 9e12),
        pass_operations=amount(1e10, 3e11),
    )


@pytest.mark.parametrize(
    ("efficiency", "inputs", "expected"),
    [
        (model_size_efficiency, ([2, 4, 8],), 7 / 12),  # (1 + 1/2 + 1/4) / 3
        (model_size_efficiency, ([8, 4, 2],), 1),  # (1 + 2 + 4) / 3, clipped
        (model_size_efficiency, ([5],), 1),
        (model_size_efficiency, ([0, 4, 8],), np.nan),
        (model_size_efficiency, ([4, 0, 8],), np.nan),
        (model_size_efficiency, ([4, -4, 8],), np.nan),
        (model_size_efficiency, ([4, np.nan, 8],), np.nan),
        (samples_storage_efficiency, ([0, 3, 6], 9), 2 / 3),  # 1 - (0 + 1/3 + 2/3) / 3
        (samples_storage_efficiency, ([0, 0, 0], 9), 1),
        (samples_storage_efficiency, ([9, 9, 18], 9), 0),  # 1 - 4/3, clipped
        (samples_storage_efficiency, ([0, -3, 6], 9), np.nan),
        (samples_storage_efficiency, ([0, np.nan, 6], 9), np.nan),
        (samples_storage_efficiency, ([0, 0, 0], 0), np.nan),
        (samples_storage_efficiency, ([0, 3, 6], 0), np.nan),
        (samples_storage_efficiency, ([0, 3, 6], -9), np.nan),
        # (10/100 + 100/200 + 80/400) / 3, and (1 + 2 + 3) / 3, clipped.
        (computational_efficiency, ([99, 199, 399], [1, 10, 8]), 4 / 15),
        (computational_efficiency, ([9, 9, 9], [1, 2, 3]), 1),
        (computational_efficiency, ([0, 0, 0], [0, 0, 0]), 0),
        (computational_efficiency, ([99, -199, 399], [1, 10, 8]), np.nan),
        (computational_efficiency, ([99, 199, 399], [1, -10, 8]), np.nan),
        (computational_efficiency, ([np.nan, 199, 399], [1, 10, 8]), np.nan),
    ],
)
def test_efficiencies_by_hand(efficiency, inputs, expected):
    assert efficiency(*map(vector, inputs)) == pytest.approx(expected, nan_ok=True)


def test_computational_efficiency_of_forty_epochs_is_a_quarter():
    one_pass = vector([2e12, 5e12])
    assert computational_efficiency(40 * one_pass, one_pass) == pytest.approx(1 / 4)
    assert computational_efficiency(40 * one_pass, one_pass, epsilon=4.0) == pytest.approx(1 / 10)


@jax.jit
def all_efficiencies(memory, total):
    return (
        model_size_efficiency(memory),
        samples_storage_efficiency(memory, total),
        computational_efficiency(memory, total / memory),
    )


@settings(max_examples=50)
@given(memory=amounts, scale=st.sampled_from([0.125, 2.0, 1024.0]))
def test_efficiencies_are_fractions_and_memory_is_in_any_unit(memory, scale):
    memory = vector(memory)
    total = jnp.sum(memory)
    efficiencies = all_efficiencies(memory, total)
    assert all(0 <= efficiency <= 1 for efficiency in efficiencies)
    # Powers of two round nothing.
    assert all_efficiencies(scale * memory, scale * total)[:2] == efficiencies[:2]


def test_counted_memory_by_hand():
    np.testing.assert_array_equal(count_model_memory(100, 2, 4), [100, 300, 300, 300])
    np.testing.assert_array_equal(count_model_memory(100, 0, 3), [100, 100, 100])
    np.testing.assert_array_equal(count_model_memory(7, 1, 1), [7])
    np.testing.assert_array_equal(count_sample_memory(vector([3, 1, 4, 1])), [0, 3, 4, 8])
    np.testing.assert_array_equal(count_sample_memory(vector([3])), [0])


@pytest.mark.parametrize("parameters", [2 * 10**38, 10**40, 10**400])
def test_memory_beyond_a_float32_is_refused(parameters):
    """The memory was infinite in an earlier version."""
    with pytest.raises(ValueError, match="more than a float32 holds"):
        count_model_memory(parameters, 2, 3)


def test_the_criteria_are_the_papers():
    assert set(CRITERIA) == {"A", "MS", "SSS", "CE", "BWT+", "REM", "FWT"}
    assert len(CRITERIA) == 7


@settings(max_examples=60)
@given(values=criteria, weighting=st.sampled_from(sorted(WEIGHTINGS)))
def test_score_is_a_weighted_mean(values, weighting):
    weights = WEIGHTINGS[weighting]
    score = cl_score(values, weights)
    expected = np.dot([values[c] for c in CRITERIA], [weights[c] for c in CRITERIA])
    assert score == pytest.approx(expected, abs=1e-7)
    assert min(values.values()) - 1e-6 <= score <= max(values.values()) + 1e-6
    assert cl_stability(values, weights) == pytest.approx(1 - expected, abs=1e-7)


def test_order_of_keys_does_not_matter():
    values = {name: i / 7 for i, name in enumerate(CRITERIA)}
    backwards = dict(reversed(values.items()))
    weights = WEIGHTINGS["W2"]
    assert cl_score(backwards, weights) == cl_score(values, dict(reversed(weights.items())))


@pytest.mark.parametrize("combine", [cl_score, cl_stability])
def test_wrong_keys_are_named(combine):
    values = dict.fromkeys(CRITERIA, 0.5)
    missing = {key: value for key, value in values.items() if key != "BWT+"}
    unknown = values | {"BWT": 0.5}
    with pytest.raises(ValueError, match=r"missing: BWT\+; unknown: none"):
        combine(missing, EQUAL)
    with pytest.raises(ValueError, match=r"missing: none; unknown: BWT$"):
        combine(unknown, EQUAL)
    with pytest.raises(ValueError, match=r"weights must .* missing: BWT\+; unknown: F$"):
        combine(values, {**dict.fromkeys(missing, 1 / 7), "F": 1 / 7})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"A": 0.5}, "weights sum to 1.1;"),
        ({"A": np.nan}, r"weights\['A'\]=nan; give 0 or more"),
        ({"A": 0.5, "FWT": -0.05}, r"weights\['FWT'\]=-0.05; give 0 or more"),
    ],
)
def test_weights_that_are_no_weighting_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        cl_score(dict.fromkeys(CRITERIA, 0.5), WEIGHTINGS["W3"] | changes)


def test_an_undefined_criterion_shows_even_at_weight_0():
    only_accuracy = dict.fromkeys(CRITERIA, 0.0) | {"A": 1.0}
    values = dict.fromkeys(CRITERIA, 0.5)
    assert cl_score(values, only_accuracy) == 0.5
    assert np.isnan(cl_score(values | {"FWT": np.nan}, only_accuracy))


def test_criteria_of_one_run_by_hand():
    measured = measure_criteria(
        vector([[0.8, 0.3, 0.1], [0.6, 0.9, 0.2], [0.5, 0.7, 1.0]]),
        Costs(
            model_memory=vector([2, 4, 8]),
            sample_memory=vector([0, 3, 6]),
            lifetime_memory=vector(9),
            operations=vector([99, 199, 399]),
            pass_operations=vector([1, 10, 8]),
        ),
    )
    # The fractions of this file and of test_accuracy_matrix.py.
    expected = {"A": 3 / 4, "MS": 7 / 12, "SSS": 2 / 3, "CE": 4 / 15}
    expected |= {"BWT+": 0, "REM": 23 / 30, "FWT": 1 / 5}
    assert {name: float(item) for name, item in measured.items()} == pytest.approx(
        expected, abs=2e-7
    )


def test_summary_is_that_of_the_runs_one_by_one(rng):
    accuracies = vector(rng.uniform(size=(5, 4, 4)))
    costs = random_costs(rng, 5, 4)
    singles = [
        measure_criteria(accuracies[run], Costs(*(field[run] for field in costs)))
        for run in range(5)
    ]
    summary = jax.jit(summarize_runs)(accuracies, costs)
    assert set(summary.mean) == set(summary.deviation) == set(CRITERIA)
    assert {leaf.dtype for leaf in jax.tree.leaves(summary)} == {jnp.dtype("float32")}
    for name in CRITERIA:
        values = np.float64([single[name] for single in singles])
        deviation = np.sqrt(np.sum((values - np.mean(values)) ** 2) / 4)
        assert summary.mean[name] == pytest.approx(np.mean(values), abs=1e-6), name
        assert summary.deviation[name] == pytest.approx(deviation, abs=1e-6), name


def test_one_run_has_no_stability_and_equal_runs_are_stable(rng):
    accuracies, costs = vector(rng.uniform(size=(1, 3, 3))), random_costs(rng, 1, 3)
    single = summarize_runs(accuracies, costs)
    assert 0 < cl_score(single.mean, EQUAL) < 1
    assert np.isnan(cl_stability(single.deviation, EQUAL))
    twice = jax.tree.map(lambda x: jnp.repeat(x, 2, axis=0), (accuracies, costs))
    assert cl_stability(summarize_runs(*twice).deviation, EQUAL) == 1


def test_one_task_has_no_score(rng):
    costs = jax.tree.map(lambda x: x[0], random_costs(rng, 1, 1))
    measured = measure_criteria(vector([[0.7]]), costs)
    undefined = {name for name, value in measured.items() if np.isnan(value)}
    assert undefined == {"BWT+", "REM", "FWT"}
    assert np.isnan(cl_score(measured, EQUAL))
