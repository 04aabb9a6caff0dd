"""A linen network in two parts, below and above the outputs of one of its layers.

Both parts are calls of the whole module. The upper one replaces the layer's outputs while inputs of
zeros pass through the layers below. Nothing of these is used, and compilers remove them. What is
replaced is the return value of the layer's `__call__`, before any function that follows it.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.module import InterceptorContext
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.extend.core import Jaxpr, Literal
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Outputs, SplitNetwork
from everlight.continual.engine.setups.named_arrays import Path, as_outputs
from everlight.errors import ArgumentError
from everlight.models.layers.traced_convolutions import fast_in_both_modes


def split_linen(net: nn.Module, shape: tuple[int, ...], layer: str | None) -> SplitNetwork:
    """Return a linen network in two parts.

    Args:
      net: module that is called as `net(images, train)`.
      shape: shape of one input.
      layer: name of the layer, with slashes between names of nested ones. None is the last but one
        of the layers with parameters below the last one, or the only one.

    Raises:
      ValueError: there is no such layer, it is called several times, or a shortcut passes it.
    """
    variables, finished = _call_order(net, shape)
    path = _default_layer(variables["params"], finished) if layer is None else (*layer.split("/"),)
    if finished.count(path) != 1:
        names = ", ".join("/".join(other) for other in dict.fromkeys(finished) if other)
        fault = "is called several times" if path in finished else "does not exist"
        raise ArgumentError(f"the layer {'/'.join(path)} {fault}; the layers are {names}")
    below = {*finished[: finished.index(path) + 1]}

    def lower(
        params: PyTree,
        batch_stats: PyTree,
        inputs: Float[Array, "b *shape"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Array, PyTree]:
        outputs, changed = _outputs_of(net, path, params, batch_stats, inputs, train, key)
        return outputs, _merged(changed, batch_stats, below)

    def upper(
        params: PyTree,
        batch_stats: PyTree,
        activations: Array,
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Outputs, PyTree]:
        blank = jnp.zeros((len(activations), *shape))
        outputs, changed = _outputs_above(
            net, path, params, batch_stats, blank, activations, train, key
        )
        return outputs, _merged(batch_stats, changed, below)

    is_lower = _lower_parameters(net, path, variables, shape)
    return SplitNetwork(fast_in_both_modes(lower), fast_in_both_modes(upper), is_lower)


def module_outputs(
    net: nn.Module,
    params: PyTree,
    batch_stats: PyTree,
    inputs: Float[Array, "b *shape"],
    train: bool,
    key: PRNGKeyArray | None,
) -> tuple[Any, PyTree]:
    """Return what a linen module returns, and batch statistics, which evaluation keeps.

    Args:
      net: module that is called as `net(images, train)`.
      params: its parameters.
      batch_stats: its batch statistics.
      inputs: inputs of the module.
      train: true for the training mode.
      key: random key of dropout in training.
    """
    variables = {"params": params, "batch_stats": batch_stats}
    if not train:
        return net.apply(variables, inputs, False), batch_stats
    outputs, changed = net.apply(
        variables, inputs, True, rngs={"dropout": key}, mutable=["batch_stats"]
    )
    return outputs, changed.get("batch_stats", {})


def _merged(lower: PyTree, upper: PyTree, below: set[Path]) -> PyTree:
    """Return the first batch statistics for the layers below, and the second ones for others."""
    first, second = flatten_dict(lower), flatten_dict(upper)
    return unflatten_dict({leaf: (first if leaf[:-1] in below else second)[leaf] for leaf in first})


def _call_order(net: nn.Module, shape: tuple[int, ...]) -> tuple[PyTree, list[Path]]:
    """Return the shapes of the network's variables, and its layers in the order of their ends."""
    finished = []

    def note(call: Callable, args: tuple, kwargs: dict, context: InterceptorContext) -> Any:
        returned = call(*args, **kwargs)
        if context.method_name == "__call__":
            finished.append(context.module.path)
        return returned

    with nn.intercept_methods(note):
        inputs = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
        variables = jax.eval_shape(
            lambda images: net.init(jax.random.key(0), images, False), inputs
        )
    return variables, finished


def _default_layer(params: PyTree, finished: list[Path]) -> Path:
    """Return the last but one of the layers with parameters below the last one, or the only one."""
    *below, _ = (path for path in finished if len(path) == 1 and path[0] in params)
    if not below:
        raise ArgumentError(
            f"the only layer is {', '.join(params)}; give a network with a hidden one"
        )
    return below[max(len(below) - 2, 0)]


def _outputs_of(
    net: nn.Module,
    path: Path,
    params: PyTree,
    batch_stats: PyTree,
    inputs: Float[Array, "b *shape"],
    train: bool,
    key: PRNGKeyArray | None,
) -> tuple[Array, PyTree]:
    """Return the outputs of a layer, and batch statistics."""
    outputs = []

    def keep(call: Callable, args: tuple, kwargs: dict, context: InterceptorContext) -> Any:
        returned = call(*args, **kwargs)
        if _is_call_of(context, path):
            outputs.append(returned)
        return returned

    with nn.intercept_methods(keep):
        _, changed = module_outputs(net, params, batch_stats, inputs, train, key)
    return outputs[0], changed


def _outputs_above(
    net: nn.Module,
    path: Path,
    params: PyTree,
    batch_stats: PyTree,
    blank: Float[Array, "b *shape"],
    activations: Array,
    train: bool,
    key: PRNGKeyArray | None,
) -> tuple[Outputs, PyTree]:
    """Return outputs and batch statistics, of given outputs of a layer."""

    def replace(call: Callable, args: tuple, kwargs: dict, context: InterceptorContext) -> Any:
        returned = call(*args, **kwargs)
        return activations if _is_call_of(context, path) else returned

    with nn.intercept_methods(replace):
        outputs, changed = module_outputs(net, params, batch_stats, blank, train, key)
    # Activations of the layers below are those of zeros.
    return as_outputs(outputs)._replace(hidden=None), changed


def _is_call_of(context: InterceptorContext, path: Path) -> bool:
    return context.method_name == "__call__" and context.module.path == path


def _lower_parameters(
    net: nn.Module, path: Path, variables: PyTree, shape: tuple[int, ...]
) -> PyTree:
    """Return True for the parameters on which no output depends, given those of a layer.

    Raises:
      ValueError: the outputs depend on the network's inputs in another way too.
    """
    params, batch_stats = variables["params"], variables.get("batch_stats", {})
    blank = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
    activations = jax.eval_shape(
        lambda *arrays: _outputs_of(net, path, *arrays, False, None)[0], params, batch_stats, blank
    )

    def outputs(blank: Array, params: PyTree, batch_stats: PyTree, activations: Array) -> Outputs:
        key = jax.random.key(0)
        return _outputs_above(net, path, params, batch_stats, blank, activations, True, key)[0]

    traced = jax.make_jaxpr(outputs)(blank, params, batch_stats, activations)
    reads_inputs, *reads = _read_inputs(traced.jaxpr)
    if reads_inputs:
        raise ArgumentError(
            f"a shortcut passes the layer {'/'.join(path)}; give the block that it belongs to"
        )
    leaves, tree = jax.tree.flatten(params)
    return tree.unflatten([not is_read for is_read in reads[: len(leaves)]])


def _read_inputs(jaxpr: Jaxpr) -> list[bool]:
    """Return True for the inputs of a traced function on which an output may depend."""
    read = {atom for atom in jaxpr.outvars if not isinstance(atom, Literal)}
    for equation in reversed(jaxpr.eqns):
        if read & {*equation.outvars}:
            read |= {atom for atom in equation.invars if not isinstance(atom, Literal)}
    return [variable in read for variable in jaxpr.invars]
