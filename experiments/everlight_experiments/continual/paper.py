"""A paper as a value that can be run.

A paper declares presets, benchmarks, methods, published numbers, findings and special sections;
`Paper.run` opens the folder, trains, saves and writes the report.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool

from everlight.continual.methods.method import Method, incompatibility
from everlight_data.errors import DataError
from everlight_experiments.continual.benchmarks.benchmark import (
    PAPER_VALIDATION_SEEDS,
    Benchmarks,
)
from everlight_experiments.continual.benchmarks.config import BenchmarkConfig, refuse_options
from everlight_experiments.continual.report.criteria import NO_PUBLISHED_NUMBERS, PublishedNumbers
from everlight_experiments.continual.report.sections import (
    ReportInput,
    report_sections,
    report_summary_rows,
)
from everlight_experiments.continual.report.tables import rule_of
from everlight_experiments.continual.training.outcome import Outcomes
from everlight_experiments.continual.training.queue import Job, runners_of, save_outcomes
from everlight_experiments.continual.training.train import train_benchmarks
from everlight_experiments.report.writer import (
    Column,
    Report,
    Section,
    Summary,
    Table,
    write_report,
)
from everlight_experiments.run_folder.config_options import given_options, option_value, with_config
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import Distributed, ExperimentOptions, Preset


@dataclasses.dataclass(frozen=True)
class PaperOptions(ExperimentOptions):
    """Options of a paper's command; `with_config` adds those of its configuration."""

    distributed: Distributed = None


@dataclasses.dataclass(frozen=True)
class CheckedPaperOptions(PaperOptions):
    """Options of a paper whose numbers are compared with published ones."""

    run_selectors = ("check",)
    check: bool = False
    """Exit with status 1 if a number differs from the published one without a known cause."""


C = TypeVar("C")
"""Configuration of a paper's command."""
D = TypeVar("D")
"""Data that a paper's own sections need besides outcomes; None where it needs no others."""
T = TypeVar("T")
"""Outcome that a claim's test reads."""


class Experiment(NamedTuple, Generic[D]):
    """Benchmarks and methods that a paper trains with one configuration."""

    benchmarks: Benchmarks
    jobs: Sequence[Job]
    """Methods by column, as `programs.method_on` returns them, each with its number of seeds."""
    hidden_columns: frozenset[str] = frozenset()
    """Columns that only the paper's own sections show."""
    data: D = None
    left_out: Sequence[Job] = ()
    """Jobs of methods that apply in no column of the general report, which has the reasons."""

    @property
    def shown_columns(self) -> list[str]:
        """Columns of the general report."""
        return [column for column in self.benchmarks if column not in self.hidden_columns]

    @property
    def seeds(self) -> int:
        """Largest number of seeds of a method."""
        return max(job.seeds for job in self.jobs)

    @property
    def methods(self) -> list[Method]:
        """Methods of the general report, each once; those that are left out come last."""
        jobs = [job for job in self.jobs if job.column in self.shown_columns]
        return list({job.method.name: job.method for job in (*jobs, *self.left_out)}.values())

    def reason(self, job: Job) -> str | None:
        """Return why a job's method does not apply in its column; None where it does."""
        return incompatibility(job.method, self.benchmarks[job.column].setting.capabilities)

    def applicable(self) -> "Experiment[D]":
        """Return the experiment with the jobs whose method applies in their column.

        Columns without a job are left out too.

        Raises:
          DataError: there is no job, or no method applies in any column; the message has the
            first method and its reason.
        """
        if not self.jobs:
            raise DataError("no method is trained: none of --methods has settings here; add others")
        jobs = [job for job in self.jobs if self.reason(job) is None]
        if not jobs:
            method = self.jobs[0].method
            raise DataError(f"no method applies here: {method.name} {self.reason(self.jobs[0])}")
        columns = {job.column for job in jobs}
        benchmarks = {name: bench for name, bench in self.benchmarks.items() if name in columns}
        trained = {job.method.name for job in jobs if job.column not in self.hidden_columns}
        return self._replace(
            benchmarks=benchmarks,
            jobs=jobs,
            hidden_columns=self.hidden_columns & columns,
            left_out=[job for job in self.jobs if job.method.name not in trained],
        )


class Results(NamedTuple, Generic[C, D]):
    """A trained experiment."""

    folder: Path
    config: C
    experiment: Experiment[D]
    benchmarks: Benchmarks
    """The experiment's benchmarks, prepared."""
    outcomes: Outcomes
    """Outcomes by column and method, including columns that only the paper's sections show."""
    seed: int


class Verdict(NamedTuple):
    """The check of a claim in a run."""

    holds: Bool[np.ndarray, "seeds"]
    """True for the seeds for which the claim holds; empty where the run lacks something."""
    numbers: str
    """Compared numbers, or what the run lacks, in words."""


def not_run(missing: Iterable[str]) -> Verdict:
    """Return the verdict of a run that lacks methods or data, named in words."""
    return Verdict(np.zeros(0, bool), f"not run: {', '.join(sorted(missing))}")


class Finding(NamedTuple):
    """A claim of a paper with its verdict in a run."""

    claim: str
    verdict: Verdict


class Claim(NamedTuple, Generic[T]):
    """A claim of a paper with its test."""

    text: str
    requirements: tuple[str, ...]
    """Names of the outcomes without which the test cannot run."""
    test: Callable[[Mapping[str, T]], Verdict]
    """Function from a run's outcomes by name to the verdict."""

    def check(self, outcomes: Mapping[str, T]) -> Finding:
        """Return the claim with its verdict in a run, by the run's outcomes."""
        missing = set(self.requirements) - outcomes.keys()
        return Finding(self.text, not_run(missing) if missing else self.test(outcomes))


class Paper(NamedTuple, Generic[C, D]):
    """Everything that is particular to a paper."""

    name: str
    """Name of the command and of the run's folder."""
    citation: str
    title: Callable[[C], str]
    """Function from the configuration to the report's title."""
    presets: Mapping[Preset, C]
    """Configurations, dataclass instances whose fields are options of the command."""
    experiment: Callable[[C, RunFolder, PaperOptions], Experiment[D]]
    """Function from the configuration to benchmarks and methods."""
    sections: Callable[[Results[C, D]], Sequence[Section]] = lambda results: ()
    """Sections before those of the general report."""
    summary_rows: Callable[[Results[C, D]], Sequence[tuple[str, str]]] = lambda results: ()
    """Summary rows in addition to those of every report."""
    published_numbers: Callable[[Results[C, D]], PublishedNumbers] = lambda results: (
        NO_PUBLISHED_NUMBERS
    )
    rule: Callable[[C], str] | None = None
    """Function from the configuration to the selection rule; None is the common one, on
    `PAPER_VALIDATION_SEEDS`."""
    results_summary: Callable[[Results[C, D]], Summary] | None = None
    """Opening of a report that has only the paper's own sections; None makes the general report."""
    arrays: Callable[[Results[C, D]], Mapping[str, np.ndarray]] = lambda results: {}
    """Arrays of results.npz in addition to those of the outcomes."""
    unexplained_lines: Callable[[Results[C, D]], Sequence[str]] | None = None
    """Differences from published numbers that have no known cause, a line each (`--check`); None
    where no number is compared."""
    check_changed: Callable[[C, Sequence[str]], None] = lambda config, changed: None
    """Function that raises `DataError` if the methods' settings replace an option of the user, from
    the configuration and the names of these options."""
    findings: Callable[[Results[C, D]], Sequence[Finding]] = lambda results: ()
    """Claims that are about this configuration, checked in the results."""
    findings_source: str = ""
    """Sentence on what the claims are about in the paper."""

    def options(self, arguments: Sequence[str]) -> type:
        """Return the command's options, with the defaults of the named preset."""
        preset = option_value(arguments, "--preset") or "demo"
        if preset not in self.presets:
            raise DataError(f"--preset {preset!a}; there are {', '.join(self.presets)}")
        kind = PaperOptions if self.unexplained_lines is None else CheckedPaperOptions
        options_type = with_config(kind, self.presets[preset])
        options_type.__doc__ = f"{self.citation}."
        return options_type

    def run(self, options: PaperOptions) -> Path:
        """Train the methods of the options' configuration, write the report and return its path.

        Raises:
          DataError: data are missing or wrong, or settings do not fit together.
        """
        changed = given_options(options)
        self.check_changed(options.config, changed)
        for part in (options.config, *vars(options.config).values()):
            if isinstance(part, BenchmarkConfig):
                refuse_options(changed, part.unread())
        folder = RunFolder("paper", self.name, options, shared=True)
        results = train_paper(self, folder, options)
        report = paper_report(self, folder, results)
        written = write_report(folder.path, self.title(results.config), report)
        checked = isinstance(options, CheckedPaperOptions) and options.check
        if checked and (unexplained := self.unexplained_lines(results)):
            differences = "\n".join(unexplained)
            sys.exit(f"differences from published numbers without a known cause:\n{differences}")
        return written


def train_paper(paper: Paper[C, D], folder: RunFolder, options: PaperOptions) -> Results[C, D]:
    """Train every method on every benchmark, and save the outcomes."""
    requested = paper.experiment(options.config, folder, options)
    experiment = requested.applicable()
    for name, job in {job.method.name: job for job in experiment.left_out}.items():
        print(f"leaves out {name}, which {requested.reason(job)}", flush=True)
    runners = runners_of(folder, experiment.benchmarks, options.seed, PAPER_VALIDATION_SEEDS)
    benchmarks = {column: runner.benchmark for column, runner in runners.items()}
    outcomes = train_benchmarks(folder, runners, experiment.jobs)
    results = Results(folder.path, options.config, experiment, benchmarks, outcomes, options.seed)
    arrays = paper.arrays(results)
    save_outcomes(folder, benchmarks, options.seed, experiment.seeds, outcomes, arrays)
    return results


def paper_report(paper: Paper[C, D], folder: RunFolder, results: Results[C, D]) -> Report:
    """Return the report of a paper's results; pictures go into the folder."""
    experiment = results.experiment
    shown = {column: results.benchmarks[column] for column in experiment.shown_columns}
    if paper.results_summary is None:
        by_column = {column: results.outcomes[column] for column in shown}
        general = ReportInput(
            shown, by_column, experiment.methods, paper.published_numbers(results)
        )
        summary, sections = report_sections(folder.path, general)
    else:
        summary, sections = paper.results_summary(results), []
    benchmark = next(iter(shown.values()))
    if paper.rule is None:
        rule = rule_of(benchmark, PAPER_VALIDATION_SEEDS)
    else:
        rule = paper.rule(results.config)
    summary_rows = [
        ("Paper", paper.citation),
        *report_summary_rows(benchmark, results.seed, experiment.seeds, rule, folder.duration()),
        *paper.summary_rows(results),
    ]
    body, findings = paper.sections(results), paper.findings(results)
    if findings:
        body = [findings_section(findings, paper.findings_source), *body]
    return Report(summary_rows, [*body, *sections], summary)


def findings_section(findings: Sequence[Finding], source: str) -> Section:
    """Return a table of claims with the number of seeds for which each holds."""
    rows = []
    for claim, verdict in findings:
        seeds = len(verdict.holds)
        holds = f"{np.sum(verdict.holds)} of {seeds}" if seeds else "–"
        rows.append([claim, holds, verdict.numbers])
    columns = [Column("finding"), Column("holds in"), Column("means")]
    table = Table("Findings of the paper and results of this run.", columns, rows)
    return Section("The paper's findings", [source], [table])
