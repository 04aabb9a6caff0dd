"""A `Setup` from a linen module."""

import inspect
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import optax
from flax.linen.module import InterceptorContext
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Objective, Outputs, Setup
from everlight.checks import checked
from everlight.continual.engine.setups.named_arrays import as_outputs
from everlight.continual.engine.setups.split_linen import module_outputs, split_linen
from everlight.continual.engine.sources import Augment, InputSource, setup_from
from everlight.errors import ArgumentError
from everlight.models.layers.convolution import Convolution, patches


@checked
def flax_setup(
    net: nn.Module,
    source: InputSource,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    augment: Augment | None = None,
) -> Setup:
    """Return the setup of a Flax linen module that is called as `net(images, train)`.

    Args:
      net: module that returns logits or `Outputs`; it may have dropout and batch statistics.
      source: stored or streamed images or computed inputs, which the step normalizes.
      objective: loss, scores and metrics of the outputs.
      optimizer: optimizer, reset at every task.
      augment: random function of one training image, applied before normalization.

    Raises:
      ValueError: the module cannot be called as `net(images, train)`.
    """
    _refuse_other_calls(net)

    def init(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        variables = net.init(key, jnp.zeros((1, *source.shape)), False)
        return variables["params"], variables.get("batch_stats", {})

    def apply(
        params: PyTree,
        batch_stats: PyTree,
        inputs: Float[Array, "b *shape"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Outputs, PyTree]:
        outputs, changed = module_outputs(net, params, batch_stats, inputs, train, key)
        return as_outputs(outputs), changed

    def layer_inputs(
        params: PyTree, batch_stats: PyTree, inputs: Float[Array, "b *shape"]
    ) -> dict[tuple[str, ...], Float[Array, "b p i"]]:
        layer_rows = defaultdict(list)

        def keep(call: Callable, args: tuple, kwargs: dict, context: InterceptorContext) -> Any:
            layer = context.module
            # The groups of a convolution have a matrix each.
            is_matrix = (
                isinstance(layer, nn.Dense | Convolution) and getattr(layer, "groups", 1) == 1
            )
            if context.method_name == "__call__" and is_matrix:
                rows = args[0]
                if isinstance(layer, Convolution):
                    rows = patches(rows, layer.size, layer.stride, layer.padding)
                rows = rows.reshape(rows.shape[0], -1, rows.shape[-1])
                layer_rows[*layer.path, "kernel"].append(rows)
            return call(*args, **kwargs)

        with nn.intercept_methods(keep):
            net.apply({"params": params, "batch_stats": batch_stats}, inputs, False)
        # A layer that is called several times multiplies all of its inputs.
        return {path: jnp.concatenate(rows, axis=1) for path, rows in layer_rows.items()}

    setup = setup_from(init, apply, source, objective, optimizer, augment)
    return setup._replace(
        layer_inputs=layer_inputs,
        split_at=partial(split_linen, net, source.shape),
        stages=getattr(net, "stages", ()),
    )


def _refuse_other_calls(net: nn.Module) -> None:
    try:
        inspect.signature(net).bind(None, False)
    except TypeError as error:
        raise ArgumentError(
            f"flax_setup: net is {type(net).__name__}, which cannot be called as "
            f"net(images, train): {error}; add the argument `train: bool`, True in training"
        ) from None
