"""Extractors, of which a network has one per task, and the head that reads all of them.

Every array has its last size from the start. Those of tasks to come are empty, that is 0.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Learner, Outputs, Setup, SplitNetwork
from everlight.continual.strategies.parts.added_parameters import AddedParameters
from everlight.continual.strategies.parts.exemplars import ExemplarBuffer
from everlight.precision import matrix_product


class Expansion(NamedTuple):
    """Memory of methods with an extractor per task."""

    buffer: ExemplarBuffer
    extractors: PyTree
    """Parameters of finished extractors, `[T - 1, ...]`; others are empty."""
    batch_stats: PyTree
    """Batch statistics of the network at the end of their tasks, `[T - 1, ...]`."""
    count: Int[Array, ""]
    """Number of finished extractors."""
    heads: AddedParameters
    """Rows of the head for finished extractors, `kernel` `[T - 1, f, c]`, and the auxiliary head,
    `auxiliary`, whose first output is that of all earlier classes."""


class Extractors(NamedTuple):
    """Division of a network into a shared part, which may be empty, and one extractor per task."""

    part: Callable[[PyTree], PyTree]
    """Function from the network's parameters to those of its extractor, the head not among them."""
    apply: Callable[
        [Expansion, PyTree, PyTree, Float[Array, "b *shape"], bool, PRNGKeyArray | None],
        tuple[Outputs, Float[Array, "s b f"], PyTree],
    ]
    """Function of memory and the arguments of `Setup.apply` to the network's outputs, the features
    of all finished extractors, and batch statistics."""
    places: int
    """Number of finished extractors that have a place."""
    copies: int
    """Size of all places in networks, rounded up."""


def whole_networks(setup: Setup, places: int) -> Extractors:
    """Return the division of a network that shares nothing.

    Args:
      setup: network, objective, optimizer and data access.
      places: number of finished extractors that have a place.
    """

    def apply(
        memory: Expansion,
        params: PyTree,
        batch_stats: PyTree,
        inputs: Float[Array, "b *shape"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Outputs, Float[Array, "s b f"], PyTree]:
        outputs, batch_stats = setup.apply(params, batch_stats, inputs, train, key)
        finished = memory.extractors, memory.batch_stats
        fixed = jax.lax.stop_gradient(params)
        features = finished_features(setup, finished, fixed, inputs, memory.count, places)
        return outputs, features, batch_stats

    return Extractors(below_head, apply, places, places)


def blocks_above(setup: Setup, split: SplitNetwork, places: int) -> Extractors:
    """Return the division of a network whose lower part is shared, and trained in every task.

    Finished extractors compute in evaluation mode on the outputs of the shared part, which in
    training are those of the training mode, and the gradient passes through them to that part.

    Args:
      setup: network, objective, optimizer and data access.
      split: the network in two parts.
      places: number of finished extractors that have a place.
    """

    def part(params: PyTree) -> PyTree:
        return jax.tree.map(
            lambda is_lower, leaf: None if is_lower else leaf,
            below_head(split.is_lower),
            below_head(params),
        )

    def apply(
        memory: Expansion,
        params: PyTree,
        batch_stats: PyTree,
        inputs: Float[Array, "b *shape"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Outputs, Float[Array, "s b f"], PyTree]:
        values, batch_stats = split.lower(params, batch_stats, inputs, train, key)
        outputs, batch_stats = split.upper(params, batch_stats, values, train, key)
        fixed = jax.lax.stop_gradient(params)

        def upper(block: PyTree, *arguments: Any) -> tuple[Outputs, PyTree]:
            merged = jax.tree.map(
                lambda is_lower, shared, leaf: shared if is_lower else leaf,
                split.is_lower,
                fixed,
                block,
            )
            return split.upper(merged, *arguments)

        finished, block_setup = (memory.extractors, memory.batch_stats), setup._replace(apply=upper)
        features = finished_features(
            block_setup, finished, fixed, values, memory.count, places, has_gradient=train
        )
        return outputs, features, batch_stats

    network, _ = jax.eval_shape(setup.init, jax.random.key(0))
    share = count_values(part(network)) / count_values(network)
    return Extractors(part, apply, places, math.ceil(places * share))


def count_values(tree: PyTree) -> int:
    """Return the number of values of all arrays, or shapes, of a tree."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def below_head(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of all layers but the head."""
    return {name: part for name, part in params.items() if name != "head"}


def new_auxiliary(kernel: Float[Array, "f c"], key: PRNGKeyArray) -> dict[str, Array]:
    """Return an auxiliary head of one output more than the head; weights have variance 1 / f."""
    width, classes = kernel.shape
    drawn = jax.random.normal(key, (width, classes + 1), kernel.dtype) / jnp.sqrt(width)
    return {"kernel": drawn.astype(kernel.dtype), "bias": jnp.zeros(classes + 1, kernel.dtype)}


def empty_copies(tree: PyTree, count: int) -> PyTree:
    """Return arrays of zeros with this number of copies of every leaf as rows."""
    return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), tree)


def with_finished(copies: PyTree, tree: PyTree, task: Int[Array, ""]) -> PyTree:
    """Return the copies with the tree as that of the task before this one; the first has none."""
    length = len(jax.tree.leaves(copies)[0])
    place = jnp.where(task > 0, task - 1, length)
    return jax.tree.map(lambda rows, leaf: rows.at[place].set(leaf, mode="drop"), copies, tree)


def finished_features(
    setup: Setup,
    finished: tuple[PyTree, PyTree],
    params: PyTree,
    inputs: Float[Array, "b *shape"],
    count: Int[Array, ""],
    places: int,
    has_gradient: bool = False,
) -> Float[Array, "s b f"]:
    """Return the features of all finished extractors in evaluation mode; 0 of the empty ones.

    With a gradient, a loop of fixed length passes over the empty ones. Without, the loop ends
    before them, which saves more where `count` is an array of vmapped runs.

    Args:
      setup: network, objective, optimizer and data access.
      finished: parameters below the head, and batch statistics, of the extractors.
      params: parameters of the current network, whose head has no effect.
      inputs: inputs of the network.
      count: number of finished extractors.
      places: number of extractors that have a place, static. A network that is a head alone has no
        parameters from which it could be read.
      has_gradient: true if the features have a gradient by the inputs.
    """

    def features_at(place: Int[Array, ""] | int) -> Float[Array, "b f"]:
        extractor, stats = jax.tree.map(lambda leaf: leaf[place], finished)
        outputs, _ = setup.apply({**extractor, "head": params["head"]}, stats, inputs, False, None)
        return outputs.features

    one = jax.eval_shape(lambda: features_at(0))
    empty = jnp.zeros((places, *one.shape), one.dtype)
    if has_gradient:

        def features_or_zeros(place: Int[Array, ""]) -> Float[Array, "b f"]:
            return jax.lax.cond(place < count, features_at, lambda _: empty[0], place)

        return jax.lax.map(features_or_zeros, jnp.arange(places))
    return jax.lax.fori_loop(
        0, count, lambda place, rows: rows.at[place].set(features_at(place)), empty
    )


def expanded_outputs(
    outputs: Outputs, finished: Float[Array, "s b f"], kernel: Float[Array, "s f c"]
) -> Outputs:
    """Return the outputs with the logits and the features of all extractors.

    Args:
      outputs: outputs of the current network.
      finished: features of the finished extractors.
      kernel: rows of the head for them.
    """
    rows = finished.transpose(1, 0, 2).reshape(finished.shape[1], -1)
    logits = outputs.logits + matrix_product(rows, kernel.reshape(-1, kernel.shape[2]))
    features = jnp.concatenate([rows, outputs.features], axis=1)
    return outputs._replace(logits=logits.astype(outputs.logits.dtype), features=features)


def expanded_setup(setup: Setup, extractors: Extractors, memory: Expansion) -> Setup:
    """Return the setup whose network has the current and all finished extractors."""

    def apply(
        params: PyTree,
        batch_stats: PyTree,
        inputs: Float[Array, "b *shape"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Outputs, PyTree]:
        outputs, features, batch_stats = extractors.apply(
            memory, params, batch_stats, inputs, train, key
        )
        return expanded_outputs(outputs, features, memory.heads.params["kernel"]), batch_stats

    return setup._replace(apply=apply)


def joined_head(memory: Expansion, params: PyTree) -> PyTree:
    """Return the head with the rows of finished extractors and, after them, of the current one."""
    kernels = memory.heads.params["kernel"]
    rows = kernels.reshape(-1, kernels.shape[2])
    return {**params["head"], "kernel": jnp.concatenate([rows, params["head"]["kernel"]])}


def with_joined_head(
    memory: Expansion, learner: Learner, head: PyTree
) -> tuple[Expansion, Learner]:
    """Return memory and learner with the rows of a joined head in their places."""
    heads, width = memory.heads, learner.params["head"]["kernel"].shape[0]
    kernels = head["kernel"][:-width].reshape(heads.params["kernel"].shape)
    heads = heads._replace(params={**heads.params, "kernel": kernels})
    current = {**head, "kernel": head["kernel"][-width:]}
    params = {**learner.params, "head": current}
    return memory._replace(heads=heads), learner._replace(params=params)


def drawn_head(memory: Expansion, head: PyTree, key: PRNGKeyArray) -> PyTree:
    """Return a joined head, uniform within ± inputs^(-1/2), whose biases are 0.

    Rows of empty extractors are 0 and count among no inputs.
    """
    kernel, kernels = head["kernel"], memory.heads.params["kernel"]
    finished, width = kernels.shape[:2]
    used = jnp.repeat(jnp.append(jnp.arange(finished) < memory.count, True), width)
    bound = jax.lax.rsqrt(jnp.sum(used).astype(kernel.dtype))
    drawn = bound * jax.random.uniform(key, kernel.shape, kernel.dtype, -1, 1)
    others = jax.tree.map(jnp.zeros_like, head)
    return {**others, "kernel": jnp.where(used[:, None], drawn, 0)}
