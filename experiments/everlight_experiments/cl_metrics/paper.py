"""The paper's report: seven criteria as polar plots, and the printed tables beside ours.

Task-incremental is the paper's protocol, as its FWT of 0.1 shows: a head of ten outputs with the
task identity is right by chance on later tasks.
"""

from functools import partial

from everlight.plots import plot_criteria
from everlight_data.images.icifar_published import COLUMNS, CRITERIA, PRINTED
from everlight_experiments.cl_metrics.config import PAPER_METHODS, PAPER_PRESETS, PaperConfig
from everlight_experiments.continual.images import image_benchmarks
from everlight_experiments.continual.paper import (
    Experiment,
    Paper,
    PaperOptions,
    Results,
    paper_options,
    run_paper,
)
from everlight_experiments.continual.report_criteria import Published, summarize
from everlight_experiments.continual.train import jobs_of
from everlight_experiments.report.plots import new_canvas, save
from everlight_experiments.report.writer import Figure, Section
from everlight_experiments.run_folder.folder import RunFolder

CITATION = (
    "Díaz-Rodríguez et al. 2018, "
    '"Don\'t forget, there is more than forgetting: new metrics for Continual Learning"'
)


def experiment(config: PaperConfig, folder: RunFolder, options: PaperOptions) -> Experiment:
    """Return both settings with the paper's methods."""
    benchmarks = image_benchmarks(
        "icifar",
        config.benchmark,
        ("task-incremental", "class-incremental"),
        options.seed,
        options.runs,
    )
    rows = [PAPER_METHODS[name] for name in config.methods]
    return Experiment(benchmarks, jobs_of(benchmarks, rows, config.seeds))


def published(results: Results) -> Published:
    """Return the printed criteria and scores."""
    data = results.config.benchmark.data
    return Published(
        ("" if data == "cifar100" else "The paper's data are CIFAR-100, not ours. ")
        + "The paper does not print the deviations behind its stabilities; no deviations give "
        "those of EWC, LwF and SI under all three weightings.",
        criteria={"task-incremental": PRINTED},
    )


def polar_plots(results: Results) -> list[Section]:
    """Return the seven criteria of every strategy, ours and the paper's."""
    outcomes = results.outcomes
    panels = {
        f"ours, {setting}": {
            name: summarize(outcome, by_name["Naive"]).mean for name, outcome in by_name.items()
        }
        for setting, by_name in outcomes.items()
    }
    known = [name for name in outcomes["task-incremental"] if name in CRITERIA]
    panels["the paper's"] = {
        name: dict(zip(COLUMNS, CRITERIA[name], strict=True)) for name in known
    }
    caption = (
        "The seven criteria of every strategy, 0 at the centre and 1 at the rim; the CL score is "
        "their weighted mean."
    )
    said = [
        "Task-incremental is the paper's protocol; it has no class-incremental rows. "
        "Class-incrementally, regularization often does not beat Naive although old weights are "
        "kept: no term of the loss compares new with old classes, so the newest task's outputs "
        "dominate (van de Ven and Tolias 2019 find the same)."
    ]
    canvas, axes = new_canvas(len(panels), 4.2, 4.2, projection="polar")
    for axis, (title, criteria) in zip(axes, panels.items(), strict=True):
        plot_criteria(criteria, axis)
        axis.set_title(title)
    handles, names = axes[0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside right center")
    figure = Figure(caption, save(canvas, results.folder / "criteria.png"))
    return [Section("The seven criteria", said, [figure])]


PAPER = Paper(
    "cl-metrics",
    CITATION,
    lambda config: "Continual learning: five strategies by seven criteria",
    PAPER_PRESETS,
    experiment,
    polar_plots,
    published=published,
)
run = partial(run_paper, PAPER)
options = partial(paper_options, PAPER)
