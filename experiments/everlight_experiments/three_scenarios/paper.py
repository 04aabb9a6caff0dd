"""The paper's report: final accuracy by method and scenario, beside that of the authors' code."""

from everlight_experiments.continual import reproduction
from everlight_experiments.continual.paper import Experiment, Paper, PaperOptions, Results
from everlight_experiments.continual.table_columns import TableColumn, experiment_of, sections_of
from everlight_experiments.report.writer import Section
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import check_methods
from everlight_experiments.three_scenarios.config import PAPER_METHODS, PAPER_PRESETS, PaperConfig
from everlight_experiments.three_scenarios.published_tables import CODE

CITATION = (
    "Van de Ven, Tuytelaars and Tolias 2022 (Nature Machine Intelligence), "
    '"Three types of incremental learning"'
)
CAUSES: dict[str, str] = {}
"""Causes of differences that an experiment showed, by method, or by method and scenario."""
SOURCE = (
    "The authors' code was run for this project on the same images with the settings that it "
    "ships, with one seed so far; what the paper prints is not known here. Standard errors from a "
    "single run are only of everlight's seeds."
)
SETTINGS_CAPTION = "Settings of the authors' code."
REFERENCES = [
    reproduction.PublishedComparison(scenario, method, code=reproduction.Known.of_runs(code))
    for (scenario, method), code in CODE.items()
]


def columns_of(config: PaperConfig) -> dict[str, TableColumn]:
    """Return a column per scenario."""
    return {scenario: config.column_of(scenario) for scenario in config.scenarios}


def experiment(config: PaperConfig, folder: RunFolder, options: PaperOptions) -> Experiment:
    """Return the benchmarks of all scenarios."""
    check_methods(config.methods, PAPER_METHODS)
    return experiment_of("three-scenarios", columns_of(config), config.seeds, options)


def compared(results: Results) -> list[reproduction.PublishedComparison]:
    """Return the numbers of the authors' code and everlight's, where the data are the paper's."""
    same = results.config.benchmark.data == "mnist"
    return reproduction.compare(REFERENCES if same else [], results.outcomes)


def sections(results: Results) -> list[Section]:
    """Return the reproduction table, where data are the paper's, and each method's settings."""
    columns = columns_of(results.config)
    return sections_of(results, columns, SETTINGS_CAPTION, compared(results), CAUSES, SOURCE)


PAPER = Paper(
    "three-scenarios",
    CITATION,
    lambda config: "Split digits in three scenarios: task, domain and class known or not",
    PAPER_PRESETS,
    experiment,
    sections,
    unexplained=lambda results: reproduction.unexplained(compared(results), CAUSES),
)
