"""The summary and tables of the continual-learning criteria, with numbers by hand."""

import numpy as np
import pytest

from everlight.metrics.cl_score import WEIGHTINGS, cl_score, cl_stability
from experiments.cl_metrics.icifar_report import (
    Outcome,
    SequenceRun,
    _score_table,
    _spiders,
    summarize,
)
from experiments.continual.runner import Cost
from experiments.continual.selection import fixed_strength

TASKS, RUNS, EPOCHS, SAMPLES = 3, 2, 4, 60
ACCURACY = np.array(
    [
        [[0.9, 0.1, 0.2], [0.8, 0.6, 0.3], [0.85, 0.5, 0.7]],
        [[0.7, 0.1, 0.0], [0.7, 0.8, 0.1], [0.6, 0.9, 0.5]],
    ]
)


def outcome(steps, copies=0, stored=(0, 0, 0), operations=100.0):
    """Of two runs of three tasks, as they would have been trained."""
    runs = SequenceRun(
        ACCURACY,
        np.zeros((RUNS, TASKS, EPOCHS)),
        np.zeros((RUNS, TASKS, EPOCHS)),
        np.tile(steps, (RUNS, 1)),
        np.tile(stored, (RUNS, 1)),
    )
    return Outcome(Cost(1_000, copies, 0, operations), runs, fixed_strength())


@pytest.fixture(scope="module")
def summary():
    """Steps three times naive's, which makes a pass over a task's data with a quarter of its own.

    The operations of its step are 1.5 times naive's.
    """
    naive = outcome([40, 40, 80])
    method = outcome([1_200, 1_200, 2_400], copies=2, stored=(0, 20, 40), operations=150.0)
    return summarize(method, naive, SAMPLES, EPOCHS)


def test_the_criteria_of_two_runs_are_those_by_hand(summary):
    # Over all times: the mean of the six accuracies on and below the diagonal.
    accuracies = [(0.9 + 0.8 + 0.6 + 0.85 + 0.5 + 0.7) / 6, (0.7 + 0.7 + 0.8 + 0.6 + 0.9 + 0.5) / 6]
    # Of the three pairs below the diagonal, against the diagonal.
    backward = [(-0.1 - 0.05 - 0.1) / 3, (0 - 0.1 + 0.1) / 3]
    forward = [(0.1 + 0.2 + 0.3) / 3, (0.1 + 0.0 + 0.1) / 3]
    # Anchor and importances from the second task on; no, 20 and 40 of 60 samples.
    model, storage = (1 + 1 / 3 + 1 / 3) / 3, 1 - (0 + 20 / 60 + 40 / 60) / 3
    # A pass is 10 steps of 100, 10 and 20; a task 1,200 of 150: a pass counts ten times.
    one_pass = np.array([1_000, 1_000, 2_000])
    spent = np.array([180_000, 180_000, 360_000])
    computation = np.mean(10 * one_pass / (1 + spent))
    expected = {
        "A": accuracies,
        "MS": [model] * 2,
        "SSS": [storage] * 2,
        "CE": [computation] * 2,
        "BWT+": [max(each, 0) for each in backward],
        "REM": [1 - abs(min(each, 0)) for each in backward],
        "FWT": forward,
    }
    for name, values in expected.items():
        assert summary.mean[name] == pytest.approx(np.mean(values), abs=1e-6), name
        assert summary.deviation[name] == pytest.approx(np.std(values, ddof=1), abs=1e-6), name


def test_the_score_table_has_all_scores_and_stabilities_of_the_paper(summary):
    methods = {"LwF": summary, "one's own": summary}
    table = _score_table("task-aware", methods, "")
    paper, own = table.rows
    ours = [
        f"{float(value):.3f}"
        for measure, of in ((cl_score, summary.mean), (cl_stability, summary.deviation))
        for value in (measure(of, weights) for weights in WEIGHTINGS.values())
    ]
    printed = ["0.5768", "0.6554", "0.6030", "0.9986", "0.9990", "0.9972"]
    assert paper == ["LwF", *ours, *printed]
    assert own == ["one's own", *ours, *["–"] * 6]
    assert len(table.columns) == len(paper)


def test_the_spiders_are_of_both_scenarios_and_the_paper(tmp_path, summary):
    summaries = {scenario: {"EWC": summary} for scenario in ("task-aware", "class-incremental")}
    section = _spiders(tmp_path, summaries, "")
    assert (tmp_path / "criteria.png").stat().st_size > 10_000
    assert "seven criteria" in section.items[0].caption
