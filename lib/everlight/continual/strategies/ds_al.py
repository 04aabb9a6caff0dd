"""Dual-stream analytic learning (DS-AL; Zhuang et al. 2024, AAAI): ACIL and a compensation stream.

    scores = relu(a)ᵀ W + κ tanh(a)ᵀ V,   a = zᵀ R
    W = ridge regression of the labels y on relu(a), over all samples so far (ACIL)
    V = ridge regression on tanh(a), over all samples so far, of the residuals
        r = y − relu(a)ᵀ W_t for the new classes of the sample's task t, 0 for earlier classes

W_t is W at the end of the sample's task. The compensation stream fits what a rectified linear layer
misses of the newest classes. The authors have γ = 0.1 for both regressions and recommend to search
the compensation ratio κ in [0, 2]; 0.6 is their best on CIFAR-100 and 1.5 on ImageNet.

Residuals need W_t, so that the sums Σ tanh(a) relu(a)ᵀ and Σ tanh(a) yᵀ of the task are kept until
its end; each sample is seen once. Memory holds three matrices of the square of the width.

Equal to the official code (ZHUANGHP/Analytic-continual-learning, `DSAL.py`) at the scores, where
that code takes a task as one batch, as in the paper's equations; differs in:

- With several batches per task, that code takes the residuals of a batch right after it.
- Both regressions are solved from sums (`acil`), in float32.
- A class without samples has the score 0. In the official code it has none.
- The network is not trained on the first task.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from everlight.base import Batch, Coefficient, Learner, PositiveCoefficient, Setup, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.parts.frozen import feature_strategy, feature_width
from everlight.continual.strategies.parts.random_ridge import (
    Regression,
    add_rows,
    label_targets,
    no_regression,
    solve,
)
from everlight.models.heads import uniform_weights
from everlight.precision import matrix_product


class TaskSums(NamedTuple):
    """Sums over the samples of the current task."""

    cross: Float[Array, "m m"]
    """Sum of tanh(a) relu(a)ᵀ."""
    prototypes: Float[Array, "m c"]
    """Sum of tanh(a) of each class."""
    new: Bool[Array, "c"]
    """Classes that the task introduces."""


class TwoStreams(NamedTuple):
    """Memory of DS-AL."""

    projection: Float[Array, "f m"]
    """Fixed random projection R of both streams."""
    main: Regression
    compensation: Regression
    """Regression of the residuals of earlier tasks' samples; its solution includes this task's."""
    task: TaskSums


@checked
def ds_al(
    setup: Setup,
    width: PositiveInt = 8192,
    compensation: Coefficient = 0.6,
    ridge: PositiveCoefficient = 0.1,
    compensation_ridge: PositiveCoefficient = 0.1,
) -> Strategy:
    """Return dual-stream analytic learning (DS-AL), whose memory is `TwoStreams`.

    The usual network is `caffe_nets.LinearClassifier` over stored features. A class without samples
    has score 0, the solution of its regressions.

    Args:
      setup: network, objective, optimizer and data access.
      width: number of random features; memory holds three times its square.
      compensation: compensation ratio κ, the weight of the compensation stream.
      ridge: coefficient γ > 0 of the main stream.
      compensation_ridge: coefficient > 0 of the compensation stream.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> TwoStreams:
        classes, (inputs, dtype) = learner.seen.shape[0], feature_width(setup, learner)
        main = no_regression(width, classes, ridge, dtype)
        return TwoStreams(
            uniform_weights(key, (inputs, width), dtype),
            main,
            no_regression(width, classes, compensation_ridge, dtype),
            TaskSums(main.gram, main.prototypes, jnp.zeros_like(learner.seen)),
        )

    def begin_task(
        memory: TwoStreams, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TwoStreams, Learner]:
        return memory._replace(task=memory.task._replace(new=task.classes)), learner

    def accumulate(memory: TwoStreams, features: Float[Array, "b f"], batch: Batch) -> TwoStreams:
        mask = (batch.weight > 0)[:, None]
        rectified, bounded = (jnp.where(mask, rows, 0) for rows in streams(memory, features))
        targets = label_targets(memory.main, batch)
        return memory._replace(
            main=add_rows(memory.main, rectified, targets, batch),
            compensation=add_rows(memory.compensation, bounded, jnp.zeros_like(targets), batch),
            task=memory.task._replace(
                cross=memory.task.cross + matrix_product(bounded.T, rectified),
                prototypes=memory.task.prototypes + matrix_product(bounded.T, targets),
            ),
        )

    def end_task(
        memory: TwoStreams, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TwoStreams, Learner]:
        nothing = TaskSums(*map(jnp.zeros_like, memory.task))
        return with_residuals(memory)._replace(task=nothing), learner

    def before_evaluation(
        memory: TwoStreams, learner: Learner, key: PRNGKeyArray
    ) -> tuple[TwoStreams, Learner]:
        after = with_residuals(memory)
        kernel = solve(after.compensation).kernel
        other = memory.compensation._replace(kernel=kernel)
        return memory._replace(main=after.main, compensation=other), learner

    def scores(memory: TwoStreams, features: Float[Array, "b f"]) -> Float[Array, "b c"]:
        rectified, bounded = streams(memory, features)
        main = matrix_product(rectified, memory.main.kernel)
        return main + compensation * matrix_product(bounded, memory.compensation.kernel)

    return feature_strategy(setup, init, accumulate, scores)._replace(
        begin_task=begin_task, end_task=end_task, before_evaluation=before_evaluation
    )


def streams(
    memory: TwoStreams, features: Float[Array, "b f"]
) -> tuple[Float[Array, "b m"], Float[Array, "b m"]]:
    """Return the features of the main stream and of the compensation stream."""
    shared = matrix_product(features, memory.projection)
    return jax.nn.relu(shared), jnp.tanh(shared)


def with_residuals(memory: TwoStreams) -> TwoStreams:
    """Return the memory with the main stream's weights and the current task's residuals added.

    The added sum is that of tanh(a) rᵀ over the task's samples, 0 for earlier classes.
    """
    main, (cross, prototypes, new) = solve(memory.main), memory.task
    residuals = jnp.where(new, prototypes - matrix_product(cross, main.kernel), 0)
    other = memory.compensation
    other = other._replace(prototypes=other.prototypes + residuals)
    return memory._replace(main=main, compensation=other)


# The paper's width is 8 times as large, with 67 times the memory. A published value would be
# one at another width, so there is none.
METHODS = (
    Method(
        "DS-AL",
        ds_al,
        Publication("Zhuang et al.", 2024, "AAAI", ("statistics",)),
        "dual-stream analytic learning (DS-AL)",
        tunes="compensation",
        hyperparameters=(0.3, 0.6, 1, 1.5),
        fixed={"width": 1000},
        trains="head",
        requirements=OTHER_WEIGHTS,
        authors={
            "width": 8192,
            "compensation": 0.6,
            "ridge": 0.1,
            "compensation_ridge": 0.1,
            "features": "those of the first task's network",
        },
    ),
)
