"""Online continual learning through mutual information maximization (OCM; Guo et al. 2022, ICML).

    L = cross-entropy of incoming samples + l of incoming samples                    first task
    L = cross-entropy of replayed samples + l of incoming and of replayed samples
        + l of replayed samples with the network before the task
        + mean square over replayed samples and old classes of (logit − ŷ)           later tasks

l maximizes InfoNCE, a lower bound of mutual information, so that features keep more than what
separates the current classes. z is a linear projection of the features by a layer that is used only
in training, and f are as many of the features in a row, from a random one on; both have length 1
(the features before the choice). With similarities S of views and their class-wise softmax,

    S_ij = λ (z_i·z_j + z_i·f_j),   P_ij = exp(S_ij / τ) / Σ_a exp(S_ia / τ)
    l_i = − log P_ii′ − 2 · mean over j of i's class of log P_ij             for incoming samples
    l_i = − mean over j of i's class of log P_ij                             for replayed ones

where i′ is the sample's other view; for incoming samples a and j ≠ i, for replayed ones i counts
too. The mean over j divides by all views of the class, i among them. f begins at 0 where there are
no more features than z has. λ is 1 in the first task. Every image has 16 forms, by quarter turns
and by turned halves; each is a class of its own, and has two views. The second view is changed at
random as well. Other inputs than square images of an even side, such as features, have one form.

With the network before the task, S_ij = z_i·ẑ_j of first views, ẑ being its projections. ŷ are its
logits; old classes are the seen ones that the task does not have. Both of its passes have the
batch's own statistics in batch norm, as in training. Cross-entropies and logits are of second
views, a new one for each network. Incoming samples have no cross-entropy after the first task, and
the first task replays nothing. Memory and draws are those of `experience_replay`.

The authors have τ = 0.07, 128 projections, 64 replayed samples per batch of 10, and Adam at 0.001
with β₂ = 0.99 and a weight decay of 1e-4; λ = 0.5 on CIFAR-10, 1 on CIFAR-100 and Tiny-ImageNet.

Equal to the official code (gydpku/OCM, `test_cifar10.py` and `InfoNCE/contrastive_learning.py`) at
the gradient of a step by network and projection, given the draws, with `loss_over="all"`; differs
in:

- The second view in the official code also makes some images grey, and draws again crops that
  exceed the image.
- In the official code no more samples are replayed than seven times the classes seen so far.
- The reservoir in the official code counts the arrivals before a batch for all of the batch.
- By default cross-entropies run over the seen classes, in the official code over all outputs.
- Passes are in float32, in the official code in half precision.
- The network's optimizer restarts with every task. That of the projection, which is part of the
  memory, continues, as both do in the official code.
- On MNIST the official code has λ = 0.5 from the first task on, no term of logits, no flips and no
  grey images.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from everlight.base import Batch, Coefficient, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, PositiveInt, checked
from everlight.conditional import cond_under_vmap
from everlight.continual.inner_memory import with_outer_memory
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.experience_replay import Reservoir, experience_replay
from everlight.continual.strategies.parts.frozen import feature_width
from everlight.continual.strategies.parts.instance_losses import (
    FormSamples,
    class_losses,
    similarities,
)
from everlight.continual.strategies.parts.passes import weighted_mean
from everlight.continual.strategies.parts.projection import (
    Linear,
    Projection,
    new_projection,
    projected,
    updated_projection,
)
from everlight.continual.strategies.parts.replayed import replayed_outputs, with_all_seen
from everlight.continual.strategies.parts.teacher import Teacher, freeze_teacher, no_teacher
from everlight.continual.strategies.parts.views import Views, large_view, turned_forms
from everlight.precision import matrix_product


class InformationMemory(NamedTuple):
    """Memory of OCM."""

    held: Reservoir
    projection: Projection
    teacher: Teacher
    """Network before the task."""
    teacher_layers: tuple[Linear, ...]
    """Projection before the task."""
    later: Bool[Array, ""]
    """True after the first task."""


class LossSettings(NamedTuple):
    """Settings of the loss of a step, as of `ocm`."""

    temperature: float
    similarity: float
    views: Views


class Draws(NamedTuple):
    """Random choices of a step, except views."""

    replayed: Batch
    starts: Int[Array, "2"]
    """First feature that counts in similarities, of incoming and of replayed samples."""


@checked
def ocm(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    replay_batch_size: PositiveInt | None = None,
    temperature: PositiveFloat = 0.07,
    similarity: Coefficient = 1.0,
    width: PositiveInt = 128,
    augment: Callable[[Float[Array, "*shape"], PRNGKeyArray], Float[Array, "*shape"]] = large_view,
    forms: Callable[[Float[Array, "*shape"]], Float[Array, "r *shape"]] = turned_forms,
    loss_over: Literal["seen", "all"] = "seen",
) -> Strategy:
    """Return mutual information maximization (OCM), whose memory is `InformationMemory`.

    A sample has one label.

    Args:
      setup: network, objective, optimizer and data access.
      buffer_size: number of stored samples.
      replay_batch_size: samples drawn per step, at most the stored ones; None is the size of the
        incoming batch.
      temperature: temperature τ of the instance losses.
      similarity: factor λ of similarities in the instance losses after the first task.
      width: number of outputs of the projection, at most that of features.
      augment: random function of one input that makes the second view, after the setup's own
        augmentation.
      forms: function from an input to its forms, the input itself first.
      loss_over: classes of the cross-entropies: the seen ones, or all outputs of the head, as in
        the authors' code.
    """
    replay = experience_replay(setup, buffer_size, 1, replay_batch_size)
    settings = LossSettings(temperature, similarity, Views(augment, forms))

    def init(key: PRNGKeyArray, learner: Learner) -> InformationMemory:
        features, _ = feature_width(setup, learner)
        projection = new_projection(setup, (features, min(width, features)), key)
        held, teacher = replay.init(key, learner), no_teacher(learner)
        return InformationMemory(held, projection, teacher, projection.layers, jnp.array(False))

    def begin_task(
        memory: InformationMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[InformationMemory, Learner]:
        return memory._replace(
            teacher=freeze_teacher(learner, task),
            teacher_layers=memory.projection.layers,
            later=task.id > 0,
        ), learner

    def draw(memory: InformationMemory, batch: Batch, task: Task, key: PRNGKeyArray) -> Draws:
        key_replay, key_start = jax.random.split(key)
        features, outputs = memory.projection.layers[0].kernel.shape
        starts = jax.random.randint(key_start, (2,), 0, max(1, features - outputs))
        return Draws(replay.draw(memory.held, batch, task, key_replay), starts)

    def grads(
        memory: InformationMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        learner = learner if loss_over == "seen" else with_all_seen(learner)

        def gradients(later: bool) -> tuple:
            step = Step(setup, settings, memory, learner, batch, later)
            differentiate = jax.grad(partial(step_loss, step), (0, 1), has_aux=True)
            return differentiate(learner.params, memory.projection.layers, key)

        (gradient, for_projection), (value, batch_stats) = cond_under_vmap(
            memory.later, partial(gradients, True), partial(gradients, False)
        )
        return gradient, StepInfo(gradient, batch_stats, value, for_projection)

    def after_step(
        memory: InformationMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[InformationMemory, Learner]:
        held, learner = replay.after_step(memory.held, learner, info, key)
        projection = updated_projection(setup, learner, memory.projection, info.aux)
        return memory._replace(held=held, projection=projection), learner

    return with_outer_memory(replay, "held")._replace(
        init=init,
        begin_task=begin_task,
        draw=draw,
        grads=grads,
        after_step=after_step,
        parameter_copies=1,
    )


class Step(NamedTuple):
    """Values of a step in addition to the parameters that it changes."""

    setup: Setup
    settings: LossSettings
    memory: InformationMemory
    learner: Learner
    batch: Batch
    """Incoming batch with its inputs, and in `replay` with its `Draws`."""
    later: bool
    """True after the first task."""

    def form_samples(self, samples: Batch, forms: int) -> FormSamples:
        """Return the forms of samples, each a class of its own."""
        classes = self.learner.seen.shape[0]
        return FormSamples(samples.labels[:, 0], samples.weight).repeated(forms, classes)


def step_loss(
    step: Step, params: PyTree, layers: tuple[Linear, ...], key: PRNGKeyArray
) -> tuple[Float[Array, ""], tuple]:
    """Return L, and L with the batch statistics."""
    keys = jax.random.split(key, 8)
    contrast, batch_stats = _contrast_loss(step, params, layers, keys[:4])
    entropy, batch_stats = _output_loss(step, params, batch_stats, keys[4:])
    value = contrast + entropy
    return value, (value, batch_stats)


def _contrast_loss(
    step: Step, params: PyTree, layers: tuple[Linear, ...], keys: Shaped[PRNGKeyArray, "4"]
) -> tuple[Float[Array, ""], PyTree]:
    """Return the losses of projections, in one pass of all views, and batch statistics."""
    settings, batch, learner = step.settings, step.batch, step.learner
    replayed, starts = batch.replay
    views = settings.views.form_pairs(batch.inputs, keys[0])
    cut, forms = views.shape[0], views.shape[0] // (2 * batch.labels.shape[0])
    if step.later:
        views = jnp.concatenate([views, settings.views.form_pairs(replayed.inputs, keys[1])])
    outputs, batch_stats = step.setup.apply(params, learner.batch_stats, views, True, keys[2])
    z = projected(layers, outputs.features)
    near = similarities(z[:cut], outputs.features[:cut], starts[0])
    samples = step.form_samples(batch, forms)
    if not step.later:
        return samples.instance_loss(near, settings.temperature, replayed=False), batch_stats
    near *= settings.similarity
    value = samples.instance_loss(near, settings.temperature, replayed=False)
    near = settings.similarity * similarities(z[cut:], outputs.features[cut:], starts[1])
    samples = step.form_samples(replayed, forms)
    value += samples.instance_loss(near, settings.temperature, replayed=True)
    first = slice(cut, cut + samples.ids.shape[0])
    return value + _teacher_loss(step, samples, views[first], z[first], keys[3]), batch_stats


def _teacher_loss(
    step: Step,
    samples: FormSamples,
    views: Float[Array, "n *shape"],
    z: Float[Array, "n w"],
    key: PRNGKeyArray,
) -> Float[Array, ""]:
    """Return the loss of projections with those of the network before the task."""
    teacher = step.memory.teacher
    outputs, _ = step.setup.apply(teacher.params, teacher.batch_stats, views, True, key)
    near = matrix_product(z, projected(step.memory.teacher_layers, outputs.features).T)
    losses = class_losses(near, samples.ids, samples.weight, step.settings.temperature)
    return weighted_mean(losses, samples.weight)


def _output_loss(
    step: Step, params: PyTree, batch_stats: PyTree, keys: Shaped[PRNGKeyArray, "4"]
) -> tuple[Float[Array, ""], PyTree]:
    """Return the losses of logits, of second views, and batch statistics."""
    setup, views, teacher = step.setup, step.settings.views, step.memory.teacher
    samples = step.batch.replay.replayed if step.later else step.batch._replace(replay=())
    learner = step.learner._replace(batch_stats=batch_stats)
    second = samples._replace(inputs=views.second(samples.inputs, keys[0]))
    outputs, batch_stats = replayed_outputs(setup, params, learner, second, keys[1])
    losses = setup.objective.loss(outputs, samples.labels, learner.seen)
    if step.later:
        inputs = views.second(samples.inputs, keys[2])
        old, _ = setup.apply(teacher.params, teacher.batch_stats, inputs, True, keys[3])
        squares = jnp.where(teacher.known, (outputs.logits - old.logits) ** 2, 0)
        losses += jnp.sum(squares, axis=1) / jnp.maximum(jnp.sum(teacher.known), 1)
    return weighted_mean(losses, samples.weight), batch_stats


METHODS = (
    Method(
        "OCM",
        ocm,
        Publication("Guo et al.", 2022, "ICML", ("samples", "old net")),
        "mutual information maximization (OCM)",
        requirements=SINGLE_LABEL_SCORES,
        authors={
            "temperature": 0.07,
            "similarity": "0.5 or 1",
            "width": 128,
            "replay_batch_size": 64,
            "loss_over": "all",
            "batch size": 10,
            "epochs per task": 1,
            "learning rate": 0.001,
            "optimizer": "adam",
            "optimizer at a new task": "continues",
        },
    ),
)
