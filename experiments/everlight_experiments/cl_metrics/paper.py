"""The paper's report: the printed criteria and everlight's.

Task-incremental is the paper's protocol, as its FWT of 0.1 shows: a head of ten outputs with the
task identity is right by chance on later tasks.
"""

from everlight_experiments.cl_metrics.config import PAPER_METHODS, PAPER_PRESETS, PaperConfig
from everlight_experiments.cl_metrics.published_tables import PRINTED
from everlight_experiments.continual.benchmarks.benchmark import Request
from everlight_experiments.continual.paper import Experiment, Paper, PaperOptions, Results
from everlight_experiments.continual.report.criteria import PublishedNumbers
from everlight_experiments.continual.training.programs import method_on
from everlight_experiments.continual.training.queue import Job
from everlight_experiments.images.benchmark import image_benchmarks
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import check_methods

CITATION = (
    "Díaz-Rodríguez et al. 2018, "
    '"Don\'t forget, there is more than forgetting: new metrics for Continual Learning"'
)
SETTINGS = ("task-incremental", "class-incremental")


def experiment(config: PaperConfig, folder: RunFolder, options: PaperOptions) -> Experiment[None]:
    """Return both settings with the paper's methods."""
    check_methods(config.methods, PAPER_METHODS)
    request = Request(
        "icifar", config.benchmark, settings=SETTINGS, seed=options.seed, runs=options.runs
    )
    benchmarks = image_benchmarks(request)
    first = next(iter(benchmarks.values()))
    methods = [method_on(first, PAPER_METHODS[name]) for name in config.methods]
    jobs = [Job(column, method, config.seeds) for method in methods for column in benchmarks]
    return Experiment(benchmarks, jobs)


def published_criteria(results: Results[PaperConfig, None]) -> PublishedNumbers:
    """Return the printed criteria and scores."""
    difference = "" if results.config.benchmark.data == "cifar100" else ", not ours"
    note = (
        f"The paper's data are CIFAR-100{difference}, learned task-incrementally. It does not "
        "print the deviations behind its stabilities; no deviations give those of EWC, LwF and SI "
        "under all three weightings."
    )
    return PublishedNumbers(note, criteria={"task-incremental": PRINTED})


PAPER = Paper(
    "cl-metrics",
    CITATION,
    lambda config: "Continual learning: five strategies by seven criteria",
    PAPER_PRESETS,
    experiment,
    published_numbers=published_criteria,
)
