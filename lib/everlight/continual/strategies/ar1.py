"""AR1, synaptic intelligence below a consolidated head (Maltoni and Lomonaco 2019).

The head is CWR+'s: every task trains a temporary one from 0, without regularization, and its rows
are consolidated at the end (`cwr`). AR1* (Lomonaco, Maltoni and Pellegrini 2020, CVPR Workshops)
has CWR*'s head. All layers below learn at the same time under the penalty of synaptic intelligence
with limited importances:

    L(θ) = L_task(θ) + λ/2 Σ_k F_k (θ_k − θ*_k)²,   F_k = min(max(Σ_t ω_{t,k}, 0), F_max),
    ω_{t,k} = −(Σ_s g_{s,k} · Δθ_{s,k}) / ((Δθ_{t,k})² + ξ)

θ* are the parameters at the start of the task. The sums run over the tasks t before it and over
the steps s of a task. g_s is the gradient of the whole loss, penalty included; SI has the task's.
Scales and biases of normalization layers are free.

The authors' code has ξ = 1e-7 and F_max = 0.001, and its `params.cfg` has λ = 1e6 (`ewc_lambda`),
which its script for latent replay does not read. At a learning rate of 0.001 the step on the
penalty, λ F_max = 1,000, is then stable. Greater learning rates need an implicit step.

Equal to the official code (vlomonaco/ar1-pytorch, `utils.py`) at ω of several tasks, at F where no
sum is negative, at the penalty's gradient, and at the parameters that are free. Differs in four
points. The loss runs over the classes seen so far by default, there over all. There a negative sum
stays, and the penalty then drives the parameter away from θ*. There batch norm is replaced by batch
renormalization, whose limits grow in the first task; in everlight the network stays as it is. The
bias of the head, which that head lacks, is consolidated like the weights. `latent_replay` has the
activations that the same code replays. The original Caffe code (lrzpellegrini/Latent-Replay,
`syn.py`, `cwr.py`) has the same equations, and the head's learning rate is ten times that of the
other layers.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import (
    Batch,
    Coefficient,
    Learner,
    Memory,
    Setup,
    StepInfo,
    Strategy,
    Task,
)
from everlight.checks import PositiveFloat, checked
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.cwr import cwr
from everlight.continual.strategies.parts.quadratic import (
    QuadraticSums,
    penalized,
    penalty_gradient,
    single_anchor,
)

DAMPING, IMPORTANCE_LIMIT = 1e-7, 1e-3
"""Damping ξ and greatest importance F_max of the authors' code."""


class ProtectedBelowHead(NamedTuple):
    """Memory of AR1."""

    head: Memory
    """Memory of the strategy that has the head."""
    total: PyTree
    """Sum Σ_t ω_t over the finished tasks; 0 for free parameters."""
    path: PyTree
    """Sum −Σ_s g_s · Δθ_s over the steps of the current task."""
    start: PyTree
    """Parameters θ* at the start of the task."""


@checked
def ar1(
    setup: Setup,
    regularization: Coefficient,
    form: Literal["plus", "star"] = "plus",
    damping: PositiveFloat = DAMPING,
    importance_limit: PositiveFloat = IMPORTANCE_LIMIT,
    implicit_rate: Coefficient | None = None,
) -> Strategy:
    """Return AR1 or AR1*, whose memory is `ProtectedBelowHead`.

    The linear head is `params["head"]`. A task's classes are the labels of its samples. During a
    task, predictions are those that it would leave if it ended now.

    Args:
      setup: network, objective, optimizer and data access.
      regularization: coefficient λ of the penalty.
      form: head of CWR+ in AR1, "plus", or of CWR* in AR1*, "star".
      damping: damping ξ in the denominator of ω.
      importance_limit: greatest importance F_max of a parameter.
      implicit_rate: learning rate of the optimizer, for implicit steps on the penalty. They are
        stable at any regularization (`quadratic.penalized`). None is the authors' explicit step.

    Raises:
      ValueError: while tracing, no layer is named head.
    """
    with_head = cwr(setup, form=form)
    return protect_below_head(
        setup, with_head, regularization, damping, importance_limit, implicit_rate
    )


def protect_below_head(
    setup: Setup,
    with_head: Strategy,
    regularization: Coefficient,
    damping: float,
    importance_limit: float,
    implicit_rate: Coefficient | None,
) -> Strategy:
    """Return a strategy with AR1's penalty on all layers below its head.

    Args:
      setup: network, objective, optimizer and data access.
      with_head: strategy that trains the network and consolidates `params["head"]`, with functions
        for the start and the end of a task.
      regularization: coefficient λ of the penalty.
      damping: damping ξ in the denominator of ω.
      importance_limit: greatest importance F_max of a parameter.
      implicit_rate: learning rate of implicit steps on the penalty, or None (`penalized`).
    """

    def sums(memory: ProtectedBelowHead) -> QuadraticSums:
        importance = jax.tree.map(lambda leaf: jnp.clip(leaf, 0, importance_limit), memory.total)
        return single_anchor(importance, memory.start)

    def init(key: PRNGKeyArray, learner: Learner) -> ProtectedBelowHead:
        zeros = jax.tree.map(jnp.zeros_like, learner.params)
        return ProtectedBelowHead(with_head.init(key, learner), zeros, zeros, learner.params)

    def begin_task(
        memory: ProtectedBelowHead, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[ProtectedBelowHead, Learner]:
        head, learner = with_head.begin_task(memory.head, learner, task, key)
        zeros = jax.tree.map(jnp.zeros_like, learner.params)
        return memory._replace(head=head, path=zeros, start=learner.params), learner

    def grads(
        memory: ProtectedBelowHead, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        gradient, info = with_head.grads(memory.head, learner, batch, task, key)
        penalty = penalty_gradient(sums(memory), learner.params)
        loss_gradient = jax.tree.map(lambda g, p: g + regularization / 2 * p, gradient, penalty)
        return gradient, info._replace(aux=(loss_gradient, info.aux))

    def after_step(
        memory: ProtectedBelowHead, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[ProtectedBelowHead, Learner]:
        loss_gradient, aux = info.aux
        path = jax.tree.map(
            lambda old, g, step: old - g * step, memory.path, loss_gradient, info.update
        )
        head = memory.head
        if with_head.after_step is not None:
            head, learner = with_head.after_step(head, learner, info._replace(aux=aux), key)
        return memory._replace(head=head, path=path), learner

    def end_task(
        memory: ProtectedBelowHead, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[ProtectedBelowHead, Learner]:
        total = jax.tree.map(
            lambda old, path, end, start, protected: (
                old + protected * path / ((end - start) ** 2 + damping)
            ),
            memory.total,
            memory.path,
            learner.params,
            memory.start,
            protected_leaves(learner.params),
        )
        head, learner = with_head.end_task(memory.head, learner, task, key)
        return memory._replace(head=head, total=total), learner

    def predict(
        memory: ProtectedBelowHead, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        return with_head.predict(memory.head, learner, inputs)

    stored_samples = with_head.stored_samples and (
        lambda memory, task: with_head.stored_samples(memory.head, task)
    )
    free = with_head._replace(
        init=init,
        begin_task=begin_task,
        grads=grads,
        after_step=after_step,
        end_task=end_task,
        predict=predict,
        stored_samples=stored_samples,
        parameter_copies=with_head.parameter_copies + 2,
    )
    return penalized(setup, free, regularization / 2, sums, implicit_rate)


def protected_leaves(params: Mapping[str, Any]) -> PyTree:
    """Return 1 for every leaf that AR1's penalty covers, and 0 for the other ones.

    The head and normalization layers, which have a `scale` and no `kernel`, are free.
    """

    def mark(tree: PyTree, protected: int) -> PyTree:
        if not isinstance(tree, Mapping):
            return jax.tree.map(lambda leaf: protected, tree)
        if "scale" in tree and "kernel" not in tree:
            protected = 0
        return {name: mark(part, protected) for name, part in tree.items()}

    return {name: mark(part, int(name != "head")) for name, part in params.items()}


_AR1 = Method(
    "AR1",
    ar1,
    Publication("Maltoni and Lomonaco", 2019, "Neural Networks", ("old net", "statistics")),
    "synaptic intelligence below the head of CWR+",
    tunes="regularization",
    hyperparameters=(1e3, 1e4, 1e5, 1e6),
    requirements=(*OTHER_WEIGHTS, "named head"),
    authors={
        "regularization": 1e6,
        "damping": DAMPING,
        "importance_limit": IMPORTANCE_LIMIT,
        "penalty's step": "explicit",
        "batch size": 128,
        "epochs per task": 4,
        "learning rate": 0.001,
        "network": "pretrained",
    },
)
METHODS = (
    _AR1,
    _AR1._replace(
        name="AR1*",
        fixed={"form": "star"},
        publication=Publication("Lomonaco et al.", 2020, "CVPRW", ("old net", "statistics")),
        summary="AR1 with the head of CWR*, weighted by numbers of samples",
    ),
)
