"""Metrics of evaluations every few steps, against loops over their definitions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.metrics.continual_evaluation import (
    accuracies_in_order,
    anytime_average_accuracy,
    average_minimum_accuracy,
    stability_gap,
    windowed_forgetting,
    worst_case_accuracy,
)
from tests.refusals import refused

TASK = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2])


def curves(seed):
    """Return accuracies of nine evaluations and three tasks; NaN for tasks to come."""
    values = np.random.default_rng(seed).uniform(size=(9, 3))
    return np.where(TASK[:, None] >= np.arange(3), values, np.nan)


def minimum(values, row):
    """Return min-ACC at one evaluation, by the definition."""
    ends = [np.flatnonzero(task == TASK)[-1] for task in range(TASK[row])]
    return np.mean([values[end + 1 : row + 1, task].min() for task, end in enumerate(ends)])


def test_the_last_evaluation_within_a_task_stays_where_none_took_place_after_it():
    """The second task has one after it; the third was not trained."""
    nan = np.nan
    within = np.array([[[0.5], [0.6], [nan]], [[0.3], [0.7], [nan]], [[nan]] * 3]) * np.ones(3)
    steps, after = np.array([[2, 4, 0], [6, 8, 0], [0, 0, 0]]), np.full((3, 3), nan)
    after[1:] = [[0.8], [0.9]]
    rows = accuracies_in_order(within, steps, after)
    expected = [0.5, 0.6, nan, 0.3, nan, 0.8, nan, nan, nan]
    np.testing.assert_array_equal(rows, np.transpose([expected] * 3))


@pytest.mark.parametrize("seed", range(3))
def test_min_acc_and_wc_acc_are_those_of_their_definitions(seed):
    values = curves(seed)
    arrays = jnp.asarray(values, jnp.float32), jnp.asarray(TASK)
    result = jax.jit(average_minimum_accuracy)(*arrays)
    worst = jax.jit(worst_case_accuracy)(*arrays)
    assert np.all(np.isnan(result[:3]))
    np.testing.assert_allclose(worst[:3], values[:3, 0], rtol=1e-6)
    for row in range(3, 9):
        lowest, count = minimum(values, row), TASK[row] + 1
        np.testing.assert_allclose(result[row], lowest, rtol=1e-6)
        expected = values[row, TASK[row]] / count + (1 - 1 / count) * lowest
        np.testing.assert_allclose(worst[row], expected, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_anytime_accuracy_averages_the_tasks_begun_at_every_evaluation(seed):
    values = curves(seed)
    result = anytime_average_accuracy(jnp.asarray(values, jnp.float32), jnp.asarray(TASK))
    np.testing.assert_allclose(result, np.nanmean(values, axis=1).mean(), rtol=1e-6)


def test_a_drop_that_is_made_up_is_a_gap_and_one_that_stays_is_none():
    """Task 0 falls from 0.9 to 0.3 and back to 0.8; then it falls to 0.5 and stays."""
    values = np.full((9, 3), np.nan)
    values[:, 0] = [0.2, 0.5, 0.9, 0.3, 0.5, 0.7, 0.8, 0.6, 0.5]
    values[3:, 1] = [0.5, 0.7, 0.8, 0.9, 0.4, 0.95]
    values[7:, 2] = [0.5, 0.8]
    result = stability_gap(jnp.asarray(values, jnp.float32), jnp.asarray(TASK))
    np.testing.assert_allclose(result, np.mean([0.5, 0.0, 0.5]), rtol=1e-6)


def test_tasks_that_were_not_begun_count_nowhere():
    values = jnp.asarray(curves(2), jnp.float32)
    more = jnp.concatenate([values, jnp.full((9, 2), jnp.nan)], axis=1)
    task = jnp.asarray(TASK)
    windowed = functools.partial(windowed_forgetting, window=4)
    for metric in (stability_gap, windowed, anytime_average_accuracy, worst_case_accuracy):
        np.testing.assert_allclose(metric(more, task), metric(values, task), rtol=1e-6)


def test_one_task_has_no_gap():
    assert np.isnan(stability_gap(jnp.array([[0.5], [0.2]]), jnp.array([0, 0])))


@pytest.mark.parametrize("task", [[0, 2, 2], [1, 1, 1]])
def test_a_task_that_is_skipped_has_no_gap(task):
    """A skipped task counted as an accuracy of 0 just before the next one."""
    values = jnp.full((3, 3), 0.9).at[1, 0].set(0.2)
    refused(f"task skips {1 - task[0]}; give", lambda: stability_gap(values, jnp.array(task)))
    assert np.isnan(jax.jit(stability_gap)(values, jnp.array(task)))


@pytest.mark.parametrize("window", [1, 2, 4, 20])
def test_windowed_forgetting_is_the_largest_drop_within_the_window(window):
    values = curves(1)
    drops = np.zeros(3)
    for task in range(3):
        for first in np.flatnonzero(task <= TASK):
            for last in range(first + 1, min(first + window, 9)):
                drops[task] = max(drops[task], values[first, task] - values[last, task])
    result = windowed_forgetting(jnp.asarray(values, jnp.float32), jnp.asarray(TASK), window)
    np.testing.assert_allclose(result, drops.mean(), rtol=1e-6)
