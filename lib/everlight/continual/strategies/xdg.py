"""Context-dependent gating (XdG; Masse, Grant and Freedman 2018, PNAS).

Every task has its own random gates of the hidden units, drawn before training. They close a share
of each layer's units and leave the others as they are:

    h_l = g_{t,l} ⊙ relu(W_l h_{l−1} + b_l),   g_{t,l} 0 for ⌊share · units⌋ random units, else 1

The product is rounded down in floating point: 0.57 of 100 units closes 56.

Weights between open units alone have a gradient in a task, so that tasks share few of them. The
gates need the task, in training and at test. The loss runs over the task's own classes. The paper
also adds the penalty of SI or EWC; here as in van de Ven et al. 2022 the gates work alone.

Equal to the code of van de Ven et al. (GMvandeVen/continual-learning, `main.py`,
`continual_learner.py`) at the number of gated units of a layer, at the open units without the task
(`reset_XdGmask`), and at outputs and gradients where biases are 0; differs in a gated unit with a
bias, whose activity is 0, in that code relu(b_l), since it adds the bias after the gate. All layers
below the head are gated, in both codes dense ones alone.

The code of Masse et al. (nmasse/Context-Dependent-Gating) multiplies the activity after its ReLU,
as this does, and closes every unit with the probability of the share, so that numbers vary. It has
SI's penalty, c = 0.05, dropout of one half, and an output bias of 0.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, ProperFraction, checked
from everlight.continual.methods.method import PER_TASK_WEIGHTS, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.gates import Gates, gate, gate_learner
from everlight.continual.strategies.parts.passes import batch_loss, mask_other_classes
from everlight.errors import ArgumentError


class TaskGates(NamedTuple):
    """Memory of XdG."""

    gates: Mapping[str, Float[Array, "t u"]]
    """Gates of each layer's units by task, 0 or 1."""
    task: Int[Array, ""]
    """Current task; between tasks the last one."""
    classes: Bool[Array, "c"]
    """Classes of the current task; none between tasks."""


@checked
def xdg(
    setup: Setup,
    tasks: PositiveInt,
    layers: tuple[str, ...],
    gated_share: ProperFraction = 0.8,
) -> Strategy:
    """Return context-dependent gating (XdG), whose memory is `TaskGates`.

    A gate multiplies the unit's kernel and bias. This equals multiplying its activity if ReLU
    follows, or any function that maps 0 to 0. The layers end in `params["head"]`, which is not
    gated. Other parameters, such as those of normalization, are rejected, since they would open
    closed units. Tasks must have disjoint classes; one class alone has no gradient. During a task
    `predict` takes its gates and classes, on which the best epoch is chosen. Between tasks all
    units are open.

    Args:
      setup: network, objective, optimizer and data access.
      tasks: the number of tasks in the sequence.
      layers: names of the parameters of each layer below the head; the last axis is the units.
      gated_share: share of each layer's units that a task closes, less than 1.

    Raises:
      ValueError: at `init`, there are parameters outside the layers and the head.
    """
    plain = naive(setup)

    def init(key: PRNGKeyArray, learner: Learner) -> TaskGates:
        if {*layers, "head"} != set(learner.params) or "head" in layers:
            raise ArgumentError(
                f"the parameters are {', '.join(learner.params)}, the layers {', '.join(layers)}; "
                "XdG needs all layers, and after them one named head"
            )
        gates = {
            name: random_gates(
                jax.tree.leaves(learner.params[name])[0].shape[-1], tasks, gated_share, key
            )
            for name, key in zip(layers, jax.random.split(key, len(layers)), strict=True)
        }
        return TaskGates(gates, jnp.int32(0), jnp.zeros_like(learner.seen))

    def begin_task(
        memory: TaskGates, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TaskGates, Learner]:
        number = task.id.astype(memory.task.dtype)
        return memory._replace(task=number, classes=task.classes), learner

    def gates_at(memory: TaskGates, task: Int[Array, ""]) -> Gates:
        return {name: stacked[task] for name, stacked in memory.gates.items()}

    def grads(
        memory: TaskGates, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        gates, task_learner = gates_at(memory, task.id), learner._replace(seen=task.classes)

        def loss(params: PyTree) -> tuple[Float[Array, ""], PyTree]:
            value, (_, stats) = batch_loss(setup, gate(params, gates), task_learner, batch, key)
            return value, stats

        (value, batch_stats), gradient = jax.value_and_grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, batch_stats, value)

    def end_task(
        memory: TaskGates, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TaskGates, Learner]:
        return memory._replace(classes=jnp.zeros_like(memory.classes)), learner

    def predict(
        memory: TaskGates, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        learning = jnp.any(memory.classes)
        gates = jax.tree.map(
            lambda gate: jnp.where(learning, gate, 1), gates_at(memory, memory.task)
        )
        scores = plain.predict((), gate_learner(learner, gates), inputs)
        return mask_other_classes(memory.classes, scores)

    def predict_task(
        memory: TaskGates, learner: Learner, inputs: Float[Array, "b *shape"], task: Int[Array, ""]
    ) -> Float[Array, "b c"]:
        return plain.predict((), gate_learner(learner, gates_at(memory, task)), inputs)

    return plain._replace(
        init=init,
        begin_task=begin_task,
        grads=grads,
        end_task=end_task,
        predict=predict,
        predict_task=predict_task,
        tasks=tasks,
    )


def random_gates(
    units: int, tasks: int, gated_share: float, key: PRNGKeyArray
) -> Float[Array, "t u"]:
    """Return gates of a layer by task: 0 for ⌊share · units⌋ random units of each, else 1."""
    closed = jnp.arange(units) < int(gated_share * units)

    def draw_task_gates(key: PRNGKeyArray) -> Float[Array, "u"]:
        return jax.random.permutation(key, ~closed).astype(jnp.float32)

    return jax.vmap(draw_task_gates)(jax.random.split(key, tasks))


METHODS = (
    Method(
        "XdG",
        xdg,
        Publication("Masse et al.", 2018, "PNAS", ("statistics",)),
        "context-dependent gating (XdG): random units closed for each task",
        requirements=PER_TASK_WEIGHTS,
        authors={
            "gated_share": 0.8,
            "batch size": 256,
            "epochs per task": 20,
            "optimizer": "adam",
            "learning rate": 0.001,
        },
        planned_total="tasks",
    ),
)
