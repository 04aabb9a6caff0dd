"""The paper's report: final accuracy of every method and buffer beside the published one."""

from functools import partial

from everlight_experiments.common.report import Section
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import check_methods
from everlight_experiments.continual.images import image_benchmarks
from everlight_experiments.continual.paper import (
    Experiment,
    Paper,
    PaperOptions,
    Results,
    paper_options,
    run_paper,
)
from everlight_experiments.continual.reproduction import (
    Comparison,
    Reference,
    compare,
    reproduction_section,
    unexplained,
)
from everlight_experiments.continual.train import Job
from everlight_experiments.rethinking_er.config import (
    NO_MEMORY,
    PAPER_METHODS,
    PAPER_PRESETS,
    PaperConfig,
)

CITATION = (
    "Buzzega et al. 2020 (ICPR), "
    '"Rethinking Experience Replay: a Bag of Tricks for Continual Learning"'
)
WITHOUT = "no memory"
PRINTED = {
    ("joint", WITHOUT): 0.8447,
    ("online EWC", WITHOUT): 0.2004,
    ("SI", WITHOUT): 0.1991,
    ("ER", 200): 0.7254,
    ("ER", 500): 0.7902,
    ("ER", 1000): 0.8139,
    ("ER-tricks", 200): 0.7607,
    ("ER-tricks", 500): 0.8011,
    ("ER-tricks", 1000): 0.8246,
    ("iCaRL", 200): 0.7546,
    ("iCaRL", 500): 0.7754,
    ("iCaRL", 1000): 0.7813,
}
"""Published class-incremental accuracies by method and buffer size."""
CAUSES: dict[str, str] = {}
"""Causes of differences that an experiment showed."""
SOURCE = (
    "The published means are those of the paper's table on split Fashion-MNIST. Standard errors "
    "are of our seeds alone."
)


def column_of(buffer_size: int | str) -> str:
    """Return the name of the column of a buffer size."""
    return f"buffer of {buffer_size:,}" if isinstance(buffer_size, int) else buffer_size


REFERENCES = [Reference(column_of(size), method, mean) for (method, size), mean in PRINTED.items()]


def experiment(config: PaperConfig, folder: RunFolder, options: PaperOptions) -> Experiment:
    """Return a benchmark per buffer size, each with the authors' settings for it."""
    check_methods(config.methods, PAPER_METHODS)
    benchmarks, jobs = {}, []
    for size in (None, *config.buffer_sizes):
        names = [name for name in config.methods if (name in NO_MEMORY) == (size is None)]
        if not names:
            continue
        held = size or config.buffer_sizes[0]
        column = column_of(WITHOUT if size is None else size)
        with_size = config.benchmark_of(held)
        found = image_benchmarks(
            "rethinking-er", with_size, ("class-incremental",), options.seed, options.runs
        )
        benchmarks[column] = found["class-incremental"]
        jobs += [Job(column, PAPER_METHODS[name], config.seeds) for name in names]
    return Experiment(benchmarks, jobs, {column: column for column in benchmarks})


def compared(results: Results) -> list[Comparison]:
    """Return the published numbers beside ours, where the data are the paper's."""
    same = results.config.benchmark.data == "fashion-mnist"
    return compare(REFERENCES if same else [], results.outcomes)


def sections(results: Results) -> list[Section]:
    """Return the reproduction table, where the data are the paper's."""
    found = compared(results)
    return [reproduction_section(found, CAUSES, SOURCE)] if found else []


PAPER = Paper(
    "rethinking-er",
    CITATION,
    lambda config: "Experience replay with tricks on five tasks of two classes",
    PAPER_PRESETS,
    experiment,
    sections,
    unexplained=lambda results: unexplained(compared(results), CAUSES),
)
run = partial(run_paper, PAPER)
options = partial(paper_options, PAPER)
