"""Progressive neural networks (PNN; Rusu et al. 2016, arXiv 1606.04671): a column per task.

    h_l^t = σ(W_l^t h_{l−1}^t + b_l^t + [t > 0] U_l^t relu(Σ_{s<t} V_l^{t,s} (α_l^{t,s} h_{l−1}^s)
            + c_l^t)),   l ≥ 2,   σ of the network, none in the head
    h_1^t = σ(W_1^t x + b_1^t),   prediction for task t: the head of column t

A task t begins with a new column, a network, and adapters of each of its layers but the first (V,
U, c and the scales α), which read the hidden layers of all earlier columns. Earlier columns and
their adapters stay. The loss runs over the task's own classes. V has as many outputs as the layer
that it reads has units. Layers are dense, of any activation function.

All arrays have their last sizes from the start. Memory holds T − 1 finished columns with their
adapters, stacked, and the adapters of the current one. Each V has T − 1 places of n × n for n units
of a layer, so that memory grows as T² n². A step or a prediction given the task t passes its
samples through t + 1 columns, the earlier ones without gradient.

An earlier column is read with its own lateral connections, as in the paper. The paper has one scale
α per column and layer; Mammoth has one per unit, as here.

Equal to Mammoth (`backbone/MNISTMLP_PNN.py`, `models/pnn.py`), where its attribute `old_cols` is
set, at outputs, gradients and 15 steps of each of three tasks: its modules, run on the same tensors
in float64, differ by 3e-15 at most, relative to the largest value. Differs in:

- The constructor of that module leaves `old_cols` empty, so that no column reads another: by
  default its MLPs are separate networks.
- The copies of earlier columns in that module have no lateral connections, which matters from the
  third task on.
- The loss runs over the task's own classes; in that code over all outputs.
- Kernels of a column are drawn as the network's are; in that code by Xavier's rule.
- Without the task, which that code always has, each class has the score of its task's column.
- Convolutions, which that code has in a residual network, are refused.

Avalanche (`models/pnn.py`) also reads earlier columns with their lateral connections. Without its
other parts, which follow, its modules have the same outputs and gradients over three tasks (1e-15):

- It has one scale per layer and column, from the standard normal distribution.
- U has a bias, and V has as many outputs as the layer that it adds to.
- The first layer reads the inputs through an adapter too; the head reads its own column alone.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Outputs, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import PER_TASK_WEIGHTS, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.added_parameters import (
    AddedParameters,
    new_parameters,
    updated_parameters,
)
from everlight.continual.strategies.parts.expansion import (
    count_values,
    empty_copies,
    with_finished,
)
from everlight.continual.strategies.parts.kept_parameters import keep_frozen
from everlight.continual.strategies.parts.passes import mask_other_classes, weighted_mean
from everlight.errors import ArgumentError

Hidden = Mapping[str, Float[Array, "s b _"]]
"""Activations of columns by layer; 0 of columns that are not read."""


class Columns(NamedTuple):
    """Memory of progressive neural networks."""

    finished: tuple[PyTree, PyTree]
    """Parameters and adapters of finished columns, `[T - 1, ...]`; others are 0."""
    adapters: AddedParameters
    """Adapters of the current column, by the layer that they add to."""
    count: Int[Array, ""]
    """Number of finished columns, which is that of the current or last task."""
    class_task: Int[Array, "c"]
    """Task of each class; 0 before it is known."""
    classes: Bool[Array, "c"]
    """Classes of the current task; none between tasks."""


@checked
def pnn(setup: Setup, tasks: PositiveInt, layers: tuple[str, ...]) -> Strategy:
    """Return progressive neural networks (PNN), whose memory is `Columns`.

    Tasks must have disjoint classes. A task begins with new parameters and a new state of the
    optimizer; parameters that the setup freezes stay. Without the task, each class has the score of
    its task's column; during a task `predict` takes the task's classes alone.

    Args:
      setup: network of one column, objective, optimizer and data access.
      tasks: number of tasks in the sequence.
      layers: names of the parameters of each layer below the head, from the input on.

    Raises:
      ValueError: at `init`, there are parameters outside the layers and the head, or a layer is not
        dense, with a bias, on the hidden layer before it.
    """
    places = max(tasks - 1, 1)
    upper = dict(zip((*layers[1:], "head"), layers, strict=True)) if layers else {}

    def init(key: PRNGKeyArray, learner: Learner) -> Columns:
        check_layers(learner, layers)
        adapters = new_adapters(key, learner.params, upper, places, jnp.int32(0))
        return Columns(
            empty_copies((learner.params, adapters), places),
            new_parameters(setup, adapters),
            jnp.int32(0),
            jnp.zeros(learner.seen.shape[0], jnp.int32),
            jnp.zeros_like(learner.seen),
        )

    def begin_task(
        memory: Columns, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Columns, Learner]:
        key_network, key_adapters = jax.random.split(key)
        current = learner.params, memory.adapters.params
        params = keep_frozen(setup, learner, setup.init(key_network)[0])
        adapters = new_adapters(key_adapters, params, upper, places, task.id)
        number = task.id.astype(jnp.int32)
        memory = Columns(
            with_finished(memory.finished, current, task.id),
            new_parameters(setup, adapters),
            number,
            jnp.where(task.classes, number, memory.class_task),
            task.classes,
        )
        return memory, learner._replace(params=params, opt_state=setup.optimizer.init(params))

    def grads(
        memory: Columns, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        earlier, _ = finished_columns(setup, memory, learner, upper, batch.inputs, task.id)

        def loss(params: PyTree, adapters: PyTree) -> Float[Array, ""]:
            stats = learner.batch_stats
            shifts = lateral_values(adapters, upper, earlier, task.id)
            outputs = shifted_outputs(setup, params, stats, shifts, batch.inputs, True, key)
            losses = setup.objective.loss(outputs, batch.labels, task.classes)
            return weighted_mean(losses, batch.weight)

        differentiate = jax.value_and_grad(loss, argnums=(0, 1))
        value, (gradient, for_adapters) = differentiate(learner.params, memory.adapters.params)
        return gradient, StepInfo(gradient, learner.batch_stats, value, for_adapters)

    def after_step(
        memory: Columns, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Columns, Learner]:
        adapters = updated_parameters(setup, learner, memory.adapters, info.aux)
        return memory._replace(adapters=adapters), learner

    def end_task(
        memory: Columns, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Columns, Learner]:
        return memory._replace(classes=jnp.zeros_like(memory.classes)), learner

    def column_scores(
        memory: Columns, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "t b c"]:
        hidden, scores = finished_columns(setup, memory, learner, upper, inputs, memory.count)
        shifts = lateral_values(memory.adapters.params, upper, hidden, memory.count)
        outputs = shifted_outputs(
            setup, learner.params, learner.batch_stats, shifts, inputs, False, None
        )
        rows = jnp.pad(scores, ((0, 1), (0, 0), (0, 0)))
        return rows.at[memory.count].set(setup.objective.scores(outputs))

    def predict(
        memory: Columns, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        rows = column_scores(memory, learner, inputs)
        number = jnp.arange(memory.class_task.shape[0])
        scores = rows[memory.class_task, :, number].T
        return mask_other_classes(memory.classes, scores)

    def predict_task(
        memory: Columns, learner: Learner, inputs: Float[Array, "b *shape"], task: Int[Array, ""]
    ) -> Float[Array, "b c"]:
        return column_scores(memory, learner, inputs)[task]

    params, _ = jax.eval_shape(setup.init, jax.random.key(0))
    return naive(setup)._replace(
        init=init,
        begin_task=begin_task,
        grads=grads,
        after_step=after_step,
        end_task=end_task,
        predict=predict,
        predict_task=predict_task,
        tasks=tasks,
        parameter_copies=column_copies(params, upper, places),
    )


def column_copies(params: PyTree, upper: Mapping[str, str], places: int) -> int:
    """Return the size of finished columns and of all adapters in networks, rounded up."""
    if not {*upper} <= {*params} or not all(is_dense(params[name]) for name in upper):
        return places  # `init` refuses these layers.
    adapters = jax.eval_shape(
        lambda key: new_adapters(key, params, upper, places, jnp.int32(0)), jax.random.key(0)
    )
    share = count_values(adapters) / count_values(params)
    return places + math.ceil((places + 1) * share)


def check_layers(learner: Learner, layers: tuple[str, ...]) -> None:
    """Raise an error unless the layers are dense, in a chain that ends in the head.

    Raises:
      ValueError: they are not.
    """
    params = learner.params
    if not layers or {*layers, "head"} != {*params} or jax.tree.leaves(learner.batch_stats):
        raise ArgumentError(
            f"the parameters are {', '.join(params)}, the layers {', '.join(layers)}; PNN needs "
            "all layers in order, after them one named head, and no batch statistics"
        )
    for name in (*layers, "head"):
        if not is_dense(params[name]):
            raise ArgumentError(
                f"{name} is not a dense layer with kernel and bias, which PNN needs; give an MLP"
            )


def is_dense(layer: PyTree) -> bool:
    """Return True if a layer's parameters or shapes are a matrix, kernel, and a bias."""
    names = {*layer} if isinstance(layer, Mapping) else set()
    return names == {"kernel", "bias"} and layer["kernel"].ndim == 2


def new_adapters(
    key: PRNGKeyArray, params: PyTree, upper: Mapping[str, str], places: int, count: Int[Array, ""]
) -> dict[str, dict[str, Array]]:
    """Return drawn adapters by layer.

    Scales are uniform from 0 to 0.1, U, V and c uniform within 1 / √n for n values that are read.

    Args:
      key: random key.
      params: parameters or shapes of a column.
      upper: the layer that is read by the layer that an adapter adds to.
      places: number of columns that have a place.
      count: number of columns that are read.
    """
    adapters = {}
    for name, layer_key in zip(upper, jax.random.split(key, len(upper)), strict=True):
        keys = jax.random.split(layer_key, 4)
        units, outputs = params[name]["kernel"].shape
        dtype = params[name]["kernel"].dtype
        wide = (units * jnp.maximum(count, 1)) ** -0.5
        shapes = (places, units, units), (units,), (units, outputs)
        reduction, bias, expansion = (
            jax.random.uniform(part, shape, dtype, -1, 1)
            for part, shape in zip(keys[1:], shapes, strict=True)
        )
        adapters[name] = {
            "scale": jax.random.uniform(keys[0], (places, units), dtype, 0, 0.1),
            "reduction": wide * reduction,
            "bias": wide * bias,
            "expansion": expansion / math.sqrt(units),
        }
    return adapters


def lateral_values(
    adapters: PyTree, upper: Mapping[str, str], hidden: Hidden, count: Int[Array, ""]
) -> dict[str, Float[Array, "b u"]]:
    """Return the values that earlier columns add to each layer; 0 if there are none.

    Args:
      adapters: adapters of the column, by layer.
      upper: the layer that is read by the layer that an adapter adds to.
      hidden: activations of earlier columns, 0 in other places.
      count: number of earlier columns.
    """
    values = {}
    for name, below in upper.items():
        adapter = adapters[name]
        scaled = hidden[below] * adapter["scale"][:, None]
        reduced = jnp.einsum("sbn,snr->br", scaled, adapter["reduction"]) + adapter["bias"]
        added = jax.nn.relu(reduced) @ adapter["expansion"]
        values[name] = jnp.where(count > 0, added, 0)
    return values


def shifted_outputs(
    setup: Setup,
    params: PyTree,
    batch_stats: PyTree,
    shifts: Mapping[str, Float[Array, "b u"]],
    inputs: Float[Array, "b *shape"],
    train: bool,
    key: PRNGKeyArray | None,
) -> Outputs:
    """Return a network's outputs with other biases for each sample, which add the shifts."""

    def one(
        sample: Float[Array, "*shape"], shift: Mapping[str, Array], key: PRNGKeyArray | None
    ) -> Outputs:
        layers = {
            name: {**params[name], "bias": params[name]["bias"] + value}
            for name, value in shift.items()
        }
        outputs, _ = setup.apply({**params, **layers}, batch_stats, sample[None], train, key)
        return jax.tree.map(lambda leaf: leaf[0], outputs)

    keys = None if key is None else jax.random.split(key, len(inputs))
    return jax.vmap(one)(inputs, dict(shifts), keys)


def finished_columns(
    setup: Setup,
    memory: Columns,
    learner: Learner,
    upper: Mapping[str, str],
    inputs: Float[Array, "b *shape"],
    count: Int[Array, ""],
) -> tuple[Hidden, Float[Array, "s b c"]]:
    """Return activations and scores of finished columns in evaluation mode; 0 in other places.

    Args:
      setup: network of one column, objective, optimizer and data access.
      memory: memory with the finished columns.
      learner: learner, for batch statistics.
      upper: the layer that is read by the layer that an adapter adds to.
      inputs: inputs of the network.
      count: number of finished columns.
    """

    def values_of(
        place: Int[Array, ""], hidden: Hidden
    ) -> tuple[dict[str, Float[Array, "b _"]], Float[Array, "b c"]]:
        params, adapters = jax.tree.map(lambda leaf: leaf[place], memory.finished)
        shifts = lateral_values(adapters, upper, hidden, place)
        outputs = shifted_outputs(setup, params, learner.batch_stats, shifts, inputs, False, None)
        layers = {below: outputs.hidden[below] for below in upper.values()}
        return layers, setup.objective.scores(outputs)

    places = len(jax.tree.leaves(memory.finished)[0])
    zeros = {
        below: jnp.zeros((places, len(inputs), kernel.shape[0]), kernel.dtype)
        for name, below in upper.items()
        for kernel in [learner.params[name]["kernel"]]
    }
    _, scores = jax.eval_shape(lambda: values_of(jnp.int32(0), zeros))
    empty = zeros, jnp.zeros((places, *scores.shape), scores.dtype)

    def add(place: Int[Array, ""], rows: tuple[Hidden, Array]) -> tuple[Hidden, Array]:
        values = values_of(place, rows[0])
        return jax.tree.map(lambda stacked, leaf: stacked.at[place].set(leaf), rows, values)

    return jax.lax.fori_loop(0, count, add, empty)


METHODS = (
    Method(
        "PNN",
        pnn,
        Publication("Rusu et al.", 2016, "arXiv", ("old net",)),
        "progressive neural networks (PNN): a column per task reads earlier, frozen ones",
        requirements=("one label", *PER_TASK_WEIGHTS),
        extends_network=True,
        planned_total="tasks",
    ),
)
