"""Gradient episodic memory (Lopez-Paz and Ranzato 2017, NeurIPS).

g is the gradient of the task's batch. The rows g_1 ... g_t of G are the gradients of the loss on
the memory of each earlier task. If any g·g_k < 0, the step follows

    g̃ = g + Gᵀv,   v = argmin ½ vᵀGGᵀv + (Gg)ᵀv   subject to v ≥ γ,

which raises no earlier task's loss: for any γ ≥ 0 the optimum has Gg̃ ≥ 0. With γ = 0, g̃ is the
nearest such vector to g. The bound v ≥ γ follows the authors' code; the paper has v ≥ 0 and adds γ
to the solution. The quadratic program is solved exactly by an active-set method (Lawson and Hanson
1974, chapter 23). It uses the triangular factor of [Gᵀ g], since the condition number of GGᵀ is the
square.

At the end of a task, m random samples of it are stored. The authors store the last m that arrived,
which is equivalent for a stream in random order. As in their code, the pass over each memory takes
all of it in training mode. It changes the batch statistics before the task's own pass. Time and
memory per step grow with the tasks: one pass and one gradient for each. The paper has m = 256 and
γ = 0.5.

Equal to the official code (facebookresearch/GradientEpisodicMemory) at the projection, up to the
1e-3 that it adds to the diagonal of GGᵀ; differs where gradients are so short that this matters,
in the stored samples, and in the losses. These run over the classes that the objective counts; on
CIFAR-100 the code's run over the classes of each memory's or batch's task.
"""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from everlight.base import (
    Batch,
    Coefficient,
    Epoch,
    Learner,
    Samples,
    Setup,
    StepInfo,
    Strategy,
    Task,
)
from everlight.checks import PositiveInt, checked
from everlight.conditional import where_under_vmap
from everlight.continual.engine.epochs import shuffle
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.memory import empty_buffer
from everlight.continual.strategies.parts.passes import task_gradient
from everlight.continual.strategies.parts.replayed import replayed_loss
from everlight.precision import matrix_product


def nonnegative_least_squares(
    matrix: Float[Array, "n t"], target: Float[Array, "n"]
) -> Float[Array, "t"]:
    """Return argmin ‖matrix u − target‖ over u ≥ 0, for a few columns (Lawson and Hanson 1974).

    Columns of zeros get 0. Slopes of inactive columns are at most about 1e-6 times the target's
    norm.
    """
    lengths = jnp.linalg.norm(matrix, axis=0)
    scale = jnp.where(lengths > 0, lengths, 1)
    unit, count = matrix / scale, matrix.shape[1]
    least = 1e-6 * jnp.linalg.norm(target)

    def slopes(values: Float[Array, "t"], free: Bool[Array, "t"]) -> Float[Array, "t"]:
        residual = target - matrix_product(unit, values)
        downhill = matrix_product(residual, unit)
        return jnp.where(free, -jnp.inf, downhill)

    def solve(free: Bool[Array, "t"]) -> Float[Array, "t"]:
        return jnp.where(free, jnp.linalg.lstsq(jnp.where(free, unit, 0), target)[0], 0)

    def is_infeasible(state: tuple) -> Bool[Array, ""]:
        _, free, solution = state
        return jnp.any(free & (solution <= 0))

    def retreat(state: tuple) -> tuple:
        """Move from the last feasible point towards the solution until a value is 0; bind it."""
        values, free, solution = state
        leaving, change = free & (solution <= 0), values - solution
        share = jnp.where(leaving, values / jnp.where(change > 0, change, 1), jnp.inf)
        values = jnp.maximum(values + jnp.min(share) * (solution - values), 0)
        free &= (share > jnp.min(share)) & (values > 0)
        return jnp.where(free, values, 0), free, solve(free)

    def unfinished(state: tuple) -> Bool[Array, ""]:
        values, free, rounds = state
        return jnp.any(slopes(values, free) > least) & (rounds < 3 * count)

    def free_one(state: tuple) -> tuple:
        values, free, rounds = state
        free = free.at[jnp.argmax(slopes(values, free))].set(True)
        _, free, values = jax.lax.while_loop(is_infeasible, retreat, (values, free, solve(free)))
        return values, free, rounds + 1

    start = (jnp.zeros_like(lengths), jnp.zeros(count, bool), 0)
    return jax.lax.while_loop(unfinished, free_one, start)[0] / scale


def project_to_cone(
    gradient: Float[Array, "p"], references: Float[Array, "t p"], margin: Coefficient = 0.0
) -> Float[Array, "p"]:
    """Return g̃ of the module's equation; g itself if it opposes no reference.

    Args:
      gradient: gradient g of the task's batch.
      references: gradients G of the earlier tasks' memories; rows may be 0.
      margin: lower bound γ of v.
    """

    def solve_projection() -> Float[Array, "p"]:
        columns = jnp.concatenate([references, gradient[None]]).T
        # ‖Gᵀv + g‖ is that of the small factor's, whose last column stands for g.
        factor = jnp.linalg.qr(columns, mode="r")
        small, last = factor[:, :-1], factor[:, -1]
        held = jnp.any(references != 0, axis=1)
        least = jnp.where(held, margin, 0.0)
        shifted = last + matrix_product(small, least)
        weights = least + nonnegative_least_squares(small, -shifted)
        return gradient + matrix_product(weights, references)

    along = matrix_product(references, gradient)
    return where_under_vmap(jnp.any(along < 0), solve_projection, gradient)


@checked
def gem(
    setup: Setup,
    tasks: PositiveInt,
    per_task: PositiveInt = 256,
    margin: Coefficient = 0.5,
    labels: PositiveInt = 1,
) -> Strategy:
    """Return gradient episodic memory (GEM), whose memory is samples `[tasks, per_task]`.

    Args:
      setup: network, objective, optimizer and data access.
      tasks: number of tasks in the sequence.
      per_task: number m of stored samples per task.
      margin: lower bound γ of the program's solution.
      labels: labels per sample in the sequence.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> Samples:
        empty = empty_buffer(per_task, labels)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (tasks, *leaf.shape)), empty)

    def draw(memory: Samples, batch: Batch, task: Task, key: PRNGKeyArray) -> Batch:
        weight = memory.mask.astype(jnp.float32)
        return Batch(memory.index, memory.labels, weight, jnp.ones_like(memory.mask))

    def grads(
        memory: Samples, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        key_task, key_memories = jax.random.split(key)

        def memory_gradient(batch_stats: PyTree, part: tuple) -> tuple[PyTree, Float[Array, "p"]]:
            held, key = part
            before = learner._replace(batch_stats=batch_stats)

            def replay_gradient() -> tuple[PyTree, PyTree]:
                differentiate = jax.grad(
                    lambda params: replayed_loss(setup, params, before, held, key), has_aux=True
                )
                return differentiate(learner.params)

            skipped = jax.tree.map(jnp.zeros_like, learner.params), batch_stats
            has_samples = jnp.any(held.weight > 0)
            reference, batch_stats = where_under_vmap(has_samples, replay_gradient, skipped)
            return batch_stats, ravel_pytree(reference)[0]

        parts = (batch.replay, jax.random.split(key_memories, tasks))
        batch_stats, references = jax.lax.scan(memory_gradient, learner.batch_stats, parts)
        now = learner._replace(batch_stats=batch_stats)
        gradient, info = task_gradient(setup, now, batch, key_task)
        flat, unravel = ravel_pytree(gradient)
        return unravel(project_to_cone(flat, references, margin)), info

    def end_task(
        memory: Samples, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Samples, Learner]:
        epoch = shuffle(Epoch(task.train, jnp.zeros_like(task.train.mask)), key)
        position = jnp.arange(per_task)
        # Stored samples fill the batch, over which layers normalize.
        slots = epoch.slots[position % jnp.maximum(epoch.count, 1)]
        stored = Samples(task.train.index[slots], task.train.labels[slots], position < epoch.count)
        memory = jax.tree.map(lambda leaf, new: leaf.at[task.id].set(new), memory, stored)
        return memory, learner

    return naive(setup)._replace(
        init=init,
        draw=draw,
        grads=grads,
        end_task=end_task,
        tasks=tasks,
        stored_samples=lambda memory, task: jnp.sum(memory.mask),
    )


METHODS = (
    Method(
        "GEM",
        gem,
        Publication("Lopez-Paz and Ranzato", 2017, "NeurIPS", ("samples",)),
        "gradient episodic memory (GEM)",
        derived=lambda arguments: {
            "per_task": max(1, arguments.total_buffer_size // arguments.tasks)
        },
        authors={"per_task": 256, "margin": 0.5, "batch size": 10, "epochs per task": 1},
        planned_total="tasks",
        takes_targets=True,
    ),
)
