"""Common parts of strategies that accumulate statistics of a frozen network's features.

Parameters and batch statistics never change. The network computes features in evaluation mode, and
every step adds them to memory. If the setup augments, the features are those of augmented inputs;
the official codes do not augment in these passes. Task boundaries are needed only where an option
says so. Every sample of a task counts once, whatever the epochs (`Strategy.single_pass`). The usual
network is `caffe_nets.LinearClassifier` over features that a pretrained network computed once,
`StoredImages` of shape `[f]`; its head is not used.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Memory, Setup, StepInfo, Strategy, Task
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.passes import evaluation_outputs


class Frozen(NamedTuple):
    """Values that a step passes to its memory."""

    features: Float[Array, "b f"]
    """Features of the batch in evaluation mode."""
    params: PyTree
    """Parameters before the step; an optimizer with weight decay would change them."""


def feature_strategy(
    setup: Setup,
    init: Callable[[PRNGKeyArray, Learner], Memory],
    accumulate: Callable[[Memory, Float[Array, "b f"], Batch], Memory],
    scores: Callable[[Memory, Float[Array, "b f"]], Float[Array, "b c"]],
) -> Strategy:
    """Return a strategy that accumulates feature statistics in one pass; its loss is 0.

    Args:
      setup: network, objective, optimizer and data access; the objective's loss is not used.
      init: function that returns the initial memory.
      accumulate: function that returns the memory after a batch, given its features. Rows of
        weight 0 are arbitrary.
      scores: function from memory and features, `[b, f]`, to the scores of all classes, `[b, c]`.
    """

    def grads(
        memory: Memory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        nothing = jax.tree.map(jnp.zeros_like, learner.params)
        features = evaluation_outputs(setup, learner, batch.inputs).features
        seen = Frozen(features, learner.params)
        return nothing, StepInfo(nothing, learner.batch_stats, jnp.float32(0), seen)

    def after_step(
        memory: Memory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Memory, Learner]:
        weight = jnp.where(info.arrives, info.batch.weight, 0)
        batch = info.batch._replace(weight=weight)
        memory = accumulate(memory, info.aux.features, batch)
        return memory, learner._replace(params=info.aux.params)

    def predict(
        memory: Memory, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        return scores(memory, evaluation_outputs(setup, learner, inputs).features)

    return naive(setup)._replace(
        init=init, grads=grads, after_step=after_step, predict=predict, single_pass=True
    )


def feature_width(setup: Setup, learner: Learner) -> tuple[int, DTypeLike]:
    """Return the number of features of the network and their dtype."""
    evaluated = partial(evaluation_outputs, setup, learner)
    outputs = jax.eval_shape(evaluated, setup.input_shape)
    return outputs.features.shape[-1], outputs.features.dtype
