"""Any methods on any benchmark, and on a user's own images.

    everlight run digits --methods EWC ER
    everlight run images --data FOLDER --tasks 5

Seeds, methods and settings can be added to a finished run: what was trained is read back.
"""

from pathlib import Path
from typing import NamedTuple

from everlight_experiments.commands.benchmark_registry import benchmark_name
from everlight_experiments.commands.load_and_train import (
    NETS_KEPT,
    load_suite,
    refuse_inapplicable,
    refuse_without_values,
    train_suites,
)
from everlight_experiments.commands.options import RunOptions
from everlight_experiments.continual.report.sections import (
    ReportInput,
    learning_rate_rows,
    report_sections,
    report_summary_rows,
)
from everlight_experiments.continual.report.tables import selection_rule
from everlight_experiments.continual.training.outcome import Outcomes
from everlight_experiments.continual.training.queue import save_outcomes
from everlight_experiments.report.writer import Report, write_report
from everlight_experiments.run_folder.folder import RunFolder


class TrainedReport(NamedTuple):
    """Trained methods and their report, which is still to be written."""

    folder: RunFolder
    title: str
    report: Report
    outcomes: Outcomes


def run_benchmark(options: RunOptions) -> Path:
    """Train the methods on the benchmark; returns the report's path.

    Raises:
      DataError: a benchmark or method that does not exist; data, settings or a strategy that cannot
        be used.
    """
    trained = train_and_report(options)
    return write_report(trained.folder.path, trained.title, trained.report)


def train_and_report(options: RunOptions) -> TrainedReport:
    """Train the methods, save their numbers and return the report; raises as `run_benchmark`."""
    suite = load_suite(options)
    options = suite.options
    refuse_inapplicable(suite.benchmarks, options.methods, suite.methods)
    refuse_without_values(suite)
    print(*suite.lines, sep="\n", end="\n" * bool(suite.lines), flush=True)
    folder = RunFolder("run", benchmark_name(options.benchmark), options, shared=True)
    benchmarks, outcomes = train_suites(folder, options, {"": suite})
    save_outcomes(folder, benchmarks, options.seed, options.seeds, outcomes)
    benchmark = next(iter(benchmarks.values()))
    rule = selection_rule(benchmark, outcomes, options.validation_seeds)
    summary_rows = report_summary_rows(
        benchmark, options.seed, options.seeds, rule, folder.duration()
    )
    summary_rows += learning_rate_rows(outcomes)
    if options.keep_nets:
        summary_rows.append(NETS_KEPT)
    title = f"Continual learning of {benchmark.name}: {len(suite.methods)} methods"
    summary, sections = report_sections(
        folder.path, ReportInput(benchmarks, outcomes, suite.methods)
    )
    return TrainedReport(folder, title, Report(summary_rows, sections, summary), outcomes)
