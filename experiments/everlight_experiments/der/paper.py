"""The paper's report: final accuracy by benchmark, method and buffer, beside the printed one."""

from everlight_experiments.continual.report import reproduction
from everlight_experiments.der.config import (
    PAPER_METHODS,
    PAPER_PRESETS,
    BenchmarkName,
    PaperConfig,
)
from everlight_experiments.der.published_tables import PRINTED
from everlight_experiments.images.table_columns import (
    ReferenceTable,
    TableColumn,
    column_name,
    table_paper,
)

CITATION = (
    "Buzzega et al. 2020 (NeurIPS), "
    '"Dark Experience for General Continual Learning: a Strong, Simple Baseline"'
)
SOURCE = (
    "Published are the means of the papers' main tables, with deviations over ten seeds where they "
    "are known. Those of split CIFAR-100 are X-DER's, whose losses run over all classes, "
    "everlight's over those seen so far. Standard errors from a mean alone are only of everlight's "
    "seeds."
)


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
        column_of(name, size): config.column_of(name, size)
        for name in config.benchmarks
        for size in (None, *config.sizes_of(name))
    }


PAPER = table_paper(
    "der",
    CITATION,
    "Dark experience replay and its rivals by benchmark and buffer",
    PAPER_PRESETS,
    PAPER_METHODS,
    ReferenceTable(
        columns_of,
        REFERENCES,
        SOURCE,
        "Settings that the authors selected for each benchmark and buffer.",
    ),
)._replace(check_changed=PaperConfig.check_changed)
