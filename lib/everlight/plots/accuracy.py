"""Accuracy matrices, and accuracy and forgetting over time."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from everlight.metrics.accuracy_matrix import forgetting
from everlight.plots.style import Numbers, look_of, own_axes


def plot_accuracy_matrix(
    accuracies: Float[Numbers, "tasks tasks"], axes: Axes | None = None
) -> Axes:
    """An accuracy matrix as colours from 0 to 1; white where it is NaN.

    Args:
      accuracies: `[i, j]` on task j after learning task i, as fractions.
      axes: where to draw; None makes a figure. `Figure.colorbar` takes `axes.images[0]`.
    """
    drawn = own_axes(axes)
    picture = drawn.imshow(np.asarray(accuracies), vmin=0, vmax=1, cmap="viridis")
    ticks = np.arange(0, len(accuracies), 1 if len(accuracies) <= 5 else 3)
    drawn.set(xlabel="tested on task", ylabel="after learning task")
    drawn.set_xticks(ticks, [str(1 + tick) for tick in ticks])
    drawn.set_yticks(ticks, [str(1 + tick) for tick in ticks])
    drawn.grid(False)
    if axes is None:
        drawn.figure.colorbar(picture, ax=drawn, label="accuracy")
    return drawn


def plot_accuracy_over_time(
    curves: Mapping[str, Float[Numbers, "runs tasks"]], axes: Axes | None = None
) -> Axes:
    """Mean accuracy after every task, with a band of one standard deviation over runs.

    Args:
      curves: by name, each run's accuracy after every task, as fractions;
        `metrics.accuracy_over_time` makes them of accuracy matrices.
      axes: where to draw; None makes a figure.
    """
    drawn = own_axes(axes)
    for place, (name, values) in enumerate(curves.items()):
        _curve_with_band(drawn, place, name, 1, np.asarray(values))
    drawn.set(xlabel="tasks learned", ylabel="accuracy on the tasks learned so far", ylim=(0, 1))
    if axes is None:
        drawn.legend()
    return drawn


def plot_forgetting(
    accuracies: Mapping[str, Float[Numbers, "runs tasks tasks"]], axes: Axes | None = None
) -> Axes:
    """Forgetting after every task but the first: `metrics.forgetting` of the sequence so far.

    Args:
      accuracies: by name, each run's accuracy matrix, as fractions; at least two tasks.
      axes: where to draw; None makes a figure.
    """
    drawn = own_axes(axes)
    for place, (name, matrices) in enumerate(accuracies.items()):
        matrices = jnp.asarray(matrices)
        counts = range(2, matrices.shape[1] + 1)
        so_far = [jax.vmap(forgetting)(matrices[:, :count, :count]) for count in counts]
        _curve_with_band(drawn, place, name, 2, np.stack(so_far, axis=1))
    drawn.axhline(0, color="black", linewidth=0.8)
    drawn.set(xlabel="tasks learned", ylabel="forgetting (accuracy lost since a task's best)")
    if axes is None:
        drawn.legend()
    return drawn


def _curve_with_band(
    axes: Axes, place: int, name: str, first: int, values: Float[np.ndarray, "runs times"]
) -> None:
    look = look_of(place)
    times = first + np.arange(values.shape[1])
    mean, spread = values.mean(axis=0), values.std(axis=0)
    axes.plot(times, mean, label=name, marker="o", markersize=3, **look._asdict())
    if len(values) > 1:
        axes.fill_between(times, mean - spread, mean + spread, color=look.color, alpha=0.15, lw=0)
    axes.set_xticks(times if len(times) <= 12 else times[::3])
