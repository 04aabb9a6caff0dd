"""Initial weights that replace a network's own."""

from collections.abc import Mapping

import jax
from flax.linen import initializers
from jaxtyping import PRNGKeyArray, PyTree

from everlight.base import Setup
from everlight.checks import checked


@checked
def with_xavier(setup: Setup) -> Setup:
    """Return the setup whose kernels are drawn as Glorot and Bengio 2010 (AISTATS) normalise them.

    A kernel of n inputs and m outputs is uniform in ±√(6 / (n + m)); for a convolution both are
    multiplied by the number of its taps. Biases, scales and batch statistics stay the network's.
    """

    def init(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        params, batch_stats = setup.init(key)
        leaves, tree = jax.tree_util.tree_flatten_with_path(params)
        keys = jax.random.split(jax.random.fold_in(key, 1), len(leaves))
        drawn = [
            _draw(own, leaf.shape, leaf.dtype) if path[-1].key == "kernel" else leaf
            for own, (path, leaf) in zip(keys, leaves, strict=True)
        ]
        return jax.tree.unflatten(tree, drawn), batch_stats

    return setup._replace(init=init)


@checked
@checked
def with_layers(setup: Setup, layers: Mapping[str, PyTree]) -> Setup:
    """Return the setup whose network begins with the given layers; others are drawn as before.

    Args:
      setup: of any network.
      layers: parameters by layer.
    """

    def init(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        params, batch_stats = setup.init(key)
        return {**params, **layers}, batch_stats

    return setup._replace(init=init)


_draw = initializers.xavier_uniform()
