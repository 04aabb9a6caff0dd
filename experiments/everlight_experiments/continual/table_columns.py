"""Papers whose tables have a configuration per column: a memory, a stream or a setting."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from everlight.continual.methods.method import Method
from everlight_experiments.continual import reproduction
from everlight_experiments.continual.config import Config, config_of
from everlight_experiments.continual.image_benchmarks import compose
from everlight_experiments.continual.paper import Experiment, PaperOptions, Results
from everlight_experiments.continual.train_methods import jobs_of
from everlight_experiments.report.writer import Column, Section, Table


class TableColumn(NamedTuple):
    """A configuration in one setting, and the methods that are trained on it."""

    config: Config
    methods: Sequence[Method]
    setting: str = "class-incremental"


def column_name(buffer_size: int | None) -> str:
    """Return the name of the column of a buffer size, or of methods without a memory."""
    return "no memory" if buffer_size is None else f"buffer of {buffer_size:,}"


def experiment_of(
    name: str, columns: Mapping[str, TableColumn], seeds: int, options: PaperOptions
) -> Experiment:
    """Return a benchmark for every column, with the methods that apply to it.

    Args:
      name: name of the benchmarks.
      columns: configurations and methods by column.
      seeds: number of evaluation seeds.
      options: options of the command.
    """
    benchmarks, jobs = {}, []
    for column, (config, methods, setting) in columns.items():
        if not methods:
            continue
        benchmark = compose(
            config, name=name, setting=setting, seed=options.seed, runs=options.runs
        )
        rows = [benchmark.row(method) for method in methods]
        column_jobs = jobs_of({column: benchmark}, rows, seeds)
        if column_jobs:
            benchmarks[column] = benchmark._replace(prefix=column)
            jobs += column_jobs
    return Experiment(benchmarks, jobs)


def sections_of(
    results: Results,
    columns: Mapping[str, TableColumn],
    caption: str,
    compared: Sequence[reproduction.PublishedComparison],
    causes: Mapping[str, str],
    source: str,
) -> list[Section]:
    """Return the table of published numbers, if there are any, and each method's settings.

    Args:
      results: results of the run.
      columns: configurations and methods by column.
      caption: caption of the table of settings.
      compared: published numbers and everlight's; empty where the data are not the paper's.
      causes: known causes of differences, by method, or by method and column joined by a comma.
      source: source of the published numbers.
    """
    settings = Section("Settings of each method", (), [_settings_table(results, columns, caption)])
    if not compared:
        return [settings]
    return [reproduction.reproduction_section(compared, causes, source), settings]


def _settings_table(results: Results, columns: Mapping[str, TableColumn], caption: str) -> Table:
    """Return learning rate, replay batch and weight decay by method and column."""
    rows = []
    for column, method, _ in results.experiment.jobs:
        used = config_of(columns[column].config, method)
        replayed = str(used.replay_batch_size or "–")
        row = [method.name, column, f"{used.learning_rate:g}", replayed, f"{used.weight_decay:g}"]
        rows.append(row)
    names = ("method", "column", "learning rate", "replayed per step", "weight decay")
    return Table(caption, [Column(name) for name in names], rows)
