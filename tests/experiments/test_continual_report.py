"""The common report: criteria with their costs, class types and sentences, with numbers by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from everlight.continual import RunCost, choose_hyperparameter, fixed_hyperparameter
from everlight.continual.registry import METHODS, Needs
from everlight.metrics.cl_score import CRITERIA, WEIGHTINGS, cl_score, cl_stability
from everlight_experiments.cl_metrics.paper import CRITERIA as THEIRS
from everlight_experiments.cl_metrics.paper import PAPER_CRITERIA, PRINTED
from everlight_experiments.common.cells import deviation, percent, spread
from everlight_experiments.common.report import PAPER, _told
from everlight_experiments.continual.benchmark import Metric
from everlight_experiments.continual.matrix_scores import drawn_matrix, why_white
from everlight_experiments.continual.outcome import BY_TASK, Outcome
from everlight_experiments.continual.report import (
    Shown,
    _headline,
    _sentence,
)
from everlight_experiments.continual.report_criteria import (
    NOTHING_PUBLISHED,
    Published,
    criteria_tables,
    summarize,
)
from everlight_experiments.continual.report_metrics import metric_items
from everlight_experiments.continual.report_tables import (
    choices_of,
    costs_table,
    expected_table,
    hyperparameters_table,
    left_out_table,
    own_table,
    scores_table,
    settings_table,
)

TASKS, RUNS = 3, 2
SCORE = "accuracy"
MATRIX = BY_TASK.format(SCORE)
BENCHMARK = SimpleNamespace(score=SCORE, tested="all tasks so far")
ACCURACY = np.array(
    [
        [[0.9, 0.1, 0.2], [0.8, 0.6, 0.3], [0.85, 0.5, 0.7]],
        [[0.7, 0.1, 0.0], [0.7, 0.8, 0.1], [0.6, 0.9, 0.5]],
    ]
)
NAIVE = METHODS["naive"]
JOINT = METHODS["joint"]


def outcome(steps, copies=0, stored=(0, 0, 0), operations=100.0, **changes):
    """Of two runs of three tasks of 20, 20 and 40 samples, as they would have been trained."""
    over_time = np.array([[0.9, 0.7, 0.6], [0.7, 0.75, 0.8]])
    found = Outcome(
        SCORE,
        {SCORE: over_time, MATRIX: ACCURACY},
        np.full((RUNS, 2), -1),
        np.tile(np.cumsum(steps), (RUNS, 1)),
        np.tile(stored, (RUNS, 1)),
        np.tile([19, 20, 40], (RUNS, 1)),
        np.ones(RUNS),
        RunCost(1_000, copies, 0, 0, 2, operations),
        fixed_hyperparameter(),
    )
    return found._replace(**changes)


def with_metrics(found, **metrics):
    """Return an outcome with other metrics: `over_time`, `matrices`, or any by name."""
    names = {"over_time": SCORE, "matrices": MATRIX}
    changed = {names.get(name, name): values for name, values in metrics.items()}
    return found._replace(metrics={**found.metrics, **changed})


@pytest.fixture(scope="module")
def naive():
    """Four epochs of steps of two samples, the last of the first task of one."""
    return outcome([40, 40, 80])


@pytest.fixture(scope="module")
def method():
    """Steps thirty times naive's, each of 1.5 times the operations."""
    return outcome([1_200, 1_200, 2_400], copies=2, stored=(0, 20, 40), operations=150.0)


def test_the_criteria_of_two_runs_are_those_by_hand(method, naive):
    summary = summarize(method, naive)
    # Over all times: the mean of the six accuracies on and below the diagonal.
    accuracies = [(0.9 + 0.8 + 0.6 + 0.85 + 0.5 + 0.7) / 6, (0.7 + 0.7 + 0.8 + 0.6 + 0.9 + 0.5) / 6]
    # Of the three pairs below the diagonal, against the diagonal.
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
        "BWT+": [max(each, 0) for each in backward],
        "REM": [1 - abs(min(each, 0)) for each in backward],
        "FWT": forward,
    }
    for name, values in expected.items():
        assert summary.mean[name] == pytest.approx(np.mean(values), abs=1e-6), name
        assert summary.deviation[name] == pytest.approx(np.std(values, ddof=1), abs=1e-6), name


def test_the_criteria_stand_beside_the_papers(method, naive):
    by_name = {"Naive": naive, "LwF": method, "one's own": method}
    published = Published("theirs", criteria={"task-incremental": PRINTED})
    (table,) = criteria_tables(by_name, "Naive", published, "task-incremental")
    _, paper, own = table.rows
    mean, of = summarize(method, naive)
    ours = [f"{float(mean[c]):.3f} ± {float(of[c]):.3f}" for c in CRITERIA]
    ours += [f"{float(cl_score(mean, weights)):.3f}" for weights in WEIGHTINGS.values()]
    ours += [f"{float(cl_stability(of, weights)):.3f}" for weights in WEIGHTINGS.values()]
    row = dict(zip(THEIRS, PAPER_CRITERIA["LwF"], strict=True))
    printed = [f"{row[c]:.4f}" for c in CRITERIA]
    printed += ["0.5768", "0.6554", "0.6030", "0.9986", "0.9990", "0.9972"]
    assert paper == ["LwF", *ours, *printed]
    assert own == ["one's own", *ours, *["–"] * 13]
    assert [column.group == PAPER for column in table.columns] == [False] * 14 + [True] * 13
    # Where the paper has no rows of a scenario, and without a learner whose pass is known.
    assert len(criteria_tables(by_name, "Naive", published, "class-incremental")[0].columns) == 14
    assert criteria_tables(by_name, "", NOTHING_PUBLISHED, "task-incremental") == []


def test_what_a_benchmark_does_not_tell_is_a_dash(method, naive):
    ahead = np.triu(np.ones((TASKS, TASKS), bool), 1)
    unknown = with_metrics(method, matrices=np.where(ahead, np.nan, ACCURACY))
    (table,) = criteria_tables(
        {"naive": naive, "x": unknown}, "naive", NOTHING_PUBLISHED, "task-incremental"
    )
    row = dict(zip([column.name for column in table.columns[:8]], table.rows[1], strict=False))
    assert row["FWT"] == "–"
    assert row["A"] == spread(np.array([4.35, 4.2]) / 6)
    assert table.rows[1][8:] == ["–"] * 6


def test_where_no_class_to_come_can_be_named_there_is_no_forward_transfer(method, naive):
    """All of it is 0 for that reason alone; what is 0 by chance in one place is told."""
    blind = with_metrics(method, matrices=np.tril(ACCURACY))
    (table,) = criteria_tables(
        {"naive": naive, "x": blind}, "naive", NOTHING_PUBLISHED, "class-incremental"
    )
    place = [column.name for column in table.columns].index("FWT")
    assert [row[place] for row in table.rows] == ["0.133 ± 0.094", "–"]
    scores = scores_table(BENCHMARK, {"naive": naive, "x": blind}, "")
    place = [column.name for column in scores.columns].index("forward transfer")
    assert [row[place] for row in scores.rows] == ["0.133 ± 0.094", "–"]


def test_what_learns_all_at_once_forgets_nothing(naive):
    joint = naive._replace(steps=np.array([[0, 0, 160], [0, 0, 160]]))
    scores = scores_table(BENCHMARK, {"naive": naive, "joint": joint}, "")
    names = ["average incremental accuracy", "backward transfer"]
    places = [[column.name for column in scores.columns].index(name) for name in names]
    assert [scores.rows[1][place] for place in places] == ["–"] * 2
    assert "–" not in [scores.rows[0][place] for place in places]
    (table,) = criteria_tables(
        {"naive": naive, "joint": joint}, "naive", NOTHING_PUBLISHED, "class-incremental"
    )
    assert [row[0] for row in table.rows] == ["naive"]


def test_cells_of_a_matrix_that_have_no_value_are_white(naive):
    """Tasks whose classes cannot be predicted, and the time before joint training."""
    blind = with_metrics(naive, matrices=np.tril(ACCURACY))
    joint = naive._replace(steps=np.array([[0, 0, 160], [0, 0, 160]]))
    ahead = np.triu(np.ones((TASKS, TASKS), bool), 1)
    assert not np.isnan(drawn_matrix(naive)).any()
    np.testing.assert_array_equal(np.isnan(drawn_matrix(blind)), ahead)
    np.testing.assert_array_equal(np.isnan(drawn_matrix(joint)).all(axis=1), [True, True, False])
    assert why_white([naive]) == ""
    assert why_white([naive, blind]) == " White: classes of later tasks cannot be predicted yet."
    assert why_white([joint]) == " White: joint training has not begun."


def test_an_expected_order_has_its_source(naive):
    outcomes = {
        "task-incremental": {"naive": naive, "EWC": naive},
        "class-incremental": {"naive": naive, "EWC": naive, "ER": naive},
    }
    table = expected_table(outcomes)
    assert [row[:3] for row in table.rows] == [
        ["EWC above naive", "task-incremental", "van de Ven and Tolias 2019"],
        ["ER above naive", "class-incremental", "Chaudhry et al. 2019"],
    ]
    assert "EWC is compared only task-incrementally" in table.caption
    del outcomes["class-incremental"]
    assert "only task-incrementally" not in expected_table(outcomes).caption


def test_a_run_that_diverged_has_no_part_in_means_of_what_it_cost(method, naive):
    """Of a run that left nothing neither steps nor stored samples are known."""
    matrices = np.stack([ACCURACY[0], np.full((TASKS, TASKS), np.nan)])
    gone = with_metrics(method, matrices=matrices)._replace(
        diverged_at=np.array([[-1, -1], [1, 0]]),
        steps=method.steps * [[1], [0]],
        stored_samples=method.stored_samples * [[1], [0]],
    )
    mean, _ = summarize(gone, naive)
    assert all(np.isnan(mean[name]) for name in ("A", "SSS", "CE"))
    table = costs_table({"x": gone})
    row = dict(zip([column.name for column in table.columns], table.rows[0], strict=True))
    assert (row["held in the last task"], row["steps"]) == ("40", "4,800")
    blind = with_metrics(gone, matrices=np.tril(gone.matrices))
    (table,) = criteria_tables(
        {"naive": naive, "x": blind}, "naive", NOTHING_PUBLISHED, "task-incremental"
    )
    assert table.rows[1][[column.name for column in table.columns].index("FWT")] == "–"


def test_settings_of_methods_are_said_once_for_all_scenarios(naive):
    made = METHODS["DER++"].settings(Needs(tasks=2, classes=10, exemplars_per_class=20))
    assert made == {"buffer_size": 200, "alpha": 0.1, "beta": 0.5, "labels": 1, "loss_over": "seen"}
    der = naive._replace(settings=made, replayed=32)
    told, not_told = (
        {"hyperparameter": 1e3, "online": True},
        {"hyperparameter": 1e5, "online": True},
    )
    outcomes = {
        "task-incremental": {"naive": naive, "DER++": der, "EWC": naive._replace(settings=told)},
        "class-incremental": {"DER++": der, "EWC": naive._replace(settings=not_told)},
    }
    assert settings_table(outcomes).rows == [
        [
            "DER++",
            "task-incremental, class-incremental",
            "buffer size 200, alpha 0.1, beta 0.5, labels 1, loss over seen, "
            "samples drawn per step 32",
        ],
        ["EWC", "task-incremental", "hyperparameter 1000, online yes"],
        ["EWC", "class-incremental", "hyperparameter 100000, online yes"],
    ]


def test_arguments_have_the_meaning_that_their_function_states(naive):
    needs = Needs(tasks=2, classes=10, exemplars_per_class=20)
    rows = [METHODS[name] for name in ("naive", "ER", "DER++", "EWC")]
    by_name = {row.name: naive._replace(settings=row.settings(needs)) for row in rows[:3]}
    found = argument_meanings({"class-incremental": by_name}, rows)
    assert "labels (ER, DER++): labels per sample in the sequence." in found
    assert any(line.startswith("alpha (DER++): coefficient α") for line in found)
    assert not any("EWC" in line for line in found)


def test_a_single_seed_is_stated_in_the_singular():
    benchmark = SimpleNamespace(
        draws="order of classes",
        note="digits",
        counts="",
        criterion_words="final accuracy",
        chosen="",
        training="",
    )
    one = dict(report_summary(benchmark, 3, 1, "", ""))["Seeds"]
    assert one == "1 evaluation seed (3), which sets the order of classes"
    three = dict(report_summary(benchmark, 0, 3, "", ""))["Seeds"]
    assert three.startswith("3 evaluation seeds (0 to 2), each with its own order of classes; ±")


def test_a_baseline_of_another_name_is_called_naive_too(naive):
    rows = [NAIVE._replace(name="finetune")]
    (section,) = _overview(Shown(BENCHMARK, {"NI": {"finetune": naive}}, rows))
    assert section.paragraphs == [
        "Method finetune trains on one task after the other and does no more. Other reports call "
        "it naive."
    ]


def test_definitions_are_those_of_the_columns_that_are_shown(method, naive):
    """One seed has no stability; the weights name their criteria, shown or not."""

    def caption(**methods):
        (table,) = criteria_tables(methods, "naive", NOTHING_PUBLISHED, "class-incremental")
        return _told(table).caption

    both = caption(naive=naive, x=method)
    assert "CL stability: 1 minus" in both
    assert "W2 weighs A by 0.4, MS by 0.05, SSS by 0.2, CE by 0.1, BWT+ by 0.05, REM by" in both
    assert "A: average accuracy over all times" in both
    first = {"matrices": ACCURACY[:1], "over_time": naive.over_time[:1]}
    one = [
        with_metrics(each, **first)._replace(
            **{name: getattr(each, name)[:1] for name in ("diverged_at", "steps", "samples")},
            stored_samples=each.stored_samples[:1],
        )
        for each in (naive, method)
    ]
    assert "CL stability" not in caption(naive=one[0], x=one[1])


def test_ones_own_strategy_is_compared_with_every_other(naive):
    best = with_metrics(naive, over_time=naive.over_time + 0.1)
    own = METHODS["ER"]._replace(name="mine", version="12ab")
    outcomes = {
        "task-incremental": {"naive": naive, "mine": best},
        "class-incremental": {"naive": naive},
    }
    table = own_table(outcomes, [NAIVE, own])
    assert table.rows == [["mine above naive", "task-incremental", "+0.100 ± 0.000", "2 of 2"]]
    assert not own_table(outcomes, [NAIVE]).rows


def test_metrics_by_name_are_a_table_with_dashes_where_there_is_no_value(method, tmp_path):
    types = Metric("pw-JS by type", print, (("fine", "none"),), meaning="By type of class.")
    unsaid = Metric("seconds", print)
    benchmark = SimpleNamespace(metrics=(SCORE, MATRIX, types, unsaid))
    values = np.array([[0.1, np.nan], [0.3, np.nan]])
    typed = with_metrics(method, **{types.name: values})
    gone = with_metrics(method, **{types.name: np.full((RUNS, 2), np.nan)})
    (table,) = metric_items(tmp_path, "NI", benchmark, {"a": typed, "gone": gone})
    assert [column.name for column in table.columns] == ["method", "fine", "none"]
    assert table.rows == [["a", "0.200 ± 0.141", "–"], ["gone", "–", "–"]]
    assert metric_items(tmp_path, "NI", SimpleNamespace(metrics=()), {"a": method}) == []


def test_the_first_sentence_names_the_best_and_what_bounds_it(naive):
    benchmark = SimpleNamespace(score=SCORE)

    def sentence_of(column, by_name, rows):
        return _sentence(column, Shown(benchmark, {column: by_name}, rows))

    def headline_of(outcomes, rows):
        return _headline(Shown(benchmark, outcomes, rows))

    best = with_metrics(naive, over_time=naive.over_time + 0.1)
    joint = with_metrics(naive, over_time=naive.over_time + 0.2)
    by_name = {"naive": naive, "ER": best, "joint": joint}
    rows = [NAIVE, METHODS["ER"], JOINT]
    assert sentence_of("class-incremental", by_name, rows) == (
        "Class-incremental: ER has the highest final accuracy of 0.800 ± 0.141. Second is naive "
        "with 0.700 ± 0.141 (paired difference +0.100 ± 0.000, more than its standard deviation). "
        "References: joint 0.900 ± 0.141."
    )
    # Student's interval of .7 and .9: 12.706 times .1.
    assert headline_of({"class-incremental": by_name}, rows) == (
        "Which method has the highest final accuracy after the last task?",
        "Best, with 95% interval: ER 0.800 [0.000, 1.000] (class-incremental).",
        "Baseline, naive: 0.700 ± 0.141 (class-incremental).",
    )
    # By seed .18 and 0: in the mean no more than the deviation of .127. A second value of the
    # best is not the next method.
    near = with_metrics(naive, over_time=best.over_time - [[0.18], [0.0]])
    many = {"naive": naive, "EWC": best, "EWC, published": best, "ER": near}
    published = METHODS["EWC"]._replace(name="EWC, published")
    assert sentence_of("task-incremental", many, [*rows, METHODS["EWC"], published]) == (
        "Task-incremental: EWC has the highest final accuracy of 0.800 ± 0.141. Second is ER with "
        "0.710 ± 0.269 (paired difference +0.090 ± 0.127, no more than its standard deviation). "
        "References: naive 0.700 ± 0.141."
    )
    one = {name: with_metrics(each, over_time=each.over_time[:1]) for name, each in by_name.items()}
    assert "Second is naive with 0.600 (one seed). References: joint" in sentence_of(
        "task-incremental", one, rows
    )
    assert "ER 0.700 (no interval from one seed) (NI)" in headline_of({"NI": one}, rows)[1]
    alone = sentence_of("NI", {"joint": joint}, [JOINT])
    assert alone == "NI: joint has a final accuracy of 0.900 ± 0.141."
    # What has all labels bounds the others, and what diverged is behind them.
    upper = METHODS["incremental joint"]
    bounded = sentence_of(
        "task-incremental", {"naive": naive, "incremental joint": joint}, [NAIVE, upper]
    )
    assert bounded.startswith("Task-incremental: naive has the highest")
    nan = with_metrics(best, over_time=np.where([[False] * 3, [True] * 3], np.nan, best.over_time))
    assert sentence_of("task-incremental", {"naive": naive, "ER": nan}, rows).startswith(
        "Task-incremental: naive has the highest"
    )
    assert sentence_of("task-incremental", {"ER": nan}, rows) == (
        "Task-incremental: every method has a diverged run and none is ranked."
    )
    assert headline_of({"NI": {"ER": nan}}, rows)[1].endswith("none, all diverged.")


def test_hyperparameters_and_what_was_left_out_are_said(naive):
    tuned = naive._replace(choice=choose_hyperparameter((1.0, 2.0), np.array([[0.2], [0.4]])))
    given = naive._replace(choice=fixed_hyperparameter(0.5))
    choices = choices_of({"task-incremental": {"a": tuned, "b": given, "c": naive}})
    table = hyperparameters_table("final accuracy", choices)
    assert table.rows == [
        ["a, task-incremental", "1: 0.200; 2: 0.400", "2 (edge of the grid)"],
        ["b, task-incremental", "given", "0.5"],
    ]
    left = left_out_table([NAIVE, METHODS["HAT"]], {"NI": frozenset()})
    assert [row[0] for row in left.rows] == ["HAT, NI"]


def test_every_deviation_is_the_samples(rng):
    values = rng.random((4, 3))
    by_hand = np.sqrt(((values - values.mean(axis=0)) ** 2).sum(axis=0) / 3)
    np.testing.assert_allclose(deviation(values), by_hand)
    assert np.isnan(deviation(values[:1])).all()
    assert spread(np.array([0.1, 0.3]), "+") == "+0.200 ± 0.141"
    assert spread(np.array([0.5])) == "0.500"
    assert spread(np.array([-0.0001])) == "0.000"
    assert percent(np.array([0.1, 0.3])) == "20.0 ± 14.1"
