"""Initial weights that replace a network's own."""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from flax.core import FrozenDict
from flax.linen import initializers
from flax.typing import Initializer
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Setup
from everlight.checks import checked
from everlight.errors import ArgumentError
from everlight.trees import named_leaves

_ATTENTION = ("query", "key", "value", "out")
"""Layers of flax's attention; `out` has its axis of heads among the inputs."""


@checked
def with_xavier(setup: Setup) -> Setup:
    """Return the setup whose kernels are drawn as Glorot and Bengio 2010 (AISTATS) normalize them.

    A kernel of n inputs and m outputs is uniform in ±√(6 / (n + m)); for a convolution both are
    multiplied by the number of its taps. Biases, scales and batch statistics stay the network's.
    A kernel of three axes is a convolution's in a layer with conv in its name. In the layer named
    head it has several proxies per class, and in flax's attention one axis is of heads.

    Raises:
      ValueError: in `init`, if the network has no kernel, or another one of three axes.
    """
    xavier = initializers.xavier_uniform()
    return _with_kernels(setup, lambda layer: xavier)


@checked
def with_kaiming(setup: Setup) -> Setup:
    """Return the setup whose kernels are drawn as He et al. 2015 (ICCV) normalize them.

    A kernel of n inputs is uniform in ±√(6 / n), which suits ReLUs; that of the layer named head is
    uniform in ±√(3 / n). For a convolution n is multiplied by the number of its taps. Biases,
    scales and batch statistics stay the network's. `with_xavier` says which kernels of three axes
    are known.

    Raises:
      ValueError: in `init`, if the network has no kernel, or an unknown one of three axes.
    """
    hidden, head = initializers.he_uniform(), initializers.lecun_uniform()
    return _with_kernels(setup, lambda layer: head if layer == "head" else hidden)


@checked
def with_layers(
    setup: Setup,
    layers: Mapping[str, PyTree],
    batch_stats: Mapping[str, PyTree] = FrozenDict(),
) -> Setup:
    """Return the setup whose network begins with the given layers; others are drawn as before.

    Args:
      setup: of any network.
      layers: parameters by layer.
      batch_stats: batch statistics by layer.

    Raises:
      ValueError: in `init`, if the network has no such layer, or one of other shapes.
    """

    def init(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        params, initial_stats = setup.init(key)
        refuse_other_layers("layers", layers, params)
        refuse_other_layers("batch_stats", batch_stats, initial_stats)
        return {**params, **layers}, {**initial_stats, **batch_stats}

    return setup._replace(init=init)


def refuse_other_layers(
    argument: str, layers: Mapping[str, PyTree], initial: Mapping[str, PyTree]
) -> None:
    """Refuse layers that a network does not have, or has with other arrays.

    Args:
      argument: name of the argument that has the layers.
      layers: arrays by layer, of some layers.
      initial: the network's own arrays by layer.

    Raises:
      ValueError: the message names the layer, or its first array that differs.
    """
    for layer, arrays in layers.items():
        if layer not in initial:
            raise ArgumentError(
                f"{argument} holds {layer!r}, and the network has {', '.join(initial) or 'none'}; "
                "give layers of the network"
            )
        shapes, needed = (_shapes({layer: tree}) for tree in (arrays, initial[layer]))
        for name in [*needed, *shapes]:
            if name not in needed:
                raise ArgumentError(f"{argument} holds {name}, and the network has none; remove it")
            if shapes.get(name) != needed[name]:
                has = f"has the shape {shapes[name]}" if name in shapes else "is missing"
                raise ArgumentError(f"{name} of {argument} {has}; give {needed[name]}")


def _shapes(tree: PyTree) -> dict[str, tuple[int, ...]]:
    return {name: jnp.shape(leaf) for name, leaf in named_leaves(tree).items()}


def _with_kernels(setup: Setup, draw_of: Callable[[str], Initializer]) -> Setup:
    """Return the setup whose kernels are drawn by a function of their layer's name."""

    def init(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        params, batch_stats = setup.init(key)
        leaves, tree = jax.tree_util.tree_flatten_with_path(params)
        if not any(path[-1].key == "kernel" for path, _ in leaves):
            raise ArgumentError(
                f"the parameters are {', '.join(params)}, none of them a kernel; give the setup of "
                "a network with flax layers, or keep its own initialization"
            )
        names = [
            tuple(jax.tree_util.keystr((part,), simple=True) for part in path) for path, _ in leaves
        ]
        layers = {name[:-1] for name in names}
        keys = jax.random.split(jax.random.fold_in(key, 1), len(leaves))

        def draw(
            rng: PRNGKeyArray, name: tuple[str, ...], old: Float[Array, "*shape"]
        ) -> Float[Array, "*shape"]:
            shape = _fan_shape(name[:-1], layers, old.shape)
            return draw_of(name[0])(rng, shape, old.dtype).reshape(old.shape)

        drawn = [
            draw(rng, name, leaf) if name[-1] == "kernel" else leaf
            for rng, name, (_, leaf) in zip(keys, names, leaves, strict=True)
        ]
        return jax.tree.unflatten(tree, drawn), batch_stats

    return setup._replace(init=init)


def _fan_shape(
    layer: tuple[str, ...], layers: set[tuple[str, ...]], shape: tuple[int, ...]
) -> tuple[int, ...]:
    """Return a kernel's shape with one axis of inputs and one of outputs, which are the last.

    The initializers of JAX take other axes as a convolution's taps.
    """
    name = layer[-1] if layer else ""
    # Layers of a list have their number as name.
    if len(shape) != 3 or any("conv" in part.lower() for part in layer):
        return shape
    is_attention = name in _ATTENTION and all((*layer[:-1], part) in layers for part in _ATTENTION)
    if is_attention and name == "out":
        return math.prod(shape[:2]), shape[2]
    if is_attention or layer == ("head",):
        return shape[0], math.prod(shape[1:])
    raise ArgumentError(
        f"{'/'.join((*layer, 'kernel'))} has the shape {shape}, whose axes of inputs and outputs "
        "are unknown; give the layer, or the list that holds it, a name with conv if it is a "
        "convolution, or keep the network's own initialization"
    )
