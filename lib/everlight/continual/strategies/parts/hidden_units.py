"""Hidden units of a chain of layers: their activations, their weights and their replacement.

A unit of a convolution is a channel. Its incoming weights are those that its layer's parameters
have for it, the bias included. Its outgoing weights are those with which the next layer reads it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Outputs, Setup
from everlight.errors import ArgumentError

ByLayer = Mapping[str, Float[Array, "u"]]
"""One number per unit of each hidden layer."""


class UnitWeights(NamedTuple):
    """True for the weights of chosen units; both trees have the structure of the parameters."""

    incoming: PyTree
    outgoing: PyTree


def layer_widths(params: PyTree, layers: tuple[str, ...]) -> dict[str, int]:
    """Return the number of units of each layer.

    Raises:
      ValueError: a layer or the head is missing, or a layer does not read the one before.
    """
    missing = [name for name in (*layers, "head") if name not in params]
    if missing or not layers:
        raise ArgumentError(
            f"the parameters are {', '.join(params)}, the layers {', '.join(layers) or 'none'}; "
            "name the hidden layers in order, before a layer named head"
        )
    widths = {name: jax.tree.leaves(params[name])[0].shape[-1] for name in layers}
    for name, above in zip(layers, (*layers[1:], "head"), strict=True):
        for kernel in _kernels(params[above]):
            if kernel.shape[-2] % widths[name]:
                raise ArgumentError(
                    f"{above} reads {kernel.shape[-2]} units, and {name} has {widths[name]}; each "
                    "layer must read all units of the one before"
                )
    return widths


def unit_activations(
    outputs: Outputs, widths: Mapping[str, int]
) -> dict[str, Float[Array, "b n u"]]:
    """Return each unit's activations: n per sample, one per pixel or per part of a CReLU.

    Raises:
      ValueError: the network does not return the activations of a layer.
    """
    hidden = outputs.hidden or {}
    missing = [name for name in widths if name not in hidden]
    if missing:
        raise ArgumentError(
            f"the network returns no activations of {', '.join(missing)}; give `Outputs.hidden`"
        )
    return {
        name: hidden[name].reshape(hidden[name].shape[0], -1, width).astype(jnp.float32)
        for name, width in widths.items()
    }


def batch_mean(values: Float[Array, "b n u"], batch: Batch) -> Float[Array, "u"]:
    """Return the mean over the samples of weight 1."""
    weight = batch.weight[:, None]
    weighted = jnp.where(weight > 0, weight * jnp.mean(values, axis=1), 0)
    return jnp.sum(weighted, axis=0) / jnp.maximum(jnp.sum(weight), 1)


def incoming_magnitude(layer: PyTree) -> Float[Array, "u"]:
    """Return the mean absolute incoming weight of each unit of a layer, biases left out."""
    magnitudes = [jnp.abs(leaf).reshape(-1, leaf.shape[-1]) for leaf in _kernels(layer)]
    return jnp.mean(jnp.concatenate(magnitudes), axis=0)


def outgoing_magnitude(above: PyTree, width: int) -> Float[Array, "u"]:
    """Return the mean absolute outgoing weight of each unit of a layer, from the layer above."""
    magnitudes = [
        jnp.moveaxis(jnp.abs(leaf), -2, 0).reshape(-1, width, leaf.size // leaf.shape[-2])
        for leaf in _kernels(above)
    ]
    return jnp.mean(jnp.concatenate(magnitudes, axis=2), axis=(0, 2))


def weights_of_units(
    params: PyTree, layers: tuple[str, ...], chosen: Mapping[str, Bool[Array, "u"]]
) -> UnitWeights:
    """Return which parameters are incoming and which are outgoing weights of the chosen units."""
    nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, bool), params)
    incoming, outgoing = dict(nothing), dict(nothing)
    for name, above in zip(layers, (*layers[1:], "head"), strict=True):
        units = chosen[name]
        incoming[name] = jax.tree.map(lambda leaf, mask=units: leaf | mask, nothing[name])
        outgoing[above] = jax.tree.map(lambda leaf, mask=units: _read(leaf, mask), nothing[above])
    return UnitWeights(incoming, outgoing)


def with_new_units(
    setup: Setup,
    learner: Learner,
    layers: tuple[str, ...],
    chosen: Mapping[str, Bool[Array, "u"]],
    key: PRNGKeyArray,
    connected: bool,
) -> Learner:
    """Return the learner whose chosen units have new incoming weights and outgoing ones of 0.

    Moments of the optimizer become 0 at these weights. Frozen parameters keep their values.

    Args:
      setup: its `init` draws the incoming weights, biases included.
      learner: learner after the optimizer's step.
      layers: names of the hidden layers in order.
      chosen: True for the units that are replaced.
      key: random key of `init`.
      connected: True if a weight between two new units is drawn, False if it is 0.
    """
    fresh, _ = setup.init(key)
    incoming, outgoing = weights_of_units(learner.params, layers, chosen)
    replaced = jax.tree.map(jnp.logical_or, incoming, outgoing)
    if setup.trainable is not None:
        replaced = jax.tree.map(jnp.logical_and, replaced, setup.trainable(learner.params))

    def value(old: Array, drawn: Array, read: Array, change: Array, new: Array) -> Array:
        taken = jnp.where(drawn if connected else ~read, new, jnp.zeros_like(new))
        return jnp.where(change, taken, old)

    def reset_masked(leaf: Array, mask: Bool[Array, "..."]) -> Array:
        return jnp.where(mask, jnp.zeros_like(leaf), leaf)

    return learner._replace(
        params=jax.tree.map(value, learner.params, incoming, outgoing, replaced, fresh),
        opt_state=optax.tree_map_params(setup.optimizer, reset_masked, learner.opt_state, replaced),
    )


def _kernels(layer: PyTree) -> list[Float[Array, "*shape i u"]]:
    return [leaf for leaf in jax.tree.leaves(layer) if leaf.ndim > 1]


def _read(leaf: Bool[Array, "*shape"], units: Bool[Array, "u"]) -> Bool[Array, "*shape"]:
    """Return a mask of a layer's leaf, True where it reads one of the units below.

    Of maps that were flattened, and of the parts of a CReLU, a unit is read several times.
    """
    if leaf.ndim < 2:
        return leaf
    return leaf | jnp.tile(units, leaf.shape[-2] // units.shape[0])[:, None]
