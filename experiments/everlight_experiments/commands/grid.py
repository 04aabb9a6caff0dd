"""Every method on every benchmark: one table with ranks, one picture.

    everlight grid --benchmarks digits core50-nc facts --methods joint EWC ER
    everlight grid --benchmarks digits iirc:small --set epochs=2 iirc:small.learning-rate=0.1

Benchmarks, methods, settings and seeds can be added to a finished grid: what was trained is read
back.
"""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_experiments.commands.benchmark_registry import (
    BENCHMARKS,
    default_config,
    refuse_protocol,
    split_preset,
)
from everlight_experiments.commands.columns import (
    mean_ranks,
    ranks_of,
    score_figure,
    values_column,
)
from everlight_experiments.commands.load_and_train import (
    NETS_KEPT,
    Suite,
    load_suite,
    refuse_without_values,
    train_suites,
)
from everlight_experiments.commands.options import GridOptions, RunOptions, TrainOptions
from everlight_experiments.continual.benchmarks.benchmark import Benchmarks
from everlight_experiments.continual.benchmarks.config import BenchmarkConfig
from everlight_experiments.continual.report.sections import report_summary_rows
from everlight_experiments.continual.report.tables import (
    FORGETTING,
    choices_of,
    forgetting_cell,
    hyperparameters_table,
    left_out_table,
    selection_rule,
    table_of,
)
from everlight_experiments.continual.training.outcome import Outcome, Outcomes, arrays_of
from everlight_experiments.continual.training.queue import names_over_time
from everlight_experiments.report.cells import counted, dash, final_cell, interval_cell
from everlight_experiments.report.writer import Report, Section, Summary, Table, write_report
from everlight_experiments.run_folder.config_options import change_config, find_option, with_config
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.usage import options_by_name

SET = "--set"
"""Option that changes values of the benchmarks' configurations."""


def run_grid(options: GridOptions) -> Path:
    """Train everything; returns the report's path.

    Raises:
      DataError: a benchmark, preset or method that does not exist, or data that cannot be used.
    """
    requested = runs_of(options)
    if not requested:
        raise DataError(f"--benchmarks without a name; there are {', '.join(BENCHMARKS)}")
    # All before the first is trained: one whose data are missing is then known.
    suites = {name: load_suite(run) for name, run in requested.items()}
    for name, suite in suites.items():
        refuse_without_values(suite)
        for line in suite.lines:
            print(f"{name}: {line}", flush=True)
    folder = RunFolder("grid", "", options, shared=True)
    for name, suite in suites.items():
        first = next(iter(suite.benchmarks.values()))
        print(f"{name}: {first.data.words}", flush=True)
    benchmarks, outcomes = train_suites(folder, options, suites)
    folder.save_results(**names_over_time(benchmarks), **arrays_of(outcomes))
    methods = _methods_of(suites)
    left_out = [
        left_out_table(suite.methods, {f"{name}, {setting}": benchmark.setting.capabilities})
        for name, suite in suites.items()
        for setting, benchmark in suite.benchmarks.items()
    ]
    not_run = [row for table in left_out for row in table.rows]
    title = f"Continual learning: {len(methods)} methods on {', '.join(suites)}"
    firsts = {
        name: next(bench for bench in benchmarks.values() if bench.prefix == name)
        for name in suites
    }
    rules = selection_rules(benchmarks, outcomes, options.validation_seeds)
    summary_rows = _summary_rows(options, firsts, rules, folder.duration())
    ranks = _ranks(benchmarks, outcomes, methods)
    columns = {name: sum(name in by_name for by_name in outcomes.values()) for name in ranks}
    sentences = state_best_rank(ranks, columns, methods)
    summary = _results_summary(folder.path, benchmarks, outcomes, ranks, columns, sentences)
    details = (
        ("Forgetting and time", _forgetting_table(outcomes, list(ranks))),
        ("Methods not applicable", dataclasses.replace(left_out[0], rows=not_run)),
        ("Selection of hyper-parameters", hyperparameters_table("criterion", choices_of(outcomes))),
    )
    sections = [Section(title, items=[table]) for title, table in details if table.rows]
    return write_report(folder.path, title, Report(summary_rows, sections, summary))


def selection_rules(
    benchmarks: Benchmarks, outcomes: Outcomes, validation_seeds: int
) -> dict[str, str]:
    """Return each benchmark's rule of selection, or that nothing was selected, by its prefix.

    Args:
      benchmarks: benchmarks by column.
      outcomes: outcomes by column and method.
      validation_seeds: number of seeds that select hyper-parameters.
    """
    by_prefix: dict[str, dict[str, Mapping[str, Outcome]]] = {}
    for column, benchmark in benchmarks.items():
        by_prefix.setdefault(benchmark.prefix, {})[column] = outcomes.get(column, {})
    return {
        prefix: selection_rule(benchmarks[next(iter(columns))], columns, validation_seeds)
        for prefix, columns in by_prefix.items()
    }


def _methods_of(suites: Mapping[str, Suite]) -> list[Method]:
    """Return the methods of all benchmarks, in the table's order; the user's own come last."""
    positions = {name: position for position, name in enumerate(METHODS)}
    methods = {method.label: method for suite in suites.values() for method in suite.methods}
    return sorted(
        methods.values(), key=lambda method: positions.get(method.row_name, len(positions))
    )


def runs_of(options: GridOptions) -> dict[str, RunOptions]:
    """Return the options of every benchmark, each with its configuration, by its name in the grid.

    Raises:
      DataError: a benchmark or preset that does not exist or comes twice, or a change that fits
        none of them.
    """
    pairs = [split_preset(name, options.preset) for name in options.benchmarks]
    for name, preset in pairs:
        refuse_protocol("grid", name, preset)
    twice = [
        name for name, pair in zip(options.benchmarks, pairs, strict=True) if pairs.count(pair) > 1
    ]
    if twice:
        raise DataError(f"--benchmarks has {' and '.join(twice[:2])}; give each once")
    presets = dict(zip(options.benchmarks, pairs, strict=True))
    if "images" in [benchmark for benchmark, _ in presets.values()]:
        raise DataError("the benchmark 'images' needs everlight run")
    if options.setting is not None and all(
        BENCHMARKS[benchmark].has_settings for benchmark, _ in presets.values()
    ):
        raise DataError(f"--setting is not for {', '.join(presets)}, which have their own")
    defaults = {name: default_config(*presets[name]) for name in presets}
    configs = _changed_configs(defaults, options.set)
    shared = {opt.name: getattr(options, opt.name) for opt in dataclasses.fields(TrainOptions)}
    return {
        name: with_config(RunOptions, defaults[name])(
            **shared
            | {
                "config": configs[name],
                "benchmark": benchmark,
                "preset": preset,
                "published": False,
            }
            | ({"setting": None} if BENCHMARKS[benchmark].has_settings else {})
        )
        for name, (benchmark, preset) in presets.items()
    }


def _changed_configs(
    configs: Mapping[str, BenchmarkConfig], assignments: Sequence[str]
) -> dict[str, BenchmarkConfig]:
    """Return the configurations by benchmark, with the values that `--set` gives them.

    Raises:
      DataError: an assignment without a name or value, a name that none has or that is given twice
        for one of them, or a value that is refused.
    """
    configs, changed = dict(configs), set()
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not (key and equals and text):
            raise DataError(f"{SET} {assignment!a}; give NAME=VALUE, as in learning-rate=0.01")
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise DataError(f"{SET} {assignment!a}: {error}; close the quotation") from error
        for name, setting in _changed_by(key, configs).items():
            if (name, setting) in changed:
                raise DataError(f"{SET} {key!a} is given twice for {name}; give each setting once")
            changed.add((name, setting))
            configs[name] = change_config(configs[name], {setting: words}, SET)
    return configs


def _changed_by(key: str, configs: Mapping[str, object]) -> dict[str, str]:
    """Return the option that `--set` names, by each benchmark that it changes."""
    name, dot, setting = key.partition(".")
    if dot and name in configs:
        return {name: find_option(list(options_by_name(configs[name])), setting)}
    options = {name: options_by_name(config) for name, config in configs.items()}
    named = {name: find_option(list(by_option), key) for name, by_option in options.items()}
    having = {name: setting for name, setting in named.items() if setting in options[name]}
    if not having:
        check_name(f"setting of {SET}", key, sorted(set().union(*options.values())))
    return having


def _summary_rows(
    options: GridOptions, benchmarks: Benchmarks, rules: Mapping[str, str], duration: str
) -> list[tuple[str, str]]:
    """Return the summary rows of all benchmarks, those of one kind together."""
    summaries = {
        name: dict(report_summary_rows(first, options.seed, options.seeds, rules[name], duration))
        for name, first in benchmarks.items()
    }
    names = [fact for fact in next(iter(summaries.values())) if fact != "Duration"]
    return [
        *((f"{fact}: {name}", rows[fact]) for fact in names for name, rows in summaries.items()),
        ("Duration", duration),
        *([NETS_KEPT] if options.keep_nets else []),
    ]


def _ranks(
    benchmarks: Benchmarks, outcomes: Outcomes, methods: Sequence[Method]
) -> dict[str, list[float]]:
    """Return a method's ranks in the benchmarks where it ran, the lowest mean rank first."""
    finals = {
        column: {name: outcome.final for name, outcome in by_name.items()}
        for column, by_name in outcomes.items()
    }
    means = mean_ranks(finals, {column: benchmarks[column].prefix for column in finals})
    ran = [method.name for method in methods if method.name in means]
    return {name: means[name] for name in sorted(ran, key=lambda name: np.mean(means[name]))}


def _results_summary(
    path: Path,
    benchmarks: Benchmarks,
    outcomes: Outcomes,
    ranks: Mapping[str, Sequence[float]],
    columns_run: Mapping[str, int],
    sentences: tuple[str, ...],
) -> Summary:
    """Return the scores with ranks in every column, and mean ranks."""
    scores = {
        column: {name: outcome.final for name, outcome in by_name.items()}
        for column, by_name in outcomes.items()
    }
    columns = []
    for column, finals in scores.items():
        column_ranks = ranks_of(finals)
        cells = {
            name: f"{final_cell(values)} ({column_ranks[name]:g})"
            for name, values in finals.items()
        }
        columns.append(values_column(f"{column}: {benchmarks[column].score}", cells))
    columns.append(values_column("mean", ranks, lambda values: f"{np.mean(values):.2f}", "rank"))
    columns.append(values_column("columns", columns_run, group="rank"))
    caption = (
        "Final score, mean ± standard deviation over seeds, in each benchmark's own metric. In "
        "brackets: the rank within the column. The mean rank is over the benchmarks where a method "
        "ran, each with the mean over the settings where it ran; columns counts these."
    )
    marks = {
        "–": "–: not applicable, see below. Compare mean ranks over the same columns.",
        "diverged": "Diverged methods have the last rank.",
    }
    table = table_of(caption, {name: name for name in ranks}, columns, marks)
    figure = score_figure(path / "grid.png", list(ranks), scores, "final score")
    return Summary(sentences, figure, table)


def _forgetting_table(outcomes: Outcomes, order: Sequence[str]) -> Table:
    """Return forgetting in every column, and seconds per run."""
    sums = {
        name: sum(by_name[name].median_seconds for by_name in outcomes.values() if name in by_name)
        for name in order
    }
    columns = [
        *(
            values_column(column, cells, forgetting_cell, "forgetting")
            for column, cells in outcomes.items()
        ),
        values_column("sum", sums, lambda seconds: dash(f"{seconds:,.1f}"), "seconds per run"),
    ]
    caption = (
        f"{FORGETTING.format(score='score')} Each benchmark has its own metric. Seconds per "
        "run: median over runs, after compilation, on a machine that may be shared; the sum is "
        "over the benchmarks where the method ran."
    )
    marks = {"–": "–: not defined, or not known."}
    return table_of(caption, {name: name for name in order}, columns, marks)


def state_best_rank(
    ranks: Mapping[str, Sequence[float]], columns: Mapping[str, int], methods: Sequence[Method]
) -> tuple[str, ...]:
    """Return the question, the method of the best mean rank with its interval, and the baseline.

    Methods compete that ran in the most columns; those with all data at once are references.

    Args:
      ranks: a rank per benchmark, by method.
      columns: number of columns in which a method ran.
      methods: all methods.
    """
    references = {method.name for method in methods if method.is_reference}
    most = max(columns.values())
    full = [name for name in ranks if columns[name] == most]
    ranked = [name for name in full if name not in references] or full
    best = min(ranked, key=lambda name: np.mean(ranks[name]))
    benchmarks = len(ranks[best])
    compared = f"Of the methods that ran in {counted(most, 'column')}, which"
    leader = f"{best}, {np.mean(ranks[best]):.2f}"
    if benchmarks > 1:
        highest = float(max(max(values, default=1) for values in ranks.values()))
        leader = f"{best}, {interval_cell(np.array(ranks[best]), 1.0, highest, 2)}"
    return (
        f"{compared if len(full) < len(ranks) else 'Which continual-learning method'} has the best "
        f"mean rank over {counted(benchmarks, 'benchmark')}?",
        f"Best mean rank{', with 95% interval' * (benchmarks > 1)}: {leader}.",
        f"Baseline, naive: {np.mean(ranks['naive']):.2f}.",
    )
