"""Hard attention to the task (HAT; Serrà et al. 2018, ICML): every task gates the hidden units.

    a_l = σ(s e_l),   h_l ← a_l h_l,   L = L_task + c Σ_l Σ a_l (1 − u_l) / Σ_l Σ (1 − u_l)

e_l are the task's embeddings, one number per unit of layer l. u_l are the greatest gates of earlier
tasks. Over the batches of an epoch s rises from 1/s_max to s_max in equal steps; everywhere else it
is s_max. The steps of an epoch are the batches of the task's samples here. With several updates per
batch, or another number of steps per epoch, s still rises over that many steps. For a weight from
unit j of layer l − 1 to unit i of layer l, the change is multiplied by 1 − min(u_{l,i}, u_{l−1,j}),
for a bias by 1 − u_{l,i}. Parameters that earlier tasks use thus stay fixed. In the head only the
task's own classes learn.

The embeddings follow plain gradient descent. Their gradient s σ'(s e) ∂L/∂a is compensated for the
steepness of the gate, and is 0 where the gate is saturated:

    s_max (cosh(clip(s e, ±50)) + 1) / (s (cosh e + 1)) · s σ'(s e) ∂L/∂a = s_max σ'(e) r(s e) ∂L/∂a
    r(x) = exp(min(x + 50, 0)) for x < 24 ln 2,   0 for x ≥ 24 ln 2

r is 1 while the gate is not saturated. A closed gate freezes below −50, where the clip starts. An
open gate freezes at 24 ln 2 ≈ 16.6 already. Above that value 1 + e^−x is 1 in float32, so automatic
differentiation, which computes σ' as a (1 − a), gives 0. The authors' code trains with both limits,
and they determine the number of units that a task keeps. After each step embeddings are clipped to
±6.

The paper has s_max = 400, c = 0.75 and plain gradient descent at 0.05 for everything.

Equal to the official code (joansj/hat) at the gates, the regularizer, the compensated gradient up
to float32 rounding (of 1 − a; it reaches half of the gradient where s e is near 16), the clipping
of embeddings and the masks; differs in:

- The factor multiplies the change of a parameter instead of its gradient. Both are the same for
  plain gradient descent; the change also holds with momentum and weight decay.
- The gradient norm is not clipped (in the official code at 10,000).
- s follows the paper, (b − 1) / (B − 1) of the way in batch b of B, and is s_max if B is 1. The
  code takes the share of samples seen before the batch, so its s never reaches s_max.
- The embeddings have a separate learning rate, scaled by the schedule; in the official code it is
  the optimizer's. The learning rate and the best epoch follow the protocol; in the official code
  the rate is divided by 3 after 5 epochs without a smaller validation loss, and the epoch with the
  least is kept.
- One head whose other classes are masked replaces one head per task.
- The regularizer is 0 if every unit is used, instead of 0 / 0.
- Predictions without the task, from the greatest gates of all tasks, are not in that code.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import (
    LARGEST,
    Between,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    checked,
)
from everlight.continual.methods.method import PER_TASK_WEIGHTS, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.gates import Gates, gate, gate_learner
from everlight.continual.strategies.parts.passes import batch_loss, mask_other_classes
from everlight.errors import ArgumentError

BOUND = 6.0
"""Greatest magnitude of an embedding."""
CLOSED = -50.0
"""Value of s e below which the gradient of a closed gate vanishes, by the compensation's clip."""
OPEN = 24 * math.log(2)
"""Value of s e from which the gradient of an open gate is 0: 1 / (1 + e^−x) is 1 in float32."""


class Attention(NamedTuple):
    """Memory of HAT; mappings have one entry per layer."""

    embeddings: Mapping[str, Float[Array, "t u"]]
    used: Gates
    """Greatest gates of the tasks so far."""
    task: Int[Array, ""]
    """Current task; between tasks the last one."""
    classes: Bool[Array, "c"]
    """Classes of the current task; none between tasks."""
    begun: Int[Array, ""]
    """Number of optimizer steps before the task."""


class UnitsUsed(NamedTuple):
    """Shares of units that the tasks up to each one use, from 0 to 1."""

    by_layer: Mapping[str, Float[Array, "t"]]
    overall: Float[Array, "t"]


class BeforeStep(NamedTuple):
    """Values that a step passes to `after_step`."""

    params: PyTree
    """Parameters before the step."""
    freedom: PyTree
    """Factor on each parameter's change."""
    embeddings: Mapping[str, Float[Array, "t u"]]
    """Embeddings after the step."""


@checked
def hat(
    setup: Setup,
    tasks: PositiveInt,
    layers: tuple[str, ...],
    sparsity: NonNegativeFloat = 0.75,
    max_steepness: Annotated[float, Between(1, LARGEST)] = 400.0,
    embedding_learning_rate: PositiveFloat = 0.05,
    channels_first: bool = False,
) -> Strategy:
    """Return hard attention to the task (HAT), whose memory is `Attention`.

    A gate multiplies the unit's kernel and bias. This equals multiplying the unit if ReLU follows,
    and closes a unit if any function follows that maps 0 to 0. The layers are a chain that ends in
    `params["head"]`. Other parameters, such as those of normalization, are rejected, because no
    gate would protect them. Tasks must have disjoint classes; one class alone trains the gates by
    the regularizer only. `predict` takes the greatest gates of all tasks and all seen classes.
    During a task it takes the task's own gates and classes, on which the best epoch is chosen.
    `units_used` computes the used share of the network.

    Args:
      setup: network, objective, optimizer and data access.
      tasks: the number of tasks in the sequence.
      layers: names of the parameters of each layer below the head, from the input on. The last axis
        of a kernel is the layer's units, the axis before it the units of the layer below.
      sparsity: coefficient c of the regularizer.
      max_steepness: maximal steepness s_max of the gates, 1 or more.
      embedding_learning_rate: learning rate of the embeddings, multiplied by the schedule's factor.
      channels_first: True if a dense layer reads flattened maps channel by channel, as in
        `caffe_nets`; otherwise channels vary fastest.

    Raises:
      ValueError: at `init`, there are parameters outside the layers and the head, or a layer does
        not read all units of the one before (grouped convolutions).
    """
    plain = naive(setup)

    def init(key: PRNGKeyArray, learner: Learner) -> Attention:
        if {*layers, "head"} != set(learner.params) or "head" in layers:
            raise ArgumentError(
                f"the parameters are {', '.join(learner.params)}, the layers {', '.join(layers)}; "
                "HAT needs all layers in order, and after them one named head"
            )
        memory = new_attention(learner, tasks, layers, key)
        # Refuses layers that do not fit.
        freedom(learner.params, memory.used, layers, memory.classes, channels_first)
        return memory

    def grads(
        memory: Attention, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        task_embeddings = layer_embeddings(memory, task.id)
        steps = -(-jnp.sum(task.train.mask) // batch.index.shape[0])
        steepness = anneal(learner.step - memory.begun, steps, max_steepness)
        gates = compute_gates(task_embeddings, steepness)
        task_learner = learner._replace(seen=task.classes)

        def loss(params: PyTree, gates: Gates) -> tuple[Float[Array, ""], tuple]:
            value, (_, stats) = batch_loss(setup, gate(params, gates), task_learner, batch, key)
            return value + sparsity * new_use(gates, memory.used), (value, stats)

        differentiate = jax.grad(loss, argnums=(0, 1), has_aux=True)
        (gradient, gate_gradient), (value, batch_stats) = differentiate(learner.params, gates)
        step = embedding_learning_rate * learner.schedule.factor
        embeddings = {
            name: stacked.at[task.id].set(
                descend(task_embeddings[name], gate_gradient[name], steepness, max_steepness, step)
            )
            for name, stacked in memory.embeddings.items()
        }
        free = freedom(learner.params, memory.used, layers, task.classes, channels_first)
        before = BeforeStep(learner.params, free, embeddings)
        return gradient, StepInfo(gradient, batch_stats, value, before)

    def task_gates(memory: Attention, task: Int[Array, ""]) -> Gates:
        return compute_gates(layer_embeddings(memory, task), max_steepness)

    def end_task(
        memory: Attention, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Attention, Learner]:
        used = jax.tree.map(jnp.maximum, memory.used, task_gates(memory, task.id))
        return memory._replace(used=used, classes=jnp.zeros_like(memory.classes)), learner

    def predict(
        memory: Attention, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        learning = jnp.any(memory.classes)
        gates = jax.tree.map(
            lambda gate, used: jnp.where(learning, gate, used),
            task_gates(memory, memory.task),
            memory.used,
        )
        scores = plain.predict((), gate_learner(learner, gates), inputs)
        return mask_other_classes(memory.classes, scores)

    def predict_task(
        memory: Attention, learner: Learner, inputs: Float[Array, "b *shape"], task: Int[Array, ""]
    ) -> Float[Array, "b c"]:
        return plain.predict((), gate_learner(learner, task_gates(memory, task)), inputs)

    return plain._replace(
        init=init,
        begin_task=note_task,
        grads=grads,
        after_step=keep_used_weights,
        end_task=end_task,
        predict=predict,
        predict_task=predict_task,
        tasks=tasks,
    )


def new_attention(
    learner: Learner, tasks: int, layers: tuple[str, ...], key: PRNGKeyArray
) -> Attention:
    """Return the memory before the first task, with normally drawn embeddings of every task."""
    width = {name: jax.tree.leaves(learner.params[name])[0].shape[-1] for name in layers}
    keys = jax.random.split(key, len(layers))
    embeddings = {
        name: jax.random.normal(key, (tasks, width[name]), jnp.float32)
        for name, key in zip(layers, keys, strict=True)
    }
    used = {name: jnp.zeros(width[name], jnp.float32) for name in layers}
    return Attention(embeddings, used, jnp.int32(0), jnp.zeros_like(learner.seen), jnp.int32(0))


def note_task(
    memory: Attention, learner: Learner, task: Task, key: PRNGKeyArray
) -> tuple[Attention, Learner]:
    """Return the memory with a task that begins."""
    number = task.id.astype(memory.task.dtype)
    return memory._replace(task=number, classes=task.classes, begun=learner.step), learner


def keep_used_weights(
    memory: Attention, learner: Learner, info: StepInfo, key: PRNGKeyArray
) -> tuple[Attention, Learner]:
    """Return the learner whose change is multiplied by its freedom, and the new embeddings."""
    params = jax.tree.map(
        lambda old, free, change: old + free * change,
        info.aux.params,
        info.aux.freedom,
        info.update,
    )
    return memory._replace(embeddings=info.aux.embeddings), learner._replace(params=params)


def layer_embeddings(memory: Attention, task: Int[Array, ""]) -> Gates:
    """Return the embeddings of a task by layer."""
    return {name: stacked[task] for name, stacked in memory.embeddings.items()}


@checked
def units_used(attention: Attention) -> UnitsUsed:
    """Return the share of units that tasks 0 to t use, for every t; HAT's capacity over time.

    A task uses the units whose gate is above 0.5 at s_max: those with an embedding above 0. Future
    tasks use none, so the shares stay constant after the last task.

    Args:
      attention: HAT's memory after training, `SequenceResult.memory` or one seed of
        `Trained.memory`.
    """

    def ever_used(embeddings: Float[Array, "t u"]) -> Float[Array, "t u"]:
        begun = jnp.arange(embeddings.shape[0]) <= attention.task
        uses = (embeddings > 0) & begun[:, None]
        return jax.lax.cummax(uses.astype(jnp.float32), axis=0)

    used = {name: ever_used(layer) for name, layer in attention.embeddings.items()}
    by_layer = {name: jnp.mean(layer, axis=1) for name, layer in used.items()}
    return UnitsUsed(by_layer, jnp.mean(jnp.concatenate(list(used.values()), axis=1), axis=1))


def anneal(step: Int[Array, ""], steps: Int[Array, ""], max_steepness: float) -> Float[Array, ""]:
    """Return s at a step of a task with `steps` steps per epoch; s_max if there is one."""
    part = jnp.where(steps > 1, (step % steps) / jnp.maximum(steps - 1, 1), 1.0)
    return (1 / max_steepness + (max_steepness - 1 / max_steepness) * part).astype(jnp.float32)


def compute_gates(embeddings: Gates, steepness: Float[Array, ""] | float) -> Gates:
    """Return the gates σ(s e)."""
    return jax.tree.map(lambda leaf: jax.nn.sigmoid(steepness * leaf), embeddings)


def new_use(gates: Gates, used: Gates) -> Float[Array, ""]:
    """Return Σ a (1 − u) / Σ (1 − u) over all layers; 0 if all units are used."""
    free = {name: 1 - leaf for name, leaf in used.items()}
    taken = sum(jnp.sum(gates[name] * free[name]) for name in free)
    total = sum(jnp.sum(leaf) for leaf in free.values())
    return taken / jnp.where(total > 0, total, 1)


def compensation(
    embedding: Float[Array, "u"], steepness: Float[Array, ""] | float, max_steepness: float
) -> Float[Array, "u"]:
    """Return s_max σ'(e) r(s e), the factor from ∂L/∂a to an embedding's compensated gradient.

    No exponential overflows for any s e.
    """
    product = steepness * embedding
    alive = jnp.where(product < OPEN, jnp.exp(jnp.minimum(product - CLOSED, 0)), 0)
    return max_steepness * jax.nn.sigmoid(embedding) * jax.nn.sigmoid(-embedding) * alive


def descend(
    embedding: Float[Array, "u"],
    gate_gradient: Float[Array, "u"],
    steepness: Float[Array, ""] | float,
    max_steepness: float,
    rate: Float[Array, ""] | float,
) -> Float[Array, "u"]:
    """Return the embeddings after a step, given the loss's gradient with respect to the gates."""
    gradient = compensation(embedding, steepness, max_steepness) * gate_gradient
    return jnp.clip(embedding - rate * gradient, -BOUND, BOUND)


def freedom(
    params: PyTree,
    used: Gates,
    layers: tuple[str, ...],
    classes: Bool[Array, "c"],
    channels_first: bool = False,
) -> PyTree:
    """Return the factor on each parameter's change; 0 if earlier tasks use the units on both sides.

    Args:
      params: parameters of all layers and of the head.
      used: the greatest gates of earlier tasks.
      layers: names of the layers, from the input on.
      classes: the task's classes, whose weights of the head are free.
      channels_first: the argument of `hat`.

    Raises:
      ValueError: a layer does not read all units of the one before.
    """
    free = {"head": jax.tree.map(lambda leaf: _broadcast_factor(classes, leaf), params["head"])}
    for name, below in zip(layers, (None, *layers[:-1]), strict=True):
        read = None if below is None else used[below]
        factor = partial(_factor, name, used[name], read, channels_first)
        free[name] = jax.tree.map(factor, params[name])
    return free


def _factor(
    name: str,
    used: Float[Array, "u"],
    read: Float[Array, "i"] | None,
    channels_first: bool,
    leaf: Float[Array, "*shape"],
) -> Float[Array, "*shape"]:
    """Return the factor of a kernel or bias, given the gates of its units and of those it reads."""
    if leaf.ndim > 1 and read is not None:
        pixels, left = divmod(leaf.shape[-2], read.shape[0])
        if left or (leaf.ndim > 2 and pixels != 1):
            raise ArgumentError(
                f"{name} reads {leaf.shape[-2]} units, and the layer before has {read.shape[0]}; "
                "HAT needs each layer to read all of the one before (no groups)"
            )
        # In flattened maps, a unit occurs once per pixel.
        read = jnp.repeat(read, pixels) if channels_first else jnp.tile(read, pixels)
        used = jnp.minimum(used, read[:, None])
    return _broadcast_factor(1 - used, leaf)


def _broadcast_factor(factor: Array, leaf: Array) -> Float[Array, "..."]:
    return jnp.broadcast_to(factor.astype(leaf.dtype), leaf.shape)


METHODS = (
    Method(
        "HAT",
        hat,
        Publication("Serrà et al.", 2018, "ICML", ("statistics",)),
        "hard attention to the task (HAT)",
        requirements=PER_TASK_WEIGHTS,
        authors={
            "sparsity": 0.75,
            "max_steepness": 400,
            "embedding_learning_rate": 0.05,
            "batch size": 64,
            "epochs per task": 200,
            "optimizer": "sgd",
            "learning rate": 0.05,
        },
        planned_total="tasks",
    ),
)
