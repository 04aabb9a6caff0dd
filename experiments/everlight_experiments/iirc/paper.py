"""The paper's report: findings, label precision, earlier tasks, confusion, exemplars, splits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from everlight.continual import TaskSequence, multi_hot
from everlight.continual.registry import METHODS
from everlight.metrics import confusion_matrix
from everlight_data.errors import DataError
from everlight_data.images.iirc_sets import IIRCData, is_imagenet
from everlight_data.names import check_name
from everlight_experiments.continual.benchmark import Draw
from everlight_experiments.continual.outcome import Outcome
from everlight_experiments.continual.paper import (
    Experiment,
    Finding,
    Paper,
    PaperOptions,
    Results,
    findings_section,
    paper_options,
    run_paper,
)
from everlight_experiments.continual.report_metrics import plot_shares
from everlight_experiments.continual.report_tables import sizes_table
from everlight_experiments.continual.train import jobs_of
from everlight_experiments.iirc.benchmark import (
    CONFUSION,
    NEWEST,
    SCORE,
    SCORES,
    SETTING,
    decodable,
    iirc_benchmark,
    learn,
    load_data,
)
from everlight_experiments.iirc.config import (
    FORMS,
    IMAGENET,
    PAPER_PRESETS,
    WITH_EXEMPLARS,
    PaperConfig,
)
from everlight_experiments.report.cells import spread
from everlight_experiments.report.plots import curves_left_out, plot_curves
from everlight_experiments.report.writer import Column, Figure, Section, Table
from everlight_experiments.run_folder.configs import option_value
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.settings import check_methods

CITATION = 'Abdelsalam et al. 2021, "IIRC: Incremental Implicitly-Refined Classification"'
RULE = (
    "finetune, ER-balanced, ER-infinite and joint training keep the epoch with the best in-task "
    "validation (among equals, the last). The other methods keep the last epoch."
)
FINDINGS_ARE_OF = (
    "Each finding of the paper is for IIRC-CIFAR; the table counts the configurations of this run "
    "in which it holds. Means are over tasks and configurations."
)
LATER_LABELS = (
    "A later subclass adds a label to a task's samples: curves can fall without forgetting."
)
SUPERFLUOUS = (
    "The precision-weighted Jaccard similarity penalizes superfluous labels more than the Jaccard "
    "similarity; the distance between the two curves shows them."
)

Outcomes = Mapping[str, Outcome]
Values = Float[np.ndarray, "seeds"]
Verdict = tuple[Bool[np.ndarray, "seeds"], str]


def experiment(config: PaperConfig, folder: RunFolder, options: PaperOptions) -> Experiment:
    """Return the benchmark with the paper's methods, and one for each further number of exemplars.

    Raises:
      DataError: methods, configurations or data that are not available.
    """
    check_methods(config.methods, FORMS)
    for name in config.ablated:
        check_name("method with exemplars --ablated", name, WITH_EXEMPLARS)
    own, runs = config.benchmark, config.configurations
    data = load_data(own, runs, options.seed)
    there = len(data.metadata.configurations)
    if runs > there:
        raise DataError(f"--configurations {runs}; {own.data} has {there}")
    learned = learn(own, decodable(own, data, folder), options.runs)
    benchmarks = {SETTING: iirc_benchmark(own, learned, options.seed)}
    rows = [FORMS[name] for name in config.methods]
    ablated = [row for row in rows if row.name in config.ablated]
    aside = {}
    for count in config.ablation if ablated else ():
        column = column_of(count)
        changed = replace(own, exemplars_per_class=count)
        benchmark = iirc_benchmark(changed, learned, options.seed)
        part, metrics = f"{count}-exemplars", benchmark.metrics[:2]
        aside[column] = benchmark._replace(part=part, metrics=metrics)
    jobs = [*jobs_of(benchmarks, rows, runs), *jobs_of(aside, ablated, runs)]
    return Experiment(benchmarks | aside, jobs, frozenset(aside), learned.data)


def column_of(exemplars: int) -> str:
    """Return the name of the column with another number of exemplars per class."""
    return f"{exemplars} exemplars"


def superfluous(outcome: Outcome) -> Values:
    """Return the mean distance of JS from pw-JS, which superfluous labels make."""
    weighted, plain, *_ = np.moveaxis(outcome.metrics[SCORES], -1, 0)
    return (plain - weighted).mean(axis=1)


def ahead(
    claim: str,
    first: Sequence[str],
    second: Sequence[str],
    value: Callable[[Outcome], Values] = lambda outcome: outcome.over_time.mean(axis=1),
) -> Finding:
    """Return the finding that every first method's value is above every second one's.

    Args:
      claim: of the paper.
      first, second: names of methods.
      value: function from a method's outcome to a value per seed; its mean pw-JS over tasks.
    """

    def test(outcomes: Outcomes) -> Verdict:
        values = {name: value(outcomes[name]) for name in (*first, *second)}
        lowest = np.min([values[name] for name in first], axis=0)
        highest = np.max([values[name] for name in second], axis=0)
        means = "; ".join(f"{name} {each.mean():.3f}" for name, each in values.items())
        return lowest > highest, means

    return Finding(claim, frozenset((*first, *second)), test)


def learns_less(outcomes: Outcomes) -> Verdict:
    """Compare the newest task's score in the last third of the tasks with the first third."""
    newest = outcomes["LUCIR"].metrics[NEWEST]
    third = max(1, newest.shape[1] // 3)
    # The first task has superclasses alone and twice the epochs.
    early, late = newest[:, 1 : 1 + third].mean(axis=1), newest[:, -third:].mean(axis=1)
    return late < early, f"R_jj {early.mean():.3f} early, {late.mean():.3f} late"


FINDINGS = (
    ahead(
        "Incremental joint, which has all labels, is above ER-infinite, which has not",
        ["incremental joint"],
        ["ER-infinite"],
    ),
    ahead(
        "Both iCaRLs are ahead of ER and finetune",
        ["iCaRL-CNN", "iCaRL-norm"],
        ["ER-balanced", "finetune"],
    ),
    ahead(
        "iCaRL predicts too many labels: JS is further above pw-JS than for LUCIR",
        ["iCaRL-CNN", "iCaRL-norm"],
        ["LUCIR"],
        superfluous,
    ),
    ahead(
        "LUCIR retains: its first task is above ER's at the end",
        ["LUCIR"],
        ["ER-balanced"],
        lambda outcome: outcome.matrices[:, -1, 0],
    ),
    Finding("LUCIR learns new labels less and less: R_jj falls", frozenset({"LUCIR"}), learns_less),
    ahead("A-GEM is below ER-balanced", ["ER-balanced"], ["A-GEM"]),
)


def sections(results: Results) -> list[Section]:
    """Return what only this paper's report shows."""
    outcomes = results.of(SETTING)
    sequential = {name: each for name, each in outcomes.items() if name != "joint"}
    found = [findings_section(FINDINGS, outcomes, FINDINGS_ARE_OF)]
    if sequential:
        gap, earlier = label_curves(results, sequential), earlier_tasks(results, sequential)
        found.append(Section("Precision of the predicted labels", [SUPERFLUOUS], [gap]))
        found.append(Section("Each task over time", [LATER_LABELS], [earlier]))
        found.append(Section("Confusion of labels", items=[confusion(results, sequential)]))
    if results.experiment.aside:
        found.append(Section("More exemplars", items=exemplars(results)))
    runs = range(results.config.configurations)
    sizes = sizes_table({str(number): sequence_of(results, number) for number in runs})
    return [*found, Section("The splits", items=[sizes, hierarchy_table(results.experiment.data)])]


def sequence_of(results: Results, number: int) -> TaskSequence:
    """Return the tasks of a configuration."""
    benchmark = results.experiment.benchmarks[SETTING]
    return benchmark.sequence(METHODS["naive"], Draw("evaluation", results.seed, number))


def label_curves(results: Results, outcomes: Outcomes) -> Figure:
    """Return JS and pw-JS over time of the methods of figure 4, or of the first four."""
    compared = ("iCaRL-CNN", "iCaRL-norm", "LUCIR", "ER-balanced")
    shown = [name for name in compared if name in outcomes] or list(outcomes)[:4]
    panels = {}
    for name in shown:
        weighted, plain, *_ = np.moveaxis(outcomes[name].metrics[SCORES], -1, 0)
        panels[name] = {"JS": plain, SCORE: weighted}
    caption = "JS and pw-JS on the samples of all tasks so far (figure 4)."
    return Figure(caption, plot_curves(results.folder / "js_gap.png", panels, "R_j"))


def earlier_tasks(results: Results, outcomes: Outcomes) -> Figure:
    """Return pw-JS over time on some tasks since they were learned."""
    tasks = next(iter(outcomes.values())).matrices.shape[-1]
    panels = {
        f"Task {task + 1}": {name: each.matrices[..., task] for name, each in outcomes.items()}
        for task in sorted({0, tasks // 4, tasks // 2})
    }
    caption = "pw-JS on the samples of one task since it was learned (figures A.16 and A.17)."
    path, order = results.folder / "earlier_tasks.png", tuple(results.of(SETTING))
    picture = plot_curves(path, panels, SCORE, order=order, baseline="finetune")
    return Figure(caption + curves_left_out(panels, "finetune"), picture)


def confusion(results: Results, outcomes: Outcomes) -> Figure:
    """Return the labels that are predicted for samples of each label, and those that are true."""
    order = results.experiment.data.order(0)
    labels = multi_hot(sequence_of(results, 0).test.labels, len(order))
    squares = {"truth": np.asarray(confusion_matrix(labels, labels, jnp.arange(len(order))))}
    squares |= {name: each.metrics[CONFUSION][0] for name, each in outcomes.items()}
    caption = (
        "After the last task of the first configuration: of the samples with one label, the share "
        "for which another is predicted (figure 6). Lines of the truth off its diagonal are "
        "superclasses and their subclasses. Labels are in order of introduction: "
        f"{listed(order, len(order))}."
    )
    return Figure(caption, plot_shares(results.folder / "confusion.png", squares, "label"))


def exemplars(results: Results) -> tuple[Figure, Table]:
    """Return the final pw-JS by the number of exemplars per class as curves and a table."""
    by_count = {count: results.of(column_of(count)) for count in results.config.ablation}
    names = next(iter(by_count.values()))
    by_count[results.config.benchmark.exemplars_per_class] = results.of(SETTING)
    counts = sorted(by_count)
    finals = {
        name: np.stack([by_count[count][name].final for count in counts], axis=1) for name in names
    }
    shown, ticks = {"": finals}, [f"{count:,}" for count in counts]
    path, label = results.folder / "exemplars.png", "exemplars per class"
    picture = plot_curves(path, shown, f"final {SCORE}", label, ticks=ticks)
    caption = (
        "pw-JS after the last task with more exemplars per class (appendix E); ± and bands are "
        f"one standard deviation over configurations.{curves_left_out(shown)}"
    )
    rows = [[name, *map(spread, values.T)] for name, values in finals.items()]
    columns = [Column("method"), *(Column(tick, label) for tick in ticks)]
    return Figure(caption, picture), Table("The same in numbers.", columns, rows)


def hierarchy_table(data: IIRCData) -> Table:
    """Return the superclasses with their subclasses and numbers of training images."""
    images = data.images
    counts = dict(zip(images.class_names, np.bincount(images.train_labels), strict=True))
    rows = [
        [name, str(len(members)), f"{sum(counts[each] for each in members):,}", listed(members)]
        for name, members in data.groups.items()
    ]
    columns = [Column(name) for name in ("superclass", "subclasses", "training images", "which")]
    return Table("The hierarchy.", columns, rows)


def listed(names: Sequence[str], shown: int = 4) -> str:
    """Return the first names, and how many more there are."""
    # ImageNet's names are lists of synonyms.
    text = ", ".join(name.split(",")[0] for name in names[:shown])
    return text if len(names) <= shown else f"{text} and {len(names) - shown} more"


def file_remarks(results: Results) -> list[tuple[str, str]]:
    """Return deviations of ImageNet's files from the complete set."""
    remarks = getattr(results.experiment.data.images, "remarks", ())
    return [("Files", remark) for remark in remarks]


def options(arguments: Sequence[str]) -> type:
    """Return the command's options; preset paper has other defaults on ImageNet's data."""
    on_imagenet = is_imagenet(option_value(arguments, "--data") or "")
    presets = {**PAPER_PRESETS, "paper": IMAGENET} if on_imagenet else PAPER_PRESETS
    return paper_options(PAPER._replace(presets=presets), arguments)


PAPER = Paper(
    "iirc",
    CITATION,
    lambda config: f"IIRC: {len(config.methods)} methods on {config.benchmark.data}",
    PAPER_PRESETS,
    experiment,
    sections,
    file_remarks,
    rule=RULE,
)
run = partial(run_paper, PAPER)
