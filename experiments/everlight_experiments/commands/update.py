"""Finished runs that go on learning: `everlight update RUN --data NEW`.

The benchmark of the run gets one more task, of the new images. Parameters and memory after the
run's last task are the start; heads and memories grow by the new classes, which come after the old
ones. Training, checkpoints, results and report are those of `everlight run`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from everlight.continual import SequenceResult
from everlight.continual.methods.method import Method, incompatibility
from everlight.trees import checksums_of, words_of_keys
from everlight_data.errors import DataError
from everlight_data.runs.checkpoints import open_existing
from everlight_data.sets.loading import loading_once
from everlight_experiments.commands.kept_runs import (
    KeptRun,
    find_method,
    names_in,
    read_kept_run,
    rebuild_benchmarks,
    verified_hyperparameter,
)
from everlight_experiments.commands.options import UpdateOptions
from everlight_experiments.continual.benchmarks.benchmark import Benchmark
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.continual.report.sections import (
    ReportInput,
    report_sections,
    report_summary_rows,
)
from everlight_experiments.continual.training.continuation import Continuation
from everlight_experiments.continual.training.outcome import Outcome, Outcomes
from everlight_experiments.continual.training.programs import MethodPrograms
from everlight_experiments.continual.training.queue import (
    Job,
    check_jobs,
    runners_of,
    save_outcomes,
    train_jobs,
)
from everlight_experiments.continual.training.runner import nets_folder
from everlight_experiments.images.added_images import options_of_earlier_images
from everlight_experiments.report.cells import counted, spread
from everlight_experiments.report.writer import Column, Report, Section, Table, write_report
from everlight_experiments.run_folder.folder import NETS, RunFolder
from everlight_experiments.terminal import aligned_rows

OBSTACLES = {
    "tasks": "plans for the number of tasks that its run had",
    "classes": "has a head of fixed directions, which change with the number of classes",
}
"""Reasons against an update, by `Method.planned_total`."""


class EarlierRuns(NamedTuple):
    """Runs of a folder in one setting, whose networks are the start of an update."""

    run: KeptRun
    setting: str
    benchmark: Benchmark
    programs: MethodPrograms

    @property
    def tasks(self) -> int:
        """Number of tasks that they have learned."""
        return self.programs.tasks

    def sequence_id(self, seed: int) -> SequenceId:
        """Return the sequence of a seed."""
        first = self.run.options.seed
        return SequenceId("evaluation", first, seed - first)

    def hyperparameter(self, method: Method, seed: int) -> float:
        """Return the hyper-parameter with which a run was trained.

        Raises:
          DataError: the run did not finish, or has other data or settings.
        """
        path = self._folder(method, seed)
        last = self.tasks - 1
        if not path.is_dir() or last not in open_existing(path).numbers():
            raise DataError(
                f"{self.run.folder} has no network of {method.name}, {self.setting}, seed {seed}, "
                "after its last task: the run did not finish, or it diverged. Run its command "
                "again, or give other --methods, --seed or --seeds."
            )
        sequence = self.sequence_id(seed)
        return verified_hyperparameter(open_existing(path), last, self.benchmark, method, sequence)

    def result(self, method: Method, seed: int) -> SequenceResult:
        """Return the result after its last task of a run whose hyper-parameter was verified."""
        shapes = self.programs.saved_shapes(method)
        return open_existing(self._folder(method, seed)).restore(self.tasks - 1, shapes).state

    def _folder(self, method: Method, seed: int) -> Path:
        return nets_folder(self.run.folder, self.run.prefix, self.setting, method, seed)

    def seeds(self, method: Method) -> list[int]:
        """Return the seeds of which there are networks."""
        return sorted(map(int, names_in(self._folder(method, 0).parent)))


class Update(NamedTuple):
    """Runs to continue, and the benchmarks with the new task, by setting."""

    earlier: Mapping[str, EarlierRuns]
    benchmarks: Mapping[str, Benchmark]
    jobs: Sequence[Job]
    first_seed: int
    lines: Sequence[str]
    """Lines for the user on methods that are left out, and on options that do not apply."""
    unapplied: str
    """Options of the run that do not apply to the new images; empty without one."""


def run_update(options: UpdateOptions) -> Path:
    """Train networks of a finished run on new images; returns the report's path.

    Raises:
      MissingDataError: the run's folder, data or networks are not there.
      DataError: images, methods or seeds that cannot be used, or a run that cannot be updated.
    """
    with loading_once():
        update = load_update(options)
    print(*update.lines, sep="\n", end="\n" * bool(update.lines), flush=True)
    seeds = update.jobs[0].seeds
    options = dataclasses.replace(options, seed=update.first_seed, seeds=seeds)
    folder = RunFolder("update", options.run.resolve().name, options, shared=True)
    runners = {
        column: dataclasses.replace(runner, continuation=_continuation(update.earlier[column]))
        for column, runner in runners_of(
            folder, update.benchmarks, update.first_seed, validation_seeds=0, keep_nets=True
        ).items()
    }
    check_jobs(runners, update.jobs)
    outcomes = train_jobs(runners, update.jobs)
    save_outcomes(folder, update.benchmarks, update.first_seed, seeds, outcomes)
    for column, by_method in outcomes.items():
        for name, outcome in by_method.items():
            print(_before_and_after(f"{column}, {name}", outcome), flush=True)
    return write_report(
        folder.path,
        f"Update of {options.run.resolve().name} by {options.data}",
        _report(folder, options, update, outcomes),
    )


def load_update(options: UpdateOptions) -> Update:
    """Return the runs and benchmarks of an update; raises as `run_update`."""
    run = read_kept_run(options.run)
    settings = run.settings()
    if run.prefix:
        raise DataError(f"{options.run} is a grid of benchmarks; give a run of one benchmark")
    benchmarks, methods = rebuild_benchmarks(run, settings)
    later, _ = rebuild_benchmarks(run._replace(added=(*run.added, options.added)), settings)
    earlier = {
        setting: EarlierRuns(run, setting, benchmark, MethodPrograms(benchmark))
        for setting, benchmark in benchmarks.items()
    }
    jobs, lines = [], []
    for setting, runs in earlier.items():
        names = {Method.name_in(label) for label in names_in(run.nets / setting)}
        in_order = [method.name for method in methods if method.name in names]
        if not options.methods:
            lines += [
                f"leaves out {name}, whose --strategy the last start of the run's command lacked"
                for name in sorted(names.difference(in_order))
            ]
        for name in options.methods or in_order:
            method = find_method(run, setting, methods, name)
            reason = obstacle(method, later[setting])
            if reason and options.methods:
                raise DataError(f"{name} {reason}; leave it out of --methods")
            if reason:
                lines.append(f"leaves out {name}, which {reason}")
            else:
                jobs.append(_job(options, runs, method))
    if not jobs:
        raise DataError(f"{options.run} has no method that can be updated: {'; '.join(lines)}")
    seeds = {(job.seeds, first) for job, first in jobs}
    if len(seeds) > 1:
        raise DataError(
            f"{options.run} has other seeds for some methods; give --seed and --seeds, or --methods"
        )
    ((_, first),) = seeds
    unapplied = options_of_earlier_images(run.options.config)
    if unapplied:
        lines.append(f"the run's {unapplied}: not applied to the new images")
    return Update(earlier, later, [job for job, _ in jobs], first, lines, unapplied)


def _job(options: UpdateOptions, runs: EarlierRuns, method: Method) -> tuple[Job, int]:
    """Return the job of a method with its first seed."""
    numbers = runs.seeds(method)
    first = numbers[0] if options.seed is None else options.seed
    later = [seed for seed in numbers if seed >= first]
    count = max(1, len(later)) if options.seeds is None else options.seeds
    verified = [runs.hyperparameter(method, seed) for seed in range(first, first + count)]
    values = (verified[0],) if method.hyperparameters else ()
    return Job(runs.setting, method._replace(hyperparameters=values), count), first


def obstacle(method: Method, later: Benchmark) -> str | None:
    """Return why a method cannot learn the new task; None where it can."""
    if method.planned_total is not None:
        return OBSTACLES[method.planned_total]
    return incompatibility(method, later.setting.capabilities)


def _continuation(runs: EarlierRuns) -> Continuation:
    @cache
    def fingerprint(method: Method, seed: int) -> dict:
        leaves = map(words_of_keys, jax.tree.leaves(runs.result(method, seed)))
        (checksum,) = checksums_of(np.array(checksums_of(*map(np.asarray, leaves))))
        return {"run": runs.run.folder.resolve().name, "checksum": checksum}

    return Continuation(runs.tasks, runs.result, fingerprint)


def _scores(outcome: Outcome) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Return a name and the scores before and after the update, over seeds, of every test set."""
    before, after = outcome.matrices[:, -2], outcome.matrices[:, -1]
    tasks = before.shape[1] - 1
    rows = [
        (f"test set of task {task + 1}", before[:, task], after[:, task]) for task in range(tasks)
    ]
    old = "old test sets, mean", *(np.nanmean(part[:, :-1], axis=1) for part in (before, after))
    return [*rows, old, ("test set of the new images", before[:, -1], after[:, -1])]


def _before_and_after(title: str, outcome: Outcome) -> str:
    """Return the scores before and after the update as text, means over seeds."""
    rows = [("", "before", "after")]
    for name, *scores in _scores(outcome):
        rows.append((name, *(f"{score.mean():6.3f}" for score in scores)))
    head = f"{title}: {outcome.score} of {counted(len(outcome.final), 'seed')}"
    return "\n".join([head, *(f"  {line}" for line in aligned_rows(rows, left=1))])


def _report(
    folder: RunFolder, options: UpdateOptions, update: Update, outcomes: Outcomes
) -> Report:
    benchmark, seeds = next(iter(update.benchmarks.values())), update.jobs[0].seeds
    rule = "hyper-parameters are those of the run that is continued"
    summary_rows = [
        ("Continues", f"{options.run.resolve().name}, with its parameters and memory"),
        *report_summary_rows(benchmark, update.first_seed, seeds, rule, folder.duration()),
        (
            "Networks",
            f"after the new task, in {NETS}/; `load_net` and `everlight update` read them",
        ),
    ]
    if update.unapplied:
        summary_rows.append(("Not applied to the new images", f"the run's {update.unapplied}"))
    methods = list({job.method.name: job.method for job in update.jobs}.values())
    general = ReportInput(update.benchmarks, outcomes, methods)
    summary, sections = report_sections(folder.path, general)
    tables = [
        _table(f"{column}, {name}", outcome)
        for column, by_method in outcomes.items()
        for name, outcome in by_method.items()
    ]
    return Report(
        summary_rows, [Section("Before and after the update", [], tables), *sections], summary
    )


def _table(title: str, outcome: Outcome) -> Table:
    columns = Column("test set"), Column("before the update"), Column("after the update")
    rows = [(name, spread(first), spread(last)) for name, first, last in _scores(outcome)]
    return Table(
        f"{title}: {outcome.score}, mean and standard deviation over seeds.", columns, rows
    )
