"""Results of `train`: scores of every seed, their table and plot, and predictions."""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from everlight.base import Learner, Memory
from everlight.continual.engine.sources import less_offset
from everlight.continual.training.labelled_images import refuse_unstorable
from everlight.data_checks import Scale, warn_of_scale
from everlight.errors import ArgumentError
from everlight.metrics import (
    WEIGHTINGS,
    Costs,
    cl_score,
    final_average_accuracy,
    forgetting,
    measure_criteria,
)
from everlight.metrics.accuracy_matrix import accuracy_over_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class TrainedScores(NamedTuple):
    """Metrics of each seed; NaN if it diverged."""

    accuracy: Float[np.ndarray, "seeds"]
    """Final average accuracy (`metrics.final_average_accuracy`)."""
    forgetting: Float[np.ndarray, "seeds"]
    """Forgetting (`metrics.forgetting`)."""
    cl_score: Float[np.ndarray, "seeds"]
    """CL score with the equal weights W1 of Díaz-Rodríguez et al. 2018."""


class Trained(NamedTuple):
    """Result of `train`; the first axis of every array is over seeds."""

    class_names: tuple[Hashable, ...]
    """Labels in the order of the network's outputs."""
    class_task: Int[np.ndarray, "seeds c"]
    """Task that introduces each class."""
    class_incremental_matrices: Float[np.ndarray, "seeds t t"]
    """Accuracies among all classes seen so far, R[i, j] after task i on task j; NaN for a seed that
    diverged."""
    task_masked_matrices: Float[np.ndarray, "seeds t t"]
    """Accuracies with the scores masked to the classes of the image's own task (the "Task-IL" of
    Buzzega et al. 2020)."""
    costs: Costs
    diverged: Bool[np.ndarray, "seeds"]
    """True for seeds whose training diverged."""
    learner: Learner
    """Learner after the last task: parameters and batch statistics."""
    memory: Memory
    """Memory of the strategy after the last task; some strategies predict from it."""
    scores: Callable[[Learner, Memory, Array], Float[Array, "n c"]]
    """Function from one seed's learner, its memory and images to class scores."""
    image_shape: tuple[int, ...]
    image_dtype: np.dtype
    image_offset: tuple[float, ...]
    """Number for each channel or column that is subtracted in float64; () is none."""
    image_scale: Scale
    """Measures of the values of the training images (`data_checks.Scale`)."""

    def __repr__(self) -> str:
        seeds, tasks, _ = self.class_incremental_matrices.shape
        final = ", ".join(f"{_spread(scores.accuracy)} {name}" for name, scores in self._settings())
        return (
            f"Trained({len(self.class_names)} classes in {tasks} tasks, {seeds} seeds; accuracy "
            f"{final}; table(), plot(), predict(images))"
        )

    def predict(self, images: Any) -> Float[np.ndarray, "seeds n c"]:
        """Return class scores of each seed's network after the last task; the greatest predicts.

        A scale that is far from that of the training images is warned of.

        Args:
          images: images or features of the training shape, type and scale, `[n, ...]`.

        Returns:
          Scores, `[seeds, n, c]`, with classes in the order of `class_names`; NaN for a seed that
          diverged.

        Raises:
          ValueError: images have another shape or type, or there are none.
        """
        return predict_seeds(self, images)

    @property
    def class_incremental(self) -> TrainedScores:
        """Metrics of `class_incremental_matrices`: accuracy among all classes seen so far."""
        return _scores(self.class_incremental_matrices, self.costs)

    @property
    def task_masked(self) -> TrainedScores:
        """Metrics of `task_masked_matrices`: trained class-incrementally, masked to a task at test.

        This is not task-incremental accuracy, for which the task is known in training too.
        """
        return _scores(self.task_masked_matrices, self.costs)

    def _settings(self) -> tuple[tuple[str, TrainedScores], ...]:
        return (("class-incremental", self.class_incremental), ("task-masked", self.task_masked))

    def table(self) -> str:
        """Return mean and sample standard deviation over seeds as text; the mean for one seed."""
        rows = [("setting", *(name.replace("_", " ") for name in TrainedScores._fields))]
        for name, scores in self._settings():
            rows.append((name, *map(_spread, scores)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Plot the accuracy on the tasks so far after every task; needs matplotlib.

        Args:
          axes: axes of the plot; None creates a figure.
        """
        # Nothing else in this module needs matplotlib.
        from everlight.plots import plot_accuracy_over_time

        panels = {
            "class-incremental": self.class_incremental_matrices,
            "task-masked": self.task_masked_matrices,
        }
        over_time = jax.vmap(accuracy_over_time)
        curves = {name: np.asarray(over_time(matrices)) for name, matrices in panels.items()}
        return plot_accuracy_over_time(curves, axes)


def predict_seeds(result: Any, images: Any) -> Float[np.ndarray, "seeds n c"]:
    """Return the outputs of every seed's network for new images; NaN for a seed that diverged.

    Args:
      result: `Trained` or `TrainedTargets`.
      images: images or features of the training shape, type and scale, `[n, ...]`.

    Raises:
      ValueError: images have another shape or type, there are none, or a number is not finite or
        too large.
    """
    array = np.asarray(images)
    integers = result.image_dtype == np.uint8
    wrong = array.shape[1:] != result.image_shape or not len(array)
    if wrong or (array.dtype == np.uint8) != integers or array.dtype.kind not in "buif":
        taken = ", ".join(map(str, result.image_shape))
        raise ArgumentError(
            f"images have dtype {array.dtype} and shape {array.shape}; give "
            f"{'uint8' if integers else 'numbers'} of shape (n, {taken}), as in training"
        )
    refuse_unstorable("images", array)
    warn_of_scale("images", array, result.image_scale)
    predict = jax.jit(jax.vmap(result.scores, in_axes=(0, 0, None)))
    inputs = jnp.asarray(less_offset(array, result.image_offset, result.image_dtype))
    scores = predict(result.learner, result.memory, inputs)
    return np.where(result.diverged[:, None, None], np.nan, np.asarray(scores))


def _scores(matrices: Float[np.ndarray, "seeds t t"], costs: Costs) -> TrainedScores:
    accuracies = jnp.asarray(matrices, jnp.float32)
    criteria = jax.vmap(measure_criteria)(accuracies, costs)
    cl_scores = [
        float(cl_score({name: value[run] for name, value in criteria.items()}, WEIGHTINGS["W1"]))
        for run in range(len(matrices))
    ]
    plain = (jax.vmap(metric)(accuracies) for metric in (final_average_accuracy, forgetting))
    return TrainedScores(*map(np.asarray, plain), np.array(cl_scores))


def _spread(values: Float[np.ndarray, "seeds"]) -> str:
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{values.mean():.3f} ± {values.std(ddof=1):.3f}"
