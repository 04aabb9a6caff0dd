"""Online prototype learning (OnPro; Wei et al. 2023, ICCV).

    L = cross-entropy + instance losses of incoming and replayed samples
        + L_proto(incoming classes) + L_proto(replayed classes)
    L_proto = − mean over prototypes i of log(exp(p_i·p_i′ / τ_p) / Σ_{a≠i} exp(p_i·p_a / τ_p))

z is a linear projection of the features by a layer that is used only in training, of length 1. The
prototype p of a class is the mean of z over the batch's samples of the class, of length 1; i′ is
the same class in the second view, and a runs over the classes of the batch in both views (online
prototype equilibrium). The instance loss is that of OCM (Guo et al. 2022, ICML) with similarities

    S_ij = λ (z_i·z_j + z_i·f_j),   P_ij = exp(S_ij / τ) / Σ_a exp(S_ia / τ)
    l_i = − mean over j of i's class of log P_ij                             for replayed samples
    l_i = − log P_ii′ − 2 · mean over j of i's class of log P_ij             for incoming ones

f being features of length 1, of which as many in a row as z has, from a random one on, count. Every
image has 16 forms, by quarter turns and by turned halves; each is a class of its own, and has two
views. The second view is changed at random as well.

After the first task, the samples that are replayed by cross-entropy and instance loss are mixed
(adaptive prototypical feedback, `prototype_mixing`), by prototypes of the last step's replayed
samples. A mixed sample has the mixed cross-entropies of both classes and is a class of its own in
the instance loss. Incoming samples have no cross-entropy then. In the first task the cross-entropy
is that of the incoming samples, and replayed ones have only L_proto. Cross-entropies are of second
views. Memory and replay are those of `experience_replay`.

The authors have τ = 0.07, τ_p = 0.5, 128 projections, 64 replayed samples per batch of 10, Adam,
and on CIFAR-10 p = 0.6 with 0.75 of the slots for pairs of the same draw and λ = 0.5 after the
first task (CIFAR-100: 0.2, 0.9 and 1).

Equal to the official code (weilllllls/OnPro, `train.py`, `modules/OPE.py`, `modules/APF.py` and
`losses/loss.py`) at the gradient of a step by network and projection, given the draws, with
`loss_over="all"`; differs in:

- The second view in the official code also makes some images grey, and draws again crops that
  exceed the image.
- After the first task at most seven samples per class seen so far are replayed in the official
  code, and the first batch of a task is not mixed.
- The reservoir in the official code counts the arrivals before a batch for all of the batch.
- Mixed samples of one class keep this class in the instance loss, in the official code a sum of
  rounding errors.
- Pairs have classes with stored samples; in the official code one without them is replaced
  by another.
- By default cross-entropies run over the seen classes, in the official code over all outputs.
- Passes are in float32, in the official code in half precision. In the first task the
  cross-entropy's pass comes before that of the replayed samples, in the official code after it,
  which only batch statistics see.
- The network's optimizer restarts with every task. That of the projection, which is part of the
  memory, continues, as both do in the official code.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from everlight.base import Batch, Coefficient, Learner, Outputs, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, PositiveInt, UnitInterval, checked
from everlight.conditional import cond_under_vmap
from everlight.continual.inner_memory import with_outer_memory
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.experience_replay import Reservoir, experience_replay
from everlight.continual.strategies.parts.frozen import feature_width
from everlight.continual.strategies.parts.instance_losses import FormSamples, similarities
from everlight.continual.strategies.parts.memory import fill_up
from everlight.continual.strategies.parts.passes import weighted_mean
from everlight.continual.strategies.parts.projection import (
    Linear,
    Projection,
    new_projection,
    projected,
    updated_projection,
)
from everlight.continual.strategies.parts.prototype_losses import prototype_loss
from everlight.continual.strategies.parts.prototype_mixing import (
    Mixed,
    Mixing,
    mix_replayed,
    mixed_ids,
    mixed_inputs,
)
from everlight.continual.strategies.parts.replayed import with_all_seen
from everlight.continual.strategies.parts.views import Views, large_view, turned_forms


class PrototypeMemory(NamedTuple):
    """Memory of OnPro."""

    held: Reservoir
    prototypes: Float[Array, "c w"]
    """Mean projection of each class of the last replayed batch; 0 for the other classes."""
    later: Bool[Array, ""]
    """True after the first task."""
    projection: Projection


class LossSettings(NamedTuple):
    """Settings of the loss of a step, as of `onpro`."""

    temperature: float
    prototype_temperature: float
    similarity: float
    views: Views


class Draws(NamedTuple):
    """Random choices of a step, except views."""

    replayed: Batch
    mixed: Mixed
    starts: Int[Array, "2"]
    """First feature that counts in similarities, of incoming and of replayed samples."""


@checked
def onpro(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    replay_batch_size: PositiveInt | None = None,
    temperature: PositiveFloat = 0.07,
    prototype_temperature: PositiveFloat = 0.5,
    similarity: Coefficient = 1.0,
    width: PositiveInt = 128,
    base_share: UnitInterval = 0.75,
    mix_probability: UnitInterval = 0.6,
    mix_share: UnitInterval = 0.6,
    concentration: PositiveFloat = 0.4,
    augment: Callable[[Float[Array, "*shape"], PRNGKeyArray], Float[Array, "*shape"]] = large_view,
    forms: Callable[[Float[Array, "*shape"]], Float[Array, "r *shape"]] = turned_forms,
    loss_over: Literal["seen", "all"] = "seen",
) -> Strategy:
    """Return online prototype learning (OnPro), whose memory is `PrototypeMemory`.

    A sample has one label.

    Args:
      setup: network, objective, optimizer and data access.
      buffer_size: number of stored samples.
      replay_batch_size: samples drawn per step, at most the stored ones; None is the size of the
        incoming batch.
      temperature: temperature τ of the instance losses.
      prototype_temperature: temperature τ_p of the losses of prototypes.
      similarity: factor λ of similarities in the instance losses after the first task.
      width: number of outputs of the projection, at most that of features.
      base_share: share of the mixed samples whose partner is of the same draw; the others are of
        two classes that are near.
      mix_probability: probability p of both coins on which mixing depends.
      mix_share: greatest share of the partner from the same draw.
      concentration: parameter α of the distribution of shares between two classes.
      augment: random function of one input that makes the second view, after the setup's own
        augmentation.
      forms: function from an input to its forms, the input itself first.
      loss_over: classes of the cross-entropies: the seen ones, or all outputs of the head, as in
        the authors' code.
    """
    replay = experience_replay(setup, buffer_size, 1, replay_batch_size)
    mixing = Mixing(base_share, mix_probability, mix_share, concentration)
    views = Views(augment, forms)
    settings = LossSettings(temperature, prototype_temperature, similarity, views)

    def init(key: PRNGKeyArray, learner: Learner) -> PrototypeMemory:
        features, _ = feature_width(setup, learner)
        outputs = min(width, features)
        prototypes = jnp.zeros((learner.seen.shape[0], outputs))
        projection = new_projection(setup, (features, outputs), key)
        return PrototypeMemory(replay.init(key, learner), prototypes, jnp.array(False), projection)

    def begin_task(
        memory: PrototypeMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[PrototypeMemory, Learner]:
        return memory._replace(later=task.id > 0), learner

    def draw(memory: PrototypeMemory, batch: Batch, task: Task, key: PRNGKeyArray) -> Draws:
        key_replay, key_mix, key_start = jax.random.split(key, 3)
        replayed = replay.draw(memory.held, batch, task, key_replay)
        mixed = mix_replayed(replayed, memory.held.samples, memory.prototypes, mixing, key_mix)
        features, outputs = memory.projection.layers[0].kernel.shape
        starts = jax.random.randint(key_start, (2,), 0, max(1, features - outputs))
        first, second = (fill_up(drawn, batch) for drawn in (mixed.first, mixed.second))
        return Draws(replayed, Mixed(first, second, mixed.share), starts)

    def grads(
        memory: PrototypeMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        learner = learner if loss_over == "seen" else with_all_seen(learner)

        def gradients(later: bool) -> tuple:
            step = Step(setup, settings, learner, batch, later)
            differentiate = jax.grad(partial(step_loss, step), (0, 1), has_aux=True)
            return differentiate(learner.params, memory.projection.layers, key)

        (gradient, for_projection), (value, batch_stats, prototypes) = cond_under_vmap(
            memory.later, partial(gradients, True), partial(gradients, False)
        )
        return gradient, StepInfo(gradient, batch_stats, value, (for_projection, prototypes))

    def after_step(
        memory: PrototypeMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[PrototypeMemory, Learner]:
        gradient, prototypes = info.aux
        held, learner = replay.after_step(memory.held, learner, info, key)
        projection = updated_projection(setup, learner, memory.projection, gradient)
        return PrototypeMemory(held, prototypes, memory.later, projection), learner

    return with_outer_memory(replay, "held")._replace(
        init=init, begin_task=begin_task, draw=draw, grads=grads, after_step=after_step
    )


class Step(NamedTuple):
    """Values of a step in addition to the parameters that it changes."""

    setup: Setup
    settings: LossSettings
    learner: Learner
    batch: Batch
    """Incoming batch with its inputs, and in `replay` with its `Draws`."""
    later: bool
    """True after the first task."""

    @property
    def network_inputs(self) -> Float[Array, "r *shape"]:
        """Return the inputs with cross-entropies: mixed ones after the first task."""
        return mixed_inputs(self.batch.replay.mixed) if self.later else self.batch.inputs

    def prototype_loss(
        self, first: Float[Array, "n w"], second: Float[Array, "n w"], samples: Batch
    ) -> tuple[Float[Array, ""], Float[Array, "c w"]]:
        """Return L_proto and the prototypes of samples, from projections of their two views."""
        classes, temperature = self.learner.seen.shape[0], self.settings.prototype_temperature
        labels = samples.labels[:, 0]
        return prototype_loss(first, second, labels, samples.weight, classes, temperature)


RunNetwork = Callable[[PyTree, Array, PRNGKeyArray], tuple[Outputs, Array, PyTree]]
"""Function from batch statistics, inputs and a key to outputs, projections and new statistics."""


def step_loss(
    step: Step, params: PyTree, layers: tuple[Linear, ...], key: PRNGKeyArray
) -> tuple[Float[Array, ""], tuple]:
    """Return L, and (L, batch statistics, prototypes of the replayed samples)."""
    keys = jax.random.split(key, 7)

    def run(batch_stats: PyTree, inputs: Array, key: PRNGKeyArray) -> tuple[Outputs, Array, PyTree]:
        outputs, batch_stats = step.setup.apply(params, batch_stats, inputs, True, key)
        return outputs, projected(layers, outputs.features), batch_stats

    value, batch_stats = _incoming_loss(step, run, keys[:3])
    entropy, batch_stats = _cross_entropy(step, run, batch_stats, keys[3:5])
    replay_loss, prototypes, batch_stats = _replay_loss(step, run, batch_stats, keys[5:])
    value = value + entropy + replay_loss
    return value, (value, batch_stats, prototypes)


def _incoming_loss(
    step: Step, run: RunNetwork, keys: Shaped[PRNGKeyArray, "3"]
) -> tuple[Float[Array, ""], PyTree]:
    """Return the instance losses and L_proto of incoming samples, and batch statistics.

    After the first task the instance loss of mixed samples is added.
    """
    batch, classes = step.batch, step.learner.seen.shape[0]
    _, mixed, starts = batch.replay
    labels, size = batch.labels[:, 0], batch.labels.shape[0]

    def instance(
        part: slice, ids: Array, weight: Array, start: Array, replayed: bool
    ) -> Float[Array, ""]:
        near = similarities(z[part], outputs.features[part], start)
        near = near * (step.settings.similarity if step.later else 1.0)
        count = near.shape[0] // (2 * ids.shape[0])
        samples = FormSamples(ids, weight).repeated(count, classes + ids.shape[0])
        return samples.instance_loss(near, step.settings.temperature, replayed)

    views = step.settings.views.form_pairs(batch.inputs, keys[0])
    cut = views.shape[0]
    if step.later:
        views = jnp.concatenate(
            [views, step.settings.views.form_pairs(step.network_inputs, keys[1])]
        )
    outputs, z, batch_stats = run(step.learner.batch_stats, views, keys[2])
    value = instance(slice(cut), labels, batch.weight, starts[0], replayed=False)
    if step.later:
        ids, weight = mixed_ids(mixed, classes), mixed.first.weight
        value += instance(slice(cut, None), ids, weight, starts[1], replayed=True)
    first, second = z[:size], z[cut // 2 : cut // 2 + size]
    return value + step.prototype_loss(first, second, batch)[0], batch_stats


def _cross_entropy(
    step: Step, run: RunNetwork, batch_stats: PyTree, keys: Shaped[PRNGKeyArray, "2"]
) -> tuple[Float[Array, ""], PyTree]:
    """Return the cross-entropy of second views, and batch statistics."""
    views = step.settings.views.second(step.network_inputs, keys[0])
    outputs, _, batch_stats = run(batch_stats, views, keys[1])

    def losses(samples: Batch) -> Float[Array, "n"]:
        return step.setup.objective.loss(outputs, samples.labels, step.learner.seen)

    if not step.later:
        return weighted_mean(losses(step.batch), step.batch.weight), batch_stats
    first, second, share = step.batch.replay.mixed
    mixed_losses = (1 - share) * losses(first) + share * losses(second)
    return weighted_mean(mixed_losses, first.weight), batch_stats


def _replay_loss(
    step: Step, run: RunNetwork, batch_stats: PyTree, keys: Shaped[PRNGKeyArray, "2"]
) -> tuple[Float[Array, ""], Float[Array, "c w"], PyTree]:
    """Return L_proto of replayed samples, their prototypes and batch statistics.

    Without any replayed sample the batch statistics stay.
    """
    replayed = step.batch.replay.replayed
    views = jnp.concatenate([replayed.inputs, step.settings.views.second(replayed.inputs, keys[0])])
    _, z, after = run(batch_stats, views, keys[1])
    held = jnp.any(replayed.weight > 0)
    batch_stats = jax.tree.map(lambda new, old: jnp.where(held, new, old), after, batch_stats)
    value, prototypes = step.prototype_loss(*jnp.split(z, 2), replayed)
    return value, prototypes, batch_stats


METHODS = (
    Method(
        "OnPro",
        onpro,
        Publication("Wei et al.", 2023, "ICCV", ("samples",)),
        "online prototype learning (OnPro)",
        requirements=SINGLE_LABEL_SCORES,
        authors={
            "temperature": 0.07,
            "prototype_temperature": 0.5,
            "similarity": 0.5,
            "width": 128,
            "base_share": 0.75,
            "mix_probability": 0.6,
            "replay_batch_size": 64,
            "loss_over": "all",
            "batch size": 10,
            "epochs per task": 1,
            "optimizer": "adam",
            "optimizer at a new task": "continues",
        },
    ),
)
