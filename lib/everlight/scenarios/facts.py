"""Task sequences of structured facts ⟨S, P, O⟩ (Elhoseiny et al. 2018, section 3).

A fact is ⟨S, *, *⟩, ⟨S, P, *⟩ or ⟨S, P, O⟩ (subject, predicate, object), and a class of the
sequence. Tasks are disjoint sets of facts, which may share components. `facts_splits.py` divides a
label space into tasks.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from everlight.base import Samples, Task, TaskSequence
from everlight.checks import Between, NonNegativeInt, NotEmpty, check_range, check_sizes, checked
from everlight.errors import ArgumentError
from everlight.scenarios.shapes import stack_samples, unpadded_samples


class Examples(NamedTuple):
    """Images and the facts that they show, with one entry per pair of image and fact."""

    image: Int[np.ndarray, "n"]
    """Index of the image in the data set."""
    fact: Int[np.ndarray, "n"]
    """Index of the fact."""


class Statistics(NamedTuple):
    """Counts per task and type, the types being S, SP and SPO (table 2)."""

    facts: Int[np.ndarray, "t 3"]
    examples: Int[np.ndarray, "t 3"]


@checked
def check_facts(pieces: Int[np.ndarray, "f 3"], words: NonNegativeInt) -> None:
    """Check that fact components form a valid label space.

    Args:
      pieces: components of every fact, `[f, 3]`: indices into a vocabulary, or -1 if undefined.
      words: size of the vocabulary.

    Raises:
      ValueError: there is no fact, a component is outside the vocabulary, or a fact occurs twice.
        Or a fact has no subject, or an object without a predicate. The message gives its number.
    """
    if not len(pieces):
        raise ArgumentError("pieces has no facts; give one or more")
    outside = (pieces < -1) | (pieces >= words)
    refuse_facts(pieces, outside.any(axis=1), f"has a piece outside -1 to {words - 1}")
    _check_types(pieces)
    _, first, group = np.unique(pieces, axis=0, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[group] != np.arange(len(pieces)))
    if len(again):
        number, before = again[0], first[group[again[0]]]
        raise ArgumentError(
            f"fact {number}, {pieces[number].tolist()}, is the same as fact {before}; keep one"
        )


def refuse_facts(pieces: Int[np.ndarray, "f 3"], wrong: Bool[np.ndarray, "f"], fault: str) -> None:
    """Refuse the first of the facts that are wrong.

    Raises:
      ValueError: a fact is; the message has its number, its components and the fault.
    """
    if wrong.any():
        number = int(np.argmax(wrong))
        raise ArgumentError(
            f"pieces: fact {number}, {pieces[number].tolist()}, {fault}; leave it out"
        )


@checked
def join_tasks(
    tasks: Sequence[Int[np.ndarray, "_ 3"]],
) -> tuple[Int[np.ndarray, "f 3"], Int[np.ndarray, "f"]]:
    """Join tasks that list their facts' components into a label space, with the task of each fact.

    Raises:
      ValueError: a task has no facts, or a fact is in two tasks or twice in one; the message names
        it.
    """
    owner: dict[tuple[int, ...], int] = {}
    for task, members in enumerate(tasks):
        if not len(members):
            raise ArgumentError(f"task {task} has no facts; leave it out")
        for fact in map(tuple, members.tolist()):
            if fact in owner:
                where = "twice" if owner[fact] == task else f"in task {owner[fact]} and"
                raise ArgumentError(f"fact {list(fact)} is {where} in task {task}; keep one")
            owner[fact] = task
    return np.array(list(owner)), np.array(list(owner.values()))


@checked
def fact_sequence(
    fact_task: Annotated[Int[np.ndarray, "f"], Between(0), NotEmpty],
    train: Examples,
    valid: Examples,
    test: Examples,
) -> TaskSequence:
    """Build a sequence whose task t brings the facts with `fact_task` t and their examples.

    Validation examples are passed in, not split off by this function, so that all facts of an image
    can be on one side.

    Args:
      fact_task: task of every fact, `[f]`, 0 to t - 1.
      train: training examples, used in source order within every task.
      valid: in-task validation examples; tasks may have none.
      test: test examples; their union is ranked after every task.

    Raises:
      ValueError: a task has no facts, an example shows an unknown fact, or a task has no training
        or test examples. The message names it.
    """
    check_range("fact_task", fact_task, 0, len(fact_task) - 1)
    tasks = int(fact_task.max()) + 1
    owned = np.bincount(fact_task, minlength=tasks)
    if not owned.all():
        raise ArgumentError(
            f"task {np.argmin(owned)} has no facts; number tasks consecutively from 0"
        )
    for name, examples in (("train", train), ("valid", valid), ("test", test)):
        check_range(f"{name}.fact", examples.fact, 0, len(fact_task) - 1)
        empty = np.bincount(fact_task[examples.fact], minlength=tasks) == 0
        if name != "valid" and empty.any():
            raise ArgumentError(f"task {np.argmax(empty)} has no examples in {name}; give some")
    task_column = np.arange(tasks)[:, None]
    stream = Task(
        *(_group_by_task(examples, fact_task, tasks) for examples in (train, valid)),
        jnp.asarray(fact_task == task_column),
        jnp.arange(tasks),
    )
    union = unpadded_samples(test.image, test.fact)
    member = jnp.asarray(fact_task[test.fact] == task_column)
    return TaskSequence(stream, union, member, jnp.asarray(fact_task))


@checked
def split_statistics(
    pieces: Annotated[Int[np.ndarray, "f 3"], Between(-1)],
    fact_task: Annotated[Int[np.ndarray, "f"], Between(0)],
    examples: Examples,
) -> Statistics:
    """Count the facts and examples per task and type (table 2), `[t, 3]` each.

    Args:
      pieces: numbers of S, P and O of each fact, −1 where undefined, `[f, 3]`.
      fact_task: task of each fact, `[f]`.
      examples: facts that the images show.

    Raises:
      ValueError: an example shows an unknown fact. Or a fact has no subject, or an object without a
        predicate.
    """
    check_sizes(pieces=(pieces, 0), fact_task=(fact_task, 0))
    check_range("fact_task", fact_task, 0, len(fact_task) - 1)
    check_range("examples.fact", examples.fact, 0, len(fact_task) - 1)
    _check_types(pieces)
    cell = 3 * fact_task + np.sum(pieces >= 0, axis=1) - 1
    cells = 3 * (int(fact_task.max()) + 1)

    def count(which: Int[np.ndarray, "_"]) -> Int[np.ndarray, "t 3"]:
        return np.bincount(which, minlength=cells).reshape(-1, 3)

    return Statistics(count(cell), count(cell[examples.fact]))


def _check_types(pieces: Int[np.ndarray, "f 3"]) -> None:
    """Check that every fact is ⟨S, *, *⟩, ⟨S, P, *⟩ or ⟨S, P, O⟩."""
    subject, predicate, item = pieces.T >= 0
    refuse_facts(pieces, ~subject, "has no subject")
    refuse_facts(pieces, item & ~predicate, "has an object and no predicate")


def _group_by_task(examples: Examples, fact_task: Int[np.ndarray, "f"], tasks: int) -> Samples:
    task = fact_task[examples.fact]
    members = [np.flatnonzero(task == number) for number in range(tasks)]
    return stack_samples(
        [examples.image[rows] for rows in members], [examples.fact[rows, None] for rows in members]
    )
