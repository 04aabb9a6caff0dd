"""The report of an IIRC run: curves, scores, the paper's findings one by one, the splits."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from experiments.common.report import Column, Figure, Section, Table
from experiments.iirc.plots import plot_confusion, plot_curves
from experiments.iirc.scores import SCORES, Outcome
from experiments.iirc.training import Plan, Trainer

Outcomes = Mapping[str, Outcome]


def report_sections(path: Path, outcomes: Outcomes, trainer: Trainer, plan: Plan) -> list[Section]:
    """All sections; pictures are written into the run's folder."""
    return [
        Section("Learning curves", items=[_curves(path, outcomes), _scores_table(outcomes)]),
        Section(
            "The paper's findings, one by one",
            [
                "Each is what the paper says of IIRC-CIFAR; counted is in how many of our "
                "configurations it holds. Means over the tasks and the configurations."
            ],
            [_findings(outcomes)],
        ),
        Section(
            "Too many labels, and too few",
            [
                "The Jaccard similarity forgives labels too many that the precision-weighted one "
                "does not; the distance between the two curves shows them."
            ],
            [_label_curves(path, outcomes)],
        ),
        Section("Which labels are confused", items=[_confusion(path, outcomes)]),
        Section("The splits", items=[_splits(trainer, plan)]),
    ]


def _curves(path: Path, outcomes: Outcomes) -> Figure:
    panels = {
        "All tasks so far": {name: o.union[..., 0] for name, o in outcomes.items()},
        "The task just learnt": {name: o.current for name, o in _sequential(outcomes).items()},
        "The first task": {name: o.by_task[..., 0] for name, o in _sequential(outcomes).items()},
    }
    labels = {
        "All tasks so far": "pw-JS, $R_j$",
        "The task just learnt": "pw-JS, $R_{jj}$",
        "The first task": "pw-JS, $R_{j1}$",
    }
    caption = (
        "Precision-weighted Jaccard similarity after each task, on the samples of all tasks so "
        "far, of the newest and of the first task; bands are one standard deviation over "
        "configurations. Joint learns all at once (dotted)."
    )
    return Figure(caption, plot_curves(path / "curves.png", panels, labels))


def _label_curves(path: Path, outcomes: Outcomes) -> Figure:
    shown = [name for name in ("iCaRL-CNN", "iCaRL-norm", "LUCIR", "ER") if name in outcomes]
    panels = {
        name: {
            "JS": outcomes[name].union[..., 1],
            "pw-JS": outcomes[name].union[..., 0],
        }
        for name in shown
    }
    caption = "JS and pw-JS on the samples of all tasks so far (figure 4)."
    ylabels = dict.fromkeys(shown, "$R_j$")
    return Figure(caption, plot_curves(path / "js_gap.png", panels, ylabels))


def _confusion(path: Path, outcomes: Outcomes) -> Figure:
    first = next(iter(outcomes.values()))
    matrices = {"truth": first.truth[0]}
    matrices |= {name: o.confusion[0] for name, o in outcomes.items() if name != "joint"}
    caption = (
        "After the last task of the first configuration: of the samples with one label, the share "
        "for which another is predicted (figure 6). Lines of the truth off its diagonal are "
        "superclasses and their subclasses."
    )
    return Figure(caption, plot_confusion(path / "confusion.png", matrices))


def _scores_table(outcomes: Outcomes) -> Table:
    rows = []
    for name, outcome in outcomes.items():
        last = outcome.union[:, -1]
        rows.append(
            [
                name,
                *(_spread(last[:, place]) for place in range(len(SCORES))),
                _spread(outcome.union[..., 0].mean(axis=1)),
                _spread(outcome.current.mean(axis=1)),
                f"{outcome.predicted_labels[:, -1].mean():.2f}",
                f"{outcome.true_labels[:, -1].mean():.2f}",
            ]
        )
    columns = [
        Column("method"),
        *(Column(score, "after the last task, on all tasks") for score in SCORES),
        Column("R_j", "pw-JS, mean over tasks"),
        Column("R_jj", "pw-JS, mean over tasks"),
        Column("predicted", "labels a sample, at the end"),
        Column("true", "labels a sample, at the end"),
    ]
    caption = "Mean ± standard deviation over configurations."
    return Table(caption, columns, rows)


def _findings(outcomes: Outcomes) -> Table:
    rows = []
    for claim, needed, test in FINDINGS:
        if not needed <= outcomes.keys():
            rows.append([claim, "–", f"not run: {', '.join(sorted(needed - outcomes.keys()))}"])
            continue
        holds, numbers = test(outcomes)
        rows.append([claim, f"{np.sum(holds)} of {len(holds)}", numbers])
    columns = [Column("finding"), Column("holds in"), Column("means")]
    return Table("Findings of the paper and what came out here.", columns, rows)


def _above(first: tuple[str, ...], second: tuple[str, ...]) -> Callable:
    def test(outcomes: Outcomes) -> tuple[Bool[np.ndarray, "runs"], str]:
        means = {name: outcomes[name].union[..., 0].mean(axis=1) for name in (*first, *second)}
        lowest = np.min([means[name] for name in first], axis=0)
        greatest = np.max([means[name] for name in second], axis=0)
        numbers = "; ".join(f"{name} {value.mean():.3f}" for name, value in means.items())
        return lowest > greatest, numbers

    return test


def _gap(outcomes: Outcomes) -> tuple[Bool[np.ndarray, "runs"], str]:
    gaps = {
        name: (outcomes[name].union[..., 1] - outcomes[name].union[..., 0]).mean(axis=1)
        for name in ("iCaRL-CNN", "iCaRL-norm", "LUCIR")
    }
    holds = np.minimum(gaps["iCaRL-CNN"], gaps["iCaRL-norm"]) > gaps["LUCIR"]
    return holds, "; ".join(f"{name} {value.mean():.3f}" for name, value in gaps.items())


def _falling(outcomes: Outcomes) -> tuple[Bool[np.ndarray, "runs"], str]:
    """The newest task's score in the last third of the tasks against the first third."""
    current = outcomes["LUCIR"].current
    third = max(1, current.shape[1] // 3)
    # The first task has superclasses alone and twice the epochs.
    early, late = current[:, 1 : 1 + third].mean(axis=1), current[:, -third:].mean(axis=1)
    return late < early, f"R_jj {early.mean():.3f} early, {late.mean():.3f} late"


def _retains(outcomes: Outcomes) -> tuple[Bool[np.ndarray, "runs"], str]:
    kept = {name: outcomes[name].by_task[:, -1, 0] for name in ("LUCIR", "ER")}
    return kept["LUCIR"] > kept["ER"], "; ".join(
        f"{name} {value.mean():.3f}" for name, value in kept.items()
    )


FINDINGS: tuple[tuple[str, frozenset[str], Callable], ...] = (
    (
        "Incremental joint, which is told the labels it misses, is above ER-infinite, which is not",
        frozenset({"incremental joint", "ER-infinite"}),
        _above(("incremental joint",), ("ER-infinite",)),
    ),
    (
        "Both iCaRLs are ahead of ER and finetune",
        frozenset({"iCaRL-CNN", "iCaRL-norm", "ER", "finetune"}),
        _above(("iCaRL-CNN", "iCaRL-norm"), ("ER", "finetune")),
    ),
    (
        "iCaRL predicts too many labels: JS is further above pw-JS than for LUCIR",
        frozenset({"iCaRL-CNN", "iCaRL-norm", "LUCIR"}),
        _gap,
    ),
    (
        "LUCIR retains: its first task is above ER's at the end",
        frozenset({"LUCIR", "ER"}),
        _retains,
    ),
    ("LUCIR learns new labels less and less: R_jj falls", frozenset({"LUCIR"}), _falling),
    ("A-GEM is below ER", frozenset({"A-GEM", "ER"}), _above(("ER",), ("A-GEM",))),
)


def _splits(trainer: Trainer, plan: Plan) -> Table:
    rows = []
    for number in range(plan.configurations):
        tasks = trainer.sequence("finetune", number).tasks
        sizes = np.asarray(tasks.train.mask).sum(axis=1)
        classes = np.asarray(tasks.classes).sum(axis=1)
        rows.append(
            [
                str(number),
                str(len(sizes)),
                f"{classes[0]}, then {classes[1:].min()} to {classes[1:].max()}",
                f"{sizes.sum():,}",
                f"{sizes[0]:,}",
                f"{sizes[1:].mean():,.0f} ({sizes[1:].min():,} to {sizes[1:].max():,})",
                f"{np.asarray(tasks.valid.mask).sum():,}",
            ]
        )
    columns = [
        Column("configuration"),
        Column("tasks"),
        Column("classes a task"),
        Column("all tasks", "training samples"),
        Column("first task", "training samples"),
        Column("later tasks, mean (least to most)", "training samples"),
        Column("in-task validation samples"),
    ]
    caption = "A sample that two tasks train on, under its coarse and its fine label, counts twice."
    return Table(caption, columns, rows)


def _sequential(outcomes: Outcomes) -> dict[str, Outcome]:
    return {name: outcome for name, outcome in outcomes.items() if name != "joint"}


def _spread(values: Float[np.ndarray, "runs"]) -> str:
    return f"{values.mean():.3f} ± {values.std():.3f}"
