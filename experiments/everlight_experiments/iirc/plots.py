"""Pictures of IIRC runs, after the paper's figures 3 to 6."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.ticker import MaxNLocator

from everlight.plots.style import line_style
from everlight_experiments.common.cells import deviation
from everlight_experiments.common.plots import new_canvas, save


def plot_confusion(path: Path, matrices: Mapping[str, Float[np.ndarray, "c c"]]) -> Path:
    """True label by predicted label, classes in order of introduction."""
    columns = -(-len(matrices) // 2)
    canvas, axes = new_canvas(columns, 3.1, 3.3, rows=2)
    for axis in axes:
        axis.set_axis_off()
    for place, (axis, (name, matrix)) in enumerate(zip(axes, matrices.items(), strict=False)):
        axis.set_axis_on()
        picture = axis.imshow(matrix, vmin=0, vmax=1, cmap="magma_r", interpolation="nearest")
        axis.set(title=name, xlabel="predicted label")
        axis.set_ylabel("" if place % columns else "true label, by introduction")
        for direction in (axis.xaxis, axis.yaxis):
            direction.set_major_locator(MaxNLocator(5, integer=True))
        axis.grid(False)
    canvas.colorbar(picture, ax=axes, label="share of the true label's samples", shrink=0.6)
    return save(canvas, path)


def plot_exemplars(
    path: Path, values: Mapping[str, Mapping[int, Float[np.ndarray, "runs"]]]
) -> Path:
    """A score by the number of exemplars of every class, mean and deviation, a curve a method."""
    canvas, (axis,) = new_canvas(1, 5.6, 3.4)
    by_end = sorted(values.items(), key=lambda each: -each[1][max(each[1])].mean())
    for place, (name, by_count) in enumerate(by_end):
        counts = np.array(list(by_count))
        means = [each.mean() for each in by_count.values()]
        spreads = [deviation(each) for each in by_count.values()]
        # Side by side, or bars would hide each other.
        aside = counts * 1.03 ** (place - (len(by_end) - 1) / 2)
        look = line_style(place)._asdict()
        axis.errorbar(aside, means, spreads, label=name, marker="o", capsize=3, **look)
    axis.set(xlabel="exemplars per class", ylabel="pw-JS, R_j", xscale="log")
    axis.set_xticks(counts, [f"{count:,}" for count in counts])
    axis.minorticks_off()
    axis.set_ylim(0, None)
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return save(canvas, path)
