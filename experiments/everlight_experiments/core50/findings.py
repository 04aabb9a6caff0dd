"""What the paper finds on CORe50, each finding asked of the outcomes here."""

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Bool, Float

from everlight_experiments.common.report import Column, Table
from everlight_experiments.continual.runner import Outcomes

NOISE = 0.02
"""How far a curve may fall and still be called rising."""

Curves = Mapping[str, Float[np.ndarray, "runs t"]]


def findings_table(outcomes: Outcomes) -> Table:
    """In how many runs each finding holds, with the numbers that it is read from."""
    rows = []
    for scenario, claim, needed, test in FINDINGS:
        there = outcomes.get(scenario, {})
        missing = [name for name in needed if name not in there]
        if missing:
            rows.append([f"{scenario}: {claim}", "–", f"not run: {', '.join(missing)}"])
            continue
        runs = min(len(there[name].over_time) for name in needed)
        curves = {name: there[name].over_time[:runs] for name in needed}
        holds, numbers = test(curves)
        rows.append([f"{scenario}: {claim}", f"{np.sum(holds)} of {runs}", numbers])
    columns = [Column("finding"), Column("holds in"), Column("means over the runs, %")]
    return Table("Findings of the paper and results of this run.", columns, rows)


def _ends(curves: Curves) -> tuple[dict[str, Float[np.ndarray, "runs"]], str]:
    last = {name: curve[:, -1] for name, curve in curves.items()}
    numbers = ", ".join(f"{name} {100 * value.mean():.1f}" for name, value in last.items())
    return last, f"at the end {numbers}"


def _small_gap(curves: Curves) -> tuple[Bool[np.ndarray, "runs"], str]:
    last, numbers = _ends(curves)
    return last["naive"] >= 0.75 * last["cumulative"], numbers


def _forgets(curves: Curves) -> tuple[Bool[np.ndarray, "runs"], str]:
    curve = curves["naive"]
    later = curve[:, 1:]
    numbers = f"after the first batch {100 * curve[:, 0].mean():.1f}, later at best "
    return later.max(axis=1) < curve[:, 0], numbers + f"{100 * later.max(axis=1).mean():.1f}"


def _rises(curves: Curves) -> tuple[Bool[np.ndarray, "runs"], str]:
    curve = curves["CWR"]
    steps = np.diff(curve, axis=1)
    holds = (steps.min(axis=1) >= -NOISE) & (curve[:, -1] > curve[:, 0] + NOISE)
    numbers = f"{100 * curve[:, 0].mean():.1f} to {100 * curve[:, -1].mean():.1f}, least step "
    return holds, numbers + f"{100 * steps.min(axis=1).mean():+.1f}"


def _between(curves: Curves) -> tuple[Bool[np.ndarray, "runs"], str]:
    last, numbers = _ends(curves)
    return (last["naive"] < last["CWR"]) & (last["CWR"] < last["cumulative"]), numbers


def _bounds(curves: Curves) -> tuple[Bool[np.ndarray, "runs"], str]:
    others = np.maximum(curves["naive"], curves["CWR"])
    lead = (curves["cumulative"] - others)[:, 1:].min(axis=1)
    return lead >= -NOISE, f"least lead after a batch {100 * lead.mean():+.1f}"


def _half(curves: Curves) -> tuple[Bool[np.ndarray, "runs"], str]:
    last, numbers = _ends(curves)
    return last["CWR"] < 2 / 3 * last["cumulative"], numbers


_THREE = ("naive", "CWR", "cumulative")
FINDINGS: tuple[tuple[str, str, tuple[str, ...], Callable], ...] = (
    (
        "NI",
        "the gap is modest: naive ends at three quarters of cumulative or more",
        ("naive", "cumulative"),
        _small_gap,
    ),
    (
        "NC",
        "naive forgets: it never comes back to its accuracy after the first batch",
        ("naive",),
        _forgets,
    ),
    (
        "NC",
        f"CWR rises with every batch, {100 * NOISE:.0f} points of noise allowed",
        ("CWR",),
        _rises,
    ),
    ("NC", "CWR ends between naive and cumulative", _THREE, _between),
    ("NC", "cumulative bounds both after every batch but the first", _THREE, _bounds),
    ("NIC", "CWR ends between naive and cumulative", _THREE, _between),
    ("NIC", "CWR has much room: it ends at less than two thirds of cumulative", _THREE, _half),
)
