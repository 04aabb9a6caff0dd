"""Accuracy, transfer and forgetting of one task sequence, computed from its accuracy matrix.

`accuracies[i, j]` is the accuracy, as a fraction, on the test data of task j after learning task i.
Accuracies outside 0 to 1, percents for instance, are refused outside of `jit`.
A metric reads only the entries in its formula, which may not be NaN. Other entries may be NaN, for
instance those of untested future tasks. With one task, metrics that compare two tasks are NaN.

Equations are those of Díaz-Rodríguez et al. 2018, "Don't forget, there is more than forgetting".
That paper's A and BWT average over all times. GEM (Lopez-Paz and Ranzato 2017) measures accuracy
and BWT after the last task: `final_average_accuracy`, `gem_backward_transfer`.
"""

from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from everlight.checks import FRACTION, NotEmpty, checked
from everlight.extrema import largest_value

Accuracies = Annotated[Float[Array, "tasks tasks"], FRACTION, NotEmpty]
Accuracy = Annotated[Float[Array, "tasks"], FRACTION]


def _learned_mask(accuracies: Float[Array, "tasks tasks"], before: int = 0) -> Bool[Array, "i j"]:
    """Return True where task j was learned at least `before` tasks before row i."""
    return jnp.tri(accuracies.shape[0], k=-before, dtype=bool)


@checked
def accuracy(accuracies: Accuracies) -> Float[Array, ""]:
    """Return A of Díaz-Rodríguez et al. 2018 (eq. 2): average accuracy over all times, `[]`.

    It is the mean of all entries with j <= i: the accuracies on the tasks learned so far, at every
    time. It therefore differs from `final_average_accuracy`, which reads the last row only. Every
    entry has the same weight, so early tasks weigh more: see `average_incremental_accuracy`.

    Args:
      accuracies: accuracy matrix, fractions; `[i, j]` after learning task i, on task j.
    """
    return jnp.mean(accuracies, where=_learned_mask(accuracies))


@checked
def backward_transfer(accuracies: Accuracies) -> Float[Array, ""]:
    """Return BWT of Díaz-Rodríguez et al. 2018 (eq. 3): mean change over all later times.

    The change is relative to the accuracy just after the task was learned. GEM's BWT,
    `gem_backward_transfer`, reads the last row only.

    Args:
      accuracies: accuracy matrix, fractions; `[i, j]` after learning task i, on task j.

    Returns:
      A number in [-1, 1], `[]`, negative for forgetting; NaN with one task.
    """
    changes = accuracies - jnp.diagonal(accuracies)
    return jnp.mean(changes, where=_learned_mask(accuracies, before=1))


@checked
def remembering(accuracies: Accuracies) -> Float[Array, ""]:
    """Return REM (eq. 4): 1 minus the forgetting in BWT over all times, `[]`; NaN with one task.

    Args:
      accuracies: accuracy matrix, fractions; `[i, j]` after learning task i, on task j.
    """
    return 1 + jnp.minimum(backward_transfer(accuracies), 0)


@checked
def positive_backward_transfer(accuracies: Accuracies) -> Float[Array, ""]:
    """Return BWT+ (eq. 5): the positive part of BWT over all times, `[]`; NaN with one task.

    Args:
      accuracies: accuracy matrix, fractions; `[i, j]` after learning task i, on task j.
    """
    return jnp.maximum(backward_transfer(accuracies), 0)


@checked
def forward_transfer(accuracies: Accuracies) -> Float[Array, ""]:
    """Return FWT of Díaz-Rodríguez et al. 2018 (eq. 6): mean accuracy on future tasks, `[]`.

    It is NaN with one task. Chance level is included: a task-incremental head with ten outputs has
    0.1 without any transfer. GEM's FWT, `gem_forward_transfer`, subtracts a baseline.

    Args:
      accuracies: accuracy matrix, fractions; `[i, j]` after learning task i, on task j.
    """
    return jnp.mean(accuracies, where=~_learned_mask(accuracies))


@checked
def gem_backward_transfer(accuracies: Accuracies) -> Float[Array, ""]:
    """Return BWT of GEM (Lopez-Paz and Ranzato 2017): mean change of tasks after the last task.

    `backward_transfer` (Díaz-Rodríguez et al. 2018) averages over all later times instead.

    Args:
      accuracies: accuracy matrix, fractions; `[i, j]` after learning task i, on task j.

    Returns:
      Mean change since each task was learned, over all tasks but the last, `[]`; NaN with one task.
    """
    return jnp.mean(accuracies[-1, :-1] - jnp.diagonal(accuracies)[:-1])


@checked
def gem_forward_transfer(accuracies: Accuracies, baseline: Accuracy) -> Float[Array, ""]:
    """Return FWT of GEM (Lopez-Paz and Ranzato 2017): gain over a baseline just before a task.

    Args:
      accuracies: accuracy matrix, `[tasks, tasks]`.
      baseline: accuracy on each task at random initialization, `[tasks]`; the first is not read.

    Returns:
      Mean over all tasks but the first, `[]`; NaN with one task.
    """
    return jnp.mean(jnp.diagonal(accuracies, offset=1) - baseline[1:])


@checked
def forgetting(accuracies: Accuracies) -> Float[Array, ""]:
    """Return F (Chaudhry et al. 2018, Riemannian Walk): mean drop from best to final accuracy.

    The best is the maximum over all times but the last, including those before the task was
    learned. Where these are NaN, the result is; with 0 there the best is that since the task was
    learned.

    Args:
      accuracies: accuracy matrix, fractions; `[i, j]` after learning task i, on task j.

    Returns:
      Mean over all tasks but the last, `[]`, negative if final accuracies are higher; NaN with one
        task.
    """
    if len(accuracies) == 1:
        return jnp.array(jnp.nan, accuracies.dtype)
    return jnp.mean(largest_value(accuracies[:-1, :-1], axis=0) - accuracies[-1, :-1])


@checked
def intransigence(accuracies: Accuracies, reference: Accuracy) -> Float[Array, "tasks"]:
    """Return I_k (Chaudhry et al. 2018, Riemannian Walk): inability to learn task k.

    It is a*_k − a_kk, the reference accuracy minus the accuracy just after task k was learned.

    Args:
      accuracies: accuracy matrix, `[tasks, tasks]`; only the diagonal is read.
      reference: accuracy on each task of a model trained on all data up to that task together,
        `[tasks]`: the diagonal of the accuracy matrix of `cumulative`.

    Returns:
      Intransigence per task, `[tasks]`, in [-1, 1]; negative where the sequence helped. The paper
        defines it per task; callers may average it.
    """
    return reference - jnp.diagonal(accuracies)


@checked
def learning_curve_area(
    curves: Annotated[Float[Array, "tasks points"], FRACTION, NotEmpty],
) -> Float[Array, ""]:
    """Return LCA_β (Chaudhry et al. 2019, A-GEM): area under the mean learning curve.

    It is the mean of Z_b over b = 0 ... β, where Z_b is the mean over tasks of the accuracy on a
    task after b mini-batches of it. This is the paper's equation; the authors' notebook
    (facebookresearch/agem) takes the trapezoidal rule over β instead, in which Z_0 and Z_β count
    half.

    Args:
      curves: accuracy on task k after b mini-batches of task k at [k, b], `[tasks, β + 1]`; the
        first column is the accuracy before the task. The paper uses β = 10.

    Returns:
      A number in [0, 1], `[]`; high where few mini-batches suffice.
    """
    return jnp.mean(jnp.mean(curves, axis=0))


@checked
def accuracy_over_time(accuracies: Accuracies) -> Float[Array, "tasks"]:
    """Return the mean accuracy on the tasks learned so far, after each task, `[tasks]`.

    Args:
      accuracies: accuracy matrix, fractions; `[i, j]` after learning task i, on task j.
    """
    return jnp.mean(accuracies, axis=1, where=_learned_mask(accuracies))


@checked
def average_incremental_accuracy(accuracies: Accuracies) -> Float[Array, ""]:
    """Return the mean of `accuracy_over_time` (Rebuffi et al. 2017, iCaRL), `[]`.

    It equals iCaRL's number if all tasks have the same number of test samples.

    Args:
      accuracies: accuracy matrix, fractions; `[i, j]` after learning task i, on task j.
    """
    return jnp.mean(accuracy_over_time(accuracies))


@checked
def final_average_accuracy(accuracies: Accuracies) -> Float[Array, ""]:
    """Return ACC of GEM: mean accuracy on all tasks after the last task, `[]`.

    It reads the last row only; `accuracy` (A of Díaz-Rodríguez et al. 2018) averages over all
    times.

    Args:
      accuracies: accuracy matrix, fractions; `[i, j]` after learning task i, on task j.
    """
    return jnp.mean(accuracies[-1])
