"""Herded exemplars in every epoch, a teacher, and the nearest mean of exemplars (iCaRL).

iCaRL, LUCIR, PODNet and WA are made of `rehearsal`. The nearest mean is Rebuffi et al. 2017's:

    argmin over c of ‖f̂ − μ_c‖,   μ_c = the mean of f̂ over c's exemplars, again of length 1,

f̂ being features of length 1.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.base import Epoch, Learner, Setup, Strategy, Task
from everlight.conditional import where_under_vmap
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.exemplars import (
    ExemplarBuffer,
    add_herded_exemplars,
    empty_exemplars,
    exemplar_slots,
)
from everlight.continual.strategies.parts.frozen import feature_width
from everlight.continual.strategies.parts.memory import carried_classes, distinct, merge_buffer
from everlight.continual.strategies.parts.passes import evaluation_outputs
from everlight.continual.strategies.parts.teacher import Teacher, no_teacher
from everlight.models.heads import unit_vectors
from everlight.precision import matrix_product

Classifier = Literal["head", "nearest mean"]
"""Classifier: the network's head, or the nearest mean of exemplars' features."""


class ExemplarMeans(NamedTuple):
    """Class means of the nearest-mean classifier."""

    means: Float[Array, "c f"]
    """Means of length 1; 0 for a class without exemplars."""
    ready: Bool[Array, ""]
    """True if the exemplars are complete, as they are between tasks."""


class Rehearsal(NamedTuple):
    """Exemplars, and the network before the task."""

    buffer: ExemplarBuffer
    teacher: Teacher
    nearest: ExemplarMeans | None = None
    """Class means; None if the head predicts."""


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
        sharing_classes = None if buffer_size is None else learner.seen
        buffer = herd_task(setup, memory.buffer, learner, task, sharing_classes)
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
    sharing_classes: Bool[Array, "c"] | None = None,
) -> ExemplarBuffer:
    """Return the buffer after herding exemplars of the task's classes by their features.

    For a class that comes again, its current exemplars are candidates too.

    Args:
      setup: network, objective, optimizer and data access.
      buffer: exemplars before the task.
      learner: learner whose network computes the features.
      task: task that ends.
      sharing_classes: the classes that share a fixed total of slots; None divides them among all
        classes.
    """
    candidates = distinct(merge_buffer(task.train, buffer.samples).samples)
    features = sample_features(setup, learner, candidates)
    carried = carried_classes(task.train, learner.seen.shape[0])
    return add_herded_exemplars(buffer, candidates, carried, features, sharing_classes)


def nearest_mean_strategy(setup: Setup, head_strategy: Strategy) -> Strategy:
    """Return the strategy with predictions by its exemplars' means; its memory is `Rehearsal`."""

    def init(key: PRNGKeyArray, learner: Learner) -> Rehearsal:
        memory = head_strategy.init(key, learner)
        width, dtype = feature_width(setup, learner)
        means = jnp.zeros((learner.seen.shape[0], width), dtype)
        return memory._replace(nearest=ExemplarMeans(means, jnp.array(False)))

    def begin_task(
        memory: Rehearsal, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        memory, learner = head_strategy.begin_task(memory, learner, task, key)
        return memory._replace(nearest=memory.nearest._replace(ready=jnp.array(False))), learner

    def end_task(
        memory: Rehearsal, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        memory, learner = head_strategy.end_task(memory, learner, task, key)
        return memory._replace(nearest=memory.nearest._replace(ready=jnp.array(True))), learner

    def before_evaluation(
        memory: Rehearsal, learner: Learner, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        def means() -> Float[Array, "c f"]:
            held = memory.buffer.samples
            features = sample_features(setup, learner, held)
            return exemplar_means(features, held.mask, memory.buffer.label, learner.seen.shape[0])

        nearest = memory.nearest
        new_means = where_under_vmap(nearest.ready, means, nearest.means)
        return memory._replace(nearest=nearest._replace(means=new_means)), learner

    def predict(
        memory: Rehearsal, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        outputs = evaluation_outputs(setup, learner, inputs)
        means, ready = memory.nearest
        near = nearness(outputs.features, means)
        return jnp.where(ready, near, setup.objective.scores(outputs))

    return head_strategy._replace(
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
    rows = jnp.where(mask[:, None], unit_vectors(features, -1), 0)
    # The sum has the direction of the mean.
    return unit_vectors(jax.ops.segment_sum(rows, label, classes), -1)


def nearness(features: Float[Array, "b f"], means: Float[Array, "c f"]) -> Float[Array, "b c"]:
    """Return −‖f̂ − μ‖² of every sample and class; −4, the least value, for classes without μ."""
    has_mean = jnp.any(means != 0, axis=1)
    return jnp.where(has_mean, 2 * matrix_product(unit_vectors(features, -1), means.T) - 2, -4.0)
