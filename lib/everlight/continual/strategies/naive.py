"""Naive finetuning, the base of all other strategies.

It learns task after task without any measure against forgetting: the lower bound of benchmarks.
Other strategies are `naive(setup)._replace(...)` with the functions in which they differ.

Finetuning has no official code. Equal to Mammoth's `sgd.py` at the parameters after every step of
plain gradient descent; differs in that the loss runs over the classes that the objective counts,
and in the official code over all outputs.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Epoch, Learner, Memory, Setup, StepInfo, Strategy, Task
from everlight.checks import checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.parts.passes import evaluation_outputs, task_gradient


@checked
def naive(setup: Setup) -> Strategy:
    """Return naive finetuning: the plain gradient on the task's own samples.

    Args:
      setup: network, loss and optimizer, of `flax_setup` or another setup.
    """

    def epoch_data(memory: Memory, task: Task) -> Epoch:
        return Epoch(task.train, jnp.zeros_like(task.train.mask))

    def grads(
        memory: Memory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        return task_gradient(setup, learner, batch, key)

    def predict(
        memory: Memory, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        return setup.objective.scores(evaluation_outputs(setup, learner, inputs))

    return Strategy(
        init=lambda key, learner: (),
        epoch_data=epoch_data,
        valid_data=lambda memory, task: task.valid,
        grads=grads,
        predict=predict,
    )


def naive_on_task_classes(setup: Setup) -> Strategy:
    """Return naive finetuning by the loss over the task's own classes.

    Tasks must have disjoint classes. The loss of a sample of an earlier task's class would have no
    lower bound, and a task of one class has no gradient. The aux of a step are the parameters
    before it.
    """

    def grads(
        memory: Memory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        task_learner = learner._replace(seen=task.classes)
        gradient, info = task_gradient(setup, task_learner, batch, key)
        return gradient, info._replace(aux=learner.params)

    return naive(setup)._replace(grads=grads)


METHODS = (
    Method(
        "naive",
        naive,
        Publication(),
        "naive finetuning: the plain gradient on the task's own samples",
        takes_targets=True,
    ),
)
