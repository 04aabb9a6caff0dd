"""Parts of strategies that merge networks: the classes a task trains, and the merged network.

Literature on merging trains each network on its own data, with a head of its own. In everlight all
tasks share one head. A task's loss therefore runs over the classes of its own samples
(`train_classes`), so that the head's columns of all other classes have no gradient. Where the
tasks' classes are disjoint, a column of the head moves in one task alone, except by weight decay,
which moves all columns in every task.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.continual.engine.epochs import shuffle, take_batch
from everlight.continual.engine.updates import with_inputs
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.passes import batch_outputs, task_gradient

STATISTICS_BATCH = 64
"""Samples per forward pass when batch statistics are estimated again."""


class CommonStart(NamedTuple):
    """Memory of a strategy whose tasks all start from the same network."""

    params: PyTree
    """Parameters θ_0 from which every task starts."""
    batch_stats: PyTree
    """Batch statistics from which every task starts."""
    sums: PyTree
    """Sums over the task vectors so far; trees like the parameters."""
    classes: Bool[Array, "c"]
    """Classes of the current task's samples; between tasks those of the last one."""


def merge_from_common_start(
    setup: Setup,
    no_tasks: Callable[[PyTree], PyTree],
    with_task: Callable[[PyTree, PyTree], PyTree],
    merged_vector: Callable[[PyTree], PyTree],
) -> Strategy:
    """Return a strategy that trains every task from θ_0 and merges task vectors τ_t = θ_t − θ_0.

    At the end of a task the learner's parameters are those of the merged network, with batch
    statistics estimated on the task's samples. At the start of the next task they are θ_0 again.

    Args:
      setup: network, objective, optimizer and data access.
      no_tasks: function from the parameters to the sums over no task vector.
      with_task: function from the sums and a task vector to the sums with it.
      merged_vector: function from the sums to the vector that is added to θ_0.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> CommonStart:
        sums, classes = no_tasks(learner.params), jnp.zeros_like(learner.seen)
        return CommonStart(learner.params, learner.batch_stats, sums, classes)

    def begin_task(
        memory: CommonStart, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[CommonStart, Learner]:
        # Momentum of another task would enter this one's vector.
        started = learner._replace(
            params=memory.params,
            batch_stats=memory.batch_stats,
            opt_state=setup.optimizer.init(memory.params),
        )
        return memory._replace(classes=train_classes(task, learner)), started

    def grads(
        memory: CommonStart, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        return task_gradient(setup, learner._replace(seen=memory.classes), batch, key)

    def end_task(
        memory: CommonStart, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[CommonStart, Learner]:
        vector = jax.tree.map(jnp.subtract, learner.params, memory.params)
        sums = with_task(memory.sums, vector)
        params = jax.tree.map(jnp.add, memory.params, merged_vector(sums))
        return memory._replace(sums=sums), merged_learner(setup, learner, params, task, key)

    return naive(setup)._replace(init=init, begin_task=begin_task, grads=grads, end_task=end_task)


def train_classes(task: Task, learner: Learner) -> Bool[Array, "c"]:
    """Return the seen classes that the task's training samples have."""
    classes, labels = learner.seen.shape[0], task.train.labels
    # Padding has a number that is out of range, which is dropped; -1 would be the last class.
    labels = jnp.where(task.train.mask[:, None] & (labels >= 0), labels, classes)
    has_samples = jnp.zeros(classes, bool).at[labels.reshape(-1)].set(True, mode="drop")
    return has_samples & learner.seen


def merged_learner(
    setup: Setup, learner: Learner, params: PyTree, task: Task, key: PRNGKeyArray
) -> Learner:
    """Return the learner with merged parameters and batch statistics of the task's samples."""
    learner = learner._replace(params=params)
    return learner._replace(batch_stats=merged_statistics(setup, learner, task, key))


def merged_statistics(setup: Setup, learner: Learner, task: Task, key: PRNGKeyArray) -> PyTree:
    """Return batch statistics of a pass over the task's samples at the learner's parameters.

    The previous statistics have no weight in them. A running average is affine in its start value.
    Averages from 0 and from 1 thus give the remaining weight of that value after the pass.
    """
    if not jax.tree.leaves(learner.batch_stats):
        return learner.batch_stats
    key_order, key_passes = jax.random.split(key)
    epoch = shuffle(naive(setup).epoch_data((), task), key_order)

    def pass_forward(step: Int[Array, ""], batch_stats: PyTree) -> PyTree:
        key_inputs, key_pass = jax.random.split(jax.random.fold_in(key_passes, step))
        batch = with_inputs(setup, take_batch(epoch, step, STATISTICS_BATCH), key_inputs)

        def update_stats(batch_stats: PyTree) -> PyTree:
            now = learner._replace(batch_stats=batch_stats)
            return batch_outputs(setup, now.params, now, batch, key_pass)[1]

        return jax.vmap(update_stats)(batch_stats)

    def is_average(leaf: Array) -> bool:
        return jnp.issubdtype(leaf.dtype, jnp.floating)

    def stack_0_and_1(leaf: Array) -> Array:
        two = [jnp.zeros_like(leaf), jnp.ones_like(leaf)] if is_average(leaf) else [leaf, leaf]
        return jnp.stack(two)

    def remove_beginning(averages: Array, leaf: Array) -> Array:
        if not is_average(leaf):
            return averages[0]
        left = averages[1] - averages[0]
        return jnp.where(left < 1, averages[0] / (1 - left), leaf)

    passes = -(-epoch.count // STATISTICS_BATCH)
    beginnings = jax.tree.map(stack_0_and_1, learner.batch_stats)
    averages = jax.lax.fori_loop(0, passes, pass_forward, beginnings)
    return jax.tree.map(remove_beginning, averages, learner.batch_stats)
