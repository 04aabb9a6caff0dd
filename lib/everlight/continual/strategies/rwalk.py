"""Riemannian walk (RWalk; Chaudhry et al. 2018, ECCV), without its replay.

    L(θ) = L_task(θ) + λ Σ_k (F̃_k + s̃_k) (θ_k − θ*_k)²
    F ← (1 − α) F + α · mean over n steps of g²
    s_task = Σ over n steps each of max(0, −Σ g Δθ) / (F (θ_after − θ_before)² + ξ)

g is the gradient of a batch's loss on the task, Δθ the change of a step. F is an average of squared
gradients that moves during training. The score s divides the drop of the loss along n steps by
their length in the metric of F, the change of the predicted distribution. F in it is that before
the n steps. After a task s is the mean of the earlier s and the task's own, and that of the first
task alone. F̃ and s̃ are F and s moved and scaled to lie between 0 and 1 over all parameters. The
only anchor θ* is the last solution. The code has α = 0.9 and ξ = 0.001, n = 10 on permuted
MNIST and 50 on split CIFAR-100, and λ = 1 on both (Chaudhry et al. 2019). The paper halves F in the
metric.

Equal to the authors' later code (facebookresearch/agem, `model/model.py` and
`fc_permute_mnist.py`) at the penalty's gradient, the moving average, the score of n steps and the
scaling, for given sums; differs in:

- In the official code squared gradients are summed from the start of the task, not of the n steps,
  although their sum is divided by n. The mean here is the paper's.
- After a task that code adds the mean of s and the task's score to s; here, as in the paper, the
  mean replaces s.
- Steps after the last n of a task count too, as a shorter piece with the same weight α; in that
  code they are dropped, so that a task of fewer than n steps adds nothing to F and s. Its first
  piece has n − 1 steps.
- Gradients of frozen parameters count as 0. That code has none.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from everlight.base import Coefficient, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, PositiveInt, UnitInterval, checked
from everlight.continual.engine.updates import trainable_part
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.quadratic import (
    QuadraticSums,
    no_anchors,
    penalized,
    single_anchor,
)


class Piece(NamedTuple):
    """Sums over the steps since the last update of the Fisher information."""

    steps: Int[Array, ""]
    squares: PyTree
    """Sum of squared gradients."""
    path: PyTree
    """Path integral −Σ g Δθ."""
    start: PyTree
    """Parameters before the first of the steps."""


class Walk(NamedTuple):
    """Memory of RWalk."""

    sums: QuadraticSums
    fisher: PyTree
    """Moving average F of squared gradients."""
    score: PyTree
    """Score s of all earlier tasks."""
    task_score: PyTree
    """Score of the current task so far."""
    piece: Piece


@checked
def rwalk(
    setup: Setup,
    regularization: Coefficient,
    fisher_update_weight: UnitInterval = 0.9,
    interval: PositiveInt = 50,
    damping: PositiveFloat = 1e-3,
    implicit_rate: Coefficient | None = None,
) -> Strategy:
    """Return Riemannian walk (RWalk), whose memory is `Walk`.

    Args:
      setup: network, objective, optimizer and data access.
      regularization: coefficient λ of the penalty.
      fisher_update_weight: weight α of the last n steps in the Fisher information.
      interval: number n of steps between two updates of Fisher information and score.
      damping: damping ξ in the denominator of the score.
      implicit_rate: learning rate of the optimizer, for implicit steps on the penalty. They are
        stable at any regularization (`quadratic.penalized`). None is the paper's explicit step.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> Walk:
        zeros = jax.tree.map(jnp.zeros_like, learner.params)
        piece = new_piece(learner.params)
        return Walk(no_anchors(learner.params), zeros, zeros, zeros, piece)

    def begin_task(
        memory: Walk, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Walk, Learner]:
        zeros = jax.tree.map(jnp.zeros_like, learner.params)
        return memory._replace(task_score=zeros, piece=new_piece(learner.params)), learner

    def after_step(
        memory: Walk, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Walk, Learner]:
        gradient = trainable_part(setup, learner.params, info.task_gradient)
        memory = memory._replace(piece=extend_piece(memory.piece, gradient, info.update))
        after = with_piece(memory, learner.params, fisher_update_weight, damping)
        is_full = memory.piece.steps == interval
        return jax.tree.map(lambda new, old: jnp.where(is_full, new, old), after, memory), learner

    def end_task(
        memory: Walk, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Walk, Learner]:
        after = with_piece(memory, learner.params, fisher_update_weight, damping)
        is_part = memory.piece.steps > 0
        memory = jax.tree.map(lambda new, old: jnp.where(is_part, new, old), after, memory)
        share = jnp.where(task.id > 0, 0.5, 1.0)
        score = jax.tree.map(
            lambda old, new: (1 - share) * old + share * new, memory.score, memory.task_score
        )
        importance = jax.tree.map(jnp.add, scaled(memory.fisher), scaled(score))
        sums = single_anchor(importance, learner.params)
        return memory._replace(sums=sums, score=score), learner

    free = naive(setup)._replace(
        init=init,
        begin_task=begin_task,
        after_step=after_step,
        end_task=end_task,
        parameter_copies=4,
    )
    return penalized(setup, free, regularization, lambda memory: memory.sums, implicit_rate)


def new_piece(params: PyTree) -> Piece:
    """Return a piece without steps that begins at some parameters."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Piece(jnp.int32(0), zeros, zeros, params)


def extend_piece(piece: Piece, gradient: PyTree, update: PyTree) -> Piece:
    """Return the piece with one more step, whose gradient is of the loss on the task alone."""
    return piece._replace(
        steps=piece.steps + 1,
        squares=jax.tree.map(lambda total, slope: total + slope**2, piece.squares, gradient),
        path=jax.tree.map(
            lambda total, slope, change: total - slope * change, piece.path, gradient, update
        ),
    )


def with_piece(memory: Walk, params: PyTree, fisher_update_weight: float, damping: float) -> Walk:
    """Return the memory whose score and Fisher information count its piece, and a new piece.

    Args:
      memory: memory with a piece of at least one step.
      params: parameters after the piece.
      fisher_update_weight: weight α of the piece in the Fisher information.
      damping: damping ξ in the denominator of the score.
    """
    piece, fisher = memory.piece, memory.fisher
    task_score = jax.tree.map(
        lambda so_far, path, information, start, end: (
            so_far + jnp.maximum(path, 0) / (information * (end - start) ** 2 + damping)
        ),
        *(memory.task_score, piece.path, fisher, piece.start, params),
    )
    count = jnp.maximum(piece.steps, 1)
    fisher = jax.tree.map(
        lambda old, total: (
            (1 - fisher_update_weight) * old + fisher_update_weight * (total / count)
        ),
        fisher,
        piece.squares,
    )
    return memory._replace(fisher=fisher, task_score=task_score, piece=new_piece(params))


def scaled(tree: PyTree) -> PyTree:
    """Return values moved and scaled to lie between 0 and 1 over all leaves; 0 if all are equal."""
    leaves = jax.tree.leaves(tree)
    least = jnp.min(jnp.stack([jnp.min(leaf) for leaf in leaves]))
    span = jnp.max(jnp.stack([jnp.max(leaf) for leaf in leaves])) - least
    return jax.tree.map(lambda leaf: (leaf - least) / jnp.where(span > 0, span, 1), tree)


METHODS = (
    Method(
        "RWalk",
        rwalk,
        Publication("Chaudhry et al.", 2018, "ECCV", ("old net", "statistics")),
        "Riemannian walk (RWalk), without replay",
        tunes="regularization",
        hyperparameters=(0.1, 1, 10, 100, 1e3),
        authors={
            "regularization": 1,
            "fisher_update_weight": 0.9,
            "interval": (10, 50),
            "damping": 0.001,
            "penalty's step": "explicit",
            "optimizer": "sgd",
            "learning rate": (0.03, 0.1),
            "batch size": 10,
            "epochs per task": 1,
        },
        takes_targets=True,
    ),
)
