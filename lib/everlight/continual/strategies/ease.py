"""EASE: expandable subspaces of adapters (Zhou et al. 2024, CVPR, arXiv 2403.12030).

    task t: minimize over an adapter A_t and a head   CE over the task's own classes;   A_t stays
    z_s = f(x; A_s),   p_(k,s) = mean of z_s over class k,   s ≤ t
    for a class k of task i < s:   p_(k,s) = Σ_l w_kl p_(l,s),   w_kl ∝ exp(cos(p_(k,i), p_(l,i)))
    score_k(x) = cos(z_i, p_(k,i)) + α / t Σ_(s ≠ i) cos(z_s, p_(k,s))

No sample of class k is left to compute p_(k,s) in the subspaces of later tasks s. It is made there
of the prototypes of the classes l of task s and later ones, by their similarity to k in the
subspace of k's task i (semantic mapping). All mapped prototypes are computed again after every
task. In the scores t is the number of earlier tasks, and i the task of class k. Every task begins
with a new adapter, which is 0, and a new head. While the first task is learned the head predicts.

The pretrained network stays; `models.with_adapters` has the adapters. All arrays have their last
sizes from the start. Memory holds T − 1 finished adapters, stacked, and a prototype per class and
subspace. On ViT-B/16 the adapters of a task have 1.4 % of the network's values. A prediction passes
its inputs through the network t + 1 times, a step once.

The authors have α = 0.1, r = 64, s = 0.1 and a tenth of the hidden values dropped. Every task has
their SGD with a weight decay of 5e-4, whose rate falls as a cosine to 0.

Equal to the official code (LAMDA-CL/LAMDA-PILOT, `models/ease.py`, `backbone/linears.py`,
`backbone/vit_ease.py`) at an adapter, the gradient of a step, the prototypes, their mapping, and
the scores, with a cosine head. Its functions, run on the same tensors in float32, differ by 5e-7 at
most, relative to the largest value, and after 20 steps of three tasks by 4e-6. Differs in:

- The head is that of the setup; that code trains a cosine head with a learned scale, as the method
  of the registry has it.
- GELU is the approximation by tanh, that code's is exact: trained adapters differ by up to 7.5e-4.
- Prototypes are mapped from all classes of a subspace, as by that code's option `recalc_sim`;
  without it the newest task's classes alone count.
- The head has all classes, and the loss runs over the task's own; in that code it has these alone.
- The optimizer restarts with the adapter only if the protocol says so; its rate is the setup's.
- Options for features of the network without an adapter, for prototypes of stored samples, and for
  fewer adapters than tasks are left out.
- The score of a class without samples is −∞.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Coefficient, Learner, Outputs, Setup, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.methods.method import (
    OTHER_WEIGHTS,
    Method,
    Publication,
    StrategyArguments,
)
from everlight.continual.strategies.naive import naive_on_task_classes
from everlight.continual.strategies.parts.class_statistics import (
    add_first_labels,
    mask_empty_classes,
    no_means,
)
from everlight.continual.strategies.parts.expansion import (
    below_head,
    empty_copies,
    finished_features,
    with_finished,
)
from everlight.continual.strategies.parts.frozen import feature_width
from everlight.continual.strategies.parts.kept_parameters import keep_frozen
from everlight.continual.strategies.parts.passes import evaluation_outputs
from everlight.errors import ArgumentError
from everlight.models.adapters import with_adapters
from everlight.models.heads import unit_vectors
from everlight.models.vit import VisionTransformer
from everlight.precision import matrix_product


class Subspaces(NamedTuple):
    """Memory of EASE."""

    finished: tuple[PyTree, PyTree]
    """Adapters and batch statistics of finished tasks, `[T - 1, ...]`; others are 0."""
    count: Int[Array, ""]
    """Number of finished adapters, which is that of the task."""
    prototypes: Float[Array, "c s f"]
    """Class means in every subspace; 0 of classes and subspaces to come."""
    task: Int[Array, "c"]
    """Task of each class; −1 for classes without a prototype."""


@checked
def ease(setup: Setup, tasks: PositiveInt, other_weight: Coefficient = 0.1) -> Strategy:
    """Return EASE (expandable subspaces of adapters), whose memory is `Subspaces`.

    The first label of a sample is its class. Tasks must have disjoint classes.

    Args:
      setup: setup of `models.with_adapters`.
      tasks: number of tasks in the sequence.
      other_weight: coefficient α of the subspaces of other tasks.

    Raises:
      ValueError: at `init`, the setup trains no adapters or no head.
    """
    places = max(tasks - 1, 1)

    def init(key: PRNGKeyArray, learner: Learner) -> Subspaces:
        if not {"adapters", "head"} <= set(learner.params):
            raise ArgumentError(
                f"the parameters are {', '.join(learner.params)}; EASE trains adapters and a head; "
                "make the setup by models.with_adapters, whose layers have no head"
            )
        width, dtype = feature_width(setup, learner)
        classes = learner.seen.shape[0]
        return Subspaces(
            empty_copies((below_head(learner.params), learner.batch_stats), places),
            jnp.int32(0),
            jnp.zeros((classes, places + 1, width), dtype),
            jnp.full(classes, -1),
        )

    def begin_task(
        memory: Subspaces, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Subspaces, Learner]:
        current = below_head(learner.params), learner.batch_stats
        finished = with_finished(memory.finished, current, task.id)
        drawn, _ = setup.init(key)
        params = jax.tree.map(
            lambda new, old: jnp.where(task.id > 0, new, old), drawn, learner.params
        )
        memory = memory._replace(finished=finished, count=task.id.astype(memory.count.dtype))
        return memory, learner._replace(params=keep_frozen(setup, learner, params))

    def end_task(
        memory: Subspaces, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Subspaces, Learner]:
        label, mask = task.train.labels[:, 0], task.train.mask
        rows = sample_features(subspace_setup(setup, memory), learner, task.train)
        means = no_means(learner.seen.shape[0], rows.shape[1], rows.dtype)
        means = add_first_labels(means, rows, label, mask)
        new = means.count > 0
        measured = means.mean.reshape(memory.prototypes.shape)
        prototypes = jnp.where(new[:, None, None], measured, memory.prototypes)
        number = jnp.where(new, task.id, memory.task).astype(memory.task.dtype)
        mapped = mapped_prototypes(prototypes, number, task.id)
        return memory._replace(prototypes=mapped, task=number), learner

    def predict(
        memory: Subspaces, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        outputs = evaluation_outputs(subspace_setup(setup, memory), learner, inputs)
        features = outputs.features.reshape(len(inputs), *memory.prototypes.shape[1:])
        weight = other_weight / jnp.maximum(memory.count, 1)
        scores = subspace_scores(features, memory, weight)
        return jnp.where(jnp.any(memory.task >= 0), scores, setup.objective.scores(outputs))

    return naive_on_task_classes(setup)._replace(
        init=init,
        begin_task=begin_task,
        end_task=end_task,
        predict=predict,
        tasks=tasks,
        parameter_copies=places,
    )


def subspace_setup(setup: Setup, memory: Subspaces) -> Setup:
    """Return the setup whose features are those of all subspaces, `[b, s f]`, 0 of later ones."""

    def apply(
        params: PyTree,
        batch_stats: PyTree,
        inputs: Float[Array, "b *shape"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Outputs, PyTree]:
        outputs, batch_stats = setup.apply(params, batch_stats, inputs, train, key)
        places = memory.prototypes.shape[1] - 1
        finished = finished_features(setup, memory.finished, params, inputs, memory.count, places)
        features = jnp.pad(finished, ((0, 1), (0, 0), (0, 0)))
        features = features.at[memory.count].set(outputs.features).transpose(1, 0, 2)
        return outputs._replace(features=features.reshape(len(inputs), -1)), batch_stats

    return setup._replace(apply=apply)


def mapped_prototypes(
    prototypes: Float[Array, "c s f"], task: Int[Array, "c"], last: Int[Array, ""]
) -> Float[Array, "c s f"]:
    """Return the prototypes with those of classes in the subspaces of later tasks.

    Args:
      prototypes: class means, of a class in the subspaces of its task and earlier ones.
      task: task of each class; −1 for classes without a prototype.
      last: last task so far.
    """
    number = jnp.arange(prototypes.shape[1])
    directions = unit_vectors(prototypes, -1)

    def own_cosines(subspace: Int[Array, ""]) -> Float[Array, "c c"]:
        rows = directions[:, subspace]
        return jnp.where((task == subspace)[:, None], matrix_product(rows, rows.T), 0)

    # Each class has its cosines in the subspace of its task.
    similarity = jnp.exp(jnp.sum(jax.lax.map(own_cosines, number), axis=0))

    def mapped(subspace: Int[Array, ""]) -> Float[Array, "c f"]:
        weight = jnp.where(task >= subspace, similarity, 0)
        share = weight / jnp.maximum(jnp.sum(weight, axis=1, keepdims=True), 1e-6)
        missing = (task >= 0) & (task < subspace) & (subspace <= last)
        combined = matrix_product(share, prototypes[:, subspace])
        return jnp.where(missing[:, None], combined, prototypes[:, subspace])

    return jax.lax.map(mapped, number).transpose(1, 0, 2)


def subspace_scores(
    features: Float[Array, "b s f"], memory: Subspaces, other_weight: Float[Array, ""]
) -> Float[Array, "b c"]:
    """Return the weighted sums of the cosines in all subspaces, −∞ for classes without prototypes.

    Args:
      features: features in every subspace, 0 in those to come.
      memory: memory with the prototypes.
      other_weight: weight of the subspaces of other tasks than the class's.
    """

    def cosines(
        rows: Float[Array, "b f"], prototypes: Float[Array, "c f"], number: Int[Array, ""]
    ) -> Float[Array, "b c"]:
        weight = jnp.where(memory.task == number, 1, other_weight)
        return weight * matrix_product(unit_vectors(rows, -1), unit_vectors(prototypes, -1).T)

    number = jnp.arange(features.shape[1])
    by_subspace = jax.vmap(cosines, in_axes=(1, 1, 0))(features, memory.prototypes, number)
    return mask_empty_classes(memory.task + 1, jnp.sum(by_subspace, axis=0))


def with_bottlenecks(
    setup: Setup, net: VisionTransformer, layers: Mapping[str, PyTree], arguments: StrategyArguments
) -> Setup:
    """Return the setup with the authors' adapters of 64 hidden values."""
    return with_adapters(setup, net, layers)


METHODS = (
    Method(
        "EASE",
        ease,
        Publication("Zhou et al.", 2024, "CVPR", ("old net", "statistics")),
        "EASE: an adapter per task, and class means in the features of all adapters",
        head="cosine",
        adapt=with_bottlenecks,
        requirements=("pretrained transformer", *OTHER_WEIGHTS, "disjoint classes", "head kinds"),
        select="last",
        extends_network=True,
        authors={
            "other_weight": 0.1,
            "batch size": 48,
            "epochs per task": 20,
            "optimizer": "sgd with momentum 0.9",
            "learning rate": 0.025,
        },
        planned_total="tasks",
    ),
)
