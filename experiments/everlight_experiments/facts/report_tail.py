"""The report's section on rare facts: from head to tail, few-shot, SPO generalisation."""

from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from everlight.metrics.ranking_groups import SPO_CASES
from everlight_experiments.common.cells import dash, percent
from everlight_experiments.common.report import PAPER, Column, Figure, Section, Table
from everlight_experiments.facts.benchmarks import SPLITS
from everlight_experiments.facts.paper_tables import FEW_SHOT, OTHER_DATA, SPO
from everlight_experiments.facts.plots import plot_bins
from everlight_experiments.facts.scores import EDGES, LEAST, Outcomes, Results, sequential


def tail_section(path: Path, name: str, result: Results) -> Section:
    """What becomes of rare facts; pictures are written into the run's folder."""
    groups = result.groups
    inside = [
        np.sum((groups.counts >= low) & (groups.counts < high)) for low, high in pairwise(EDGES)
    ]
    paragraphs, items = [], []
    used = np.flatnonzero(inside)
    if len(used) > 1:
        items += [
            _head_to_tail(path, name, result.outcomes, used, inside, metric)
            for metric in ("generalised", "standard")
        ]
    if groups.few.any():
        items.append(_few_shot(name, result))
    else:
        paragraphs.append("No test example is of a fact with five training examples or fewer.")
    if groups.spo.any():
        items.append(_spo(name, result))
    return Section(f"{name}: the long tail", paragraphs, items)


def _head_to_tail(
    path: Path,
    name: str,
    outcomes: Outcomes,
    used: Int[np.ndarray, "b"],
    inside: list[int],
    metric: str,
) -> Figure:
    place = ("standard", "generalised").index(metric)
    panels: dict[str, dict[str, Float[np.ndarray, "b"]]] = {
        f"{split}, {metric} Top-5, %": {
            method: 100 * outcome.by_count[:, place].mean(axis=0)[used]
            for method, outcome in outcomes[split].items()
        }
        for split in SPLITS
    }
    random, semantic = panels.values()
    panels["relative gain of random over semantic"] = {
        method: np.divide(
            random[method] - semantic[method],
            semantic[method],
            out=np.full(len(used), np.nan),
            where=semantic[method] > 0,
        )
        for method in sequential(outcomes["random"])
    }
    names = [_bin_name(bin) for bin in used]
    sizes = ", ".join(f"{label}: {inside[bin]:,}" for label, bin in zip(names, used, strict=True))
    caption = (
        f"From tail to head, {metric}, mean over seeds (figure 4); what is left out of the gain "
        f"has nothing right on the semantic split. Test examples in the bins: {sizes}."
    )
    picture = plot_bins(path / f"head_to_tail_{name}_{metric}.png", panels, names)
    return Figure(caption, picture)


def _bin_name(bin: int) -> str:
    low, high = EDGES[bin], EDGES[bin + 1] - 1
    if low == high:
        return str(low)
    return f"{low}+" if bin + 2 == len(EDGES) else f"{low}–{high}"


def _few_shot(name: str, result: Results) -> Table:
    paper = name == "large-scale"
    columns = [Column("method")]
    for split in SPLITS:
        tasks = len(np.unique(result.benchmark.fact_task[split]))
        columns += [Column(f"T{task + 1}", split) for task in range(tasks)]
        columns.append(Column("mean", split))
    columns += [Column(split, PAPER) for split in SPLITS if paper]
    rows = []
    for method in result.outcomes["random"]:
        row = [method]
        for split in SPLITS:
            few = result.outcomes[split][method].few
            row += [f"{100 * value:.1f}" for value in few.by_task.mean(axis=0)]
            row.append(percent(few.over_tasks))
        if paper:
            there = (FEW_SHOT[split].get(method) for split in SPLITS)
            row += ["–" if value is None else f"{value:.1f}" for value in there]
        rows.append(row)
    caption = (
        f"Generalised Top-5 on the {result.groups.few.sum():,} test examples of facts with at most "
        "five training examples (tables 11 and 12), percent; – for a task without such examples."
        + (f" The paper's: mean over tasks, {OTHER_DATA}." if paper else "")
    )
    return Table(caption, columns, [[dash(cell) for cell in row] for row in rows])


def _spo(name: str, result: Results) -> Table:
    paper = name == "large-scale"
    cases = [", ".join(case) for case in SPO_CASES]
    columns = [Column("method")]
    columns += [Column(case, f"≥ {least} examples") for least in LEAST for case in cases]
    counts = result.groups.spo.sum(axis=2)
    rows = [["test examples", *(f"{count:,}" for count in counts.ravel())]]
    for split in SPLITS:
        for method, outcome in result.outcomes[split].items():
            cells = outcome.spo.mean(axis=0).ravel()
            rows.append([f"{method}, {split}", *(f"{100 * value:.1f}" for value in cells)])
    if paper:
        for method in SPO[LEAST[0]]:
            cells = (value for least in LEAST for value in SPO[least][method])
            rows.append([f"paper: {method}", *(f"{value:.1f}" for value in cells)])
    caption = (
        "Generalised Top-5 on triples of at most five training examples, all of whose named parts "
        "have more (tables 14 to 17), percent, mean over seeds."
        + (f" The paper's: {OTHER_DATA}, its split not named." if paper else "")
    )
    return Table(caption, columns, [[dash(cell) for cell in row] for row in rows])
