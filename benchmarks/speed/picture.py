"""Picture of how seconds grow, from cases whose contestants are named "tasks: 1,000"."""

import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed.timing import Timed
from everlight_experiments.report.plots import MARKERS, new_canvas, save


def growth_of(case: Timed) -> tuple[str, list[float], list[float]]:
    """Return what grows, its size and the seconds, both relative to the smallest; or nothing."""
    matches = [re.fullmatch(r"(\w+): ([\d,]+)", name) for name in case.seconds]
    if None in matches:
        return "", [], []
    sizes = [int(match[2].replace(",", "")) for match in matches]
    return matches[0][1], [size / sizes[0] for size in sizes], list(case.ratios.values())


def plot_growth(cases: Sequence[Timed], path: str) -> None:
    """Plot relative seconds over relative size for every case that grows."""
    canvas, (axis,) = new_canvas(1, 5.6, 4.2)
    lines = [(case.name, *growth_of(case)) for case in cases]
    growing = [line for line in lines if line[1]]
    for (name, what, sizes, ratios), marker in zip(growing, MARKERS * 2, strict=False):
        part = "compilation" if "compilation" in name else "training"
        axis.plot(sizes, ratios, marker=marker, label=f"{part} by {what}")
    largest = max(max(sizes) for _, _, sizes, _ in growing)
    axis.plot([1, largest], [1, largest], ":", color="grey", label="in proportion")
    axis.set(xscale="log", yscale="log", xlabel="size relative to the smallest")
    axis.set_ylabel("seconds relative to the smallest")
    for scale in (axis.xaxis, axis.yaxis):
        scale.set_major_formatter("{x:g}")
    axis.legend()
    save(canvas, Path(path))
