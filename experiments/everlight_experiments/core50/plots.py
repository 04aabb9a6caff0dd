"""Pictures of CORe50 runs, after the paper's figures 3 to 6."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float

from everlight.plots import COLORS
from everlight.scenarios.core50 import TEST_SESSIONS
from everlight_data.images.core50 import Core50
from everlight_experiments.common.plots import new_canvas, save
from everlight_experiments.core50.record import FIXED
from everlight_experiments.core50.scores import ROC_POINTS

Published = Mapping[str, tuple[float, ...]]
LOOKS = [(color, line) for line in ("-", "-.") for color in COLORS]
METHOD_LOOKS = dict(zip(FIXED, LOOKS, strict=False))


def plot_roc(path: Path, panels: Mapping[str, Mapping[str, Float[np.ndarray, "points"]]]) -> Path:
    """Known test samples accepted over unknown ones accepted, a panel per moment."""
    canvas, axes = new_canvas(len(panels), 3.6, 3.9)
    canvas.set_layout_engine("compressed")
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        axis.plot([0, 1], [0, 1], color="#999999", linestyle=":")
        for name in [each for each in FIXED if each in curves]:
            color, line = METHOD_LOOKS[name]
            axis.plot(ROC_POINTS, curves[name], line, color=color, label=name)
        axis.set(title=title, xlabel="unknown samples accepted", xlim=(0, 1), ylim=(0, 1))
        axis.set_aspect("equal")
    axes[0].set_ylabel("known samples accepted")
    axes[-1].legend(loc="lower right")
    return save(canvas, path)


def plot_sessions(path: Path, frames: Core50, shown: int = 8) -> Path:
    """A frame of some objects, in rows, in every session, in columns, tests marked (figure 3)."""
    objects = np.linspace(0, len(frames.object_names) - 1, shown).astype(int)
    sessions = np.unique(frames.session)
    rows = []
    for number in objects:
        own = [
            np.flatnonzero((frames.object == number) & (frames.session == each))[0]
            for each in sessions
        ]
        framed = np.pad(frames.images[own], ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=255)
        rows.append(np.concatenate(framed, axis=1))
    side = frames.images.shape[1] + 2
    canvas, (axis,) = new_canvas(1, 9.0, 9.0 * shown / len(sessions) * 0.85)
    canvas.set_layout_engine("compressed")
    axis.imshow(np.concatenate(rows), interpolation="nearest")
    axis.grid(False)
    axis.set_xticks(side * (np.arange(len(sessions)) + 0.5))
    labels = [f"s{1 + each}" + "\ntest" * (each in TEST_SESSIONS) for each in sessions]
    for label, each in zip(axis.set_xticklabels(labels), sessions, strict=True):
        if each in TEST_SESSIONS:
            label.set(color=COLORS[1], fontweight="bold")
    axis.set_yticks(side * (np.arange(shown) + 0.5))
    axis.set_yticklabels([frames.object_names[number] for number in objects])
    axis.tick_params(length=0)
    for edge in axis.spines.values():
        edge.set_visible(False)
    return save(canvas, path)


def plot_lines(
    path: Path,
    panels: Mapping[str, Mapping[str, Mapping[int, float]]],
    xlabel: str,
    powers: bool = False,
) -> Path:
    """Accuracy by a number, on a logarithmic axis for powers of 2, a panel per title."""
    canvas, axes = new_canvas(len(panels), 4.6, 3.4)
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for color, (name, values) in zip(COLORS, lines.items(), strict=False):
            percent = [100 * value for value in values.values()]
            axis.plot(list(values), percent, color=color, marker="o", markersize=3, label=name)
        axis.set(title=title, xlabel=xlabel, ylim=(0, 100))
        if powers:
            axis.set_xscale("log", base=2)
        axis.set_xticks(list(values), list(map(str, values)))
    axes[0].set_ylabel("accuracy, %")
    canvas.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return save(canvas, path)
