"""The seven criteria with their costs and published numbers, by hand."""

import numpy as np
import pytest

from everlight.metrics.cl_score import CRITERIA, WEIGHTINGS, cl_score, cl_stability
from everlight_experiments.cl_metrics.published_tables import COLUMNS as PUBLISHED
from everlight_experiments.cl_metrics.published_tables import CRITERIA as PAPER_CRITERIA
from everlight_experiments.cl_metrics.published_tables import PRINTED
from everlight_experiments.continual.report.criteria import (
    NO_PUBLISHED_NUMBERS,
    PublishedNumbers,
    criteria_tables,
    summarize,
)
from everlight_experiments.continual.report.tables import costs_table, scores_table
from everlight_experiments.report.cells import spread
from everlight_experiments.report.writer import PUBLISHED_GROUP
from tests.experiments.continual.report import outcomes

naive, method = outcomes.NAIVE_OUTCOME, outcomes.METHOD_OUTCOME


def test_the_criteria_of_two_runs_are_those_by_hand():
    summary = summarize(method, naive)
    # Over all times it is the mean of the six accuracies on and below the diagonal.
    accuracies = [(0.9 + 0.8 + 0.6 + 0.85 + 0.5 + 0.7) / 6, (0.7 + 0.7 + 0.8 + 0.6 + 0.9 + 0.5) / 6]
    # The three pairs below the diagonal are compared with the diagonal.
    backward = [(-0.1 - 0.05 - 0.1) / 3, (0 - 0.1 + 0.1) / 3]
    forward = [(0.1 + 0.2 + 0.3) / 3, (0.1 + 0.0 + 0.1) / 3]
    # Anchor and importances from the second task on; no, 20 and 40 of 79 samples.
    model, storage = (1 + 1 / 3 + 1 / 3) / 3, 1 - (0 + 20 / 79 + 40 / 79) / 3
    # A pass is 10 steps of 100, 10 and 20; a task 1,200 of 150: a pass counts ten times.
    one_pass = np.array([1_000, 1_000, 2_000])
    spent = np.array([180_000, 180_000, 360_000])
    computation = np.mean(10 * one_pass / (1 + spent))
    expected = {
        "A": accuracies,
        "MS": [model] * 2,
        "SSS": [storage] * 2,
        "CE": [computation] * 2,
        "BWT+": [max(contribution, 0) for contribution in backward],
        "REM": [1 - abs(min(contribution, 0)) for contribution in backward],
        "FWT": forward,
    }
    for name, values in expected.items():
        assert summary.mean[name] == pytest.approx(np.mean(values), abs=1e-6), name
        assert summary.deviation[name] == pytest.approx(np.std(values, ddof=1), abs=1e-6), name


def test_the_criteria_stand_beside_the_papers():
    by_name = {"Naive": naive, "LwF": method, "one's own": method}
    published = PublishedNumbers("theirs", criteria={"task-incremental": PRINTED})
    (table,) = criteria_tables(by_name, "Naive", published, "task-incremental")
    _, paper, measured = table.rows
    mean, of = summarize(method, naive)
    actual = [f"{float(mean[c]):.3f} ± {float(of[c]):.3f}" for c in CRITERIA]
    actual += [f"{float(cl_score(mean, weights)):.3f}" for weights in WEIGHTINGS.values()]
    actual += [f"{float(cl_stability(of, weights)):.3f}" for weights in WEIGHTINGS.values()]
    row = dict(zip(PUBLISHED, PAPER_CRITERIA["LwF"], strict=True))
    printed = [f"{row[c]:.4f}" for c in CRITERIA]
    printed += ["0.5768", "0.6554", "0.6030", "0.9986", "0.9990", "0.9972"]
    assert paper == ["LwF", *actual, *printed]
    assert measured == ["one's own", *actual, *["–"] * 13]
    assert [column.group == PUBLISHED_GROUP for column in table.columns] == [False] * 14 + [
        True
    ] * 13
    # The paper has no rows of the scenario, and no learner's pass is known.
    assert len(criteria_tables(by_name, "Naive", published, "class-incremental")[0].columns) == 14
    assert criteria_tables(by_name, "", NO_PUBLISHED_NUMBERS, "task-incremental") == []


def test_unknown_values_of_a_benchmark_are_dashes():
    future = np.triu(np.ones((outcomes.TASKS, outcomes.TASKS), bool), 1)
    unknown = outcomes.with_metrics(method, matrices=np.where(future, np.nan, outcomes.ACCURACY))
    (table,) = criteria_tables(
        {"naive": naive, "x": unknown}, "naive", NO_PUBLISHED_NUMBERS, "task-incremental"
    )
    row = dict(zip([column.name for column in table.columns[:8]], table.rows[1], strict=False))
    assert row["FWT"] == "–"
    assert row["A"] == spread(np.array([4.35, 4.2]) / 6)
    assert table.rows[1][8:] == ["–"] * 6


def test_where_no_class_to_come_can_be_named_there_is_no_forward_transfer():
    """A dash stands for a value that is 0 by definition; a 0 by chance is printed."""
    blind = outcomes.with_metrics(method, matrices=np.tril(outcomes.ACCURACY))
    (table,) = criteria_tables(
        {"naive": naive, "x": blind}, "naive", NO_PUBLISHED_NUMBERS, "class-incremental"
    )
    place = [column.name for column in table.columns].index("FWT")
    assert [row[place] for row in table.rows] == ["0.133 ± 0.094", "–"]
    scores = scores_table(outcomes.BENCHMARK, {"naive": naive, "x": blind}, "")
    place = [column.name for column in scores.columns].index("forward transfer")
    assert [row[place] for row in scores.rows] == ["0.133 ± 0.094", "–"]


def test_joint_training_has_no_forgetting():
    joint = naive._replace(steps=np.array([[0, 0, 160], [0, 0, 160]]))
    scores = scores_table(outcomes.BENCHMARK, {"naive": naive, "joint": joint}, "")
    names = ["average incremental accuracy", "backward transfer", "forward transfer"]
    places = [[column.name for column in scores.columns].index(name) for name in names]
    assert [scores.rows[1][place] for place in places] == ["–"] * 3
    assert "–" not in [scores.rows[0][place] for place in places]
    (table,) = criteria_tables(
        {"naive": naive, "joint": joint}, "naive", NO_PUBLISHED_NUMBERS, "class-incremental"
    )
    assert [row[0] for row in table.rows] == ["naive"]


def test_a_run_that_diverged_has_no_part_in_means_of_what_it_cost():
    """A run without results has no known steps or stored samples."""
    matrices = np.stack([outcomes.ACCURACY[0], np.full((outcomes.TASKS, outcomes.TASKS), np.nan)])
    removed = outcomes.with_metrics(method, matrices=matrices)._replace(
        diverged_at=np.array([[-1, -1], [1, 0]]),
        steps=method.steps * [[1], [0]],
        stored_samples=method.stored_samples * [[1], [0]],
    )
    mean, _ = summarize(removed, naive)
    assert all(np.isnan(mean[name]) for name in ("A", "SSS", "CE"))
    table = costs_table({"x": removed})
    row = dict(zip([column.name for column in table.columns], table.rows[0], strict=True))
    assert (row["held in the last task"], row["steps"]) == ("40", "4,800")
    blind = outcomes.with_metrics(removed, matrices=np.tril(removed.matrices))
    (table,) = criteria_tables(
        {"naive": naive, "x": blind}, "naive", NO_PUBLISHED_NUMBERS, "task-incremental"
    )
    assert table.rows[1][[column.name for column in table.columns].index("FWT")] == "–"


def test_definitions_are_those_of_the_columns_that_are_shown():
    """One seed has no stability; the weights name their criteria, shown or not."""

    def caption(**methods):
        (table,) = criteria_tables(methods, "naive", NO_PUBLISHED_NUMBERS, "class-incremental")
        return table.shown.caption

    both = caption(naive=naive, x=method)
    assert "CL stability: 1 minus" in both
    assert "W2 weighs A by 0.4, MS by 0.05, SSS by 0.2, CE by 0.1, BWT+ by 0.05, REM by" in both
    assert "A: average accuracy over all times" in both
    first = {"matrices": outcomes.ACCURACY[:1], "over_time": naive.over_time[:1]}
    one = [
        outcomes.with_metrics(item, **first)._replace(
            **{name: getattr(item, name)[:1] for name in ("diverged_at", "steps", "samples")},
            stored_samples=item.stored_samples[:1],
        )
        for item in (naive, method)
    ]
    assert "CL stability" not in caption(naive=one[0], x=one[1])
