"""Separate networks, one per task, given the task (van de Ven et al. 2022, Nature Mach. Intell.).

    θ_t = argmin over new parameters of L_t(θ),   prediction for task t: f(x; θ_t)

No task changes another one's network, and none helps another. The loss runs over the task's own
classes. The setup's network is that of one task, so that all of them have as many parameters as
there are tasks times its own. For a comparison with one network of all tasks, give it fewer units:
the authors have 100 in each of two hidden layers for five tasks of split MNIST, where others have
400.

Equal to the code of van de Ven et al. (GMvandeVen/continual-learning, `separate_classifiers.py`)
at the loss and the steps of a task, and at the prediction given the task; differs in:

- A network has outputs for all classes, of which its own alone are trained and compared.
- Without the task, which that code always has, each class has the score of its own task's network.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Learner, Setup, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.naive import naive_on_task_classes
from everlight.continual.strategies.parts.passes import mask_other_classes


class TaskNetworks(NamedTuple):
    """Memory of separate networks; `params` and `batch_stats` have a leading axis over tasks."""

    params: PyTree
    batch_stats: PyTree
    class_task: Int[Array, "c"]
    """Task of each class; 0 before it is known."""
    classes: Bool[Array, "c"]
    """Classes of the current task; none between tasks."""


@checked
def separate_networks(setup: Setup, tasks: PositiveInt) -> Strategy:
    """Return separate networks, whose memory is `TaskNetworks`.

    Tasks must have disjoint classes. A task begins with new parameters and a new state of the
    optimizer; parameters that the setup freezes stay. During a task `predict` takes its network
    and its classes, on which the best epoch is chosen.

    Args:
      setup: network of one task, objective, optimizer and data access.
      tasks: the number of tasks in the sequence.
    """
    plain = naive_on_task_classes(setup)

    def init(key: PRNGKeyArray, learner: Learner) -> TaskNetworks:
        stacked = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (tasks, *leaf.shape)),
            (learner.params, learner.batch_stats),
        )
        classes = learner.seen.shape[0]
        return TaskNetworks(*stacked, jnp.zeros(classes, jnp.int32), jnp.zeros(classes, bool))

    def begin_task(
        memory: TaskNetworks, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TaskNetworks, Learner]:
        number = task.id.astype(memory.class_task.dtype)
        class_task = jnp.where(task.classes, number, memory.class_task)
        params, batch_stats = setup.init(key)
        if setup.trainable is not None:
            params = jax.tree.map(
                jnp.where, setup.trainable(learner.params), params, learner.params
            )
        learner = learner._replace(
            params=params, batch_stats=batch_stats, opt_state=setup.optimizer.init(params)
        )
        return memory._replace(class_task=class_task, classes=task.classes), learner

    def end_task(
        memory: TaskNetworks, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TaskNetworks, Learner]:
        params, batch_stats = jax.tree.map(
            lambda stacked, leaf: stacked.at[task.id].set(leaf),
            (memory.params, memory.batch_stats),
            (learner.params, learner.batch_stats),
        )
        classes = jnp.zeros_like(memory.classes)
        return TaskNetworks(params, batch_stats, memory.class_task, classes), learner

    def scores_of(
        params: PyTree, batch_stats: PyTree, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        outputs, _ = setup.apply(params, batch_stats, inputs, False, None)
        return setup.objective.scores(outputs)

    def predict(
        memory: TaskNetworks, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        def replace_scores(
            number: Int[Array, ""], scores: Float[Array, "b c"]
        ) -> Float[Array, "b c"]:
            stacked = memory.params, memory.batch_stats
            network = jax.tree.map(lambda leaf: leaf[number], stacked)
            return jnp.where(memory.class_task == number, scores_of(*network, inputs), scores)

        now = scores_of(learner.params, learner.batch_stats, inputs)
        between = jax.lax.fori_loop(0, tasks, replace_scores, jnp.zeros_like(now))
        scores = jnp.where(jnp.any(memory.classes), now, between)
        return mask_other_classes(memory.classes, scores)

    def predict_task(
        memory: TaskNetworks,
        learner: Learner,
        inputs: Float[Array, "b *shape"],
        task: Int[Array, ""],
    ) -> Float[Array, "b c"]:
        learning = jnp.any(memory.classes & (memory.class_task == task))
        network = jax.tree.map(
            lambda leaf, stacked: jnp.where(learning, leaf, stacked[task]),
            (learner.params, learner.batch_stats),
            (memory.params, memory.batch_stats),
        )
        return scores_of(*network, inputs)

    return plain._replace(
        init=init,
        begin_task=begin_task,
        end_task=end_task,
        predict=predict,
        predict_task=predict_task,
        tasks=tasks,
        parameter_copies=tasks,
    )


METHODS = (
    Method(
        "separate networks",
        separate_networks,
        Publication("van de Ven et al.", 2022, "Nature Machine Intelligence", ("old net",)),
        "a network per task, given the task",
        requirements=("task-incremental", "disjoint classes", *SINGLE_LABEL_SCORES, "last weights"),
        authors={
            "batch size": 128,
            "optimizer": "adam",
            "learning rate": 0.001,
        },
        planned_total="tasks",
    ),
)
"""Values of the authors are those of split MNIST."""
