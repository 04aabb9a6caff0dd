"""A teacher: the network as it was before the task, whose outputs a strategy distils."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from everlight.base import Learner, Task


class Teacher(NamedTuple):
    """Network before the task, and the classes known to it."""

    params: PyTree
    batch_stats: PyTree
    known: Bool[Array, "c"]


def no_teacher(learner: Learner) -> Teacher:
    """Return the teacher before the first task, which knows no class."""
    return Teacher(learner.params, learner.batch_stats, jnp.zeros_like(learner.seen))


def freeze_teacher(learner: Learner, task: Task) -> Teacher:
    """Return the network at the start of a task, and the classes of earlier tasks."""
    return Teacher(learner.params, learner.batch_stats, learner.seen & ~task.classes)
