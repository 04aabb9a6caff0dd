"""A `Setup` from a module of Flax NNX."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Objective, Outputs, Setup
from everlight.checks import checked
from everlight.continual.engine.setups.named_arrays import NamedArrays, as_outputs, names_of
from everlight.continual.engine.sources import Augment, InputSource, setup_from
from everlight.errors import ArgumentError


class _Split(NamedTuple):
    """A module of shapes without values, in the parts that `nnx.split` divides it into."""

    graph: nnx.GraphDef
    params: nnx.State
    batch_stats: nnx.State
    random: nnx.State


@checked
def nnx_setup(
    make: Callable[[nnx.Rngs], nnx.Module],
    source: InputSource,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    augment: Augment | None = None,
) -> Setup:
    """Return the setup of a Flax NNX module that is called as `net(images)`.

    `nnx.Param` are the parameters and `nnx.BatchStat` the batch statistics, in nested dictionaries
    by the names of attributes; entries of a list have their number as text. Steps call the module
    after `net.train()`, evaluation after `net.eval()`, which set `deterministic` and
    `use_running_average` of its layers. The random states of its layers, such as dropout's, are
    drawn for every step. `layer_inputs` is None.

    Args:
      make: function from `nnx.Rngs` to the module, which returns logits or `Outputs`. It is called
        for every new network, such as once per seed. One with given weights ignores its argument.
      source: stored or streamed images or computed inputs, which the step normalizes.
      objective: loss, scores and metrics of the outputs.
      optimizer: optimizer, reset at every task.
      augment: random function of one training image, applied before normalization.

    Raises:
      ValueError: `make` returns no NNX module, or one with variables of another type.
    """
    split = split_shapes(make)
    params_tree, stats_tree = map(jax.tree.structure, (split.params, split.batch_stats))
    params_names, stats_names = map(_names, (split.params, split.batch_stats))

    def init(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        _, params, stats, _ = nnx.split(make(nnx.Rngs(key)), nnx.Param, nnx.BatchStat, nnx.RngState)
        packed = params_names.pack(jax.tree.leaves(params))
        return packed, stats_names.pack(jax.tree.leaves(stats))

    def apply(
        params: PyTree,
        batch_stats: PyTree,
        inputs: Float[Array, "b *shape"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Outputs, PyTree]:
        net = nnx.merge(
            split.graph,
            params_tree.unflatten(params_names.unpack(params)),
            stats_tree.unflatten(stats_names.unpack(batch_stats)),
            _with_key(split.random, jax.random.key(0) if key is None else key),
        )
        if not train:
            net.eval()
            return as_outputs(net(inputs)), batch_stats
        net.train()
        outputs = as_outputs(net(inputs))
        return outputs, stats_names.pack(jax.tree.leaves(nnx.state(net, nnx.BatchStat)))

    return setup_from(init, apply, source, objective, optimizer, augment)


def split_shapes(make: Callable[[nnx.Rngs], Any]) -> _Split:
    """Return the parts of the module that a function makes, with shapes in place of arrays.

    Raises:
      ValueError: `make` returns no NNX module, or one with variables of another type.
    """

    def parts(key: PRNGKeyArray) -> tuple:
        net = make(nnx.Rngs(key))
        if not isinstance(net, nnx.Module):
            raise ArgumentError(
                f"the function of rngs returned {type(net).__name__}; give one that returns an "
                "nnx.Module"
            )
        return nnx.split(net, nnx.Param, nnx.BatchStat, nnx.RngState, ...)

    *split, others = jax.eval_shape(parts, jax.random.key(0))
    for path, variable in nnx.to_flat_state(others):
        raise ArgumentError(
            f"the module's {'.'.join(map(str, path))} is {variable.type.__name__}; give variables "
            "that are nnx.Param (trained) or nnx.BatchStat, and mask frozen ones by Setup.trainable"
        )
    return _Split(*split)


def _names(state: PyTree) -> NamedArrays:
    # The last key of a path is the variable's own value.
    paths = [path[:-1] for path, _ in jax.tree_util.tree_flatten_with_path(state)[0]]
    return NamedArrays(tuple(map(names_of, paths)))


def _with_key(random: PyTree, key: PRNGKeyArray) -> PyTree:
    """Return the random states as new ones, whose keys are drawn and whose counters are 0."""
    leaves, tree = jax.tree.flatten(random)
    keys = iter(jax.random.split(key, max(len(leaves), 1)))
    drawn = [
        next(keys)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else jnp.zeros(leaf.shape, leaf.dtype)
        for leaf in leaves
    ]
    return tree.unflatten(drawn)
