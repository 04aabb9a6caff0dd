"""Pictures of many methods on one benchmark."""

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float

from everlight.plots import COLORS
from everlight_experiments.common.cells import deviation
from everlight_experiments.common.plots import by_benchmark, new_canvas, save


def plot_finals(
    path: Path, panels: Mapping[str, Mapping[str, Float[np.ndarray, "seeds"]]], measure: str
) -> Path:
    """Means with bars of one deviation: methods in the table's order, a panel for each scenario."""
    names = list(dict.fromkeys(name for finals in panels.values() for name in finals))
    canvas, axes = new_canvas(len(panels), 3.4, 1.0 + 0.24 * len(names))
    for axis, (title, finals), color in zip(
        axes, panels.items(), itertools.cycle(COLORS), strict=False
    ):
        for place, name in enumerate(names):
            if name in finals:
                values = finals[name]
                axis.errorbar(values.mean(), place, xerr=deviation(values), fmt="o", color=color)
        axis.set(title=title, xlabel=f"final {measure}", ylim=(len(names) - 0.5, -0.5))
        axis.set_yticks(range(len(names)), names if axis is axes[0] else [""] * len(names))
    for alike in by_benchmark(panels, axes):
        ends = [axis.get_xlim() for axis in alike]
        for axis in alike:
            axis.set_xlim(min(0, *(low for low, _ in ends)), max(high for _, high in ends))
    return save(canvas, path)
