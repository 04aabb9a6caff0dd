"""iCaRL (Rebuffi et al. 2017, CVPR), also for many labels per sample (Abdelsalam et al. 2021).

    L(θ) = mean over seen classes c of BCE(t_c, σ(z_c)),   t_c = σ(z_old,c) for classes known before

Targets of known classes, for new and replayed samples alike, are the outputs of the network before
the task, in evaluation mode. Exemplars are herded and join every epoch. With softmax the loss is

    L(θ) = CE(y, softmax(z)) + T² KL(softmax(z_old / T) ‖ softmax(z / T)),   T = 2.

The first term is over the seen classes, the second over those known before. Castro et al. 2018
(ECCV) have a second term without T² for each earlier task, and finetune on balanced samples
afterwards. The paper predicts the class with the nearest mean of exemplars,

    argmin over c of ‖f̂ − μ_c‖,   μ_c = the mean of f̂ over c's exemplars, again of length 1,

f̂ being features of length 1. IIRC's iCaRL-CNN predicts by σ(z) > ½ with a linear head. Its
iCaRL-norm has a cosine head whose scale starts at 1 at every task.

The paper's memory is a fixed total of K exemplars that the seen classes share: 2,000 on CIFAR-100
and on ImageNet's first 100 classes, 20,000 on ImageNet (`buffer_size`). IIRC keeps 20 per class
(`exemplars_per_class`).

Equal to the official code (srebuffi/iCaRL, Theano) at the binary targets, the criterion of herding,
the reduction to each class's first m exemplars and the nearest mean; differs in:

- m is K / classes rounded down. There it is rounded up, which may exceed K.
- The loss averages over the seen classes, there over all.
- Herding excludes chosen samples. There it may pick one again, which adds none.
- Means leave out mirrored images.
- No class without exemplars is predicted. There its mean is 0, which is nearer than a mean at more
  than 60 degrees.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import (
    Batch,
    Epoch,
    Learner,
    Setup,
    StepInfo,
    Strategy,
    Task,
)
from everlight.checks import PositiveInt, checked
from everlight.conditional import where_needed
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.method import Method, Source
from everlight.continual.objectives.many_labels import binary_cross_entropy, multi_hot
from everlight.continual.strategies.lwf import (
    Teacher,
    distillation,
    freeze_teacher,
    no_teacher,
)
from everlight.continual.strategies.naive import batch_loss, batch_outputs, naive, weighted_mean
from everlight.continual.strategies.parts import arguments
from everlight.continual.strategies.parts.exemplars import (
    ExemplarBuffer,
    add_herded_exemplars,
    empty_exemplars,
    exemplar_slots,
)
from everlight.continual.strategies.parts.memory import carried_classes, distinct, merge_buffer
from everlight.models.heads import unit

Loss = Literal["binary", "softmax"]
"""Loss for many labels per sample (binary), or for one (softmax)."""
Classifier = Literal["head", "nearest mean"]
"""Classifier: the network's head, or the nearest mean of exemplars' features."""
TEMPERATURE = 2.0
"""Temperature T of the distillation."""


class ClassMeans(NamedTuple):
    """Class means of the nearest-mean classifier."""

    means: Float[Array, "c f"]
    """Means of length 1; 0 for a class without exemplars."""
    ready: Bool[Array, ""]
    """True if the exemplars are complete, as they are between tasks."""


class Rehearsal(NamedTuple):
    """Exemplars, and the network before the task."""

    buffer: ExemplarBuffer
    teacher: Teacher
    nearest: ClassMeans | None = None
    """Class means; None if the head predicts."""


@checked
def icarl(
    setup: Setup,
    exemplars_per_class: PositiveInt = 20,
    labels: PositiveInt = 1,
    restart: Callable[[PyTree], PyTree] = lambda params: params,
    loss: Loss = "binary",
    classifier: Classifier = "head",
    buffer_size: PositiveInt | None = None,
) -> Strategy:
    """Return incremental classifier and representation learning (iCaRL).

    Its memory is `Rehearsal`. The paper's form has the binary loss, the nearest mean, and an
    objective of one label per sample, whose metric takes the greatest score. During a task its
    classes have no exemplars, so validation scores the head; afterwards the means predict.

    Args:
      setup: network, objective, optimizer and data access. The binary loss replaces the
        objective's; the softmax loss is the objective's plus distillation.
      exemplars_per_class: exemplars per class, used without `buffer_size`.
      labels: labels per sample in the sequence.
      restart: function applied to the parameters at the start of a task.
      loss: "binary"; or "softmax", for a softmax objective.
      classifier: "head", or "nearest mean" for one label per sample.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.

    Raises:
      ValueError: `loss` or `classifier` is unknown.
    """

    def begin_task(
        memory: Rehearsal, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        memory = memory._replace(teacher=freeze_teacher(learner, task))
        return memory, learner._replace(params=restart(learner.params))

    def binary(
        params: PyTree, memory: Rehearsal, learner: Learner, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        outputs, batch_stats = batch_outputs(setup, params, learner, batch, key)
        own = multi_hot(batch.labels, learner.seen.shape[0])
        soft = jax.nn.sigmoid(teacher_logits(memory, batch))
        targets = jnp.where(memory.teacher.known, soft, own)
        losses = binary_cross_entropy(outputs.logits, targets, learner.seen)
        return weighted_mean(losses, batch.weight), batch_stats

    def softmax(
        params: PyTree, memory: Rehearsal, learner: Learner, batch: Batch, key: PRNGKeyArray
    ) -> tuple[Float[Array, ""], PyTree]:
        own, (outputs, batch_stats) = batch_loss(setup, params, learner, batch, key)
        kept = jax.vmap(distillation, (0, 0, None, None))(
            outputs.logits, teacher_logits(memory, batch), memory.teacher.known, TEMPERATURE
        )
        return own + weighted_mean(kept, batch.weight), batch_stats

    def teacher_logits(memory: Rehearsal, batch: Batch) -> Float[Array, "b c"]:
        params, batch_stats, _ = memory.teacher
        return setup.apply(params, batch_stats, batch.inputs, False, None)[0].logits

    def grads(
        memory: Rehearsal, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        form = softmax if loss == "softmax" else binary
        differentiate = jax.value_and_grad(form, has_aux=True)
        (value, batch_stats), gradient = differentiate(learner.params, memory, learner, batch, key)
        return gradient, StepInfo(gradient, batch_stats, value)

    exemplars = rehearsal(setup, exemplars_per_class, labels, buffer_size)
    by_head = exemplars._replace(begin_task=begin_task, grads=grads)
    return by_head if classifier == "head" else _by_nearest_mean(setup, by_head)


def _by_nearest_mean(setup: Setup, by_head: Strategy) -> Strategy:
    """Return the strategy with predictions by its exemplars' means; its memory is `Rehearsal`."""

    def init(key: PRNGKeyArray, learner: Learner) -> Rehearsal:
        memory = by_head.init(key, learner)
        of_one = jax.eval_shape(lambda: sample_features(setup, learner, memory.buffer.samples))
        means = jnp.zeros((learner.seen.shape[0], of_one.shape[1]), of_one.dtype)
        return memory._replace(nearest=ClassMeans(means, jnp.array(False)))

    def begin_task(
        memory: Rehearsal, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        memory, learner = by_head.begin_task(memory, learner, task, key)
        return memory._replace(nearest=memory.nearest._replace(ready=jnp.array(False))), learner

    def end_task(
        memory: Rehearsal, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        memory, learner = by_head.end_task(memory, learner, task, key)
        return memory._replace(nearest=memory.nearest._replace(ready=jnp.array(True))), learner

    def before_evaluation(
        memory: Rehearsal, learner: Learner, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        def means() -> Float[Array, "c f"]:
            held = memory.buffer.samples
            features = sample_features(setup, learner, held)
            return exemplar_means(features, held.mask, memory.buffer.label, learner.seen.shape[0])

        nearest = memory.nearest
        found = where_needed(nearest.ready, means, nearest.means)
        return memory._replace(nearest=nearest._replace(means=found)), learner

    def predict(
        memory: Rehearsal, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        outputs, _ = setup.apply(learner.params, learner.batch_stats, inputs, False, None)
        means, ready = memory.nearest
        near = nearness(outputs.features, means)
        return jnp.where(ready, near, setup.objective.scores(outputs))

    return by_head._replace(
        init=init,
        begin_task=begin_task,
        end_task=end_task,
        before_evaluation=before_evaluation,
        predict=predict,
    )


def exemplar_means(
    features: Float[Array, "m f"], mask: Bool[Array, "m"], label: Int[Array, "m"], classes: int
) -> Float[Array, "c f"]:
    """Return each class's mean of its exemplars' unit features, of length 1; 0 without exemplars.

    Args:
      features: features of the exemplars.
      mask: True for slots that hold an exemplar.
      label: class of each slot.
      classes: number of all classes.
    """
    rows = jnp.where(mask[:, None], unit(features, -1), 0)
    # The sum has the direction of the mean.
    return unit(jax.ops.segment_sum(rows, label, classes), -1)


def nearness(features: Float[Array, "b f"], means: Float[Array, "c f"]) -> Float[Array, "b c"]:
    """Return −‖f̂ − μ‖² of every sample and class; −4, the least value, for classes without μ."""
    there = jnp.any(means != 0, axis=1)
    return jnp.where(there, 2 * unit(features, -1) @ means.T - 2, -4.0)


def rehearsal(
    setup: Setup, exemplars_per_class: int, labels: int, buffer_size: int | None = None
) -> Strategy:
    """Return the common base of iCaRL and LUCIR: herded exemplars in every epoch, and a teacher.

    Args:
      setup: network, objective, optimizer and data access.
      exemplars_per_class: exemplars per class, used without `buffer_size`.
      labels: labels per sample in the sequence.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> Rehearsal:
        slots = exemplar_slots(exemplars_per_class, buffer_size, learner.seen.shape[0])
        return Rehearsal(empty_exemplars(slots, labels), no_teacher(learner))

    def epoch_data(memory: Rehearsal, task: Task) -> Epoch:
        return merge_buffer(task.train, memory.buffer.samples)

    def end_task(
        memory: Rehearsal, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        among = None if buffer_size is None else learner.seen
        buffer = herd_task(setup, memory.buffer, learner, task, among)
        return memory._replace(buffer=buffer), learner

    return naive(setup)._replace(
        init=init,
        epoch_data=epoch_data,
        end_task=end_task,
        stored_samples=lambda memory, task: jnp.sum(memory.buffer.samples.mask),
    )


def herd_task(
    setup: Setup,
    buffer: ExemplarBuffer,
    learner: Learner,
    task: Task,
    among: Bool[Array, "c"] | None = None,
) -> ExemplarBuffer:
    """Return the buffer after herding exemplars of the task's classes by their features.

    For a class that comes again, its current exemplars are candidates too.

    Args:
      setup: network, objective, optimizer and data access.
      buffer: exemplars before the task.
      learner: learner whose network computes the features.
      task: task that ends.
      among: the classes that share a fixed total of slots; None divides them among all classes.
    """
    every = distinct(merge_buffer(task.train, buffer.samples).samples)
    features = sample_features(setup, learner, every)
    carried = carried_classes(task.train, learner.seen.shape[0])
    return add_herded_exemplars(buffer, every, carried, features, among)


def _restart_scale(params: PyTree) -> PyTree:
    """Return the parameters with the cosine head's scale at 1 again."""
    return {**params, "head": {**params["head"], "scale": jnp.ones(())}}


_IIRC = Source("Abdelsalam et al. 2021, CVPR", ("samples", "old net"))
METHODS = {
    "iCaRL": Method(
        icarl,
        lambda needs: {**arguments.exemplars(needs), "classifier": "nearest mean"},
        Source("Rebuffi et al. 2017, CVPR", ("samples", "old net")),
        demands=("class scores", "one label", "own classes"),
        select="last",
        nearest_mean=True,
        authors={"batch size": 128, "epochs per task": 70},
    ),
    "iCaRL-CNN": Method(
        icarl,
        arguments.exemplars,
        _IIRC,
        demands=("several labels",),
        select="last",
        summary="iCaRL predicting by its output layer, for several labels (IIRC)",
        benchmarks=("iirc",),
    ),
    "iCaRL-norm": Method(
        icarl,
        lambda needs: {**arguments.exemplars(needs), "restart": _restart_scale},
        _IIRC,
        head="cosine",
        demands=("several labels", "head kinds"),
        select="last",
        summary="iCaRL with a cosine head, for several labels (IIRC)",
        benchmarks=("iirc",),
    ),
}
