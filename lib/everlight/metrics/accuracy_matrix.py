"""Accuracy, transfer and forgetting of one sequence of tasks, from its accuracy matrix.

`accuracies[i, j]` is the accuracy, as a fraction, on the test data of task j after learning task
i. A metric reads only the entries in its formula: those may not be NaN, the others may (a run that
never tests unseen tasks leaves them so). With one task, whatever compares two tasks is NaN.

Equations are those of Díaz-Rodríguez et al. 2018, "Don't forget, there is more than forgetting".
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from everlight.checks import checked


def _learned(accuracies: Float[Array, "tasks tasks"], before: int = 0) -> Bool[Array, "i j"]:
    """Where task j was learned at least `before` tasks before row i."""
    return jnp.tri(accuracies.shape[0], k=-before, dtype=bool)


@checked
def accuracy(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """A (eq. 2): mean accuracy on the tasks learned so far, over all times, `[]`.

    Every entry counts alike, so early tasks weigh more: see `average_incremental_accuracy`.
    """
    return jnp.mean(accuracies, where=_learned(accuracies))


@checked
def backward_transfer(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """BWT (eq. 3): mean change of a task's accuracy since it was learned, over all later times.

    Returns:
      A number in [-1, 1], `[]`, negative where the learner forgets; NaN with one task.
    """
    changes = accuracies - jnp.diagonal(accuracies)
    return jnp.mean(changes, where=_learned(accuracies, before=1))


@checked
def remembering(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """REM (eq. 4): 1 less the forgetting in BWT, `[]`; 1 without any, NaN with one task."""
    return 1 + jnp.minimum(backward_transfer(accuracies), 0)


@checked
def positive_backward_transfer(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """BWT+ (eq. 5): the improvement in BWT, `[]`; 0 without any, NaN with one task."""
    return jnp.maximum(backward_transfer(accuracies), 0)


@checked
def forward_transfer(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """FWT (eq. 6): mean accuracy on tasks not learned yet, `[]`; NaN with one task.

    Chance counts: a head of ten outputs that is told the task has 0.1 without any transfer.
    """
    return jnp.mean(accuracies, where=~_learned(accuracies))


@checked
def gem_backward_transfer(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """BWT of Lopez-Paz and Ranzato 2017 (GEM): as eq. 3, but at the end of the sequence only.

    Returns:
      Mean change since a task was learned, over all tasks but the last, `[]`; NaN with one task.
    """
    return jnp.mean(accuracies[-1, :-1] - jnp.diagonal(accuracies)[:-1])


@checked
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


@checked
def forgetting(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """F (Chaudhry et al. 2018, Riemannian Walk): how far tasks ended below their best accuracy.

    The best is taken over all times but the last, those before the task was learned included.

    Returns:
      Mean over all tasks but the last, `[]`; negative where they ended above; NaN with one task.
    """
    # Without an initial value one task's empty maximum would be an error, not NaN.
    best = jnp.max(accuracies[:-1, :-1], axis=0, initial=-jnp.inf)
    return jnp.mean(best - accuracies[-1, :-1])


@checked
def intransigence(
    accuracies: Float[Array, "tasks tasks"], reference: Float[Array, "tasks"]
) -> Float[Array, "tasks"]:
    """I_k (Chaudhry et al. 2018, Riemannian Walk): a learner's inability to learn task k.

    It is a*_k − a_kk, the reference accuracy less the accuracy just after task k was learned.

    Args:
      accuracies: `[tasks, tasks]`; only the diagonal is read.
      reference: `[tasks]`, accuracy on each task of a model trained on all data up to that task
        together: the diagonal of the accuracy matrix of `cumulative`.

    Returns:
      Per task, `[tasks]`, in [-1, 1]; negative where the sequence helped. The paper defines it per
      task; a mean over tasks is left to the caller.
    """
    return reference - jnp.diagonal(accuracies)


@checked
def learning_curve_area(curves: Float[Array, "tasks points"]) -> Float[Array, ""]:
    """LCA_β (Chaudhry et al. 2019, A-GEM): area under the mean learning curve, for learning speed.

    It is the mean of Z_b over b = 0 ... β, where Z_b is the mean over tasks of the accuracy on a
    task after b mini-batches of it. This is the paper's equation; the authors' notebook
    (facebookresearch/agem) takes the trapezoidal rule over β instead, in which Z_0 and Z_β count
    half.

    Args:
      curves: `[tasks, β + 1]`; entry [k, b] is the accuracy on task k after b mini-batches of task
        k, so that the first column is the accuracy before the task. The paper takes β = 10.

    Returns:
      A number in [0, 1], `[]`; high where tasks are learned from few mini-batches.
    """
    return jnp.mean(jnp.mean(curves, axis=0))


@checked
def accuracy_over_time(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, "tasks"]:
    """Mean accuracy on the tasks learned so far, after every task, `[tasks]`."""
    return jnp.mean(accuracies, axis=1, where=_learned(accuracies))


@checked
def average_incremental_accuracy(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """Mean over time of the mean accuracy on the tasks learned so far (Rebuffi et al. 2017, iCaRL).

    It is iCaRL's number, `[]`, where all tasks have equally many test samples.
    """
    return jnp.mean(accuracy_over_time(accuracies))


@checked
def final_average_accuracy(accuracies: Float[Array, "tasks tasks"]) -> Float[Array, ""]:
    """Mean accuracy on all tasks at the end of the sequence (ACC of GEM), `[]`."""
    return jnp.mean(accuracies[-1])
