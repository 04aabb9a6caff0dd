"""Evaluations within tasks: what a run makes of them, by hand-made arrays and in a whole run."""

import numpy as np
import pytest

from everlight.continual import Protocol
from everlight_data.errors import DataError
from everlight_experiments.continual.benchmarks.metric import STEPS_WITHIN
from everlight_experiments.continual.benchmarks.run_data import TrainedRun
from everlight_experiments.continual.report.metric_items import curves_within
from everlight_experiments.continual.training.outcome import compute_metrics
from everlight_experiments.continual.training.programs import MethodPrograms
from everlight_experiments.continual.training.runs import DIVERGED_AT
from everlight_experiments.images import metrics
from tests.experiments.continual.report.outcomes import BENCHMARK


def trained(diverged_at=(-1, -1)):
    """Return the results of two tasks of one epoch, with three and two evaluations."""
    steps = np.array([[[5, 10, 12]], [[17, 20, 0]]])
    within = np.zeros((2, 1, 3, 2), np.float32)
    within[0, 0, :, 0] = 0.5, 0.75, 0.875
    within[1, 0, :2] = [[0.25, 0.5], [0.5, 0.75]]
    matrix = np.array([[1.0, 0.0], [0.75, 1.0]], np.float32)
    arrays = {metrics.WITHIN: within, STEPS_WITHIN: steps, metrics.MATRIX: matrix}
    arrays[DIVERGED_AT] = np.array(diverged_at)
    return TrainedRun(arrays, sequence=None, sequence_id=None, tasks=2)


def test_a_task_ends_with_the_evaluation_after_it_and_scores_are_those_of_their_definitions():
    run = trained()
    nan = [np.nan] * 2
    np.testing.assert_array_equal(
        metrics.accuracy_by_step(run), [[0.5, 0], [0.75, 0], [1, 0], [0.25, 0.5], nan, [0.75, 1]]
    )
    anytime = np.mean([0.5, 0.75, 1, (0.25 + 0.5) / 2, (0.75 + 1) / 2])
    # The first task's lowest since its end is 0.25; it ends the second with 0.75.
    expected = [anytime, 0.25, 0.5 * 1 + 0.5 * 0.25, 0.75 - 0.25]
    np.testing.assert_allclose(metrics.scores_within(run), expected, rtol=1e-6)


def test_evaluations_without_the_test_set_of_a_later_task_count():
    """An update's new test set has no value at the evaluations before it."""
    run, expected = trained(), trained()
    run.arrays[metrics.WITHIN][0, ..., 1] = run.arrays[metrics.MATRIX][0, 1] = np.nan
    np.testing.assert_array_equal(metrics.scores_within(run), metrics.scores_within(expected))


def test_joint_training_has_no_scores_and_a_diverged_run_is_nan():
    joint = trained()
    joint.arrays[STEPS_WITHIN][0], joint.arrays[metrics.WITHIN][0] = 0, np.nan
    assert np.isnan(metrics.scores_within(joint)).all()
    result = compute_metrics(metrics.BY_STEP, [trained(), trained((1, 0))])
    assert result["accuracy by step"].shape == (2, 6, 2)
    assert np.isnan(result["accuracy by step"][1]).all()
    assert np.isnan(result["continual evaluation"][1]).all()


def test_curves_leave_out_what_seeds_do_not_share_and_joint_training_has_its_end_alone():
    runs = metrics.accuracy_by_step(trained())[None].repeat(2, axis=0)
    runs[1, 1] = np.nan
    late = runs.copy()
    late[:, :5] = np.nan
    first, so_far = curves_within({"EWC": runs, "joint": late}).values()
    np.testing.assert_allclose(first["EWC"], [[0.5, 1, 0.25, 0.75]] * 2)
    np.testing.assert_allclose(so_far["EWC"], [[0.5, 1, 0.375, 0.875]] * 2)
    np.testing.assert_allclose(so_far["joint"], [[0.875]] * 2)


def test_a_benchmark_that_evaluates_after_tasks_alone_refuses_it():
    protocol = Protocol(evaluate_steps=5)
    training = BENCHMARK.training._replace(protocol=lambda method: protocol)
    benchmark = BENCHMARK._replace(training=training)
    with pytest.raises(DataError, match=r"^--evaluate-steps: digits is evaluated only after tasks"):
        MethodPrograms(benchmark).protocol(None)
