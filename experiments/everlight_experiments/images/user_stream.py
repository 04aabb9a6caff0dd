"""The sequence of a user's own stream, whose file divides the samples among the tasks."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Int

from everlight.continual import TaskSequence
from everlight.scenarios import experience_sequence, pad_sequences, replace_test_with_validation
from everlight_data.errors import DataError
from everlight_data.sets.image_set import ImageSet
from everlight_data.user_code.streams import Experiences
from everlight_experiments.images.config import PICTURES, Config
from everlight_experiments.run_folder.config_options import changed_options

OF_THE_FILE = (
    *("data", "test-data", "test-every", "classes", "first-class", "per-class", "side"),
    *("tasks", "order", "cycles", "stream", "stream-draws", "imbalance", "blurry", "recurring"),
    "label-noise",
)
"""Options of data and tasks, which a stream's file has in their place."""
OF_IMAGES = ("augmentation", "pretrained", "features")
"""Options that exclude rows of numbers; others that these replace are not read."""


def check_stream_options(name: str, config: Config, has_features: bool) -> None:
    """Refuse options that a user's stream does not have.

    Raises:
      DataError: the message has the first of them.
    """
    changed = changed_options(PICTURES, config)
    for option in changed:
        if option in OF_THE_FILE:
            raise DataError(f"--{option} is not for {name}, whose file has the tasks; leave it out")
        if has_features and option in OF_IMAGES:
            raise DataError(
                f"--{option} is for images; {name} has rows of numbers, which a linear head "
                "learns; leave it out"
            )


def classes_of_tasks(images: ImageSet, experiences: Experiences) -> Bool[np.ndarray, "t c"]:
    """Return True for the classes that each task trains on."""
    numbers = np.arange(len(images.class_names))
    return np.stack([np.isin(numbers, images.train_labels[rows]) for rows in experiences.train])


def brings_no_class(images: ImageSet, experiences: Experiences) -> bool:
    """Return True if no task after the first has a new class: the stream is domain-incremental."""
    return bool(classes_of_tasks(images, experiences)[0].all())


def classes_recur(images: ImageSet, experiences: Experiences) -> bool:
    """Return True if several tasks train on one class."""
    return bool((classes_of_tasks(images, experiences).sum(axis=0) > 1).any())


def sequences_of_stream(
    images: ImageSet, experiences: Experiences, fraction: float
) -> Callable[[int, bool], TaskSequence]:
    """Return the function from a seed, and whether it selects, to the sequence of all seeds.

    The first `fraction` of each class's training samples in each task, at least one of two or more,
    is for validation. A test set of all tasks is that of each task.

    Raises:
      DataError: a task has no class of two samples, of which one could validate.
    """
    validates = [
        _first_of_classes(images.train_labels[rows], fraction) for rows in experiences.train
    ]
    for number, chosen in enumerate(validates):
        if fraction and not chosen.any():
            raise DataError(
                f"{images.name}: training task {number} has one sample per class, which validation "
                "would take; give more, or --validation-fraction 0"
            )
    train = [rows[~part] for rows, part in zip(experiences.train, validates, strict=True)]
    valid = [rows[part] for rows, part in zip(experiences.train, validates, strict=True)]
    test = list(experiences.test) * (len(train) if len(experiences.test) == 1 else 1)
    labels = np.concatenate([images.train_labels, images.test_labels])
    sequence = experience_sequence(
        train,
        [labels[rows] for rows in train],
        test,
        [labels[rows] for rows in test],
        len(images.class_names),
        valid,
        [labels[rows] for rows in valid],
    )
    if not fraction:
        return lambda seed, on_validation: sequence
    evaluated, selecting = pad_sequences([sequence, replace_test_with_validation(sequence)])
    return lambda seed, on_validation: selecting if on_validation else evaluated


def _first_of_classes(labels: Int[np.ndarray, "n"], fraction: float) -> Bool[np.ndarray, "n"]:
    """Return True for the first samples of each class, of one sample for none."""
    chosen = np.zeros(len(labels), bool)
    for label in np.unique(labels) if fraction else ():
        members = np.flatnonzero(labels == label)
        if len(members) > 1:
            chosen[members[: max(int(fraction * len(members)), 1)]] = True
    return chosen
