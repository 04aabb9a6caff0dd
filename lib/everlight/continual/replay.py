"""Experience replay: exemplars of earlier tasks join every epoch of the new one.

The class-balanced buffer is merged into the task's epoch once (IIRC's ER; Chaudhry et al. 2019, "On
tiny episodic memories"); exemplars are drawn at random when a task ends and keep the label they had
in it. The literature keeps 20 samples a class on CIFAR-100.
"""

import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from everlight.continual.base import Epoch, Learner, Samples, Setup, Strategy, Task
from everlight.continual.memory import add_random_exemplars, empty_buffer, merge_buffer
from everlight.continual.naive import naive


def experience_replay(setup: Setup, per_class: int = 20, labels: int = 1) -> Strategy:
    """ER, its memory being the buffer.

    Args:
      setup: what is static.
      per_class: exemplars of every class.
      labels: labels per sample in the sequence.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> Samples:
        return empty_buffer(per_class * learner.seen.shape[0], labels)

    def epoch_data(memory: Samples, task: Task) -> Epoch:
        return merge_buffer(task.train, memory)

    def end_task(
        memory: Samples, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Samples, Learner]:
        return add_random_exemplars(memory, task.train, task.classes, key), learner

    return naive(setup)._replace(
        init=init, epoch_data=epoch_data, end_task=end_task, stored_samples=_held
    )


def _held(memory: Samples, task: Task) -> Int[Array, ""]:
    return jnp.sum(memory.mask)
