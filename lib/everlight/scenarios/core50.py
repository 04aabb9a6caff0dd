"""CORe50's scenarios (Lomonaco and Maltoni 2017), with the authors' published batches and orders.

- New instances (NI) is domain-incremental: batches show all classes under new conditions.
- New classes (NC) is class-incremental.
- New instances and classes (NIC) is both.
- static is joint training on all data.

Five objects in each of ten categories were filmed in 11 sessions. A batch consists of some objects
in some training sessions. Its content does not depend on the run; only the order of the batches
does. The random generators are the authors' too.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from everlight.base import Task, TaskSequence
from everlight.checks import Between, check_range, checked
from everlight.errors import Argument, ArgumentError
from everlight.scenarios.shapes import stack_samples, unpadded_samples

OBJECTS, OBJECTS_PER_CATEGORY, SESSIONS, RUNS = 50, 5, 11, 10
TRAIN_SESSIONS = (0, 1, 3, 4, 5, 7, 8, 10)
TEST_SESSIONS = (2, 6, 9)
"""Test sessions, numbered 3, 7 and 10 in the paper, which counts from 1."""
FIRST_OBJECTS = tuple(range(0, OBJECTS, OBJECTS_PER_CATEGORY))
"""One object per category: the first batch of NC and NIC in every run."""

Scenario = Literal["NI", "NC", "NIC", "static"]
Level = Literal["object", "category"]
PublishedRun = Annotated[int, Between(0, RUNS - 1)]


class TrainingBatch(NamedTuple):
    """Training data of a task: all frames of these objects in these sessions."""

    objects: tuple[int, ...]
    sessions: tuple[int, ...]


@checked
def core50(
    objects: Int[np.ndarray, "n"],
    sessions: Int[np.ndarray, "n"],
    scenario: Scenario,
    run: PublishedRun = 0,
    level: Level = "object",
    train_sessions: Sequence[int] = TRAIN_SESSIONS,
    test_sessions: Sequence[int] = TEST_SESSIONS,
    frames: Int[np.ndarray, "k"] | None = None,
) -> TaskSequence:
    """Build a run of a scenario: one task per batch, all tested on the same frames (section 5).

    Sample indices are positions in the given arrays. Classes may recur: a class belongs to the task
    that first brings it, and so do its test frames. The test sets of the tasks so far thus form the
    partial test set (option 1). There is no validation set.

    Args:
      objects: object of each frame, 0 to 49, `[n]`; objects 5k to 5k + 4 form category k.
      sessions: session of each frame, 0 to 10, `[n]`.
      scenario: one of four (section 4). "NI" (domain-incremental) has 8 batches of one session;
        "NC" (class-incremental) 9 batches of new objects. "NIC" (both) has 79 batches of five
        objects in one session, ten in the first. "static" has one batch.
      run: index of the published order, 0 to 9.
      level: classes are the 50 objects or the 10 categories.
      train_sessions: training sessions in the order that a run shuffles. Sessions 1 to k of the
        paper are `range(k)`.
      test_sessions: sessions of the test set; sessions in neither argument are left out.
      frames: positions of the frames that are used, `[k]`; None is all.

    Raises:
      ValueError: a choice does not exist, a session is in both arguments or twice in one, or an
        object has no frames in a used session. The message names it.
    """
    batches = training_batches(scenario, run, train_sessions)
    _check_test_sessions(train_sessions, test_sessions)
    positions = np.arange(len(objects)) if frames is None else frames
    _check_frames(objects, sessions, positions, [*train_sessions, *test_sessions])
    used = np.isin(np.arange(len(objects)), positions)
    labels = objects if level == "object" else objects // OBJECTS_PER_CATEGORY
    groups = [
        np.flatnonzero(used & np.isin(objects, batch.objects) & np.isin(sessions, batch.sessions))
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
    index = np.flatnonzero(used & np.isin(sessions, test_sessions))
    member = class_task[labels[index]] == number[:, None]
    return TaskSequence(
        stream,
        unpadded_samples(index, labels[index]),
        jnp.asarray(member),
        jnp.asarray(class_task),
        jnp.asarray(class_task == number[:, None]),
    )


@checked
def training_batches(
    scenario: Scenario, run: PublishedRun, train_sessions: Sequence[int] = TRAIN_SESSIONS
) -> list[TrainingBatch]:
    """Return the batches of a run, in its order.

    Args:
      scenario: "NI" (domain-incremental), "NC" (class-incremental), "NIC" (both) or "static".
      run: index of the published order, 0 to 9.
      train_sessions: training sessions in the order that a run shuffles.

    Raises:
      ValueError: a scenario, run or session does not exist, a session occurs twice, or there is
        none.
    """
    contents = {
        "NI": _new_instances,
        "NC": _new_classes,
        "NIC": _new_instances_and_classes,
        "static": lambda sessions: [TrainingBatch(tuple(range(OBJECTS)), sessions)],
    }
    _check_sessions("train_sessions", train_sessions)
    batches = contents[scenario](tuple(train_sessions))
    fixed = 0 if scenario == "NI" else 1
    order = np.arange(fixed, len(batches))
    generator = np.random.RandomState(1)
    # All runs shuffle the same list in turn, without resetting it.
    for _ in range(run + 1):
        generator.shuffle(order)
    return batches[:fixed] + [batches[index] for index in order]


def _new_instances(sessions: tuple[int, ...]) -> list[TrainingBatch]:
    return [TrainingBatch(tuple(range(OBJECTS)), (session,)) for session in sessions]


def _new_classes(sessions: tuple[int, ...]) -> list[TrainingBatch]:
    """Return batches of one new object from each of five categories, the first five or the last."""
    rest = [
        tuple(first + index for first in half)
        for index in range(1, OBJECTS_PER_CATEGORY)
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
    return [TrainingBatch(FIRST_OBJECTS, sessions[:1]), *(units[index] for index in order)]


def _check_sessions(name: str, sessions: Sequence[int]) -> None:
    wrong = [session for session in sessions if not 0 <= session < SESSIONS]
    if wrong:
        raise ArgumentError(f"{name} has {wrong[0]}; sessions are 0 to {SESSIONS - 1}")
    if not len(sessions) or len(set(sessions)) < len(sessions):
        raise ArgumentError(
            Argument(name, tuple(sessions)), remedy=("give at least one, without duplicates",)
        )


def _check_test_sessions(train_sessions: Sequence[int], test_sessions: Sequence[int]) -> None:
    _check_sessions("test_sessions", test_sessions)
    both = set(train_sessions) & set(test_sessions)
    if both:
        raise ArgumentError(
            f"session {min(both)} is in train_sessions and in test_sessions; keep it in one"
        )


def _check_frames(
    objects: Int[np.ndarray, "n"],
    sessions: Int[np.ndarray, "n"],
    frames: Int[np.ndarray, "k"],
    used: Sequence[int],
) -> None:
    if not len(frames):
        raise ArgumentError("frames is empty; give positions of frames, or None")
    check_range("frames", frames, 0, len(objects) - 1)
    objects, sessions = objects[frames], sessions[frames]
    for name, values, count in (("objects", objects, OBJECTS), ("sessions", sessions, SESSIONS)):
        check_range(name, values, 0, count - 1)
    shown = np.zeros((OBJECTS, SESSIONS), bool)
    shown[objects, sessions] = True
    missing = [(index, session) for session in used for index in np.flatnonzero(~shown[:, session])]
    if missing:
        raise ArgumentError(
            f"object {missing[0][0]} has no frames in session {missing[0][1]}, and "
            f"{len(missing) - 1} more pairs of object and session have none; add their frames"
        )
