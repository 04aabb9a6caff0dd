"""The paper's report: final accuracy of every method and buffer, with the published one."""

from everlight_experiments.continual import reproduction
from everlight_experiments.continual.paper import Experiment, Paper, PaperOptions, Results
from everlight_experiments.continual.table_columns import (
    TableColumn,
    column_name,
    experiment_of,
    sections_of,
)
from everlight_experiments.report.writer import Section
from everlight_experiments.rethinking_er.config import (
    PAPER_METHODS,
    PAPER_PRESETS,
    PaperConfig,
)
from everlight_experiments.rethinking_er.published_tables import CODE, PRINTED
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import check_methods

CITATION = (
    "Buzzega et al. 2020 (ICPR), "
    '"Rethinking Experience Replay: a Bag of Tricks for Continual Learning"'
)
_OWN_SETTINGS = "0.1 points; its settings are not in the authors' code"
CAUSES: dict[str, str] = {
    "online EWC": _OWN_SETTINGS,
    "SI": _OWN_SETTINGS,
    "iCaRL, buffer of 1,000": "the authors' code joins exemplars as black images (it casts [0, 1] "
    "to whole numbers) and does not normalize features; with both, this strategy has 63.3 ± 0.9 "
    "in four seeds, like the code",
}
"""Causes of differences that an experiment showed, by method and column."""
SOURCE = (
    "Published are the means of the paper's table, without deviations; standard errors from them "
    "are only of our seeds. The authors' code was run for this project on the same images with "
    "the settings that it ships."
)


def reference_of(method: str, size: int | None) -> reproduction.PublishedComparison:
    """Return what is known of a method with a buffer size."""
    printed, code = PRINTED.get((method, size)), CODE.get((method, size))
    return reproduction.PublishedComparison(
        column_name(size),
        method,
        None if printed is None else reproduction.Known(printed),
        None if code is None else reproduction.Known.of_runs(code),
    )


SETTINGS_CAPTION = (
    "Settings of the authors' code; online EWC and SI have those of Mammoth for split MNIST."
)
REFERENCES = [reference_of(*key) for key in dict.fromkeys((*PRINTED, *CODE))]


def columns_of(config: PaperConfig) -> dict[str, TableColumn]:
    """Return a column per buffer size, each with the authors' settings for it."""
    return {
        column_name(size): TableColumn(
            config.benchmark_of(size or config.buffer_sizes[0]),
            [
                PAPER_METHODS[name]
                for name in config.methods
                if PAPER_METHODS[name].stores_samples == (size is not None)
            ],
        )
        for size in (None, *config.buffer_sizes)
    }


def experiment(config: PaperConfig, folder: RunFolder, options: PaperOptions) -> Experiment:
    """Return the benchmarks of all columns."""
    check_methods(config.methods, PAPER_METHODS)
    return experiment_of("rethinking-er", columns_of(config), config.seeds, options)


def compared(results: Results) -> list[reproduction.PublishedComparison]:
    """Return the published numbers and everlight's, where the data are the paper's."""
    same = results.config.benchmark.data == "fashion-mnist"
    return reproduction.compare(REFERENCES if same else [], results.outcomes)


def sections(results: Results) -> list[Section]:
    """Return the reproduction table, where data are the paper's, and each method's settings."""
    columns = columns_of(results.config)
    return sections_of(results, columns, SETTINGS_CAPTION, compared(results), CAUSES, SOURCE)


PAPER = Paper(
    "rethinking-er",
    CITATION,
    lambda config: "Experience replay with tricks on five tasks of two classes",
    PAPER_PRESETS,
    experiment,
    sections,
    unexplained=lambda results: reproduction.unexplained(compared(results), CAUSES),
)
