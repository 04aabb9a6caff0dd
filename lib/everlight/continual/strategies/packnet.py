"""PackNet (Mallya and Lazebnik 2018, CVPR): every task owns weights that later tasks never change.

A task trains the free weights; its loss runs over its own classes. At its end, every layer but the
head prunes the smallest share of its free weights by magnitude: they become 0 and stay free. The
others are retrained without them, and the task owns them from then on. Biases, scales and batch
statistics are learned with the first task and then stay fixed. In the head, a class's weights
belong to its task. Given the task, the network of the weights owned up to it predicts. The paper
prunes half to three quarters, its code half by default, and in everlight `prune` is 0.75, which
leaves more free weights to later tasks. The paper starts from a network trained on ImageNet, trains
for 20 epochs, and retrains for 10 at the final learning rate.

Equal to the official code (arunmallya/packnet) at the weights that a task prunes, except for ties
at the threshold, and at those of earlier tasks, which stay bit for bit; differs in biases and batch
statistics, which in the official code stay as trained on ImageNet, and in initial weights. That
code keeps the epoch with the best accuracy on the test set; in everlight the protocol chooses the
epoch of a task, and retraining ends with its last one.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import NonNegativeInt, PositiveInt, ProperFraction, checked
from everlight.conditional import cond_under_vmap
from everlight.continual.engine.epochs import train_on
from everlight.continual.methods.method import PER_TASK_WEIGHTS, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.passes import mask_other_classes, task_gradient
from everlight.errors import ArgumentError

FREE, PRUNED = -1, -2


class Ownership(NamedTuple):
    """Memory of PackNet."""

    owner: PyTree
    """Task that owns each parameter, or FREE, or PRUNED while a task is retrained. Parameters that
    the setup freezes belong to the first task."""
    classes: Bool[Array, "c"]
    """Classes of the current task; none between tasks."""


class BeforeStep(NamedTuple):
    """Values before a step, from which fixed parameters are restored after it."""

    params: PyTree
    trained: PyTree
    """True for parameters that the step may change."""


@checked
def packnet(
    setup: Setup,
    prune: ProperFraction = 0.75,
    retrain_epochs: NonNegativeInt = 10,
    batch_size: PositiveInt = 32,
) -> Strategy:
    """Return PackNet, whose memory is `Ownership`; the last axis of `params["head"]` is classes.

    Tasks must have disjoint classes. `predict` takes the network with all weights and all seen
    classes. During a task it scores the task's classes alone, on which the best epoch is chosen.
    If the network has batch statistics, later tasks are trained in evaluation mode, which keeps
    them fixed and applies no dropout.

    Args:
      setup: network, objective, optimizer and data access. Retraining resets the optimizer and
        keeps the learning rate of the task's end.
      prune: share of the free weights that a task prunes, less than 1.
      retrain_epochs: epochs of retraining without the pruned weights.
      batch_size: samples per retraining step.

    Raises:
      ValueError: `prune` is not below 1; or, at `init`, no layer is named head.
    """
    plain = naive(setup)

    def init(key: PRNGKeyArray, learner: Learner) -> Ownership:
        if "head" not in learner.params:
            layers = ", ".join(learner.params)
            raise ArgumentError(f"the parameters are {layers}; PackNet needs a layer named head")
        free = jax.tree.map(lambda leaf: True, learner.params)
        if setup.trainable is not None:
            free = setup.trainable(learner.params)
        owner = jax.tree.map(
            lambda leaf, free: jnp.full(leaf.shape, jnp.where(free, FREE, 0), int),
            learner.params,
            free,
        )
        return Ownership(owner, jnp.zeros_like(learner.seen))

    def begin_task(
        memory: Ownership, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Ownership, Learner]:
        return memory._replace(classes=task.classes), learner

    def grads(
        memory: Ownership, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        task_learner = learner._replace(seen=task.classes)
        gradient, info = _gradient(setup, task_learner, batch, task.id == 0, key)
        trained = _trainable_mask(memory.owner, task.classes)
        gradient = jax.tree.map(lambda free, g: jnp.where(free, g, 0), trained, gradient)
        return gradient, info._replace(aux=BeforeStep(learner.params, trained))

    def end_task(
        memory: Ownership, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Ownership, Learner]:
        owner = pruned_below_head(memory.owner, learner.params, prune)
        params = jax.tree.map(
            lambda o, leaf: jnp.where(o == PRUNED, 0, leaf), owner, learner.params
        )
        learner = learner._replace(params=params)
        learner = train_on(
            setup,
            strategy,
            memory._replace(owner=owner),
            learner,
            task,
            strategy.epoch_data(memory, task),
            epochs=retrain_epochs,
            batch_size=batch_size,
            key=key,
        )
        owner = jax.tree.map(
            lambda mine, o: jnp.where(mine, task.id, jnp.where(o == PRUNED, FREE, o)),
            _trainable_mask(owner, task.classes),
            owner,
        )
        return Ownership(owner, jnp.zeros_like(memory.classes)), learner

    def predict(
        memory: Ownership, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        scores = plain.predict((), learner, inputs)
        return mask_other_classes(memory.classes, scores)

    def predict_task(
        memory: Ownership, learner: Learner, inputs: Float[Array, "b *shape"], task: Int[Array, ""]
    ) -> Float[Array, "b c"]:
        params = owned_params(task, memory.owner, learner.params)
        return plain.predict((), learner._replace(params=params), inputs)

    strategy = plain._replace(
        init=init,
        begin_task=begin_task,
        grads=grads,
        after_step=restore_fixed,
        end_task=end_task,
        predict=predict,
        predict_task=predict_task,
        parameter_copies=1,
    )
    return strategy


def prune_smallest(
    owner: Int[Array, "*shape"], weights: Float[Array, "*shape"], share: float
) -> Int[Array, "*shape"]:
    """Return the owners after pruning the smallest share of the free weights by magnitude.

    Vectors (biases and scales) are not pruned.
    """
    if weights.ndim < 2:
        return owner
    free = owner == FREE
    size = jnp.where(free, jnp.abs(weights), jnp.inf).reshape(-1)
    rank = jnp.argsort(jnp.argsort(size, stable=True)).reshape(owner.shape)
    return jnp.where(rank < jnp.round(share * jnp.sum(free)), PRUNED, owner)


def pruned_below_head(owner: PyTree, params: PyTree, share: float) -> PyTree:
    """Return the owners after `prune_smallest` in every layer but the head."""
    prune = partial(prune_smallest, share=share)
    pruned = {
        name: jax.tree.map(prune, layer, params[name])
        for name, layer in owner.items()
        if name != "head"
    }
    return {**owner, **pruned}


def restore_fixed(
    memory: Ownership, learner: Learner, info: StepInfo, key: PRNGKeyArray
) -> tuple[Ownership, Learner]:
    """Return the learner with the fixed parameters as before the step.

    Momentum and weight decay move a parameter whose gradient is 0.
    """
    params = jax.tree.map(jnp.where, info.aux.trained, learner.params, info.aux.params)
    return memory, learner._replace(params=params)


def owned_params(task: Int[Array, ""], owner: PyTree, params: PyTree) -> PyTree:
    """Return the parameters that tasks up to this one own, 0 elsewhere; the head is unchanged."""
    owned = jax.tree.map(lambda o, leaf: jnp.where((o >= 0) & (o <= task), leaf, 0), owner, params)
    return {**owned, "head": params["head"]}


def _trainable_mask(owner: PyTree, classes: Bool[Array, "c"]) -> PyTree:
    """Return True for the parameters that a task of these classes may change."""
    free = jax.tree.map(lambda o: o == FREE, owner)
    return {**free, "head": jax.tree.map(lambda f: f & classes, free["head"])}


def _gradient(
    setup: Setup, learner: Learner, batch: Batch, first: Bool[Array, ""], key: PRNGKeyArray
) -> tuple[PyTree, StepInfo]:
    """Return the batch's gradient, in evaluation mode after the first task if statistics exist."""

    def apply_frozen(
        params: PyTree, batch_stats: PyTree, inputs: Array, train: bool, key: PRNGKeyArray
    ) -> tuple:
        return setup.apply(params, batch_stats, inputs, False, None)

    def first_task_gradient() -> tuple[PyTree, StepInfo]:
        return task_gradient(setup, learner, batch, key)

    if not jax.tree.leaves(learner.batch_stats):
        return first_task_gradient()
    keeping = setup._replace(apply=apply_frozen)
    return cond_under_vmap(
        first, first_task_gradient, lambda: task_gradient(keeping, learner, batch, key)
    )


METHODS = (
    Method(
        "PackNet",
        packnet,
        Publication("Mallya and Lazebnik", 2018, "CVPR", ("statistics",)),
        "weights pruned and frozen, task by task",
        requirements=PER_TASK_WEIGHTS,
        authors={
            "prune": "0.5, then 0.75",
            "retrain_epochs": 10,
            "batch_size": 32,
            "batch size": 32,
            "epochs per task": 20,
            "network": "pretrained",
        },
    ),
)
