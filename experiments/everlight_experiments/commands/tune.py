"""Grid search of configuration values on validation seeds, which are never evaluated.

    everlight tune icifar --preset small --vary learning-rate=1e-3,3e-3 net=cnn,resnet:1

No test sample of an evaluation seed is used. What was trained is read back: the same command with
more values, methods or settings trains only those.
"""

import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from everlight.continual import Choice
from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight.errors import ArgumentError
from everlight.metrics import tied_candidates
from everlight_data.errors import DataError
from everlight_data.sets.loading import loading_once
from everlight_experiments.commands.benchmark_registry import (
    default_config,
    load_benchmarks,
    split_preset,
)
from everlight_experiments.commands.columns import DIVERGED, score_figure, values_column
from everlight_experiments.commands.load_and_train import (
    applicable_methods,
    refuse_inapplicable,
    selected_methods,
)
from everlight_experiments.commands.options import RunOptions, TuneOptions
from everlight_experiments.commands.value_grids import combinations, edges_of, label_of, read_grid
from everlight_experiments.continual.benchmarks.benchmark import Benchmark, Benchmarks
from everlight_experiments.continual.report.tables import hyperparameters_table, rule_of, table_of
from everlight_experiments.continual.training.estimate import estimate_duration
from everlight_experiments.continual.training.programs import method_on
from everlight_experiments.continual.training.queue import Job, jobs_of, runners_of
from everlight_experiments.continual.training.runner import Runner, choice_of
from everlight_experiments.report.cells import final_cell, interval_cell, spread
from everlight_experiments.report.writer import Report, Section, Summary, write_report
from everlight_experiments.run_folder.compilation import release_programs
from everlight_experiments.run_folder.config_options import (
    change_config,
    changed_options,
    with_config,
)
from everlight_experiments.run_folder.folder import RunFolder

VARY = "--vary"
MAX_COMBINATIONS = 10_000
"""Limit on the combinations of values, all of which are checked before the first is trained."""
BEST = (
    "The best configuration has the greatest mean over columns; configurations within one standard "
    "error over seeds are statistically tied with it. Validation seeds are never evaluated on."
)


class MethodInColumn(NamedTuple):
    """A method in a column, by their names."""

    column: str
    method: str


class Candidate(NamedTuple):
    """One combination of values."""

    changes: Mapping[str, Any]
    """Values by option."""
    config: Any
    """Configuration of the benchmark with these values."""

    @property
    def label(self) -> str:
        """Return the values as the user gave them."""
        return label_of(self.changes)


class Trial(NamedTuple):
    """Scores with one combination of values."""

    candidate: Candidate
    training: str
    """Network, optimizer and length in words."""
    scores: Mapping[MethodInColumn, Float[np.ndarray, "seeds"]]
    """Scores of the best hyper-parameter; NaN where a run diverged."""
    choices: Mapping[MethodInColumn, Choice]

    @property
    def label(self) -> str:
        """Return the values as the user gave them."""
        return self.candidate.label

    @property
    def scores_by_seed(self) -> Float[np.ndarray, "seeds"]:
        """Return the means over columns; a diverged run counts as 0."""
        return np.mean([np.nan_to_num(scores) for scores in self.scores.values()], axis=0)


def run_tune(options: TuneOptions) -> Path:
    """Try every combination; returns the report's path.

    Raises:
      DataError: a benchmark, method, option or value that does not exist, or nothing to vary;
        values that change the data, which methods apply, or nothing.
    """
    names = selected_methods(options.methods)
    candidates = configs_of(options)
    with loading_once():
        first = load_benchmarks(replace(options, config=candidates[0].config))
        methods = [method_on(next(iter(first.values())), METHODS[name]) for name in names]
        refuse_inapplicable(first, options.methods, methods)
        methods, lines = applicable_methods(options, first, methods)
        print(*lines, sep="\n", end="\n" * bool(lines), flush=True)
        _refuse_unlike(options, first, methods, candidates)
        folder = RunFolder(
            "tune",
            split_preset(options.benchmark)[0],
            options,
            shared=True,
        )
        grids = [job.method.hyperparameters for job in jobs_of(first, methods, 1)]
        runs = options.validation_seeds * sum(max(len(grid), 1) for grid in grids)
        print(f"{len(candidates)} × {runs} runs", flush=True)
        trials = _try_candidates(folder, options, methods, candidates)
    scores = {
        f"{trial.label}/{name.column}/{name.method}": values
        for trial in trials
        for name, values in trial.scores.items()
    }
    folder.save_results(**scores)
    return _report(folder, options, next(iter(first.values())), trials)


def configs_of(options: TuneOptions) -> list[Candidate]:
    """Return all combinations of values to try, each with its configuration.

    Raises:
      DataError: an option or value that does not exist, or nothing to vary.
    """
    if not options.vary:
        raise DataError(
            "--vary without a setting; give NAME=VALUE,..., as in learning-rate=0.01,0.03"
        )
    try:
        grids = read_grid(options.vary)
    except ArgumentError as error:
        raise DataError(f"{VARY} {error}") from error
    count = math.prod(map(len, grids.values()))
    if count > MAX_COMBINATIONS:
        raise DataError(f"{VARY} {count:,} combinations; give at most {MAX_COMBINATIONS:,}")
    # All before the first is trained: a value that cannot be is known then.
    return [
        Candidate(changes, change_config(options.config, changes, VARY))
        for changes in combinations(grids)
    ]


def rank_trials(trials: Sequence[Trial]) -> tuple[int, list[int]]:
    """Return the best combination, and those that are statistically tied with it.

    Raises:
      DataError: every run diverged.
    """
    if all(np.isnan(values).all() for trial in trials for values in trial.scores.values()):
        raise DataError("every run diverged and none is best; give smaller learning rates")
    scores_by_seed = np.stack([trial.scores_by_seed for trial in trials])
    best = int(np.argmax(scores_by_seed.mean(axis=1)))
    return best, [
        place for place in np.flatnonzero(tied_candidates(best, scores_by_seed)) if place != best
    ]


def run_command(options: TuneOptions, config: Any) -> str:
    """Return the command that trains the same methods with a configuration."""
    name, preset = split_preset(options.benchmark, options.preset)
    shared = ("methods", "setting", "seed", "validation_seeds", "validation_tasks")
    default = with_config(RunOptions, default_config(name, preset))()
    options_with_config = with_config(RunOptions, config)(
        **{field: getattr(options, field) for field in shared}
    )
    words = itertools.chain(*changed_options(default, options_with_config).values())
    return shlex.join(["everlight", "run", name, "--preset", preset, *words])


def _refuse_unlike(
    options: TuneOptions,
    first: Benchmarks,
    methods: Sequence[Method],
    candidates: Sequence[Candidate],
) -> None:
    """Refuse values that change the data, which methods apply, or nothing, before any training."""
    seen: dict[str, str] = {}
    for candidate in candidates:
        benchmarks = load_benchmarks(replace(options, config=candidate.config))
        label = candidate.label
        option = f"{VARY} {label}"
        for column, benchmark in benchmarks.items():
            if benchmark.data.words != first[column].data.words:
                raise DataError(
                    f"{option} changes the data or their use ({benchmark.data.words}), so that "
                    "scores cannot be compared; give it as an option"
                )
            if benchmark.setting.capabilities != first[column].setting.capabilities:
                raise DataError(f"{option} changes which methods apply; run them separately")
        identity = repr(
            [bench.fingerprint(method) for bench in benchmarks.values() for method in methods]
        )
        if (same := seen.setdefault(identity, label)) != label:
            raise DataError(f"{option} trains what {same} does: it changes nothing here")


def _runners(
    folder: RunFolder,
    options: TuneOptions,
    benchmarks: Benchmarks,
    changes: Mapping[str, Any],
) -> dict[str, Runner]:
    """Return the runners of one combination of values, by column."""
    # Another order on the command line repeats no training.
    prefix = label_of(dict(sorted(changes.items())))
    with_prefix = {
        column: benchmark._replace(prefix=prefix) for column, benchmark in benchmarks.items()
    }
    runners = runners_of(folder, with_prefix, options.seed, options.validation_seeds)
    # The runs of all combinations count together, in the estimate and in `everlight watch`.
    return {column: replace(runner, titles_have_prefix=False) for column, runner in runners.items()}


def _estimate(
    folder: RunFolder, runners: Mapping[str, Runner], jobs: Sequence[Job], left: int
) -> bool:
    """Print how long so many combinations take if all are as long as this one, unless it is done.

    Returns:
      True if it was printed.
    """
    stages = [
        (job, stage) for job in jobs for stage in runners[job.column].missing_criteria(job.method)
    ]
    if stages:
        estimate_duration(folder, runners, stages, left)
    return bool(stages)


def _try_candidates(
    folder: RunFolder,
    options: TuneOptions,
    methods: Sequence[Method],
    candidates: Sequence[Candidate],
) -> list[Trial]:
    """Train every combination of values, and print the mean score of each."""
    trials: list[Trial] = []
    is_estimated = False
    for place, candidate in enumerate(candidates):
        benchmarks = load_benchmarks(replace(options, config=candidate.config))
        runners = _runners(folder, options, benchmarks, candidate.changes)
        jobs = jobs_of({c: runner.benchmark for c, runner in runners.items()}, methods, 1)
        for job in jobs:
            runners[job.column].check_validation(job.method)
        if not is_estimated:
            is_estimated = _estimate(folder, runners, jobs, len(candidates) - place)
        trials.append(_try_all(runners, jobs, candidate))
        print(f"{candidate.label}: {trials[-1].scores_by_seed.mean():.3f}", flush=True)
        release_programs()
    return trials


def _try_all(runners: Mapping[str, Runner], jobs: Sequence[Job], candidate: Candidate) -> Trial:
    """Return the scores of every method with one combination of values."""
    scores: dict[MethodInColumn, np.ndarray] = {}
    choices: dict[MethodInColumn, Choice] = {}
    for column, method, _ in jobs:
        values, grid = runners[column].validation_criteria(method), method.selection_grid
        choice = choice_of(method, values)
        row = grid.index(choice.hyperparameter) if grid else 0
        name = MethodInColumn(column, method.name)
        scores[name], choices[name] = values[row], choice
    training = next(iter(runners.values())).benchmark.training.words
    return Trial(candidate, training, scores, choices)


def _report(
    folder: RunFolder, options: TuneOptions, benchmark: Benchmark, trials: Sequence[Trial]
) -> Path:
    """Write the report, and return its path."""
    best, near = rank_trials(trials)
    criterion = benchmark.criterion
    rule = rule_of(benchmark, options.validation_seeds)
    summary_rows = [
        ("Data", benchmark.data.words),
        ("Selection rule", f"{rule} {BEST}"),
        ("Training with the best", trials[best].training),
        ("Command for the best", run_command(options, trials[best].candidate.config)),
        ("Duration", folder.duration()),
    ]
    title = f"Grid search of {benchmark.name} on validation seeds"
    summary = _results_summary(folder.path, criterion, trials, best, near)
    report = Report(summary_rows, _hyperparameters(criterion, trials), summary)
    return write_report(folder.path, title, report)


def _results_summary(
    folder: Path, criterion: str, trials: Sequence[Trial], best: int, near: Sequence[int]
) -> Summary:
    """Return the best configuration, its distance from the others, and ties and edges."""
    labels, metric = [trial.label for trial in trials], f"{criterion} on validation samples"
    scores = {
        name: {trial.label: trial.scores[name] for trial in trials} for name in trials[0].scores
    }
    means = {trial.label: f"{trial.scores_by_seed.mean():.3f}" for trial in trials}
    below = {
        trial.label: spread(trials[best].scores_by_seed - trial.scores_by_seed) for trial in trials
    }
    below[labels[best]] = "best"
    columns = [
        *(
            values_column(name.method, by_label, final_cell, name.column)
            for name, by_label in scores.items()
        ),
        values_column("mean", means),
        values_column("below the best", below, group="paired by validation seed"),
    ]
    caption = f"{metric}, mean ± standard deviation over seeds."
    table = table_of(caption, {label: label for label in labels}, columns, DIVERGED, "settings")
    table = replace(table, strong_rows=frozenset((best,)))
    shown = {f"{name.method}, {name.column}": by_label for name, by_label in scores.items()}
    figure = score_figure(folder / "tried.png", labels, shown, metric, "validation seeds")
    sentences = [
        f"Which configuration has the highest {criterion} on validation seeds?",
        f"Best, with 95% interval: {labels[best]}, {interval_cell(trials[best].scores_by_seed)}.",
    ]
    if best:
        sentences.append(f"Baseline, the first: {labels[0]}, {means[labels[0]]}.")
    remarks = []
    if near:
        tied = "; ".join(labels[number] for number in near)
        remarks.append(f"Settings statistically tied with the best: {tied}.")
    if edges := edges_of([trial.candidate.changes for trial in trials], best):
        remarks.append(f"At the edge of the grid: {', '.join(edges)}.")
    return Summary(tuple(sentences), figure, table, tuple(remarks))


def _hyperparameters(criterion: str, trials: Sequence[Trial]) -> list[Section]:
    choices = {
        f"{name.method}, {name.column}, {trial.label}": choice
        for trial in trials
        for name, choice in trial.choices.items()
    }
    table = hyperparameters_table(criterion, choices)
    return [Section("Hyper-parameters", items=[table])] if table.rows else []
