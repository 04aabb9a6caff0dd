"""Semantic drift compensation (SDC; Yu et al. 2020, CVPR): prototypes follow the features' drift.

Memory holds a prototype μ_c per class and no sample: the mean of its features φ after its task, of
length 1 each. Learning a task moves the features of earlier classes, which is estimated from the
features of the task's samples x_i before it and after it:

    L(θ) = L_task(θ) + λ/2 Σ_i ‖φ(x_i) − φ_old(x_i)‖²
    after a task   μ_c ← μ_c + Σ_i α_i (φ(x_i) − φ_old(x_i)) / Σ_i α_i   for earlier classes c,
    α_i = exp(−‖φ_old(x_i) − μ_c‖² / 2σ²)
    prediction     argmin over c of ‖φ(x) − μ_c‖

The sum of L runs over a step's samples. λ = 1 is the paper's E-LwF and λ = 0 its E-FT. The drift is
small where λ is great or learning rates are small: with 1e-6 the authors train a ResNet-32 whose
first task was learned before. While a task is learned, the head predicts.

Equal to the official code (yulu0724/SDC-IL, `test.py`, `train.py` with LwF) at the drift of given
features, whose function, run on the same tensors in float64, differs by 2e-15 at most relative to
the largest value, at the prototypes and predictions of a given network, and at the gradient of the
penalty; differs in:

- L_task is the objective's loss, by the head. In the official code it is a triplet loss of the
  features, whose batches hold eight samples of each of their classes.
- φ are the features below the head. In the official code they are the outputs, of length 1, of a
  linear layer with 512 units that it adds, so that σ has another meaning.
- The network of later tasks is in training mode, in the official code in evaluation mode on
  CIFAR-100 and ImageNet-Subset.
- Features of prototypes and drift are those of the samples as they are. In the official code they
  are of augmented samples, drawn independently before and after the task.
- Prototypes far from all samples move by the drift of the nearest one. In the official code their
  weights underflow, and the prototype is then NaN.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Coefficient, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, checked
from everlight.conditional import where_under_vmap
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.class_statistics import mask_empty_classes
from everlight.continual.strategies.parts.frozen import feature_width
from everlight.continual.strategies.parts.passes import batch_loss, evaluation_outputs
from everlight.continual.strategies.parts.teacher import Teacher, freeze_teacher, no_teacher
from everlight.models.heads import unit_vectors
from everlight.precision import matrix_product


class DriftMemory(NamedTuple):
    """Memory of SDC."""

    prototypes: Float[Array, "c f"]
    """Prototype of each class, compensated for the drift of later tasks."""
    known: Bool[Array, "c"]
    """Classes that have a prototype."""
    teacher: Teacher
    """Network before the task."""
    learning: Bool[Array, ""]
    """True while a task is learned, when the head predicts."""


@checked
def drift_compensation(
    setup: Setup, regularization: Coefficient = 1.0, bandwidth: PositiveFloat = 0.2
) -> Strategy:
    """Return semantic drift compensation (SDC), whose memory is `DriftMemory`.

    The first label of a sample is its class.

    Args:
      setup: network, objective, optimizer and data access.
      regularization: coefficient λ of the features' change; 0 is finetuning.
      bandwidth: standard deviation σ of the weights by which samples move a prototype.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> DriftMemory:
        width, dtype = feature_width(setup, learner)
        prototypes = jnp.zeros((learner.seen.shape[0], width), dtype)
        known = jnp.zeros_like(learner.seen)
        return DriftMemory(prototypes, known, no_teacher(learner), jnp.array(True))

    def begin_task(
        memory: DriftMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[DriftMemory, Learner]:
        teacher = freeze_teacher(learner, task)
        return memory._replace(teacher=teacher, learning=jnp.array(True)), learner

    def grads(
        memory: DriftMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        old = evaluation_outputs(setup, memory.teacher, batch.inputs).features
        later = jnp.any(memory.known)

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            task_loss, (outputs, batch_stats) = batch_loss(setup, params, learner, batch, key)
            change = unit_vectors(outputs.features, -1) - unit_vectors(old, -1)
            change = jnp.where((batch.weight > 0)[:, None] & later, change, 0)
            total = task_loss + regularization / 2 * jnp.sum(change**2)
            return total, (task_loss, batch_stats)

        gradient, (task_loss, batch_stats) = jax.grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, batch_stats, task_loss)

    def end_task(
        memory: DriftMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[DriftMemory, Learner]:
        label, mask = task.train.labels[:, 0], task.train.mask
        features = unit_vectors(sample_features(setup, learner, task.train), -1)
        before = learner._replace(
            params=memory.teacher.params, batch_stats=memory.teacher.batch_stats
        )

        def moved() -> Float[Array, "c f"]:
            old = unit_vectors(sample_features(setup, before, task.train), -1)
            return memory.prototypes + drift(memory.prototypes, old, features, mask, bandwidth)

        earlier = where_under_vmap(jnp.any(memory.known) & jnp.any(mask), moved, memory.prototypes)
        member = mask[:, None] & (label[:, None] == jnp.arange(memory.known.shape[0]))
        count = jnp.sum(member, axis=0)
        total = matrix_product(member.T.astype(features.dtype), features)
        means = total / jnp.maximum(count, 1)[:, None]
        new = (count > 0) & ~memory.known
        prototypes = jnp.where(new[:, None], means, earlier)
        known = memory.known | new
        return memory._replace(
            prototypes=prototypes, known=known, learning=jnp.array(False)
        ), learner

    def predict(
        memory: DriftMemory, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        outputs = evaluation_outputs(setup, learner, inputs)
        features = unit_vectors(outputs.features, -1)
        near = -square_distances(features, memory.prototypes)
        by_prototypes = mask_empty_classes(memory.known.astype(jnp.int32), near)
        return jnp.where(memory.learning, setup.objective.scores(outputs), by_prototypes)

    return naive(setup)._replace(
        init=init,
        begin_task=begin_task,
        grads=grads,
        end_task=end_task,
        predict=predict,
        parameter_copies=1,
    )


def square_distances(
    features: Float[Array, "n f"], prototypes: Float[Array, "c f"]
) -> Float[Array, "n c"]:
    """Return ‖φ_i − μ_c‖² of every row and prototype; the lengths are at most near 1."""
    squares = jnp.sum(features**2, axis=1)[:, None] + jnp.sum(prototypes**2, axis=1)
    return squares - 2 * matrix_product(features, prototypes.T)


def drift(
    prototypes: Float[Array, "c f"],
    old: Float[Array, "n f"],
    new: Float[Array, "n f"],
    mask: Bool[Array, "n"],
    bandwidth: float,
) -> Float[Array, "c f"]:
    """Return the weighted mean change of the samples' features for each prototype.

    Args:
      prototypes: prototypes before the task.
      old: features of the samples before the task.
      new: their features after it.
      mask: True for samples that count, at least one.
      bandwidth: standard deviation σ of the weights.
    """
    exponents = -square_distances(old, prototypes) / (2 * bandwidth**2)
    weights = jax.nn.softmax(jnp.where(mask[:, None], exponents, -jnp.inf), axis=0)
    return matrix_product(weights.T, jnp.where(mask[:, None], new - old, 0))


METHODS = (
    Method(
        "SDC",
        drift_compensation,
        Publication("Yu et al.", 2020, "CVPR", ("old net", "statistics")),
        "semantic drift compensation (SDC): nearest class means that follow the features",
        tunes="regularization",
        hyperparameters=(0.1, 1, 10, 100),
        published=1,
        requirements=(*OTHER_WEIGHTS, "disjoint classes"),
        select="last",
        authors={
            "regularization": 1,
            "bandwidth": 0.2,
            "batch size": 32,
            "epochs per task": 51,
            "optimizer": "adam",
            "learning rate": 1e-6,
        },
    ),
)
