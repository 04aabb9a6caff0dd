"""Functional regularization of the memorable past (FROMP; Pan et al. 2020, NeurIPS).

    L(θ) = CE(batch) + τ/2 Σ_t Σ_c d_tcᵀ K_tc⁻¹ d_tc,   d_tc = p_c(x_t; θ) − p_c(x_t; θ_old)
    K_tc = J_tc diag(v) J_tcᵀ + ε I,   J_tc = ∂p_c(x_t; θ_old) / ∂θ,   v = 1 / (h + δ)
    h = Σ over samples of all earlier tasks of Σ_c p_c (∂ log p_c / ∂θ)²

x_t are the memorable points of an earlier task t, and p_c the probability of class c among the
classes of the loss: those of the point's head, or the seen ones without heads. θ_old are the
parameters before the current task. h is the diagonal of the generalized Gauss-Newton matrix of the
cross-entropy, of each task's samples at the end of the task; v approximates the variances of
the parameters, with a prior of precision δ. K_tc is the covariance of the points' probabilities. It
is inverted once per task. All these passes are in evaluation mode, of images without augmentation;
in a step they have the batch statistics that its pass in training mode leaves.

At the end of a task its m memorable points are, equally for each of its classes, the samples with
the largest trace of the loss's Hessian in the logits, Σ_c p_c (1 − p_c): those next to a boundary.
The gradient of a step is clipped to a length.

The paper has on split MNIST, with a head per task, m = 40, τ = 10, δ = 1e-3, ε = 1e-6 and a clipped
length of 1, by Adam at a rate of 1e-4. Its values on permuted MNIST are m = 200, τ = 0.5, δ = 1e-5,
ε = 1e-5 and 0.005, on split CIFAR 200, 10, 1e-4, 1e-6 and 1000. GMvandeVen/continual-learning has
τ = 0.01, 10 and 1000 for task-, domain- and class-incremental split MNIST.

The inverses take 4 T C m² bytes at T tasks and C classes: 320 kB on split MNIST. While they are
computed, Jacobians take 2 · 4 · min(m, 64) bytes per parameter, for one task and class at a time.

Equal to the official code (team-approx-bayes/fromp, `opt_fromp.py` and `utils.py`) at the choice of
points, at h, the inverses and the gradient of a step; differs in:

- The official code divides the cross-entropy's gradient by τ, where everlight multiplies the other
  term by it. Its clipped lengths are therefore those of everlight divided by τ. Adam steps equally
  for both, but for its ε.
- h is n times the mean over `importance_samples` of the task's n samples, in the official code the
  sum over all.
- Eigenvalues of K_tc that rounding moves below ε are ε. In the official code a matrix with a
  negative one has no Cholesky decomposition, which is an error.
- In the official code a class whose samples come in a single batch keeps all of them.
- The official Jacobian of batch norm's scale has the layer's input, not the normalized input.

GMvandeVen/continual-learning (`fromp_optimizer.py`) compares in a step a random part of the points,
with their rows and columns of the inverses (`points_per_step`). Task-incrementally it draws equally
many of each earlier task. In its other scenarios one kernel covers the points of all earlier tasks
by default, where everlight has one per task; its values of τ there belong to that kernel.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Coefficient, Learner, Samples, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, PositiveInt, checked
from everlight.conditional import where_under_vmap
from everlight.continual.engine.evaluation import update_rows, zero_rows
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.importance import fisher_diagonal
from everlight.continual.strategies.parts.memory import carried_classes, draw_slots, empty_buffer
from everlight.continual.strategies.parts.passes import evaluation_outputs, task_gradient
from everlight.errors import ArgumentError
from everlight.precision import matrix_product

BLOCK = 64
"""Largest number of points whose Jacobians are held at once, twice."""


class MemorablePast(NamedTuple):
    """Memory of FROMP: points of every task, and their probabilities before the current one."""

    samples: Samples
    """Memorable points, arrays `[tasks, m]`; those of later tasks are masked."""
    curvature: PyTree
    """Diagonal h of the Gauss-Newton matrix, summed over all samples so far, by parameter."""
    probabilities: Float[Array, "t m c"]
    """Probabilities before the task; 0 for classes that the points' losses leave out."""
    inverses: Float[Array, "t c m m"]
    """Inverse kernels by task and class; 0 where there are no points or the class is left out."""


class Probabilities(NamedTuple):
    """Probabilities of classes, and True for those that a sample's loss covers."""

    values: Float[Array, "*n c"]
    covered: Bool[Array, "*n c"]


@checked
def fromp(
    setup: Setup,
    tasks: PositiveInt,
    per_task: PositiveInt = 40,
    regularization: Coefficient = 10.0,
    prior_precision: PositiveFloat = 1e-3,
    jitter: PositiveFloat = 1e-6,
    clip_norm: PositiveFloat = 1.0,
    importance_samples: PositiveInt = 1024,
    points_per_step: PositiveInt | None = None,
) -> Strategy:
    """Return functional regularization of the memorable past (FROMP).

    Its memory is `MemorablePast`. A sample has one label.

    Args:
      setup: network, objective, optimizer and data access.
      tasks: number T of tasks in the sequence.
      per_task: number m of memorable points per task, an equal part for each of its classes,
        rounded down; at least one for each of its first m classes.
      regularization: coefficient τ.
      prior_precision: precision δ of the prior.
      jitter: number ε on the diagonal of the kernels.
      clip_norm: largest length of the gradient of a step.
      importance_samples: maximal number of a task's samples, evenly spaced, that estimate h.
      points_per_step: random points of all earlier tasks together that a step compares, an equal
        part for each task, rounded up. None is all of them.

    Raises:
      ValueError: the objective has no `label_losses`.
    """
    if setup.objective.label_losses is None:
        raise ArgumentError(
            "FROMP compares class probabilities, and the objective has no label_losses",
            remedy=("give one that has, such as softmax_objective()",),
        )

    def init(key: PRNGKeyArray, learner: Learner) -> MemorablePast:
        classes, empty = learner.seen.shape[0], empty_buffer(per_task, 1)
        return MemorablePast(
            jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (tasks, *leaf.shape)), empty),
            jax.tree.map(jnp.zeros_like, learner.params),
            jnp.zeros((tasks, per_task, classes)),
            jnp.zeros((tasks, classes, per_task, per_task)),
        )

    def begin_task(
        memory: MemorablePast, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[MemorablePast, Learner]:
        values, covered = class_probabilities(setup, learner, memory.samples)
        memory = memory._replace(probabilities=values)
        inverses = kernel_inverses(setup, learner, memory, covered, prior_precision, jitter)
        return memory._replace(inverses=inverses), learner

    def grads(
        memory: MemorablePast, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        key_batch, key_points = jax.random.split(key)
        gradient, info = task_gradient(setup, learner, batch, key_batch)

        def distance_gradient() -> PyTree:
            compared = memory
            if points_per_step is not None:
                compared = draw_points(memory, points_per_step, task.id, key_points)
            moved = learner._replace(batch_stats=info.batch_stats)
            return jax.grad(functional_distance, argnums=1)(setup, learner.params, moved, compared)

        no_gradient = jax.tree.map(jnp.zeros_like, learner.params)
        pull = where_under_vmap(task.id > 0, distance_gradient, no_gradient)
        total = jax.tree.map(lambda a, b: a + regularization * b, gradient, pull)
        excess = jnp.maximum(optax.tree.norm(total) / clip_norm, 1)
        return jax.tree.map(lambda leaf: leaf / excess, total), info

    def end_task(
        memory: MemorablePast, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[MemorablePast, Learner]:
        scores = boundary_scores(setup, learner, task.train)
        points = memorable_points(task.train, scores, per_task, learner.seen.shape[0])
        mean = fisher_diagonal(
            setup, learner, task.train, importance_samples, key, fisher="expected"
        )
        count = jnp.sum(task.train.mask)
        return memory._replace(
            samples=jax.tree.map(
                lambda leaf, new: leaf.at[task.id].set(new), memory.samples, points
            ),
            curvature=jax.tree.map(lambda old, new: old + count * new, memory.curvature, mean),
        ), learner

    return naive(setup)._replace(
        init=init,
        begin_task=begin_task,
        grads=grads,
        end_task=end_task,
        tasks=tasks,
        stored_samples=lambda memory, task: jnp.sum(memory.samples.mask),
        parameter_copies=1,
    )


def class_probabilities(setup: Setup, learner: Learner, samples: Samples) -> Probabilities:
    """Return the probabilities of samples, of any number of axes, in evaluation mode."""
    labels = samples.labels.reshape(-1, 1)
    inputs = setup.gather(samples.index.reshape(-1), None)
    outputs = evaluation_outputs(setup, learner, inputs)
    losses, probability = setup.objective.label_losses(outputs, labels, learner.seen)
    # A probability that underflows has an infinite loss or a large one, a class left out has 0.
    covered = (probability > 0) | (losses > 0)
    shape = (*samples.index.shape, probability.shape[1])
    return Probabilities(probability.reshape(shape), covered.reshape(shape))


def boundary_scores(setup: Setup, learner: Learner, samples: Samples) -> Float[Array, "n"]:
    """Return Σ p (1 − p) of every sample, the trace of its loss's Hessian; 0 for padding."""

    def scores(slots: Int[Array, "s"]) -> Float[Array, "s"]:
        chosen = jax.tree.map(lambda leaf: leaf[slots], samples)
        values, _ = class_probabilities(setup, learner, chosen)
        return jnp.sum(values * (1 - values), axis=1)

    return update_rows(scores, samples.mask, 256, zero_rows(scores, samples.mask))


def memorable_points(
    samples: Samples, scores: Float[Array, "n"], size: int, classes: int
) -> Samples:
    """Return the samples of greatest score, equally many of each class; class by class.

    Args:
      samples: samples of a task; those without a label are left out.
      scores: score of each sample.
      size: number of slots; those without a sample are masked.
      classes: number of all classes.
    """
    labelled = samples.mask & (samples.labels[:, 0] >= 0)
    label = jnp.where(labelled, samples.labels[:, 0], classes)
    order = jnp.lexsort((-scores, label))
    ordered = label[order]
    rank = jnp.arange(len(order)) - jnp.searchsorted(ordered, ordered)
    part = jnp.maximum(size // jnp.maximum(jnp.sum(carried_classes(samples, classes)), 1), 1)
    chosen = (rank < part) & (ordered < classes)
    position = jnp.arange(size)
    places = jnp.argsort(~chosen, stable=True)[jnp.minimum(position, len(order) - 1)]
    points = jax.tree.map(lambda leaf: leaf[order[places]], samples)
    return points._replace(mask=position < jnp.sum(chosen))


def kernel_inverses(
    setup: Setup,
    learner: Learner,
    memory: MemorablePast,
    covered: Bool[Array, "t m c"],
    prior_precision: float,
    jitter: float,
) -> Float[Array, "t c m m"]:
    """Return the inverse kernels K⁻¹ of the points of every task, by class.

    Args:
      setup: network, objective, optimizer and data access.
      learner: learner before the task.
      memory: points, and the diagonal h.
      covered: True for classes of the points' losses.
      prior_precision: precision δ of the prior.
      jitter: number ε on the diagonal.
    """
    tasks, size, classes = covered.shape
    deviations = jax.tree.map(lambda leaf: jax.lax.rsqrt(leaf + prior_precision), memory.curvature)

    def inverse(pairs: Int[Array, "1"]) -> Float[Array, "1 m m"]:
        task, label = jnp.divmod(pairs[0], classes)
        points = jax.tree.map(lambda leaf: leaf[task], memory.samples)
        kernel = kernel_matrix(setup, learner, points, label, deviations)
        return invert_kernel(kernel, points.mask, jitter)[None]

    used = jnp.any(covered & memory.samples.mask[..., None], axis=1).reshape(-1)
    rows = update_rows(inverse, used, 1, jnp.zeros((tasks * classes, size, size)))
    return rows.reshape(tasks, classes, size, size)


def kernel_matrix(
    setup: Setup, learner: Learner, points: Samples, label: Int[Array, ""], deviations: PyTree
) -> Float[Array, "m m"]:
    """Return J diag(v) Jᵀ, J being the Jacobian of the points' probabilities of a class.

    It is a product of blocks of rows, which are computed again for every pair of blocks, so that
    the memory that they take does not depend on the number of points.

    Args:
      setup: network, objective, optimizer and data access.
      learner: learner at whose parameters J is taken.
      points: samples `[m]`; rows and columns of masked ones have no meaning.
      label: class.
      deviations: square roots of v, a tree like the parameters.
    """

    def row(slot: Int[Array, ""]) -> Float[Array, "p"]:
        point = jax.tree.map(lambda leaf: leaf[slot][None], points)

        def probability(params: PyTree) -> Float[Array, ""]:
            return class_probabilities(setup, learner._replace(params=params), point).values[
                0, label
            ]

        scaled = jax.tree.map(jnp.multiply, jax.grad(probability)(learner.params), deviations)
        return ravel_pytree(scaled)[0]

    def rows(slots: Int[Array, "s"]) -> Float[Array, "s p"]:
        # Per-sample gradients of convolutions are slow on a CPU unless computed one by one.
        one_by_one = partial(jax.lax.map, row)
        return jax.lax.platform_dependent(slots, cpu=one_by_one, default=jax.vmap(row))

    size = points.mask.shape[0]
    blocks = -(-size // BLOCK)
    side = -(-size // blocks)
    slots = (jnp.arange(blocks * side) % size).reshape(blocks, side)

    def products(left: Int[Array, "s"]) -> Float[Array, "k s s"]:
        held = rows(left)
        return jax.lax.map(lambda right: matrix_product(held, rows(right).T), slots)

    table = jax.lax.map(products, slots)
    kernel = jnp.swapaxes(table, 1, 2).reshape(blocks * side, blocks * side)
    return kernel[:size, :size]


def invert_kernel(
    kernel: Float[Array, "m m"], mask: Bool[Array, "m"], jitter: float
) -> Float[Array, "m m"]:
    """Return (K + ε I)⁻¹; a masked point has no covariance with the others, and variance 1.

    K is positive semi-definite but for rounding, so eigenvalues below 0 are set to 0.
    """
    both = mask[:, None] & mask
    values, vectors = jnp.linalg.eigh(jnp.where(both, kernel, jnp.diag(~mask)))
    return matrix_product(vectors / (jnp.maximum(values, 0) + jitter), vectors.T)


def draw_points(
    memory: MemorablePast, size: int, earlier: Int[Array, ""], key: PRNGKeyArray
) -> MemorablePast:
    """Return the memory with random points of each task, and the same parts of the inverses.

    Args:
      memory: points and inverses of all tasks.
      size: number of points of all earlier tasks together, at most all.
      earlier: number of earlier tasks.
      key: random key of the draw.
    """
    share = -(-size // jnp.maximum(earlier, 1))

    def draw(past: MemorablePast, key: PRNGKeyArray) -> MemorablePast:
        slots, weight = draw_slots(past.samples.mask, size, key)
        drawn = jax.tree.map(lambda leaf: leaf[slots], past.samples)
        mask = (weight > 0) & (jnp.arange(len(slots)) < share)
        return past._replace(
            samples=drawn._replace(mask=mask),
            probabilities=past.probabilities[slots],
            inverses=past.inverses[:, slots[:, None], slots],
        )

    keys = jax.random.split(key, memory.samples.mask.shape[0])
    per_task = jax.vmap(draw)(memory._replace(curvature=()), keys)
    return per_task._replace(curvature=memory.curvature)


def functional_distance(
    setup: Setup, params: PyTree, learner: Learner, memory: MemorablePast
) -> Float[Array, ""]:
    """Return half of the sum of dᵀ K⁻¹ d over the points' tasks and classes.

    Args:
      setup: network, objective, optimizer and data access.
      params: parameters whose probabilities are compared with the stored ones.
      learner: learner whose batch statistics and seen classes count.
      memory: points, or some of them, with their probabilities and inverses.
    """
    now, _ = class_probabilities(setup, learner._replace(params=params), memory.samples)
    change = jnp.where(memory.samples.mask[..., None], now - memory.probabilities, 0)
    columns = jnp.swapaxes(change, 1, 2)[..., None]
    return jnp.sum(columns * matrix_product(memory.inverses, columns)) / 2


METHODS = (
    Method(
        "FROMP",
        fromp,
        Publication("Pan et al.", 2020, "NeurIPS", ("samples", "statistics")),
        "functional regularization of the memorable past (FROMP)",
        tunes="regularization",
        hyperparameters=(0.1, 1, 10, 100, 1000),
        derived=lambda arguments: {
            "per_task": max(1, arguments.total_buffer_size // arguments.tasks)
        },
        requirements=SINGLE_LABEL_SCORES,
        authors={
            "per_task": 40,
            "regularization": 10,
            "prior_precision": 1e-3,
            "jitter": 1e-6,
            "clip_norm": 1.0,
            "batch size": 128,
            "epochs per task": 15,
            "optimizer": "adam",
            "optimizer at a new task": "restarts",
            "learning rate": 1e-4,
        },
        planned_total="tasks",
    ),
)
