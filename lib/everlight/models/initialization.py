"""Initial weights that replace a network's own."""

from collections.abc import Callable, Mapping

import jax
from flax.core import FrozenDict
from flax.linen import initializers
from flax.typing import Initializer
from jaxtyping import PRNGKeyArray, PyTree

from everlight.base import Setup
from everlight.checks import checked
from everlight.errors import ArgumentError


@checked
def with_xavier(setup: Setup) -> Setup:
    """Return the setup whose kernels are drawn as Glorot and Bengio 2010 (AISTATS) normalize them.

    A kernel of n inputs and m outputs is uniform in ±√(6 / (n + m)); for a convolution both are
    multiplied by the number of its taps. Biases, scales and batch statistics stay the network's.

    Raises:
      ValueError: in `init`, if the network has no kernel.
    """
    xavier = initializers.xavier_uniform()
    return _with_kernels(setup, lambda layer: xavier)


@checked
def with_kaiming(setup: Setup) -> Setup:
    """Return the setup whose kernels are drawn as He et al. 2015 (ICCV) normalize them.

    A kernel of n inputs is uniform in ±√(6 / n), which suits ReLUs; that of the layer named head is
    uniform in ±√(3 / n). For a convolution n is multiplied by the number of its taps. Biases,
    scales and batch statistics stay the network's.
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
    """

    def init(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        params, initial_stats = setup.init(key)
        return {**params, **layers}, {**initial_stats, **batch_stats}

    return setup._replace(init=init)


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
        keys = jax.random.split(jax.random.fold_in(key, 1), len(leaves))
        drawn = [
            draw_of(path[0].key)(rng, leaf.shape, leaf.dtype) if path[-1].key == "kernel" else leaf
            for rng, (path, leaf) in zip(keys, leaves, strict=True)
        ]
        return jax.tree.unflatten(tree, drawn), batch_stats

    return setup._replace(init=init)
