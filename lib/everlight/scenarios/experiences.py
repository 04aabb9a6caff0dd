"""Task sequences from the experiences of another library's benchmark: index and label arrays.

Avalanche calls consecutive parts of a data set experiences; Continuum and Mammoth call them tasks.
Classes may recur, and a sample may be in several experiences.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from everlight.base import Samples, Task, TaskSequence
from everlight.checks import PositiveInt, checked
from everlight.errors import ArgumentError
from everlight.scenarios.shapes import stack_samples, unpadded_samples

Experiences = Sequence[Int[np.ndarray, "_"]]
"""One array of indices or labels per experience."""
MAX_SAMPLES = 2**31
"""Number of samples that indices of 32 bits count."""


@checked
def experience_sequence(
    train: Experiences,
    train_labels: Experiences,
    test: Experiences,
    test_labels: Experiences,
    classes: PositiveInt,
    valid: Experiences | None = None,
    valid_labels: Experiences | None = None,
) -> TaskSequence:
    """Build a sequence whose task t trains on the samples `train[t]` of a data set.

    A task introduces the classes that no earlier task trains on. A class that is only tested is
    introduced by no task and never counts as seen; `class_task` gives it the last test set. With
    known task identity (task-incremental), a test sample is scored among the classes that its
    experience trains on or tests (`TaskSequence.test_classes`).

    All indices count in one data set, whose samples `StoredImages` holds. Where a benchmark has its
    test samples in a set of their own, store them after the n training samples, and add n to
    their indices.

    Args:
      train: indices of each experience's training samples in the data set.
      train_labels: classes of the training samples, in 0..classes-1, one array per experience.
      test: indices of each experience's test samples, or a single array for a test set common to
        all. A sample in several sets is evaluated once, or once per choice of classes if these
        differ.
      test_labels: classes of the test samples.
      classes: number of outputs of the head; of samples, where labels are their rows, by which an
        objective finds targets (`target_objective`).
      valid: indices of each experience's validation samples; None means no validation.
      valid_labels: classes of the validation samples.

    Raises:
      ValueError: arrays differ in length, or one of `valid` and `valid_labels` is missing. Or an
        index is below 0 or takes more than 32 bits, or a label is out of range. Or a test sample
        has two labels, or an experience has no training or no test sample. Or a sample
        is in two of training, validation and test sets.
    """
    if not len(train):
        raise ArgumentError("train has no experience; give one or more")
    if (valid is None) != (valid_labels is None):
        raise ArgumentError("valid and valid_labels belong together; give both or none")
    if valid is None or valid_labels is None:
        nothing = [np.zeros(0, int)] * len(train)
        valid, valid_labels = nothing, nothing
    _check_sets(
        classes, train=(train, train_labels), test=(test, test_labels), valid=(valid, valid_labels)
    )
    tasks, number = len(train), np.arange(classes)
    known = [np.isin(number, np.concatenate(train_labels[: t + 1])) for t in range(tasks)]
    introduced = np.diff(np.stack([np.zeros(classes, bool), *known]).astype(int), axis=0) > 0
    first = np.where(known[-1], introduced.argmax(axis=0), tasks - 1)
    # A test set for all experiences scores every trained class.
    trained = train_labels if len(test) == tasks else [np.concatenate(train_labels)]
    masks = np.stack(
        [
            np.isin(number, np.concatenate([trained_classes, tested]))
            for trained_classes, tested in zip(trained, test_labels, strict=True)
        ]
    )
    union, member = _merge_test_sets(test, test_labels, masks)
    return TaskSequence(
        Task(
            _stack_experiences(train, train_labels),
            _stack_experiences(valid, valid_labels),
            jnp.asarray(introduced),
            jnp.arange(tasks),
        ),
        union,
        jnp.asarray(member),
        jnp.asarray(np.minimum(first, len(test) - 1)),
        jnp.asarray(masks),
    )


def _merge_test_sets(
    test: Experiences, test_labels: Experiences, masks: Bool[np.ndarray, "tests c"]
) -> tuple[Samples, Bool[np.ndarray, "tests m"]]:
    """Return the test samples of all sets, and which sets each belongs to.

    A sample in test sets of different classes occurs once for each choice of classes.
    """
    kind = np.unique(masks, axis=0, return_inverse=True)[1].reshape(-1)
    slots = [
        np.stack([experiences, np.full(len(experiences), kind[t])])
        for t, experiences in enumerate(test)
    ]
    union, first_slot, slot = np.unique(
        np.concatenate(slots, axis=1), axis=1, return_index=True, return_inverse=True
    )
    labels = np.concatenate(test_labels)[first_slot]
    member = np.zeros((len(test), len(labels)), bool)
    member[np.repeat(np.arange(len(test)), [len(experiences) for experiences in test]), slot] = True
    return unpadded_samples(union[0], labels), member


def _check_sets(classes: int, **sets: tuple[Experiences, Experiences]) -> None:
    """Check the sets train, test and valid, of indices and labels by name."""
    for name, (experiences, labels) in sets.items():
        one_or_each = (1, len(sets["train"][0])) if name == "test" else (len(sets["train"][0]),)
        _check_all(name, experiences, labels, classes, one_or_each)
    for name, other in (("test", "train"), ("valid", "train"), ("test", "valid")):
        _refuse_overlap(name, sets[name][0], other, sets[other][0])
    _refuse_two_labels(*sets["test"])


def _refuse_overlap(name: str, experiences: Experiences, other: str, others: Experiences) -> None:
    known = np.concatenate(list(others))
    shared = [np.isin(indices, known) for indices in experiences]
    count = sum(int(mask.sum()) for mask in shared)
    if count:
        first = next(number for number, mask in enumerate(shared) if mask.any())
        sample = experiences[first][shared[first]][0]
        raise ArgumentError(
            f"{name}[{first}] holds sample {sample}, which {other} holds too, as {count} of "
            f"{sum(map(len, experiences))} in {name}; all indices count in one data set: add the "
            f"number of samples before the {name} set to indices that count only in it"
        )


def _refuse_two_labels(test: Experiences, test_labels: Experiences) -> None:
    experiences, labels = np.concatenate(test), np.concatenate(test_labels)
    pairs = np.unique(np.stack([experiences, labels]), axis=1)
    twice = pairs[0][:-1][np.diff(pairs[0]) == 0]
    if len(twice):
        raise ArgumentError(
            f"test_labels gives two labels to sample {twice[0]}; give each sample one"
        )


def _stack_experiences(experiences: Experiences, labels: Experiences) -> Samples:
    return stack_samples(list(experiences), [np.asarray(classes)[:, None] for classes in labels])


def _check_all(
    name: str, experiences: Experiences, labels: Experiences, classes: int, counts: tuple[int, ...]
) -> None:
    if len(experiences) not in counts or len(labels) != len(experiences):
        raise ArgumentError(
            f"{name} has {len(experiences)} experiences and {name}_labels {len(labels)}; give "
            f"{' or '.join(map(str, counts))} for both"
        )
    for number, (indices, index_labels) in enumerate(zip(experiences, labels, strict=True)):
        if len(indices) != len(index_labels):
            raise ArgumentError(
                f"{name}[{number}] has {len(indices)} indices and {name}_labels[{number}] has "
                f"{len(index_labels)} labels; give one label per index"
            )
        if not len(indices) and name != "valid":
            raise ArgumentError(f"{name}[{number}] has no sample; leave the experience out")
        for what, values, most in (
            (name, indices, MAX_SAMPLES),
            (f"{name}_labels", index_labels, classes),
        ):
            wrong = values[(values < 0) | (values >= most)]
            if len(wrong):
                limit = "0 or more" if wrong[0] < 0 and what == name else f"0 to {most - 1}"
                raise ArgumentError(f"{what}[{number}] holds {wrong[0]}; give {limit}")
