"""Papers whose tables have a configuration per column: a memory, a stream or a setting."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from everlight.continual.methods.method import Method
from everlight_data.errors import DataError
from everlight_experiments.continual.benchmarks.config import SettingName
from everlight_experiments.continual.paper import Experiment, Paper, PaperOptions, Results
from everlight_experiments.continual.report import reproduction
from everlight_experiments.continual.training.programs import method_on
from everlight_experiments.continual.training.queue import Job
from everlight_experiments.images.benchmark import compose
from everlight_experiments.images.config import Config, config_of
from everlight_experiments.report.writer import Column, Section, Table
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import Preset, check_methods


class TableColumn(NamedTuple):
    """A configuration in one setting, and the methods that are trained on it."""

    config: Config
    methods: Sequence[Method]
    setting: SettingName = "class-incremental"


def column_name(buffer_size: int | None) -> str:
    """Return the name of the column of a buffer size, or of methods without a memory."""
    return "no memory" if buffer_size is None else f"buffer of {buffer_size:,}"


def methods_with(buffer_size: int | None, methods: Iterable[Method]) -> list[Method]:
    """Return the methods that store samples, or, for a buffer size of None, the others."""
    return [method for method in methods if method.stores_samples == (buffer_size is not None)]


def experiment_of(
    name: str, columns: Mapping[str, TableColumn], seeds: int, options: PaperOptions
) -> Experiment[None]:
    """Return a benchmark for every column, with its methods.

    Args:
      name: name of the benchmarks.
      columns: configurations and methods by column.
      seeds: number of evaluation seeds.
      options: options of the command.
    """
    benchmarks, jobs = {}, []
    for column, selected in columns.items():
        if not selected.methods:
            continue
        benchmark = compose(
            selected.config,
            name=name,
            setting=selected.setting,
            seed=options.seed,
            runs=options.runs,
        )
        benchmarks[column] = benchmark._replace(prefix=column)
        jobs += [Job(column, method_on(benchmark, method), seeds) for method in selected.methods]
    return Experiment(benchmarks, jobs)


def has_benchmark_of(config: Config, known: Config) -> bool:
    """Return True if data, tasks, network, training and memory are those of the known numbers."""
    return all(getattr(config, name) == getattr(known, name) for name in _COMPARED)


_COMPARED = (
    *("data", "classes", "first_class", "per_class", "side", "pixels", "normalization"),
    *("features", "tasks", "order", "cycles", "unevenness", "stream", "label_noise", "shots"),
    *("net", "pretrained", "dropout", "augmentation", "initialization", "loss_classes"),
    *("optimizer", "learning_rate", "weight_decay", "protocol", "compute_budget", "ema_decay"),
    *("replay_batch_size", "validation_fraction", "exemplars_per_class"),
)


class PaperConfig(Protocol):
    """Configuration of a paper with a table."""

    methods: tuple[str, ...]
    seeds: int


C = TypeVar("C", bound=PaperConfig)


class ReferenceTable(NamedTuple, Generic[C]):
    """Columns of a paper's table, and what is known of their final scores."""

    columns: Callable[[C], Mapping[str, TableColumn]]
    """Function from the paper's configuration to its columns."""
    references: Sequence[reproduction.PublishedComparison]
    source: str
    """Source of the known numbers, in sentences."""
    settings_caption: str
    causes: Mapping[str, str] = {}
    """Causes of differences that an experiment showed, by method, or by method and column."""
    is_comparable: Callable[[C], bool] = lambda config: True
    """Function from the configuration to True if its benchmark is the paper's."""

    def comparisons(self, results: Results[C, None]) -> list[reproduction.PublishedComparison]:
        """Return the known numbers and everlight's; none where the benchmark is another one."""
        references = self.references if self.is_comparable(results.config) else []
        return reproduction.compare_scores(references, results.outcomes)

    def sections(self, results: Results[C, None]) -> list[Section]:
        """Return the table of known numbers, if there are any, and each method's settings."""
        rows = _settings_table(results, self.columns(results.config), self.settings_caption)
        settings, comparisons = (
            Section("Settings of each method", (), [rows]),
            self.comparisons(results),
        )
        if not comparisons:
            return [settings]
        return [reproduction.reproduction_section(comparisons, self.causes, self.source), settings]

    def unexplained_lines(self, results: Results[C, None]) -> list[str]:
        """Return a line for every difference that has no known cause.

        Raises:
          DataError: there is nothing to compare.
        """
        comparisons = self.comparisons(results)
        if not comparisons:
            raise DataError(
                "--check: no number was compared, since the run's data, settings or methods differ "
                "from the known table's; the report is written"
            )
        return reproduction.unexplained_lines(comparisons, self.causes)


def table_paper(
    name: str,
    citation: str,
    title: str,
    presets: Mapping[Preset, C],
    methods: Mapping[str, Method],
    table: ReferenceTable[C],
) -> Paper[C, None]:
    """Return a paper whose report has a table of known final scores.

    Args:
      name: name of the command.
      citation: citation of the paper.
      title: title of the report.
      presets: configurations, whose methods are trained.
      methods: all methods by name.
      table: columns and known numbers.
    """

    def experiment(config: C, folder: RunFolder, options: PaperOptions) -> Experiment[None]:
        check_methods(config.methods, methods)
        return experiment_of(name, table.columns(config), config.seeds, options)

    return Paper(
        name,
        citation,
        lambda config: title,
        presets,
        experiment,
        table.sections,
        unexplained_lines=table.unexplained_lines,
    )


def _settings_table(
    results: Results[C, None], columns: Mapping[str, TableColumn], caption: str
) -> Table:
    """Return learning rate, replayed samples per step and weight decay by method and column."""
    rows = []
    for column, method, _ in results.experiment.jobs:
        outcome = results.outcomes[column][method.name]
        weight_decay = config_of(columns[column].config, method).weight_decay
        replayed = str(outcome.replayed or "–")
        rows.append([method.name, column, outcome.learning_rate, replayed, f"{weight_decay:g}"])
    names = ("method", "column", "learning rate", "replayed per step", "weight decay")
    return Table(caption, [Column(name) for name in names], rows)
