"""The paper's report: final accuracy by benchmark, method and buffer, beside the printed one."""

from everlight_experiments.continual import reproduction
from everlight_experiments.continual.paper import Experiment, Paper, PaperOptions, Results
from everlight_experiments.continual.table_columns import (
    TableColumn,
    column_name,
    experiment_of,
    sections_of,
)
from everlight_experiments.der.config import (
    PAPER_METHODS,
    PAPER_PRESETS,
    BenchmarkName,
    PaperConfig,
)
from everlight_experiments.der.published_tables import PRINTED
from everlight_experiments.report.writer import Section
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import check_methods

CITATION = (
    "Buzzega et al. 2020 (NeurIPS), "
    '"Dark Experience for General Continual Learning: a Strong, Simple Baseline"'
)
CAUSES: dict[str, str] = {}
"""Causes of differences that an experiment showed, by method and column."""
SOURCE = (
    "Published are the means of the papers' main tables, with deviations over ten seeds where they "
    "are known. Those of split CIFAR-100 are X-DER's, whose losses run over all classes, "
    "everlight's over those seen so far. Standard errors from a mean alone are only of everlight's "
    "seeds."
)
SETTINGS_CAPTION = "Settings that the authors selected for each benchmark and buffer."


def column_of(benchmark: BenchmarkName, buffer_size: int | None) -> str:
    """Return the name of the column of a benchmark and a buffer size."""
    return f"{benchmark}, {column_name(buffer_size)}"


REFERENCES = [
    reproduction.PublishedComparison(column_of(benchmark, size), method, known)
    for (benchmark, method, size), known in PRINTED.items()
]


def columns_of(config: PaperConfig) -> dict[str, TableColumn]:
    """Return a column per benchmark and buffer size, each with the authors' settings for it."""
    return {
        column_of(name, size): TableColumn(
            config.benchmark_of(name, size), config.methods_of(name, size)
        )
        for name in config.benchmarks
        for size in (None, *config.sizes_of(name))
    }


def experiment(config: PaperConfig, folder: RunFolder, options: PaperOptions) -> Experiment:
    """Return the benchmarks of all columns."""
    check_methods(config.methods, PAPER_METHODS)
    return experiment_of("der", columns_of(config), config.seeds, options)


def compared(results: Results) -> list[reproduction.PublishedComparison]:
    """Return the published numbers and everlight's; none are published of digits."""
    return reproduction.compare(REFERENCES, results.outcomes)


def sections(results: Results) -> list[Section]:
    """Return the reproduction table, where data are the paper's, and each method's settings."""
    columns = columns_of(results.config)
    return sections_of(results, columns, SETTINGS_CAPTION, compared(results), CAUSES, SOURCE)


PAPER = Paper(
    "der",
    CITATION,
    lambda config: "Dark experience replay and its rivals by benchmark and buffer",
    PAPER_PRESETS,
    experiment,
    sections,
    unexplained=lambda results: reproduction.unexplained(compared(results), CAUSES),
)
