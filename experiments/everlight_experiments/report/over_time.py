"""Numbers of scores over time, for reports and exports: undefined where all is learned at once."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped


def learns_at_once(steps: Int[np.ndarray, "seeds t"]) -> bool:
    """Return True if no step is before the last task, as in joint training."""
    return steps.shape[1] > 1 and not steps[:, -2].any()


def nan_before_only_task(
    array: Shaped[np.ndarray, "seeds t *rest"], steps: Int[np.ndarray, "seeds t"]
) -> Shaped[np.ndarray, "seeds t *rest"]:
    """Return values over time; NaN where joint training has not learned its only task yet."""
    if not learns_at_once(steps):
        return array
    array = array.astype(np.result_type(array, np.float32))
    array[:, :-1] = np.nan
    return array


def predicts_future(matrices: Float[np.ndarray, "seeds t t"]) -> bool:
    """Return True if classes of tasks not learned yet can be predicted.

    Where they are not among the outputs, all future scores are 0 for that reason alone.
    """
    return bool(np.any(np.nan_to_num(matrices[:, future_scores(matrices.shape[1])]) != 0))


def future_scores(tasks: int) -> Bool[np.ndarray, "t t"]:
    """Return True for scores on tasks that are not learned yet."""
    return np.triu(np.ones((tasks, tasks), bool), 1)


def mean_matrix(
    matrices: Float[np.ndarray, "seeds t t"], steps: Int[np.ndarray, "seeds t"]
) -> Float[np.ndarray, "t t"]:
    """Return the mean matrix over seeds; NaN where the method cannot have a value."""
    mean = matrices.mean(axis=0)
    if not predicts_future(matrices):
        mean = np.where(future_scores(len(mean)), np.nan, mean)
    if learns_at_once(steps):
        mean[:-1] = np.nan
    return mean


def criteria_names(score: str, first: str) -> tuple[str, str, str, str]:
    """Return the names of the numbers that are derived from a score.

    Args:
      score: the name of the score.
      first: the name of the run's first score, with which some names do without it.

    Returns:
      names of the final score, its mean over time, forgetting and backward transfer.
    """
    ending = "" if score == first else f" of {score}"
    return (
        f"final {score}",
        f"average incremental {score}",
        f"forgetting{ending}",
        f"backward transfer{ending}",
    )


def mean_over_time(
    over_time: Float[np.ndarray, "seeds t"], steps: Int[np.ndarray, "seeds t"]
) -> Float[np.ndarray, "seeds"]:
    """Return each seed's mean score over time; NaN where all tasks are learned at once."""
    return np.where(learns_at_once(steps), np.nan, over_time.mean(axis=1))


def score_matrices(
    metric: Callable,
    matrices: Float[np.ndarray, "seeds t t"],
    steps: Int[np.ndarray, "seeds t"],
    diverged: Bool[np.ndarray, "seeds"],
) -> Float[np.ndarray, "seeds"]:
    """Return a metric of scores on learned tasks, such as forgetting, of each seed's matrix.

    It is NaN where all tasks are learned at once or the run diverged.
    """
    if learns_at_once(steps):
        return np.full(len(matrices), np.nan)
    # They only need a maximum, which later tasks do not raise.
    future = future_scores(matrices.shape[1])
    values = jax.vmap(metric)(jnp.asarray(np.where(future & np.isnan(matrices), 0, matrices)))
    # A maximum or a minimum may pass over NaN.
    return np.where(diverged, np.nan, np.asarray(values))
