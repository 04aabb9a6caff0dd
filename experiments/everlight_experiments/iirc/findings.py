"""What the paper finds on IIRC-CIFAR, each finding asked of the outcomes here."""

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Bool

from everlight_experiments.common.report import Column, Table
from everlight_experiments.iirc.scores import Outcome

Outcomes = Mapping[str, Outcome]


def findings_table(outcomes: Outcomes) -> Table:
    """In how many configurations each finding holds, with the numbers it is read from."""
    rows = []
    for claim, needed, test in FINDINGS:
        if not needed <= outcomes.keys():
            rows.append([claim, "–", f"not run: {', '.join(sorted(needed - outcomes.keys()))}"])
            continue
        holds, numbers = test(outcomes)
        rows.append([claim, f"{np.sum(holds)} of {len(holds)}", numbers])
    columns = [Column("finding"), Column("holds in"), Column("means")]
    return Table("Findings of the paper and results of this run.", columns, rows)


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
    kept = {name: outcomes[name].by_task[:, -1, 0] for name in ("LUCIR", "ER-balanced")}
    return kept["LUCIR"] > kept["ER-balanced"], "; ".join(
        f"{name} {value.mean():.3f}" for name, value in kept.items()
    )


FINDINGS: tuple[tuple[str, frozenset[str], Callable], ...] = (
    (
        "Incremental joint, which has all labels, is above ER-infinite, which has not",
        frozenset({"incremental joint", "ER-infinite"}),
        _above(("incremental joint",), ("ER-infinite",)),
    ),
    (
        "Both iCaRLs are ahead of ER and finetune",
        frozenset({"iCaRL-CNN", "iCaRL-norm", "ER-balanced", "finetune"}),
        _above(("iCaRL-CNN", "iCaRL-norm"), ("ER-balanced", "finetune")),
    ),
    (
        "iCaRL predicts too many labels: JS is further above pw-JS than for LUCIR",
        frozenset({"iCaRL-CNN", "iCaRL-norm", "LUCIR"}),
        _gap,
    ),
    (
        "LUCIR retains: its first task is above ER's at the end",
        frozenset({"LUCIR", "ER-balanced"}),
        _retains,
    ),
    ("LUCIR learns new labels less and less: R_jj falls", frozenset({"LUCIR"}), _falling),
    (
        "A-GEM is below ER-balanced",
        frozenset({"A-GEM", "ER-balanced"}),
        _above(("ER-balanced",), ("A-GEM",)),
    ),
)
