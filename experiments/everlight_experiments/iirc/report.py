"""What IIRC's report has beside the common one: the paper's findings and figures, the splits."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from jaxtyping import Float

from everlight.continual.base import TaskSequence
from everlight_experiments.common.cells import spread
from everlight_experiments.common.plots import curves_left_out, plot_curves
from everlight_experiments.common.report import Column, Figure, Section, Table
from everlight_experiments.continual.report_tables import sizes_table
from everlight_experiments.iirc.findings import Outcomes, findings_table
from everlight_experiments.iirc.plots import plot_confusion, plot_exemplars
from everlight_experiments.iirc.record import Data
from everlight_experiments.iirc.scores import RECALL_BATCH, SCORES, Outcome

Ablation = Mapping[int, Mapping[str, Float[np.ndarray, "runs"]]]
"""pw-JS in the end with each number of exemplars per class, by method."""


def paper_sections(
    path: Path,
    outcomes: Outcomes,
    ablation: Ablation,
    splits: Sequence[TaskSequence],
    data: Data,
) -> list[Section]:
    """All sections; pictures are written into the run's folder.

    Args:
      path: of the run's folder.
      outcomes: by method.
      ablation: of the methods that keep exemplars.
      splits: of each configuration.
      data: that was learnt.
    """
    sections = [
        Section(
            "The paper's findings",
            [
                "Each finding of the paper is for IIRC-CIFAR; the table counts the "
                "configurations of "
                "this run in which it holds. Means over tasks and configurations."
            ],
            [findings_table(outcomes)],
        ),
        Section(
            "Precision of the predicted labels",
            [
                "The precision-weighted Jaccard similarity penalizes superfluous labels more "
                "than the "
                "Jaccard similarity; the distance between the two curves shows them."
            ],
            [_label_curves(path, outcomes), _scores_table(outcomes)],
        ),
        Section("Confusion of labels", items=[_confusion(path, outcomes, data)]),
    ]
    if _sequential(outcomes):
        later = (
            "A later subclass adds a label to a task's samples, so these curves can fall without "
            "forgetting."
        )
        figure = _earlier_tasks(path, outcomes)
        sections.insert(2, Section("Each task over time", [later], [figure]))
    if ablation:
        sections.append(Section("More exemplars", items=_exemplars(path, ablation)))
    numbered = {str(number): sequence for number, sequence in enumerate(splits)}
    return [*sections, Section("The splits", items=[sizes_table(numbered), _groups(data)])]


def _label_curves(path: Path, outcomes: Outcomes) -> Figure:
    compared = ("iCaRL-CNN", "iCaRL-norm", "LUCIR", "ER-balanced")
    named = [name for name in compared if name in outcomes]
    shown = named or list(outcomes)[:4]
    panels = {
        name: {
            "JS": outcomes[name].union[..., 1],
            "pw-JS": outcomes[name].union[..., 0],
        }
        for name in shown
    }
    caption = "JS and pw-JS on the samples of all tasks so far (figure 4)."
    return Figure(caption, plot_curves(path / "js_gap.png", panels, "R_j"))


def _earlier_tasks(path: Path, outcomes: Outcomes) -> Figure:
    sequential = _sequential(outcomes)
    tasks = next(iter(sequential.values())).by_task.shape[-1]
    panels = {"The newest task": {name: o.current for name, o in sequential.items()}}
    labels = {"The newest task": "pw-JS, R_jj"}
    for task in sorted({0, tasks // 4, tasks // 2}):
        title = f"Task {task + 1}"
        panels[title] = {name: o.by_task[..., task] for name, o in sequential.items()}
        labels[title] = f"pw-JS, R_j{task + 1}"
    caption = (
        "pw-JS on the samples of the newest task (figure 5), and of one task since it was learned "
        "(figures A.16 and A.17)."
    )
    picture = plot_curves(
        path / "earlier_tasks.png", panels, labels, order=tuple(outcomes), baseline="finetune"
    )
    return Figure(caption + curves_left_out(panels, "finetune"), picture)


def _exemplars(path: Path, ablation: Ablation) -> tuple[Figure, Table]:
    caption = (
        "pw-JS after the last task with more exemplars per class (appendix E); ± and bars are "
        "one standard deviation over configurations."
    )
    counts = sorted(ablation)
    by_method = {
        name: {count: ablation[count][name] for count in counts} for name in ablation[counts[0]]
    }
    rows = [[name, *map(spread, of.values())] for name, of in by_method.items()]
    columns = [Column("method"), *(Column(f"{count:,}", "exemplars per class") for count in counts)]
    picture = plot_exemplars(path / "exemplars.png", by_method)
    return Figure(caption, picture), Table("The same in numbers.", columns, rows)


def _confusion(path: Path, outcomes: Outcomes, data: Data) -> Figure:
    first = next(iter(outcomes.values()))
    matrices = {"truth": first.truth[0]}
    matrices |= {name: o.confusion[0] for name, o in outcomes.items() if name != "joint"}
    order = tuple(chain.from_iterable(data.metadata.configurations[0].tasks))
    caption = (
        "After the last task of the first configuration: of the samples with one label, the share "
        "for which another is predicted (figure 6). Lines of the truth off its diagonal are "
        f"superclasses and their subclasses. In order: {_first(order, len(order))}."
    )
    return Figure(caption, plot_confusion(path / "confusion.png", matrices))


def _scores_table(outcomes: Outcomes) -> Table:
    rows = []
    for name, outcome in outcomes.items():
        last = outcome.union[:, -1]
        rows.append(
            [
                name,
                *(spread(last[:, place]) for place in range(len(SCORES))),
                spread(outcome.batch_recall),
                spread(outcome.union[..., 0].mean(axis=1)),
                spread(outcome.current.mean(axis=1)),
                f"{outcome.predicted_labels[:, -1].mean():.2f}",
                f"{outcome.true_labels[:, -1].mean():.2f}",
            ]
        )
    columns = [
        Column("method"),
        *(
            Column(score, "after the last task, on all tasks")
            for score in (*SCORES, "recall by batches")
        ),
        Column("R_j", "pw-JS, mean over tasks"),
        Column("R_jj", "pw-JS, mean over tasks"),
        Column("predicted", "labels per sample, final"),
        Column("true", "labels per sample, final"),
    ]
    caption = (
        "Mean ± standard deviation over configurations. Recall is the mean over samples; by "
        f"batches, as the authors have it, labels found over true labels of each {RECALL_BATCH} "
        "samples, averaged."
    )
    return Table(caption, columns, rows)


def _groups(data: Data) -> Table:
    """The hierarchy with what each superclass holds."""
    images, hierarchy = data.images, data.metadata.hierarchy
    counts = dict(zip(images.class_names, np.bincount(images.train_labels), strict=True))
    rows = [
        [name, str(len(members)), f"{sum(counts[member] for member in members):,}", _first(members)]
        for name, members in hierarchy.items()
    ]
    grouped = {member for members in hierarchy.values() for member in members}
    alone = [name for name in counts if name not in grouped]
    images_alone = sum(counts[name] for name in alone)
    rows.append(["without superclass", str(len(alone)), f"{images_alone:,}", _first(alone)])
    columns = [Column(name) for name in ("superclass", "subclasses", "training images", "which")]
    return Table("The hierarchy.", columns, rows)


def _first(names: Sequence[str], shown: int = 4) -> str:
    # ImageNet's names are lists of synonyms.
    listed = ", ".join(name.split(",")[0] for name in names[:shown])
    return listed if len(names) <= shown else f"{listed} and {len(names) - shown} more"


def _sequential(outcomes: Outcomes) -> dict[str, Outcome]:
    return {name: outcome for name, outcome in outcomes.items() if name != "joint"}
