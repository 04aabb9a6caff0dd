"""Supervised contrastive replay (SCR; Mai et al. 2021, CVPRW).

Incoming and replayed samples have two views each. Views of one class attract each other, all others
repel (Khosla et al. 2020, NeurIPS):

    L = − mean over views i and over p in P_i of log(exp(z_i·z_p / τ) / Σ_{a≠i} exp(z_i·z_a / τ))

z is the projection of the features by a network with one hidden layer, of length 1, and P_i has the
other views of i's class, those of the same sample included. The first view is the network's usual
input, the second is changed at random as well. The projection is used only in training: the class
with the nearest mean of the stored samples' features is predicted (`predict_by_nearest_mean`). The
network's output layer learns nothing.

Both views have a pass each, in this order. The projection is part of the memory and trained by the
same optimizer as the network; its optimizer state carries over from task to task. Memory and replay
are those of `experience_replay`. The authors have τ = 0.1, 128 outputs and a hidden layer as wide
as the features, and replay 100 samples per batch of 10.

Equal to the official code (RaptorMai/online-continual-learning, `scr.py` and `SupConLoss` of
`loss.py`) at the gradient of a step by network and projection; differs in:

- The second view in the official code also changes colours at random, and makes some images grey.
- The first step, whose memory is empty, learns from its batch, in the official code from nothing.
- The authors' runs have the review trick with this loss; everlight has none.
- A class without stored samples is predicted last, in the official code by a mean drawn at random.
- The reservoir in the official code counts the arrivals before a batch for all of the batch.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, PositiveInt, checked
from everlight.continual.engine.updates import with_inputs
from everlight.continual.inner_memory import with_outer_memory
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.experience_replay import Reservoir, experience_replay
from everlight.continual.strategies.parts.frozen import feature_width
from everlight.continual.strategies.parts.passes import batch_outputs, weighted_mean
from everlight.continual.strategies.parts.projection import (
    Linear,
    Projection,
    new_projection,
    projected,
    updated_projection,
)
from everlight.continual.strategies.parts.replay_tricks import predict_by_nearest_mean
from everlight.continual.strategies.parts.replayed import join_batches
from everlight.continual.strategies.parts.views import random_view
from everlight.precision import matrix_product


class ContrastMemory(NamedTuple):
    """Memory of SCR."""

    held: Reservoir
    projection: Projection


@checked
def scr(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    replay_batch_size: PositiveInt | None = None,
    temperature: PositiveFloat = 0.1,
    width: PositiveInt = 128,
    augment: Callable[[Float[Array, "*shape"], PRNGKeyArray], Float[Array, "*shape"]] = random_view,
) -> Strategy:
    """Return supervised contrastive replay (SCR), whose memory is `WithMeans`.

    A sample has one label. The memory within is `ContrastMemory`.

    Args:
      setup: network, objective, optimizer and data access; the objective's loss is not used.
      buffer_size: number of stored samples.
      replay_batch_size: samples drawn per step, at most the stored ones; None is the size of the
        incoming batch.
      temperature: temperature τ of the contrastive loss.
      width: number of outputs of the projection.
      augment: random function of one input that makes the second view, after the setup's own
        augmentation.
    """
    replay = experience_replay(setup, buffer_size, 1, replay_batch_size)

    def init(key: PRNGKeyArray, learner: Learner) -> ContrastMemory:
        features, _ = feature_width(setup, learner)
        projection = new_projection(setup, (features, features, width), key)
        return ContrastMemory(replay.init(key, learner), projection)

    def grads(
        memory: ContrastMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        key_inputs, key_view, key_first, key_second = jax.random.split(key, 4)
        first = join_batches(batch, batch.replay)
        second = with_inputs(setup, first, key_inputs)
        keys = jax.random.split(key_view, second.index.shape[0])
        second = second._replace(inputs=jax.vmap(augment)(second.inputs, keys))

        def loss(params: PyTree, layers: tuple[Linear, ...]) -> tuple[Float[Array, ""], tuple]:
            first_outputs, batch_stats = batch_outputs(setup, params, learner, first, key_first)
            after = learner._replace(batch_stats=batch_stats)
            second_outputs, batch_stats = batch_outputs(setup, params, after, second, key_second)
            views = jnp.concatenate([first_outputs.features, second_outputs.features])
            losses = contrastive_losses(
                projected(layers, views),
                jnp.tile(first.labels[:, 0], 2),
                jnp.tile(first.weight, 2),
                temperature,
            )
            value = weighted_mean(losses, jnp.tile(first.weight, 2))
            return value, (value, batch_stats)

        differentiate = jax.grad(loss, argnums=(0, 1), has_aux=True)
        (gradient, for_projection), (value, batch_stats) = differentiate(
            learner.params, memory.projection.layers
        )
        return gradient, StepInfo(gradient, batch_stats, value, for_projection)

    def after_step(
        memory: ContrastMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[ContrastMemory, Learner]:
        held, learner = replay.after_step(memory.held, learner, info, key)
        projection = updated_projection(setup, learner, memory.projection, info.aux)
        return ContrastMemory(held, projection), learner

    strategy = with_outer_memory(replay, "held")._replace(
        init=init, grads=grads, after_step=after_step
    )
    return predict_by_nearest_mean(setup, strategy)


def contrastive_losses(
    views: Float[Array, "n w"],
    labels: Int[Array, "n"],
    weight: Float[Array, "n"],
    temperature: float,
) -> Float[Array, "n"]:
    """Return each view's supervised contrastive loss.

    Args:
      views: views of length 1.
      labels: class of each view.
      weight: 0 for padding, which is compared with no view.
      temperature: temperature τ.
    """
    near = matrix_product(views, views.T) / temperature
    other = (weight > 0) & ~jnp.eye(views.shape[0], dtype=bool)
    # A view of padding has others as well, so that its loss is finite.
    total = jax.scipy.special.logsumexp(near, axis=1, keepdims=True, where=other)
    positive = ((labels[:, None] == labels) & other).astype(near.dtype)
    count = jnp.maximum(jnp.sum(positive, axis=1), 1)
    return -jnp.sum(positive * (near - total), axis=1) / count


METHODS = (
    Method(
        "SCR",
        scr,
        Publication("Mai et al.", 2021, "CVPRW", ("samples",)),
        "supervised contrastive replay (SCR)",
        requirements=SINGLE_LABEL_SCORES,
        nearest_mean=True,
        authors={
            "temperature": 0.1,
            "width": 128,
            "replay_batch_size": 100,
            "batch size": 10,
            "epochs per task": 1,
        },
    ),
)
