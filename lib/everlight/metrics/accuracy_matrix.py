"""Accuracy, transfer and forgetting of one sequence of tasks, from its accuracy matrix.

`accuracies[i, j]` is the accuracy, as a fraction, on the test data of task j after learning task
i. A metric reads only the entries in its formula: those may not be NaN, the others may (a run that
never tests unseen tasks leaves them so). With one task, whatever compares two tasks is NaN.

Equations are those of Díaz-Rodríguez et al. 2018, "Don't forget, there is more than forgetting".
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def _learned(accuracies: Float[Array, "tasks tasks"], before: int = 0) -> Bool[Array, "i j"]:
    """Where task j was learned at least `before` tasks before row i."""
    return jnp.tri(accuracies.shape[0], k=-before, dtype=bool)


def accuracy(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """A (eq. 2): mean accuracy on the tasks learned so far, over all times, `[]`.

    Every entry counts alike, so early tasks weigh more: see `average_incremental_accuracy`.
    """
    return jnp.mean(accuracies, where=_learned(accuracies))


def backward_transfer(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """BWT (eq. 3): mean change of a task's accuracy since it was learned, over all later times.

    Returns:
      A number in [-1, 1], `[]`, negative where the learner forgets; NaN with one task.
    """
    changes = accuracies - jnp.diagonal(accuracies)
    return jnp.mean(changes, where=_learned(accuracies, before=1))


def remembering(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """REM (eq. 4): 1 less the forgetting in BWT, `[]`; 1 without any, NaN with one task."""
    return 1 + jnp.minimum(backward_transfer(accuracies), 0)


def positive_backward_transfer(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """BWT+ (eq. 5): the improvement in BWT, `[]`; 0 without any, NaN with one task."""
    return jnp.maximum(backward_transfer(accuracies), 0)


def forward_transfer(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """FWT (eq. 6): mean accuracy on tasks not learned yet, `[]`; NaN with one task.

    Chance counts: a head of ten outputs that is told the task has 0.1 without any transfer.
    """
    return jnp.mean(accuracies, where=~_learned(accuracies))


def gem_backward_transfer(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """BWT of Lopez-Paz and Ranzato 2017 (GEM): as eq. 3, but at the end of the sequence only.

    Returns:
      Mean change since a task was learned, over all tasks but the last, `[]`; NaN with one task.
    """
    return jnp.mean(accuracies[-1, :-1] - jnp.diagonal(accuracies)[:-1])


def gem_forward_transfer(
    accuracies: Float[Array, "tasks tasks"], baseline: Float[Array, "tasks"]
) -> Float[Array, ""]:
    """FWT of Lopez-Paz and Ranzato 2017 (GEM): gain over chance just before a task is learned.

    Args:
      accuracies: `[tasks, tasks]`.
      baseline: each task's accuracy at random initialisation, `[tasks]`; the first is not read.

    Returns:
      Mean over all tasks but the first, `[]`; NaN with one task.
    """
    return jnp.mean(jnp.diagonal(accuracies, offset=1) - baseline[1:])


def forgetting(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """F (Chaudhry et al. 2018, Riemannian Walk): how far tasks ended below their best accuracy.

    The best is taken over all times but the last, those before the task was learned included.

    Returns:
      Mean over all tasks but the last, `[]`; negative where they ended above; NaN with one task.
    """
    # Without an initial value one task's empty maximum would be an error, not NaN.
    best = jnp.max(accuracies[:-1, :-1], axis=0, initial=-jnp.inf)
    return jnp.mean(best - accuracies[-1, :-1])


def accuracy_over_time(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, "tasks"]:
    """Mean accuracy on the tasks learned so far, after every task, `[tasks]`."""
    return jnp.mean(accuracies, axis=1, where=_learned(accuracies))


def average_incremental_accuracy(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """Mean over time of the mean accuracy on the tasks learned so far (Rebuffi et al. 2017, iCaRL).

    It is iCaRL's number, `[]`, where all tasks have equally many test samples.
    """
    return jnp.mean(accuracy_over_time(accuracies))


def final_average_accuracy(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """Mean accuracy on all tasks at the end of the sequence (ACC of GEM), `[]`."""
    return jnp.mean(accuracies[-1])
