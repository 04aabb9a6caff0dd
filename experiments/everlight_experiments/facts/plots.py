"""Pictures of lifelong fact learning, after the paper's figures 3 to 7."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8
from scipy.cluster.hierarchy import ClusterNode, dendrogram, set_link_color_palette, to_tree

from everlight.plots import COLORS
from everlight.scenarios.facts_splits import SemanticSplit
from everlight_data.facts.splits import Fact
from everlight_experiments.common.plots import new_canvas, save

LEAVES = 40
"""Of a truncated dendrogram."""
LOOKS = [(color, "-") for color in COLORS] + [(color, "--") for color in COLORS]


class Answers(NamedTuple):
    """A picture, what it shows, and what each method takes it for."""

    image: UInt8[np.ndarray, "h w 3"]
    truth: str
    found: Mapping[str, tuple[str, bool]]
    """The nearest fact, and whether the true one is among the nearest five."""


def plot_bins(
    path: Path, panels: Mapping[str, Mapping[str, Float[np.ndarray, "bins"]]], bins: Sequence[str]
) -> Path:
    """From tail to head: a value in every bin of training examples; the first two on one scale."""
    canvas, axes = new_canvas(len(panels), 4.6, 3.7)
    axes[0].sharey(axes[1])
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    handles = {}
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        for name, values in curves.items():
            color, line = LOOKS[names.index(name)]
            (handles[name],) = axis.plot(values, color=color, linestyle=line, marker="o", ms=3)
        axis.set(title=title, xlabel="training examples of the fact", xticks=range(len(bins)))
        axis.set_xticklabels(bins)
    canvas.legend(handles.values(), handles, loc="outside right center")
    return save(canvas, path)


def plot_matrices(
    path: Path, matrices: Mapping[str, Float[np.ndarray, "r c"]], labels: tuple[str, str, str]
) -> Path:
    """Numbered grids side by side, on one scale; labels are of rows, columns and colours."""
    canvas, axes = new_canvas(len(matrices), 2.7, 3.1)
    low = min(0.0, *(np.nanmin(matrix) for matrix in matrices.values()))
    high = max(np.nanmax(matrix) for matrix in matrices.values())
    for axis, (name, matrix) in zip(axes, matrices.items(), strict=True):
        picture = axis.imshow(matrix, vmin=low, vmax=high, cmap="viridis")
        ticks = np.arange(len(matrix))
        axis.set(title=name, xlabel=labels[1], xticks=ticks, yticks=ticks)
        axis.set_xticklabels(1 + ticks)
        axis.set_yticklabels(1 + ticks)
        axis.grid(False)
    axes[0].set_ylabel(labels[0])
    canvas.colorbar(picture, ax=axes, label=labels[2], shrink=0.8)
    return save(canvas, path)


def plot_tail(path: Path, panels: Mapping[str, Mapping[str, Int[np.ndarray, "_"]]]) -> Path:
    """Histograms: facts of each type by how many examples they have, a panel per title."""
    canvas, axes = new_canvas(len(panels), 5.0, 3.4)
    for axis, (title, by_type) in zip(axes, panels.items(), strict=True):
        most = max(counts.max(initial=1) for counts in by_type.values())
        # Between whole numbers, about as wide on the logarithmic axis.
        edges = np.unique(np.geomspace(1, most + 1, 16).round()) - 0.5
        for color, (kind, counts) in zip(COLORS, by_type.items(), strict=False):
            axis.hist(counts, edges, histtype="step", lw=1.5, color=color, label=kind)
        axis.set(title=title, xscale="log", yscale="log", xlabel="training examples of a fact")
    axes[0].set_ylabel("facts")
    axes[0].legend()
    return save(canvas, path)


def plot_dendrograms(path: Path, trees: Mapping[str, tuple[SemanticSplit, Sequence[Fact]]]) -> Path:
    """The last merges, with the cut into tasks; below a leaf its commonest word and its facts."""
    canvas, axes = new_canvas(len(trees), 6.8, 4.2)
    for axis, (title, (split, facts)) in zip(axes, trees.items(), strict=True):
        nodes = to_tree(split.linkage, rd=True)[1]
        heights = split.linkage[:, 2]
        tasks = int(split.fact_task.max()) + 1
        cut = (heights[-tasks] + heights[1 - tasks]) / 2
        set_link_color_palette(list(COLORS[:6]))
        dendrogram(
            split.linkage,
            p=LEAVES,
            truncate_mode="lastp",
            color_threshold=cut,
            above_threshold_color="#999999",
            ax=axis,
            leaf_label_func=partial(_leaf_name, nodes, split.leaf, facts),
            leaf_rotation=90,
            leaf_font_size=6,
        )
        axis.axhline(cut, color=COLORS[6], linestyle="--", lw=1)
        axis.set(title=title, ylabel="height of the merge", xlabel="commonest word (facts)")
        axis.grid(False)
    return save(canvas, path)


def plot_components(
    path: Path, embeddings: Float[np.ndarray, "f d"], panels: Mapping[str, Int[np.ndarray, "f"]]
) -> Path:
    """The facts' embeddings on their first two principal components, coloured by task."""
    centred = embeddings - embeddings.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    plane = centred @ vectors[:, [-1, -2]]
    canvas, axes = new_canvas(len(panels), 4.4, 4.0)
    for axis, (title, fact_task) in zip(axes, panels.items(), strict=True):
        # In random order, or the last task would cover the others.
        order = np.random.default_rng(0).permutation(len(plane))
        colors = [COLORS[task % len(COLORS)] for task in fact_task[order]]
        axis.scatter(*plane[order].T, s=8 if len(plane) < 1000 else 2, c=colors)
        for task in range(int(fact_task.max()) + 1):
            axis.plot([], [], "o", color=COLORS[task % len(COLORS)], label=f"task {task + 1}")
        axis.set(title=title, xlabel="first component")
    axes[0].set_ylabel("second component")
    handles, names = axes[0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside right center")
    return save(canvas, path)


def plot_answers(path: Path, answers: Sequence[Answers]) -> Path:
    """A row for every picture: what it shows and the nearest fact of each method."""
    methods = list(answers[0].found)
    canvas, (axis,) = new_canvas(1, 1.5 * (len(methods) + 2), 0.75 * (len(answers) + 0.6))
    for row, answer in enumerate(answers):
        axis.imshow(answer.image, extent=(0, 0.5, row + 0.96, row), interpolation="nearest")
        axis.text(0.55, row + 0.5, _lines(answer.truth), va="center", fontsize=8, weight="bold")
        for column, method in enumerate(methods):
            fact, right = answer.found[method]
            color = COLORS[2] if right else COLORS[1]
            axis.text(1.6 + column, row + 0.5, _lines(fact), va="center", fontsize=8, color=color)
    for column, method in enumerate(methods):
        axis.text(1.6 + column, -0.15, method, fontsize=9)
    axis.text(0.55, -0.15, "shown", fontsize=9)
    axis.set(xlim=(0, 1.6 + len(methods)), ylim=(len(answers), -0.5), aspect="auto")
    axis.axis("off")
    return save(canvas, path)


def _lines(fact: str) -> str:
    """At most three lines: subject, predicate and object."""
    return fact.replace(", ", ",\n")


def _leaf_name(
    nodes: Sequence[ClusterNode], leaf: Int[np.ndarray, "f"], facts: Sequence[Fact], node: int
) -> str:
    below = np.flatnonzero(np.isin(leaf, nodes[node].pre_order()))
    words = Counter(piece for fact in below for piece in facts[fact] if piece)
    return f"{words.most_common(1)[0][0]} ({len(below)})"
