"""One more task at the end of a sequence, such as data that came after its training."""

import jax.numpy as jnp
from jaxtyping import Array, Bool

from everlight.base import Samples, TaskSequence
from everlight.checks import checked
from everlight.errors import ArgumentError
from everlight.scenarios.shapes import pad_samples


@checked
def append_task(sequence: TaskSequence, task: TaskSequence) -> TaskSequence:
    """Return a sequence with the only task of another one after its own tasks.

    The task introduces those of its classes that no earlier task introduces. Classes keep their
    numbers.

    Args:
      sequence: sequence of t tasks and c classes, with one test set per task.
      task: sequence of one task (`experience_sequence`) with c classes or more, the first c of
        which are those of `sequence`. Its indices count in the same data set.

    Raises:
      ValueError: `task` has several tasks or fewer classes; or the sequence has fewer test sets
        than tasks; or samples of one of both have several labels.
    """
    tasks, classes = sequence.tasks.classes.shape
    total = task.tasks.classes.shape[1]
    _check(sequence, task)
    known = jnp.pad(sequence.tasks.classes, [(0, 0), (0, total - classes)])
    introduced = task.tasks.classes & ~known.any(axis=0)
    combined = sequence.tasks._replace(
        train=_stack(sequence.tasks.train, task.tasks.train),
        valid=_stack(sequence.tasks.valid, task.tasks.valid),
        classes=jnp.concatenate([known, introduced]),
        id=jnp.arange(tasks + 1),
    )
    test = Samples(*map(jnp.concatenate, zip(sequence.test, task.test, strict=True)))
    # A class that no task introduces has the last test set, as in `experience_sequence`.
    class_task = jnp.pad(sequence.class_task, (0, total - classes))
    class_task = jnp.where(known.any(axis=0), class_task, tasks)
    test_classes = None
    if sequence.test_classes is not None and task.test_classes is not None:
        padded = jnp.pad(sequence.test_classes, [(0, 0), (0, total - classes)])
        test_classes = jnp.concatenate([padded, task.test_classes])
    return TaskSequence(
        combined,
        test,
        _block_diagonal(sequence.test_member, task.test_member),
        class_task,
        test_classes,
    )


def _check(sequence: TaskSequence, task: TaskSequence) -> None:
    tasks, classes = sequence.tasks.classes.shape
    added, total = task.tasks.classes.shape
    if added != 1:
        raise ArgumentError(f"task has {added} tasks; give a sequence of one")
    if total < classes:
        raise ArgumentError(f"task has {total} classes, sequence {classes}; give as many or more")
    tests = sequence.test_member.shape[0]
    if tests != tasks:
        raise ArgumentError(f"sequence has {tasks} tasks and {tests} test sets; give one per task")
    for name, one in (("sequence", sequence), ("task", task)):
        parts = one.tasks.train, one.tasks.valid, one.test
        labels = max(part.labels.shape[-1] for part in parts)
        if labels > 1:
            raise ArgumentError(f"{name} has {labels} labels per sample; give one")


def _stack(samples: Samples, more: Samples) -> Samples:
    length = max(samples.mask.shape[1], more.mask.shape[1])
    pairs = zip(pad_samples(samples, length, 1), pad_samples(more, length, 1), strict=True)
    return Samples(*map(jnp.concatenate, pairs))


def _block_diagonal(first: Bool[Array, "t m"], last: Bool[Array, "_ k"]) -> Bool[Array, "_ mk"]:
    upper = jnp.pad(first, [(0, 0), (0, last.shape[1])])
    return jnp.concatenate([upper, jnp.pad(last, [(0, 0), (first.shape[1], 0)])])
