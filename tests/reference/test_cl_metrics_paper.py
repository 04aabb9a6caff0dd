"""The tables of Díaz-Rodríguez et al. 2018, "Don't forget, there is more than forgetting"."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.metrics.cl_score import (
    CRITERIA,
    WEIGHTINGS,
    cl_score,
    counted_model_memory,
    counted_sample_memory,
    model_size_efficiency,
    samples_storage_efficiency,
)

COLUMNS = ("A", "REM", "BWT+", "FWT", "MS", "SSS", "CE")
ROWS = {
    "Naive": (0.3825, 0.6664, 0.0000, 0.1000, 1.0000, 1.0000, 0.4492),
    "Cumulative": (0.7225, 1.0000, 0.0673, 0.1000, 1.0000, 0.5500, 0.1496),
    "EWC": (0.5940, 0.9821, 0.0000, 0.1000, 0.4000, 1.0000, 0.3495),
    "LwF": (0.5278, 0.9667, 0.0000, 0.1000, 1.0000, 1.0000, 0.4429),
    "SI": (0.5795, 0.9620, 0.0000, 0.1000, 0.4000, 1.0000, 0.3613),
}
SCORES = {
    "Naive": {"W1": 0.5140, "W2": 0.5529, "W3": 0.5312},
    "Cumulative": {"W1": 0.5128, "W2": 0.6223, "W3": 0.5373},
    "EWC": {"W1": 0.4894, "W2": 0.6449, "W3": 0.5816},
    "LwF": {"W1": 0.5768, "W2": 0.6554, "W3": 0.6030},
    "SI": {"W1": 0.4861, "W2": 0.6372, "W3": 0.5772},
}
PRINTED_W2 = {"A": 0.4, "MS": 0.1, "SSS": 0.1, "CE": 0.1, "BWT+": 0.2, "REM": 0.05, "FWT": 0.05}
SAMPLES = jnp.full(10, 5000.0)  # CIFAR-100 in ten tasks of ten classes


def criteria(strategy):
    return dict(zip(COLUMNS, ROWS[strategy], strict=True))


@pytest.mark.parametrize("weighting", ["W1", "W2", "W3"])
@pytest.mark.parametrize("strategy", ROWS)
def test_scores_are_the_papers_to_four_digits(strategy, weighting):
    score = cl_score(criteria(strategy), WEIGHTINGS[weighting])
    assert round(float(score), 4) == SCORES[strategy][weighting]


@pytest.mark.parametrize("strategy", ROWS)
def test_the_second_weighting_as_printed_misses_every_score(strategy):
    missed_by = SCORES[strategy]["W2"] - cl_score(criteria(strategy), PRINTED_W2)
    assert 0.09 < missed_by < 0.18


def test_the_second_weighting_is_the_only_one_in_steps_of_a_twentieth():
    bars = np.array(list(itertools.combinations(range(26), 6)))
    steps = np.diff(bars, axis=1, prepend=-1, append=26) - 1
    assert np.all(np.sum(steps, axis=1) == 20)
    values = np.array([[criteria(strategy)[name] for name in CRITERIA] for strategy in ROWS])
    printed = np.array([SCORES[strategy]["W2"] for strategy in ROWS])
    misses = np.max(np.abs(steps / 20 @ values.T - printed), axis=1)
    # Half a unit of the last digit for the score, and as much for the criteria together.
    (fitting,) = np.flatnonzero(misses <= 1e-4)
    assert dict(zip(CRITERIA, steps[fitting] / 20, strict=True)) == pytest.approx(WEIGHTINGS["W2"])


@pytest.mark.parametrize(("strategy", "copies"), [("EWC", 2), ("SI", 2), ("LwF", 0), ("Naive", 0)])
def test_model_size_column(strategy, copies):
    memory = counted_model_memory(1_000_000, copies, 10)
    assert model_size_efficiency(memory) == pytest.approx(criteria(strategy)["MS"], abs=1e-6)


def test_sample_storage_column():
    cumulative = samples_storage_efficiency(counted_sample_memory(SAMPLES), jnp.sum(SAMPLES))
    assert cumulative == pytest.approx(criteria("Cumulative")["SSS"], abs=1e-6)
    assert samples_storage_efficiency(jnp.zeros(10), jnp.sum(SAMPLES)) == criteria("EWC")["SSS"]


def test_rankings_of_the_paper():
    def ranking(weighting):
        return sorted(ROWS, key=lambda s: -cl_score(criteria(s), WEIGHTINGS[weighting]))

    assert ranking("W1") == ["LwF", "Naive", "Cumulative", "EWC", "SI"]
    assert ranking("W2") == ["LwF", "EWC", "SI", "Cumulative", "Naive"]
    assert ranking("W3") == ["LwF", "EWC", "SI", "Cumulative", "Naive"]
