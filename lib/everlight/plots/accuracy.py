"""Plots of accuracy matrices, and of accuracy and forgetting over time."""

from collections.abc import Mapping
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from everlight.checks import FRACTION, NotEmpty, checked
from everlight.errors import ArgumentError
from everlight.metrics.accuracy_matrix import forgetting
from everlight.plots.style import Numbers, axes_or_new, line_style


@checked
def plot_accuracy_matrix(
    accuracies: Annotated[Float[Numbers, "tasks tasks"], FRACTION, NotEmpty],
    axes: Axes | None = None,
) -> Axes:
    """Plot an accuracy matrix as colours from 0 to 1; white where it is NaN.

    Args:
      accuracies: accuracy on task j after learning task i at `[i, j]`, as fractions.
      axes: Axes to draw on; None creates a figure. `Figure.colorbar` takes `axes.images[0]`.
    """
    drawn = axes_or_new(axes)
    picture = drawn.imshow(np.asarray(accuracies), vmin=0, vmax=1, cmap="viridis")
    ticks = np.arange(0, len(accuracies), 1 if len(accuracies) <= 5 else 3)
    drawn.set(xlabel="test data of task", ylabel="after learning task")
    drawn.set_xticks(ticks, [str(1 + tick) for tick in ticks])
    drawn.set_yticks(ticks, [str(1 + tick) for tick in ticks])
    drawn.grid(False)
    if axes is None:
        drawn.figure.colorbar(picture, ax=drawn, label="accuracy")
    return drawn


@checked
def plot_accuracy_over_time(
    curves: Mapping[str, Annotated[Float[Numbers, "runs tasks"], FRACTION, NotEmpty]],
    axes: Axes | None = None,
) -> Axes:
    """Plot the mean accuracy after every task, with a band of one standard deviation over runs.

    It is the sample's standard deviation; a single run has no band.

    Args:
      curves: each run's accuracy after every task by name, as fractions;
        `metrics.accuracy_over_time` computes it from an accuracy matrix.
      axes: Axes to draw on; None creates a figure.
    """
    drawn = axes_or_new(axes)
    for index, (name, values) in enumerate(curves.items()):
        _curve_with_band(drawn, index, name, 1, np.asarray(values))
    drawn.set(xlabel="tasks learned", ylabel="mean accuracy on tasks learned so far", ylim=(0, 1))
    if axes is None:
        drawn.legend()
    return drawn


@checked
def plot_forgetting(
    accuracies: Mapping[str, Annotated[Float[Numbers, "runs tasks tasks"], FRACTION, NotEmpty]],
    axes: Axes | None = None,
) -> Axes:
    """Plot forgetting after every task but the first: `metrics.forgetting` of the sequence so far.

    Args:
      accuracies: each run's accuracy matrix by name, as fractions; at least two tasks.
      axes: Axes to draw on; None creates a figure.

    Raises:
      ValueError: a matrix has one task, of which nothing can be forgotten.
    """
    for name, matrices in accuracies.items():
        if matrices.shape[1] < 2:
            raise ArgumentError(f"{name!r} has one task; forgetting needs at least two")
    drawn = axes_or_new(axes)
    for index, (name, matrices) in enumerate(accuracies.items()):
        matrices = jnp.asarray(matrices)
        counts = range(2, matrices.shape[1] + 1)
        so_far = [jax.vmap(forgetting)(matrices[:, :count, :count]) for count in counts]
        _curve_with_band(drawn, index, name, 2, np.stack(so_far, axis=1))
    drawn.axhline(0, color="black", linewidth=0.8)
    drawn.set(xlabel="tasks learned", ylabel="forgetting (drop from each task's best accuracy)")
    if axes is None:
        drawn.legend()
    return drawn


def _curve_with_band(
    axes: Axes, index: int, name: str, first: int, values: Float[np.ndarray, "runs times"]
) -> None:
    style = line_style(index)
    times = first + np.arange(values.shape[1])
    mean = values.mean(axis=0)
    axes.plot(times, mean, label=name, marker="o", markersize=3, **style._asdict())
    if len(values) > 1:
        spread = values.std(axis=0, ddof=1)
        axes.fill_between(times, mean - spread, mean + spread, color=style.color, alpha=0.15, lw=0)
    axes.set_xticks(times if len(times) <= 12 else times[::3])
