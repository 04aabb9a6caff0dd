"""CORe50's scenarios (Lomonaco and Maltoni 2017): new instances, new classes, both, or neither.

Five objects of each of ten categories were filmed in 11 sessions. A batch is some objects in some
training sessions; what is in it never depends on the run, only the order of the batches does.
Batches and orders are those of the authors' published protocol, generators included.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from everlight.checks import checked
from everlight.continual.base import Samples, Task, TaskSequence
from everlight.scenarios.shapes import stack_samples

OBJECTS, OBJECTS_PER_CATEGORY, SESSIONS, RUNS = 50, 5, 11, 10
TRAIN_SESSIONS = (0, 1, 3, 4, 5, 7, 8, 10)
TEST_SESSIONS = (2, 6, 9)
"""Sessions 3, 7 and 10 of the paper, which counts from 1."""
FIRST_OBJECTS = tuple(range(0, OBJECTS, OBJECTS_PER_CATEGORY))
"""One of each category: the first batch of NC and NIC in every run."""

Scenario = Literal["NI", "NC", "NIC", "static"]
Level = Literal["object", "category"]


class TrainingBatch(NamedTuple):
    """What a task learns from: all frames of these objects in these sessions."""

    objects: tuple[int, ...]
    sessions: tuple[int, ...]


@checked
def core50(
    objects: Int[np.ndarray, "n"],
    sessions: Int[np.ndarray, "n"],
    scenario: Scenario,
    run: int = 0,
    level: Level = "object",
    train_sessions: Sequence[int] = TRAIN_SESSIONS,
    test_sessions: Sequence[int] = TEST_SESSIONS,
) -> TaskSequence:
    """A run of a scenario: one task a batch, tested on the same frames after each (section 5).

    Indices are places in the given arrays. A class may come again: its task is the one that brings
    it first, and a test frame belongs to its class's task, so that the test sets of the tasks so
    far are the partial test set (option 1). Nothing is held out for validation.

    Args:
      objects: the object of each frame, 0 to 49, `[n]`; its category is a fifth of that.
      sessions: the session of each frame, 0 to 10, `[n]`.
      scenario: "NI", 8 batches of one session; "NC", 9 of new objects; "NIC", 79 of five objects
        (the first: ten) in one session; "static", all in one (section 4).
      run: 0 to 9, which of the published orders.
      level: classes are the 50 objects, or the 10 categories.
      train_sessions: of the batches, in the order from which a run shuffles them. Sessions 1 to k
        of the paper are `range(k)`.
      test_sessions: of the test set; sessions in neither are left out.

    Raises:
      ValueError: a choice that there is not, a session on both sides or twice, an object without
        frames in a session that is used; named.
    """
    batches = training_batches(scenario, run, train_sessions)
    _check_sessions("test_sessions", test_sessions)
    both = set(train_sessions) & set(test_sessions)
    if both:
        raise ValueError(f"session {min(both)} is in train_sessions and in test_sessions")
    _check_frames(objects, sessions, [*train_sessions, *test_sessions])

    labels = objects if level == "object" else objects // OBJECTS_PER_CATEGORY
    groups = [
        np.flatnonzero(np.isin(objects, batch.objects) & np.isin(sessions, batch.sessions))
        for batch in batches
    ]
    held = np.stack([np.isin(np.arange(OBJECTS), batch.objects) for batch in batches])
    if level == "category":
        held = held.reshape(len(batches), -1, OBJECTS_PER_CATEGORY).any(axis=2)
    class_task = held.argmax(axis=0)
    number = np.arange(len(batches))
    stream = Task(
        stack_samples(groups, [labels[group, None] for group in groups]),
        stack_samples([number[:0]] * len(batches), [labels[:0, None]] * len(batches)),
        jnp.asarray(class_task == number[:, None]),
        jnp.asarray(number),
    )
    index = np.flatnonzero(np.isin(sessions, test_sessions))
    test = Samples(index, labels[index][:, None], np.ones(len(index), bool))
    member = class_task[labels[index]] == number[:, None]
    return TaskSequence(
        stream,
        jax.tree.map(jnp.asarray, test),
        jnp.asarray(member),
        jnp.asarray(class_task),
        jnp.asarray(class_task == number[:, None]),
    )


@checked
def training_batches(
    scenario: Scenario, run: int, train_sessions: Sequence[int] = TRAIN_SESSIONS
) -> list[TrainingBatch]:
    """The batches of a run, in its order.

    Args:
      scenario: "NI", "NC", "NIC" or "static".
      run: 0 to 9.
      train_sessions: in the order from which a run shuffles them.

    Raises:
      ValueError: a scenario, run or session that there is not, a session twice, or none.
    """
    contents = {
        "NI": _new_instances,
        "NC": _new_classes,
        "NIC": _new_instances_and_classes,
        "static": lambda sessions: [TrainingBatch(tuple(range(OBJECTS)), sessions)],
    }
    if not 0 <= run < RUNS:
        raise ValueError(f"run={run}; the published runs are 0 to {RUNS - 1}")
    _check_sessions("train_sessions", train_sessions)
    batches = contents[scenario](tuple(train_sessions))
    fixed = 0 if scenario == "NI" else 1
    order = np.arange(fixed, len(batches))
    generator = np.random.RandomState(1)
    # One list for all runs, never put back in order.
    for _ in range(run + 1):
        generator.shuffle(order)
    return batches[:fixed] + [batches[place] for place in order]


def _new_instances(sessions: tuple[int, ...]) -> list[TrainingBatch]:
    return [TrainingBatch(tuple(range(OBJECTS)), (session,)) for session in sessions]


def _new_classes(sessions: tuple[int, ...]) -> list[TrainingBatch]:
    """Batch by batch the same object of five categories, the first five or the last."""
    rest = [
        tuple(first + place for first in half)
        for place in range(1, OBJECTS_PER_CATEGORY)
        for half in (FIRST_OBJECTS[:5], FIRST_OBJECTS[5:])
    ]
    return [TrainingBatch(objects, sessions) for objects in (FIRST_OBJECTS, *rest)]


def _new_instances_and_classes(sessions: tuple[int, ...]) -> list[TrainingBatch]:
    generator = np.random.RandomState(0)
    others = np.setdiff1d(np.arange(OBJECTS), FIRST_OBJECTS)
    generator.shuffle(others)
    rows = [tuple(row) for row in others.reshape(-1, 5).tolist()]
    halves = (FIRST_OBJECTS[:5], FIRST_OBJECTS[5:])
    units = [TrainingBatch(row, (session,)) for session in sessions for row in rows]
    units += [TrainingBatch(half, (session,)) for session in sessions[1:] for half in halves]
    order = np.arange(len(units))
    generator.shuffle(order)
    return [TrainingBatch(FIRST_OBJECTS, sessions[:1]), *(units[place] for place in order)]


def _check_sessions(name: str, sessions: Sequence[int]) -> None:
    wrong = [session for session in sessions if not 0 <= session < SESSIONS]
    if wrong:
        raise ValueError(f"{name} has {wrong[0]}; sessions are 0 to {SESSIONS - 1}")
    if not len(sessions) or len(set(sessions)) < len(sessions):
        raise ValueError(f"{name}={tuple(sessions)}; give at least one, and none twice")


def _check_frames(
    objects: Int[np.ndarray, "n"], sessions: Int[np.ndarray, "n"], used: Sequence[int]
) -> None:
    for name, values, count in (("objects", objects, OBJECTS), ("sessions", sessions, SESSIONS)):
        wrong = values[(values < 0) | (values >= count)]
        if len(wrong):
            raise ValueError(f"{name} holds {wrong[0]}; give 0 to {count - 1}")
    there = np.zeros((OBJECTS, SESSIONS), bool)
    there[objects, sessions] = True
    missing = [(place, session) for session in used for place in np.flatnonzero(~there[:, session])]
    if missing:
        raise ValueError(
            f"object {missing[0][0]} has no frames in session {missing[0][1]}, nor have "
            f"{len(missing) - 1} more pairs of object and session; complete the data"
        )
