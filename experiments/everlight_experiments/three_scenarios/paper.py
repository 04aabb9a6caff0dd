"""The paper's report: final accuracy by method and scenario, beside that of the authors' code."""

from everlight_experiments.continual.report import reproduction
from everlight_experiments.images.table_columns import (
    ReferenceTable,
    has_benchmark_of,
    table_paper,
)
from everlight_experiments.three_scenarios.config import (
    MNIST,
    PAPER_METHODS,
    PAPER_PRESETS,
    PaperConfig,
)
from everlight_experiments.three_scenarios.published_tables import CODE

CITATION = (
    "Van de Ven, Tuytelaars and Tolias 2022 (Nature Machine Intelligence), "
    '"Three types of incremental learning"'
)
SOURCE = (
    "The authors' code was run for this project on the same images with the settings that it "
    "ships, most rows with one seed; what the paper prints is not known here. Standard errors from "
    "a single run are only of everlight's seeds."
)
REFERENCES = [
    reproduction.PublishedComparison(
        scenario, method, code=reproduction.ReferenceScore.summarize(code)
    )
    for (scenario, method), code in CODE.items()
]
TABLE = ReferenceTable(
    lambda config: {scenario: config.column_of(scenario) for scenario in config.scenarios},
    REFERENCES,
    SOURCE,
    "Settings of the authors' code.",
    is_comparable=lambda config: (
        has_benchmark_of(config.benchmark, MNIST)
        and config.separate_net == PAPER_PRESETS["paper"].separate_net
    ),
)
PAPER = table_paper(
    "three-scenarios",
    CITATION,
    "Split digits in three scenarios: task, domain and class known or not",
    PAPER_PRESETS,
    PAPER_METHODS,
    TABLE,
)._replace(check_changed=PaperConfig.check_changed)
