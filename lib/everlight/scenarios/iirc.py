"""IIRC, incremental implicitly-refined classification (Abdelsalam et al. 2021).

Samples have a coarse and a fine label, learned in different tasks. Data are labelled by subclass; a
hierarchy groups some subclasses into superclasses, and both are classes to learn. Tasks introduce
either kind, superclasses before their subclasses. Splits and rounding follow the authors' package
`iirc` 1.0.1.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from everlight.base import Samples, Task, TaskSequence
from everlight.checks import Between, check_range, checked
from everlight.errors import ArgumentError
from everlight.scenarios.shapes import stack_samples

SUPERCLASS_SHARE = 0.4
"""Leading fraction of each subclass's samples that train its superclass (section 4.1)."""
SUBCLASS_SHARE = 0.8
"""Trailing fraction of its samples that train a subclass with a superclass."""
SUPERCLASS_CAP = 8
"""Maximum number of subclasses whose samples a superclass receives in full share."""

Hierarchy = Mapping[str, Sequence[str]]
"""Subclasses of each superclass; the data's other classes have no superclass."""

LabelSetting = Literal["incomplete", "complete", "joint", "incremental joint"]


class TaskConfiguration(NamedTuple):
    """Names of the classes that each task introduces."""

    tasks: tuple[tuple[str, ...], ...]
    left_out: tuple[str, ...] = ()
    """Classes that no task introduces, on purpose; their samples keep their other labels."""


class IIRC(NamedTuple):
    """IIRC benchmark over one data set, training samples first and test samples after them."""

    sequence: TaskSequence
    """Tasks with in-task validation in `tasks.valid`, tested on the test set."""
    post_task: TaskSequence
    """The same tasks, tested on the post-task validation samples for hyper-parameter selection."""
    class_names: tuple[str, ...]
    """Class names by class number, which is the order of introduction."""


@checked
def iirc(
    train_labels: Int[np.ndarray, "n"],
    test_labels: Int[np.ndarray, "m"],
    data_classes: Sequence[str],
    hierarchy: Hierarchy,
    configuration: TaskConfiguration,
    setting: LabelSetting = "incomplete",
    valid_fraction: Annotated[float, Between(0, 0.5)] = 0.1,
) -> IIRC:
    """Build the task sequence of a data set, a hierarchy and a task configuration (section 4).

    In every subclass, in source order, the first `valid_fraction` of the training samples is
    in-task validation and the next post-task validation. The other samples train. In training and
    in-task validation, a superclass gets the first 40% of each of its subclasses, times 8/k if it
    has k > 8. A subclass keeps its last 80%, so that the two share samples. Post-task validation
    and test contain every sample once, with all its labels. Labels are `[.., 2]`, padded with -1.

    Args:
      train_labels: index in `data_classes` of each training sample's class, `[n]`.
      test_labels: index in `data_classes` of each test sample's class, `[m]`.
      data_classes: names of the data's classes, which are the subclasses.
      hierarchy: subclasses of each superclass; empty gives plain class-incremental learning.
      configuration: classes of each task.
      setting: labels of training and in-task validation samples. "incomplete" gives those of the
        task itself, "complete" those of all tasks so far. "joint" gives all labels in a single
        task. "incremental joint" is like complete, but each task holds the samples of all tasks so
        far, once.
      valid_fraction: fraction of each of the two validation sets; 0.1, for ImageNet 0.04.

    Raises:
      ValueError: hierarchy, configuration and data do not match, or a label is out of range. Or a
        class has no training samples, or a task no test samples. The message names it.
    """
    _check_hierarchy(data_classes, hierarchy)
    _check_configuration(data_classes, hierarchy, configuration)
    _check_labels(data_classes, train_labels=train_labels, test_labels=test_labels)
    names = tuple(chain.from_iterable(configuration.tasks))
    tasks = (names,) if setting == "joint" else configuration.tasks
    class_task = np.repeat(np.arange(len(tasks)), [len(task) for task in tasks])
    class_labels = _numbers(data_classes, hierarchy, names)
    pairs = class_labels[train_labels]

    parts = [
        _split_subclass(members, valid_fraction) for members in _members(train_labels, data_classes)
    ]
    train, valid, post_task = zip(*parts, strict=True)
    assigned = [_assigned(part, data_classes, hierarchy, len(pairs)) for part in (train, valid)]
    trained = np.bincount(pairs[assigned[0] & (pairs >= 0)], minlength=len(names))
    if not trained.all():
        raise ArgumentError(
            f"class {names[np.argmin(trained)]!r} has no training samples: its subclasses have "
            "too few to share; give more, or remove it from the configuration"
        )
    stream = Task(
        *(_stack(pairs, share, class_task, setting) for share in assigned),
        jnp.asarray(class_task == np.arange(len(tasks))[:, None]),
        jnp.arange(len(tasks)),
    )
    test = len(pairs) + np.arange(len(test_labels))
    sequence = _add_test_sets(stream, class_task, test, class_labels[test_labels])
    empty = ~np.asarray(sequence.test_member).any(axis=1)
    if empty.any():
        raise ArgumentError(f"task {np.argmax(empty)} has no samples in test_labels; give some")
    held = np.sort(np.concatenate(post_task))
    return IIRC(sequence, _add_test_sets(stream, class_task, held, pairs[held]), names)


def _numbers(
    data_classes: Sequence[str], hierarchy: Hierarchy, names: Sequence[str]
) -> Int[np.ndarray, "d 2"]:
    """Return each data class's superclass number and its own, -1 if no task introduces it."""
    number = {name: position for position, name in enumerate(names)}
    parent = _parents(hierarchy)
    pairs = [(number.get(parent.get(name), -1), number.get(name, -1)) for name in data_classes]
    return np.array(pairs)


def _parents(hierarchy: Hierarchy) -> dict[str, str]:
    return {member: name for name, members in hierarchy.items() for member in members}


def _members(
    labels: Int[np.ndarray, "n"], data_classes: Sequence[str]
) -> list[Int[np.ndarray, "_"]]:
    """Return the samples of every class in source order."""
    counts = np.bincount(labels, minlength=len(data_classes))
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])


def _split_subclass(
    members: Int[np.ndarray, "_"], fraction: float
) -> tuple[Int[np.ndarray, "_"], ...]:
    """Split one subclass into training, in-task validation and post-task validation."""
    count = int(fraction * len(members))
    return members[2 * count :], members[:count], members[count : 2 * count]


def _assigned(
    part: Sequence[Int[np.ndarray, "_"]],
    data_classes: Sequence[str],
    hierarchy: Hierarchy,
    samples: int,
) -> Bool[np.ndarray, "n 2"]:
    """Return the samples that a split gives to their superclass (column 0) and subclass (1)."""
    parent = _parents(hierarchy)
    # A subclass without samples in the split does not count for the cap, as in the package.
    siblings = Counter(
        parent.get(name) for name, members in zip(data_classes, part, strict=True) if len(members)
    )
    assigned = np.zeros((samples, 2), bool)
    for name, members in zip(data_classes, part, strict=True):
        subclass_members = members
        if name in parent:
            share = min(1, SUPERCLASS_CAP / max(1, siblings[parent[name]])) * SUPERCLASS_SHARE
            assigned[members[: int(share * len(members))], 0] = True
            # A single sample rounds to the last 0, which slices as all; the package does the same.
            subclass_members = members[-int(SUBCLASS_SHARE * len(members)) :]
        assigned[subclass_members, 1] = True
    return assigned


def _stack(
    pairs: Int[np.ndarray, "n 2"],
    assigned: Bool[np.ndarray, "n 2"],
    class_task: Int[np.ndarray, "c"],
    setting: LabelSetting,
) -> Samples:
    """Stack every task's samples in source order, padded to the longest with mask 0."""
    introduced = _introduction_tasks(pairs, class_task)
    groups, labels = [], []
    for task in range(class_task[-1] + 1):
        current, so_far = introduced == task, introduced <= task
        brought = so_far if setting == "incremental joint" else current
        labelled = current if setting == "incomplete" else so_far
        groups.append(np.flatnonzero(np.any(assigned & brought, axis=1)))
        labels.append(_move_padding(np.where(labelled, pairs, -1)[groups[-1]]))
    return stack_samples(groups, labels)


def _add_test_sets(
    stream: Task,
    class_task: Int[np.ndarray, "c"],
    index: Int[np.ndarray, "m"],
    pairs: Int[np.ndarray, "m 2"],
) -> TaskSequence:
    """Return the tasks with a test union: samples of introduced classes, once, with all labels."""
    known = np.any(pairs >= 0, axis=1)
    index, pairs = index[known], pairs[known]
    introduced = _introduction_tasks(pairs, class_task)
    member = [np.any(introduced == task, axis=1) for task in range(class_task[-1] + 1)]
    test = Samples(index, _move_padding(pairs), np.ones(len(index), bool))
    return TaskSequence(
        stream,
        jax.tree.map(jnp.asarray, test),
        jnp.asarray(np.stack(member)),
        jnp.asarray(class_task),
    )


def _introduction_tasks(
    pairs: Int[np.ndarray, "n 2"], class_task: Int[np.ndarray, "c"]
) -> Int[np.ndarray, "n 2"]:
    """Return the task that introduces each label, or one past the last without a label."""
    return np.append(class_task, class_task[-1] + 1)[pairs]


def _move_padding(labels: Int[np.ndarray, "n 2"]) -> Int[np.ndarray, "n 2"]:
    """Return labels with padding moved to the end."""
    return np.where(labels[:, :1] < 0, labels[:, ::-1], labels)


def _check_hierarchy(data_classes: Sequence[str], hierarchy: Hierarchy) -> None:
    if len(set(data_classes)) < len(data_classes):
        twice = Counter(data_classes).most_common(1)[0][0]
        raise ArgumentError(f"data_classes has {twice!r} more than once; give distinct names")
    parent: dict[str, str] = {}
    for name, members in hierarchy.items():
        if name in data_classes:
            raise ArgumentError(
                f"superclass {name!r} is also a class of the data; rename one of them"
            )
        for member in members:
            if member not in data_classes:
                raise ArgumentError(
                    f"superclass {name!r} has {member!r}, which is not a class of the data; "
                    "restrict the hierarchy to the data"
                )
            if member in parent:
                raise ArgumentError(
                    f"class {member!r} is under {parent[member]!r} and {name!r}; keep it under one"
                )
            parent[member] = name


def _check_configuration(
    data_classes: Sequence[str], hierarchy: Hierarchy, configuration: TaskConfiguration
) -> None:
    task_of: dict[str, int] = {}
    for task, members in enumerate(configuration.tasks):
        if not members:
            raise ArgumentError(
                f"task {task} introduces no class; remove it from the configuration"
            )
        for name in members:
            if name not in hierarchy and name not in data_classes:
                raise ArgumentError(
                    f"task {task} introduces {name!r}, which is neither a class of the data nor a "
                    "superclass; remove it from the configuration"
                )
            if name in task_of:
                raise ArgumentError(
                    f"class {name!r} is introduced in task {task_of[name]} and in task {task}; "
                    "keep it in one"
                )
            task_of[name] = task
    for name in chain(hierarchy, data_classes):
        if (name in task_of) == (name in configuration.left_out):
            raise ArgumentError(
                f"class {name!r} must be either introduced by a task or named in left_out; it "
                f"is {'both' if name in task_of else 'neither'}"
            )
    for name, parent in _parents(hierarchy).items():
        if name in task_of and task_of.get(parent, 0) > task_of[name]:
            raise ArgumentError(
                f"task {task_of[name]} introduces {name!r} before its superclass {parent!r}, in "
                f"task {task_of[parent]}; put the superclass first"
            )


def _check_labels(data_classes: Sequence[str], **labels: Int[np.ndarray, "_"]) -> None:
    for name, values in labels.items():
        if not len(values):
            raise ArgumentError(f"{name} is empty; give one sample or more")
        check_range(name, values, 0, len(data_classes) - 1)
