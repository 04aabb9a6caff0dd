"""The paper's report: findings, label precision, earlier tasks, confusion, exemplars, splits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from everlight.continual import multi_hot
from everlight.metrics import confusion_matrix
from everlight.plots.style import line_style
from everlight_data.errors import DataError
from everlight_data.images.iirc_sets import IIRCData, is_imagenet
from everlight_experiments.common.cells import deviation, spread
from everlight_experiments.common.configs import option_value
from everlight_experiments.common.plots import curves_left_out, new_canvas, plot_curves, save
from everlight_experiments.common.report import Column, Figure, Section, Table
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import check_methods, check_name
from everlight_experiments.continual.benchmark import Draw
from everlight_experiments.continual.methods import METHODS
from everlight_experiments.continual.outcome import Outcome
from everlight_experiments.continual.paper import (
    Experiment,
    Finding,
    Holds,
    Paper,
    PaperOptions,
    Results,
    findings_section,
    paper_options,
    run_paper,
)
from everlight_experiments.continual.report_metrics import plot_squares
from everlight_experiments.continual.report_tables import sizes_table
from everlight_experiments.continual.train import jobs_of
from everlight_experiments.iirc.benchmark import (
    BATCH_RECALL,
    CONFUSION,
    NEWEST,
    PREDICTED_LABELS,
    RECALL_BATCH,
    SCORE,
    SCORES,
    SETTING,
    TRUE_LABELS,
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

CITATION = 'Abdelsalam et al. 2021, "IIRC: Incremental Implicitly-Refined Classification"'
RULE = (
    "finetune, ER-balanced, ER-infinite and joint training keep the epoch with the best in-task "
    "validation (among equals, the last). The other methods keep the last epoch."
)
FINDINGS_ARE_OF = (
    "Each finding of the paper is for IIRC-CIFAR; the table counts the configurations of this run "
    "in which it holds. Means are over tasks and configurations."
)
LATER_LABELS = "A later subclass adds a label to a task's samples, so these curves can fall without forgetting."
SUPERFLUOUS = (
    "The precision-weighted Jaccard similarity penalizes superfluous labels more than the Jaccard "
    "similarity; the distance between the two curves shows them."
)

Outcomes = Mapping[str, Outcome]
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
    aside, parts = {}, {}
    for count in config.ablation if ablated else ():
        column = column_of(count)
        changed = replace(own, exemplars_per_class=count)
        benchmark = iirc_benchmark(changed, learned, options.seed)
        aside[column] = benchmark._replace(metrics=benchmark.metrics[:2])
        parts[column] = f"{count}-exemplars"
    jobs = [*jobs_of(benchmarks, rows, runs), *jobs_of(aside, ablated, runs)]
    return Experiment(benchmarks | aside, jobs, parts, frozenset(aside), learned.data)


def column_of(exemplars: int) -> str:
    """Return the name of the column with another number of exemplars per class."""
    return f"{exemplars} exemplars"


def above(first: Sequence[str], second: Sequence[str]) -> Holds:
    """Return the test of whether every first method's mean pw-JS is above every second one's."""

    def test(outcomes: Outcomes) -> Verdict:
        means = {name: outcomes[name].over_time.mean(axis=1) for name in (*first, *second)}
        lowest = np.min([means[name] for name in first], axis=0)
        highest = np.max([means[name] for name in second], axis=0)
        return lowest > highest, in_words(means)

    return test


def predicts_too_many(outcomes: Outcomes) -> Verdict:
    """Compare the distances of JS from pw-JS."""
    gaps = {
        name: (outcomes[name].metrics["JS"] - outcomes[name].over_time).mean(axis=1)
        for name in ("iCaRL-CNN", "iCaRL-norm", "LUCIR")
    }
    return np.minimum(gaps["iCaRL-CNN"], gaps["iCaRL-norm"]) > gaps["LUCIR"], in_words(gaps)


def learns_less(outcomes: Outcomes) -> Verdict:
    """Compare the newest task's score in the last third of the tasks with the first third."""
    newest = outcomes["LUCIR"].metrics[NEWEST]
    third = max(1, newest.shape[1] // 3)
    # The first task has superclasses alone and twice the epochs.
    early, late = newest[:, 1 : 1 + third].mean(axis=1), newest[:, -third:].mean(axis=1)
    return late < early, f"R_jj {early.mean():.3f} early, {late.mean():.3f} late"


def retains(outcomes: Outcomes) -> Verdict:
    """Compare the final scores on the first task."""
    kept = {name: outcomes[name].matrices[:, -1, 0] for name in ("LUCIR", "ER-balanced")}
    return kept["LUCIR"] > kept["ER-balanced"], in_words(kept)


def in_words(means: Mapping[str, Float[np.ndarray, "seeds"]]) -> str:
    """Return the mean over seeds of every method."""
    return "; ".join(f"{name} {value.mean():.3f}" for name, value in means.items())


FINDINGS = (
    Finding(
        "Incremental joint, which has all labels, is above ER-infinite, which has not",
        frozenset({"incremental joint", "ER-infinite"}),
        above(["incremental joint"], ["ER-infinite"]),
    ),
    Finding(
        "Both iCaRLs are ahead of ER and finetune",
        frozenset({"iCaRL-CNN", "iCaRL-norm", "ER-balanced", "finetune"}),
        above(["iCaRL-CNN", "iCaRL-norm"], ["ER-balanced", "finetune"]),
    ),
    Finding(
        "iCaRL predicts too many labels: JS is further above pw-JS than for LUCIR",
        frozenset({"iCaRL-CNN", "iCaRL-norm", "LUCIR"}),
        predicts_too_many,
    ),
    Finding(
        "LUCIR retains: its first task is above ER's at the end",
        frozenset({"LUCIR", "ER-balanced"}),
        retains,
    ),
    Finding("LUCIR learns new labels less and less: R_jj falls", frozenset({"LUCIR"}), learns_less),
    Finding(
        "A-GEM is below ER-balanced",
        frozenset({"A-GEM", "ER-balanced"}),
        above(["ER-balanced"], ["A-GEM"]),
    ),
)


def sections(results: Results) -> list[Section]:
    """Return what only this paper's report shows."""
    outcomes, data = results.of(SETTING), results.experiment.data
    sequential = {name: each for name, each in outcomes.items() if name != "joint"}
    precision = [scores_table(outcomes)]
    found = [findings_section(FINDINGS, outcomes, FINDINGS_ARE_OF)]
    if sequential:
        precision = [label_curves(results, sequential), *precision]
    found.append(Section("Precision of the predicted labels", [SUPERFLUOUS], precision))
    if sequential:
        earlier, mixed = earlier_tasks(results, sequential), confusion(results, sequential)
        found.append(Section("Each task over time", [LATER_LABELS], [earlier]))
        found.append(Section("Confusion of labels", items=[mixed]))
    if results.experiment.aside:
        found.append(Section("More exemplars", items=exemplars(results)))
    sequence = results.experiment.benchmarks[SETTING].sequence
    splits = {
        str(number): sequence(METHODS["naive"], Draw("evaluation", results.seed, number))
        for number in range(results.config.configurations)
    }
    return [*found, Section("The splits", items=[sizes_table(splits), hierarchy_table(data)])]


def label_curves(results: Results, outcomes: Outcomes) -> Figure:
    """Return JS and pw-JS over time of the methods of figure 4, or of the first four."""
    compared = ("iCaRL-CNN", "iCaRL-norm", "LUCIR", "ER-balanced")
    shown = [name for name in compared if name in outcomes] or list(outcomes)[:4]
    panels = {
        name: {score: outcomes[name].metrics[score] for score in ("JS", SCORE)} for name in shown
    }
    caption = "JS and pw-JS on the samples of all tasks so far (figure 4)."
    return Figure(caption, plot_curves(results.folder / "js_gap.png", panels, "R_j"))


def earlier_tasks(results: Results, outcomes: Outcomes) -> Figure:
    """Return pw-JS over time on the newest task and on some tasks since they were learned."""
    tasks = next(iter(outcomes.values())).matrices.shape[-1]
    title = "The newest task"
    panels = {title: {name: each.metrics[NEWEST] for name, each in outcomes.items()}}
    labels = {title: f"{SCORE}, R_jj"}
    for task in sorted({0, tasks // 4, tasks // 2}):
        title = f"Task {task + 1}"
        panels[title] = {name: each.matrices[..., task] for name, each in outcomes.items()}
        labels[title] = f"{SCORE}, R_j{task + 1}"
    caption = (
        "pw-JS on the samples of the newest task (figure 5), and of one task since it was learned "
        "(figures A.16 and A.17)."
    )
    path, order = results.folder / "earlier_tasks.png", tuple(results.of(SETTING))
    picture = plot_curves(path, panels, labels, order=order, baseline="finetune")
    return Figure(caption + curves_left_out(panels, "finetune"), picture)


def confusion(results: Results, outcomes: Outcomes) -> Figure:
    """Return the labels that are predicted for samples of each label, and those that are true."""
    benchmark, order = results.experiment.benchmarks[SETTING], results.experiment.data.order(0)
    sequence = benchmark.sequence(METHODS["naive"], Draw("evaluation", results.seed, 0))
    labels = multi_hot(sequence.test.labels, len(order))
    squares = {"truth": np.asarray(confusion_matrix(labels, labels, jnp.arange(len(order))))}
    squares |= {name: each.metrics[CONFUSION][0] for name, each in outcomes.items()}
    caption = (
        "After the last task of the first configuration: of the samples with one label, the share "
        "for which another is predicted (figure 6). Lines of the truth off its diagonal are "
        "superclasses and their subclasses. Labels are in order of introduction: "
        f"{listed(order)}."
    )
    return Figure(caption, plot_squares(results.folder / "confusion.png", squares, "label"))


def exemplars(results: Results) -> tuple[Figure, Table]:
    """Return the final pw-JS by the number of exemplars per class as curves and a table."""
    own = results.config.benchmark.exemplars_per_class
    by_count = {count: results.of(column_of(count)) for count in results.config.ablation}
    by_count[own] = results.of(SETTING)
    names = results.of(column_of(results.config.ablation[0]))
    finals = {
        name: {count: by_count[count][name].final for count in sorted(by_count)} for name in names
    }
    canvas, (axis,) = new_canvas(1, 5.6, 3.4)
    by_end = sorted(finals.items(), key=lambda each: -each[1][max(each[1])].mean())
    for place, (name, of) in enumerate(by_end):
        means, spreads = [x.mean() for x in of.values()], [deviation(x) for x in of.values()]
        # Side by side, or bars would hide each other.
        places = np.array(list(of)) * 1.03 ** (place - (len(by_end) - 1) / 2)
        look = line_style(place)._asdict()
        axis.errorbar(places, means, spreads, label=name, marker="o", capsize=3, **look)
    axis.set(xlabel="exemplars per class", ylabel="pw-JS, R_j", xscale="log")
    axis.set_xticks(sorted(by_count), [f"{count:,}" for count in sorted(by_count)])
    axis.minorticks_off()
    axis.set_ylim(0, None)
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
    caption = (
        "pw-JS after the last task with more exemplars per class (appendix E); ± and bars are "
        "one standard deviation over configurations."
    )
    picture = save(canvas, results.folder / "exemplars.png")
    rows = [[name, *map(spread, of.values())] for name, of in finals.items()]
    columns = [Column(f"{count:,}", "exemplars per class") for count in sorted(by_count)]
    table = Table("The same in numbers.", [Column("method"), *columns], rows)
    return Figure(caption, picture), table


def scores_table(outcomes: Outcomes) -> Table:
    """Return every score of every method, and the numbers of labels."""
    rows = [
        [
            name,
            *(spread(each.metrics[score][:, -1]) for score in SCORES),
            spread(each.metrics[BATCH_RECALL]),
            *(spread(np.nanmean(each.metrics[score], axis=1)) for score in (SCORE, NEWEST)),
            *(f"{each.metrics[n][:, -1].mean():.2f}" for n in (PREDICTED_LABELS, TRUE_LABELS)),
        ]
        for name, each in outcomes.items()
    ]
    final = "after the last task, on all tasks"
    columns = [
        Column("method"),
        *(Column(score, final) for score in (*SCORES, BATCH_RECALL)),
        *(Column(score, "pw-JS, mean over tasks") for score in ("R_j", "R_jj")),
        *(Column(which, "labels per sample, final") for which in ("predicted", "true")),
    ]
    caption = (
        "Mean ± standard deviation over configurations. Recall is the mean over samples; by "
        f"batches, as the authors have it, labels found over true labels of each {RECALL_BATCH} "
        "samples, averaged."
    )
    return Table(caption, columns, rows)


def hierarchy_table(data: IIRCData) -> Table:
    """Return the superclasses with their subclasses and numbers of training images."""
    images, hierarchy = data.images, data.metadata.hierarchy
    counts = dict(zip(images.class_names, np.bincount(images.train_labels), strict=True))
    grouped = {member for members in hierarchy.values() for member in members}
    groups = {**hierarchy, "without superclass": [name for name in counts if name not in grouped]}
    rows = [
        [name, str(len(members)), f"{sum(counts[each] for each in members):,}", listed(members, 4)]
        for name, members in groups.items()
    ]
    columns = [Column(name) for name in ("superclass", "subclasses", "training images", "which")]
    return Table("The hierarchy.", columns, rows)


def listed(names: Sequence[str], shown: int | None = None) -> str:
    """Return the first names, and how many more there are."""
    # ImageNet's names are lists of synonyms.
    text = ", ".join(name.split(",")[0] for name in names[:shown])
    return text if shown is None or len(names) <= shown else f"{text} and {len(names) - shown} more"


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
