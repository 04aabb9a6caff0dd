"""PackNet (Mallya and Lazebnik 2018, CVPR): tasks own weights, and none touches another's.

A task trains the free weights among all, its loss running over its own classes. At its end, in
every layer but the head, a share of the free weights, the smallest by magnitude, becomes 0 and
stays free; the others are retrained without them, and the task owns them from then on. Biases,
scales and batch statistics are learnt with the first task and stay as it left them; every class's
weights of the head are its task's. Told the task, a network of the weights owned up to it answers.
The paper prunes half to three quarters, retrains for 10 epochs after 20 at the rate with which
these ended, and starts from a network trained on ImageNet.

Equal to the official code (arunmallya/packnet) at the weights that a task prunes, but for ties at
the threshold, and at those of earlier tasks, which stay bit for bit; differs in biases and batch
statistics, which there stay as ImageNet left them, and in initial weights.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import Count, Place, Share, checked
from everlight.continual.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.continual.engine.keys import epoch_keys, step_key
from everlight.continual.engine.steps import shuffle, take_batch, train_step
from everlight.continual.strategies.naive import naive, task_gradient

FREE, PRUNED = -1, -2


class Ownership(NamedTuple):
    """PackNet's memory."""

    owner: PyTree
    """Of every parameter the task that it belongs to, FREE, or PRUNED while a task is retrained;
    what the setup freezes belongs to the first."""
    classes: Bool[Array, "c"]
    """Of the task that is being learnt; none between tasks."""


class BeforeStep(NamedTuple):
    """What a step hands on, so that what it must not move can be put back."""

    params: PyTree
    trained: PyTree


@checked
def packnet(
    setup: Setup, prune: Share = 0.75, retrain_epochs: Place = 10, batch_size: Count = 32
) -> Strategy:
    """PackNet, its memory being `Ownership`; the head is `params["head"]`, classes its last axis.

    Every task needs classes of its own. `predict` takes the network with all weights and all seen
    classes; while a task is learnt, its classes alone, by which its epoch is chosen. With batch
    statistics tasks after the first are trained in evaluation mode, which keeps them, without
    dropout.

    Args:
      setup: what is static; retraining begins its optimizer anew, at the rate of the task's end.
      prune: share of the free weights that a task leaves.
      retrain_epochs: without the pruned weights.
      batch_size: samples a step of retraining.

    Raises:
      ValueError: a share outside [0, 1]; at `init`, no layer named head.
    """
    plain = naive(setup)

    def init(key: PRNGKeyArray, learner: Learner) -> Ownership:
        if "head" not in learner.params:
            layers = ", ".join(learner.params)
            raise ValueError(f"the parameters are {layers}; PackNet needs a layer named head")
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
        own = learner._replace(seen=task.classes)
        gradient, info = _gradient(setup, own, batch, task.id == 0, key)
        trained = _trained(memory.owner, task.classes)
        gradient = jax.tree.map(lambda free, g: jnp.where(free, g, 0), trained, gradient)
        return gradient, info._replace(aux=BeforeStep(learner.params, trained))

    def after_step(
        memory: Ownership, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Ownership, Learner]:
        # Momentum and weight decay move a parameter whose gradient is 0.
        params = jax.tree.map(jnp.where, info.aux.trained, learner.params, info.aux.params)
        return memory, learner._replace(params=params)

    def retrain(memory: Ownership, learner: Learner, task: Task, key: PRNGKeyArray) -> Learner:
        epoch = strategy.epoch_data(memory, task)

        def one_epoch(number: Int[Array, ""], learner: Learner) -> Learner:
            keys = epoch_keys(key, number)
            order = shuffle(epoch, keys.order)

            def one_step(step: Int[Array, ""], learner: Learner) -> Learner:
                batch = take_batch(epoch, order, step, batch_size)
                key_step = step_key(keys.steps, step)
                return train_step(setup, strategy, memory, learner, batch, task, key_step)[1]

            return jax.lax.fori_loop(0, -(-order.count // batch_size), one_step, learner)

        learner = learner._replace(opt_state=setup.optimizer.init(learner.params))
        return jax.lax.fori_loop(0, retrain_epochs, one_epoch, learner)

    def end_task(
        memory: Ownership, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Ownership, Learner]:
        owner = {
            name: layer
            if name == "head"
            else jax.tree.map(lambda o, w: prune_smallest(o, w, prune), layer, learner.params[name])
            for name, layer in memory.owner.items()
        }
        params = jax.tree.map(
            lambda o, leaf: jnp.where(o == PRUNED, 0, leaf), owner, learner.params
        )
        learner = learner._replace(params=params)
        learner = retrain(memory._replace(owner=owner), learner, task, key)
        owner = jax.tree.map(
            lambda mine, o: jnp.where(mine, task.id, jnp.where(o == PRUNED, FREE, o)),
            _trained(owner, task.classes),
            owner,
        )
        return Ownership(owner, jnp.zeros_like(memory.classes)), learner

    def predict(
        memory: Ownership, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        scores = plain.predict((), learner, inputs)
        return jnp.where(memory.classes | ~jnp.any(memory.classes), scores, -jnp.inf)

    def predict_task(
        memory: Ownership,
        learner: Learner,
        inputs: Float[Array, "b *shape"],
        task: Int[Array, ""],
    ) -> Float[Array, "b c"]:
        params = owned_up_to(task, memory.owner, learner.params)
        return plain.predict((), learner._replace(params=params), inputs)

    strategy = plain._replace(
        init=init,
        begin_task=begin_task,
        grads=grads,
        after_step=after_step,
        end_task=end_task,
        predict=predict,
        predict_task=predict_task,
        parameter_copies=1,
    )
    return strategy


def prune_smallest(
    owner: Int[Array, "*shape"], weights: Float[Array, "*shape"], share: float
) -> Int[Array, "*shape"]:
    """The owners with a share of the free weights PRUNED, those of least magnitude.

    Of a vector, which is a bias or a scale, none is.
    """
    if weights.ndim < 2:
        return owner
    free = owner == FREE
    size = jnp.where(free, jnp.abs(weights), jnp.inf).reshape(-1)
    rank = jnp.argsort(jnp.argsort(size, stable=True)).reshape(owner.shape)
    return jnp.where(rank < jnp.round(share * jnp.sum(free)), PRUNED, owner)


def owned_up_to(task: Int[Array, ""], owner: PyTree, params: PyTree) -> PyTree:
    """The parameters with those 0 that no task up to this one owns; the head as it is."""
    kept = jax.tree.map(lambda o, leaf: jnp.where((o >= 0) & (o <= task), leaf, 0), owner, params)
    return {**kept, "head": params["head"]}


def _trained(owner: PyTree, classes: Bool[Array, "c"]) -> PyTree:
    """What a task of these classes may move."""
    free = jax.tree.map(lambda o: o == FREE, owner)
    return {**free, "head": jax.tree.map(lambda f: f & classes, free["head"])}


def _gradient(
    setup: Setup, learner: Learner, batch: Batch, first: Bool[Array, ""], key: PRNGKeyArray
) -> tuple[PyTree, StepInfo]:
    """The batch's; after the first task in evaluation mode where there are batch statistics."""

    def still(
        params: PyTree, batch_stats: PyTree, inputs: Array, train: bool, key: PRNGKeyArray
    ) -> tuple:
        return setup.apply(params, batch_stats, inputs, False, None)

    def moving() -> tuple[PyTree, StepInfo]:
        return task_gradient(setup, learner, batch, key)

    if not jax.tree.leaves(learner.batch_stats):
        return moving()
    keeping = setup._replace(apply=still)
    return jax.lax.cond(first, moving, lambda: task_gradient(keeping, learner, batch, key))
