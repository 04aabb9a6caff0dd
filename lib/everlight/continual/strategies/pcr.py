"""Proxy-based contrastive replay (PCR; Lin et al. 2023, CVPR).

    L = − mean over views i of log(exp(cos(f_i, w_y(i)) / τ) / Σ_a exp(cos(f_i, w_y(a)) / τ))

f are the features of a view. The proxy w_c of a class is its weights in the cosine head. Incoming
and replayed samples have two views each, and i and a run over all of them. The sum is thus one over
classes, in which each class counts as often as it has views: the cross-entropy of cosines over the
classes in both batches, weighted by their frequency in them. Classes without a view have no part,
so that the proxies of old classes are only pushed away by a step that replays them.

The first view is the network's usual input, the second is changed at random as well. The incoming
samples' views have one pass, and the replayed samples' views a second one. The class with the
greatest cosine is predicted. Memory and replay are those of `experience_replay`. The scale of the
head learns nothing. The authors have τ = 0.09, and replay 10 samples per batch of 10.

Equal to the official code (FelixHuiweiLin/PCR, `agents/pcr.py`, `SupConLoss` of `utils/loss.py`
with `contrast_mode="proxy"`) at the gradient of a step; differs in:

- The second view of the official code also changes colours at random, and makes some images grey.
  A setup's own augmentation changes both views; in that code the first is the plain image.
- The first step, whose memory is empty, learns from its batch, in that code from nothing.
- In that code lengths are increased by 0.000001 before features and proxies are divided by them.
- A smaller last batch is trained on, in that code left out.
- That code's reservoir counts the arrivals before a batch for all of the batch.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, PositiveInt, checked
from everlight.continual.engine.updates import with_inputs
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.experience_replay import Reservoir, experience_replay
from everlight.continual.strategies.parts.passes import batch_outputs, weighted_mean
from everlight.continual.strategies.parts.replayed import join_batches, replayed_outputs
from everlight.continual.strategies.parts.views import random_view
from everlight.models.heads import head_kernel, unit_vectors
from everlight.precision import matrix_product


@checked
def pcr(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    replay_batch_size: PositiveInt | None = None,
    temperature: PositiveFloat = 0.09,
    augment: Callable[[Float[Array, "*shape"], PRNGKeyArray], Float[Array, "*shape"]] = random_view,
) -> Strategy:
    """Return proxy-based contrastive replay (PCR), whose memory is `Reservoir`.

    A sample has one label, and the network a cosine head.

    Args:
      setup: network, objective, optimizer and data access; the objective's loss is not used.
      buffer_size: number of stored samples.
      replay_batch_size: samples drawn per step, at most the stored ones; None is the size of the
        incoming batch.
      temperature: temperature τ of the loss.
      augment: random function of one input that makes the second view, after the setup's own
        augmentation.
    """

    def two_views(batch: Batch, key: PRNGKeyArray) -> Batch:
        key_inputs, key_view = jax.random.split(key)
        second = with_inputs(setup, batch._replace(replay=()), key_inputs)
        keys = jax.random.split(key_view, second.index.shape[0])
        return join_batches(batch, second._replace(inputs=jax.vmap(augment)(second.inputs, keys)))

    def grads(
        memory: Reservoir, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        key_incoming, key_replayed, key_first, key_second = jax.random.split(key, 4)
        incoming = two_views(batch, key_incoming)
        replayed = two_views(batch.replay, key_replayed)
        views = join_batches(incoming, replayed)

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            outputs, batch_stats = batch_outputs(setup, params, learner, incoming, key_first)
            after = learner._replace(batch_stats=batch_stats)
            others, batch_stats = replayed_outputs(setup, params, after, replayed, key_second)
            features = jnp.concatenate([outputs.features, others.features])
            proxies = unit_vectors(head_kernel(params), 0)
            near = matrix_product(unit_vectors(features, -1), proxies) / temperature
            value = weighted_mean(
                proxy_losses(near, views.labels[:, 0], views.weight), views.weight
            )
            return value, (value, batch_stats)

        gradient, (value, batch_stats) = jax.grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, batch_stats, value)

    replay = experience_replay(setup, buffer_size, 1, replay_batch_size)
    return replay._replace(grads=grads)


def proxy_losses(
    near: Float[Array, "n c"], labels: Int[Array, "n"], weight: Float[Array, "n"]
) -> Float[Array, "n"]:
    """Return each view's loss; it is finite for padding too.

    Args:
      near: cosines of the views with the proxies of all classes, divided by the temperature.
      labels: class of each view.
      weight: 0 for padding, which adds no view to its class.
    """
    views = jnp.sum(jax.nn.one_hot(labels, near.shape[1]) * weight[:, None], axis=0)
    # A sum over nothing would have no finite gradient.
    views = jnp.where(jnp.any(views > 0), views, 1)
    total = jax.scipy.special.logsumexp(near, axis=1, b=views)
    return total - jnp.take_along_axis(near, labels[:, None], axis=1)[:, 0]


METHODS = (
    Method(
        "PCR",
        pcr,
        Publication("Lin et al.", 2023, "CVPR", ("samples",)),
        "proxy-based contrastive replay (PCR)",
        head="cosine",
        requirements=(*SINGLE_LABEL_SCORES, "named head", "head kinds"),
        authors={
            "temperature": 0.09,
            "replay_batch_size": 10,
            "batch size": 10,
            "epochs per task": 1,
            "optimizer": "sgd",
            "learning rate": 0.1,
        },
    ),
)
