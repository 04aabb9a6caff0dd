"""The common report: criteria with their costs, class types and sentences, with numbers by hand."""

from types import SimpleNamespace

import numpy as np

from everlight.continual import choose_hyperparameter, fixed_hyperparameter
from everlight.continual.methods.method import StrategyArguments
from everlight.continual.methods.registry import METHODS
from everlight_experiments.continual.benchmarks.metric import Metric
from everlight_experiments.continual.report import tables
from everlight_experiments.continual.report.metric_items import metric_items
from everlight_experiments.continual.report.sections import (
    ReportInput,
    learning_rate_rows,
    report_sections,
    report_summary_rows,
    why_white,
)
from everlight_experiments.report.cells import deviation, percent, spread
from everlight_experiments.report.writer import Figure
from tests.experiments.continual.report import outcomes as known

naive, method = known.NAIVE_OUTCOME, known.METHOD_OUTCOME


def test_the_rule_states_where_no_value_was_selected():
    """Given and published values are not a selection."""
    inputs = fixed_hyperparameter(3.0)
    tried = choose_hyperparameter((1.0, 2.0), np.array([[0.1], [0.2]]))
    for choices, rule in (
        ((inputs, inputs), "Nothing was selected: all values"),
        ((inputs, tried), "(number of seeds: 2)"),
    ):
        by_name = {str(n): SimpleNamespace(choice=item) for n, item in enumerate(choices)}
        assert rule in tables.selection_rule(known.BENCHMARK, {"online": by_name}, 2)


def test_cells_of_a_matrix_that_have_no_value_are_white():
    """These are tasks whose classes cannot be predicted, and the time before joint training."""
    blind = known.with_metrics(naive, matrices=np.tril(known.ACCURACY))
    joint = naive._replace(steps=np.array([[0, 0, 160], [0, 0, 160]]))
    future = np.triu(np.ones((known.TASKS, known.TASKS), bool), 1)
    assert not np.isnan(naive.mean_matrix).any()
    np.testing.assert_array_equal(np.isnan(blind.mean_matrix), future)
    np.testing.assert_array_equal(np.isnan(joint.mean_matrix).all(axis=1), [True, True, False])
    assert why_white([naive]) == ""
    assert why_white([naive, blind]) == " White: classes of later tasks cannot be predicted yet."
    assert why_white([joint]) == " White: joint training has not begun."


def test_settings_of_methods_are_stated_once_for_all_scenarios():
    created = METHODS["DER++"].arguments(
        StrategyArguments(tasks=2, classes=10, exemplars_per_class=20)
    )
    assert created == {
        "buffer_size": 200,
        "alpha": 0.1,
        "beta": 0.5,
        "labels": 1,
        "loss_over": "all",
    }
    der = naive._replace(arguments=created, replayed=32, learning_rate="0.03, then 0.01")
    task_incremental, class_incremental = (
        {"regularization": 1e3, "online": True},
        {"regularization": 1e5, "online": True},
    )
    outcomes = {
        "task-incremental": {
            "naive": naive,
            "DER++": der,
            "EWC": naive._replace(arguments=task_incremental),
        },
        "class-incremental": {"DER++": der, "EWC": naive._replace(arguments=class_incremental)},
    }
    assert tables.settings_table(outcomes).rows == [
        [
            "DER++",
            "task-incremental, class-incremental",
            "0.03, then 0.01",
            "buffer size 200, alpha 0.1, beta 0.5, labels 1, loss over all, "
            "samples drawn per step 32",
        ],
        ["EWC", "task-incremental", "–", "regularization 1000, online yes"],
        ["EWC", "class-incremental", "–", "regularization 100000, online yes"],
    ]
    without = tables.settings_table(
        {"task-incremental": {"EWC": naive._replace(arguments=task_incremental)}}
    ).shown
    assert "learning rate" not in [column.name for column in without.columns]
    rated = naive._replace(learning_rate="0.03")
    assert tables.settings_table({"a": {"naive": rated}}).rows == [["naive", "a", "0.03", "–"]]


def test_arguments_have_the_meaning_that_their_function_states():
    arguments = StrategyArguments(tasks=2, classes=10, exemplars_per_class=20)
    rows = [METHODS[name] for name in ("naive", "ER", "DER++", "EWC")]
    by_name = {row.name: naive._replace(arguments=row.arguments(arguments)) for row in rows[:3]}
    result = tables.argument_meanings({"class-incremental": by_name}, rows)
    assert "labels (ER, DER++): labels per sample in the sequence." in result
    assert any(line.startswith("alpha (DER++): coefficient α") for line in result)
    assert not any("EWC" in line for line in result)


def test_a_single_seed_is_stated_in_the_singular():
    one = dict(report_summary_rows(known.BENCHMARK, 3, 1, "", ""))["Seeds"]
    assert one == "1 evaluation seed (3), which sets the order of classes"
    three = dict(report_summary_rows(known.BENCHMARK, 0, 3, "", ""))["Seeds"]
    assert three.startswith("3 evaluation seeds (0 to 2), each with its own order of classes; ±")


def test_several_learning_rates_have_a_row_in_the_summary():
    rated = {"ER": naive._replace(learning_rate="0.01"), "naive": naive}
    assert learning_rate_rows({"NI": rated}) == []
    (row,) = learning_rate_rows({"NI": rated, "NC": {"ER": naive._replace(learning_rate="0.1")}})
    assert row[1].startswith("0.01; 0.1 (")


def opening(folder, outcomes, rows):
    """Return the opening of the report on these outcomes."""
    benchmarks = dict.fromkeys(outcomes, known.BENCHMARK)
    return report_sections(folder, ReportInput(benchmarks, outcomes, rows))[0]


def test_a_baseline_of_another_name_is_called_naive_too(tmp_path):
    rows = [known.NAIVE._replace(name="finetune")]
    table = opening(tmp_path, {"NI": {"finetune": naive}}, rows).table
    assert table.shown.caption.endswith(
        "Method finetune trains on one task after the other and does no more. Other reports call "
        "it naive."
    )
    removed = naive._replace(diverged_at=np.array([[-1, -1], [1, 0]]))
    (row,) = opening(tmp_path, {"NI": {"finetune": removed}}, rows).table.rows
    assert row[1] == "diverged in 1 of 2"


def test_ones_own_strategy_is_compared_with_every_other():
    best = known.with_metrics(naive, over_time=naive.over_time + 0.1)
    user_method = METHODS["ER"]._replace(name="mine", version="12ab")
    outcomes = {
        "task-incremental": {"naive": naive, "mine": best},
        "class-incremental": {"naive": naive},
    }
    table = tables.user_strategy_table(outcomes, [known.NAIVE, user_method])
    assert table.rows == [["mine above naive, task-incremental", "+0.100 ± 0.000", "2 of 2"]]
    assert not tables.user_strategy_table(outcomes, [known.NAIVE]).rows


def test_metrics_by_name_are_a_table_with_dashes_where_there_is_no_value(tmp_path):
    types = Metric("pw-JS by type", print, (("fine", "none"),), meaning="By type of class.")
    unsaid = Metric("seconds", print)
    setting = known.BENCHMARK.setting
    setting = setting._replace(metrics=setting.metrics._replace(others=(types, unsaid)))
    benchmark = known.BENCHMARK._replace(setting=setting)
    values = np.array([[0.1, np.nan], [0.3, np.nan]])
    typed = known.with_metrics(method, **{types.name: values})
    removed = known.with_metrics(method, **{types.name: np.full((known.RUNS, 2), np.nan)})
    (table,) = metric_items(tmp_path / "NI", "NI", benchmark, {"a": typed, "gone": removed})
    assert [column.name for column in table.columns] == ["method", "fine", "none"]
    assert table.rows == [["a", "0.200 ± 0.141", "–"], ["gone", "–", "–"]]
    assert metric_items(tmp_path / "NI", "NI", known.BENCHMARK, {"a": method}) == []


def test_metrics_with_equal_names_of_files_have_a_picture_each(tmp_path):
    names = "share (1)", "share [1]"
    others = tuple(Metric(name, print, ("time",), f"About {name}.") for name in names)
    setting = known.BENCHMARK.setting
    setting = setting._replace(metrics=setting.metrics._replace(others=others))
    values = dict(zip(names, (np.zeros((2, 3)), np.ones((2, 3))), strict=True))
    outcomes = {"a": known.with_metrics(naive, **values)}
    benchmark = known.BENCHMARK._replace(setting=setting)
    first, second = metric_items(tmp_path / "NI", "NI", benchmark, outcomes)
    assert {first.path.parent, second.path.parent} == {tmp_path}
    assert first.path.read_bytes() != second.path.read_bytes()


def test_settings_with_equal_names_of_files_have_a_picture_each(tmp_path):
    columns = {"a b": {"naive": naive}, "a_b": {"naive": method}}
    benchmarks = dict.fromkeys(columns, known.BENCHMARK)
    report = ReportInput(benchmarks, columns, [known.NAIVE])
    _, sections = report_sections(tmp_path, report)
    pictures = [
        item.path for part in sections[:2] for item in part.items if isinstance(item, Figure)
    ]
    assert len(set(pictures)) == len(pictures) == 2


def test_the_first_screen_names_the_best_and_the_runner_up(tmp_path):
    def sentence_of(column, by_name, rows):
        return "".join(opening(tmp_path, {column: by_name}, rows).below)

    def headline_of(outcomes, rows):
        return opening(tmp_path, outcomes, rows).sentences

    best = known.with_metrics(naive, over_time=naive.over_time + 0.1)
    joint = known.with_metrics(naive, over_time=naive.over_time + 0.2)
    by_name = {"naive": naive, "ER": best, "joint": joint}
    rows = [known.NAIVE, METHODS["ER"], known.JOINT]
    assert sentence_of("class-incremental", by_name, rows) == (
        "Class-incremental: second is naive with 0.700 ± 0.141, behind by 0.100 ± 0.000 (paired "
        "by seed)."
    )
    # Student's interval of 0.7 and 0.9 is 12.706 times 0.1.
    assert headline_of({"class-incremental": by_name}, rows) == (
        "Which method has the highest final accuracy after the last task?",
        "Best, with Student's 95% interval over seeds: ER 0.800 [0.000, 1.000] "
        "(class-incremental).",
        "Baseline, naive: 0.700 ± 0.141 (class-incremental).",
    )
    # A second value of the best is not the next method.
    near = known.with_metrics(naive, over_time=best.over_time - [[0.18], [0.0]])
    many = {"naive": naive, "EWC": best, "EWC, published": best, "ER": near}
    published = METHODS["EWC"]._replace(name="EWC, published")
    assert sentence_of("task-incremental", many, [*rows, METHODS["EWC"], published]) == (
        "Task-incremental: second is ER with 0.710 ± 0.269, behind by 0.090 ± 0.127 (paired by "
        "seed)."
    )
    one = {
        name: item._replace(
            metrics={metric: values[:1] for metric, values in item.metrics.items()},
            **{
                field: values[:1]
                for field, values in item._asdict().items()
                if isinstance(values, np.ndarray)
            },
        )
        for name, item in by_name.items()
    }
    assert "ER 0.700 (no interval from one seed) (NI)" in headline_of({"NI": one}, rows)[1]
    assert sentence_of("NI", {"joint": joint}, [known.JOINT]) == ""
    # The method with all labels bounds the others, and a diverged one has no rank.
    upper = METHODS["incremental joint"]
    bounded = headline_of(
        {"NI": {"naive": naive, "incremental joint": joint}}, [known.NAIVE, upper]
    )
    assert bounded[1].startswith("Best, with Student's 95% interval over seeds: naive 0.700")
    nan = known.with_metrics(
        best, over_time=np.where([[False] * 3, [True] * 3], np.nan, best.over_time)
    )
    both = {"naive": naive, "ER": nan}
    assert headline_of({"NI": both}, rows)[1].startswith(
        "Best, with Student's 95% interval over seeds: naive 0.700"
    )
    assert sentence_of("NI", both, rows) == ""
    outcomes = {"naive": known.with_metrics(naive, over_time=nan.over_time), "joint": joint}
    assert headline_of({"NI": outcomes}, rows)[1].endswith("none, all diverged.")
    assert sentence_of("NI", {"ER": nan}, rows) == ""
    assert headline_of({"NI": {"ER": nan}}, rows)[1].endswith("none, all diverged.")


def test_seeds_without_a_difference_do_not_count(tmp_path):
    nan = np.nan
    assert tables.seeds_above(np.array([nan, 0.1, -0.2])) == "1 of 2"
    assert tables.seeds_above(np.array([nan, nan])) == "–"
    diverged = known.with_metrics(naive, over_time=naive.over_time + np.array([[0.1], [nan]]))
    assert tables.paired_cells(diverged, naive) == ("–", "1 of 1")
    assert tables.paired_cells(naive, naive) == ("+0.000 ± 0.000", "0 of 2")


def test_hyperparameters_and_omitted_methods_are_stated():
    tuned = naive._replace(choice=choose_hyperparameter((1.0, 2.0), np.array([[0.2], [0.4]])))
    inputs = naive._replace(choice=fixed_hyperparameter(0.5))
    zero = naive._replace(choice=choose_hyperparameter((0.0, 1.0), np.array([[0.4], [0.2]])))
    outcomes = {"a": tuned, "b": inputs, "c": naive, "d": zero}
    choices = tables.choices_of({"task-incremental": outcomes})
    table = tables.hyperparameters_table("final accuracy", choices)
    assert table.rows == [
        ["a, task-incremental", "1: 0.200; 2: 0.400", "2 (edge of the grid)"],
        ["b, task-incremental", "given", "0.5"],
        ["d, task-incremental", "0: 0.400; 1: 0.200", "0 (edge of the grid)"],
    ]
    left = tables.left_out_table([known.NAIVE, METHODS["HAT"]], {"NI": frozenset()})
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
