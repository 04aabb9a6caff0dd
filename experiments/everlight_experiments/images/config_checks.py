"""Checks that the parts of a configuration fit together and fit the images of a data set."""

import numpy as np
from jaxtyping import Int

from everlight_data.errors import DataError
from everlight_experiments.images.config import DIVIDING, Config
from everlight_experiments.images.metrics import read_predictions
from everlight_experiments.images.pretrained import is_released

DOMAIN = "domain-incremental"


def check_options(config: Config, settings: tuple[str, ...]) -> None:
    """Refuse options that exclude each other, whatever the data.

    Raises:
      DataError: two options do not fit together; the message names them and the remedy.
    """
    features = config.features is not None
    if features and config.pretrained is not None:
        raise DataError("--pretrained and --features both replace the network; give one of them")
    if config.pixels == "unit" and is_released(config.pretrained, config.net):
        raise DataError(
            "--pixels unit, which a preset may set, with --pretrained: the released network was "
            "trained on pixels normalized by its own mean and deviation; give --pixels channels"
        )
    if features and config.augmentation != "none":
        raise DataError("--augmentation changes images; leave out --features")
    if config.compute_budget is not None and "online" in settings:
        raise DataError("--compute-budget: the online setting is one pass; leave one of them out")
    if config.cycles > 1 and config.protocol.evaluate_steps:
        raise DataError(
            f"--cycles {config.cycles} with --evaluate-steps, whose scores compare a task with its "
            "first accuracy; leave one of them out"
        )
    if not config.number_of_tasks:
        raise DataError("--tasks without a number; give how many tasks there are")
    _check_normalization(config)
    _check_shared_classes(config, settings)
    if config.stream != "classes":
        _check_stream(config, settings)
    if config.stream in DIVIDING and config.stream_draws != "shared":
        raise DataError(
            "--stream-draws seeded draws permutations or angles; give --stream permuted or rotated"
        )


def _check_normalization(config: Config) -> None:
    """Refuse first-task statistics where the images of a task do not set the normalization."""
    if config.normalization is None:
        return
    features, path = config.features is not None, config.pretrained
    reasons = {
        f"--stream {config.stream} has the same images in every task": config.stream
        not in DIVIDING,
        f"--pixels {config.pixels} takes no statistics": config.pixels == "unit" and not features,
        "--pretrained has the statistics of its release": is_released(path, config.net),
    }
    for reason, holds in reasons.items():
        if holds:
            raise DataError(f"--normalization {config.normalization}: {reason}; leave it out")


def _check_shared_classes(config: Config, settings: tuple[str, ...]) -> None:
    """Refuse options with which tasks cannot train on each other's classes."""
    reasons = {
        f"--stream {config.stream}, which has the same labels in every task": config.stream
        != "classes",
        f"--cycles {config.cycles}, where the classes of every task recur": config.cycles > 1,
        "--tasks 1, which leaves no other task": config.number_of_tasks == 1,
        "--setting task-incremental, where a task's samples belong to its own head alone": (
            "task-incremental" in settings
        ),
    }
    for name, value in config.unevenness.shared.items():
        for reason, holds in reasons.items():
            if holds:
                raise DataError(f"--{name} {value:g} with {reason}; leave one of them out")


def _check_stream(config: Config, settings: tuple[str, ...]) -> None:
    """Refuse options that do not apply to a domain-incremental stream."""
    changes_images = config.stream in ("permuted", "rotated")
    has_sizes = config.task_sizes is not None
    reasons = {
        f"is {DOMAIN}; leave out --setting": settings != ("class-incremental",),
        "has equally many classes in every task; give --tasks one number": has_sizes,
        "changes images; leave out --features": config.features is not None and changes_images,
        "brings no new labels; leave out --shots": config.shots is not None,
        "has the same labels in every task; leave out --cycles": config.cycles > 1,
        "has no --metrics of classes; leave them out": read_predictions(config.metrics),
    }
    for reason, holds in reasons.items():
        if holds:
            raise DataError(f"--stream {config.stream} {reason}")


def check_sizes(config: Config, settings: tuple[str, ...], images: Int[np.ndarray, "c"]) -> None:
    """Refuse sizes of validation and memory that a data set does not have.

    `images` has the number of training images of every class.

    Raises:
      DataError: parts do not fit; the message has the option, its value and the remedy.
    """
    classes, fewest = len(images), int(images.min())
    fraction = config.validation_fraction
    # Every class has a validation image.
    left = fewest - (max(int(fraction * fewest), 1) if fraction else 0)
    if left == 0 and config.stream in DIVIDING:
        raise DataError(
            "a class has one training image, which validation would take; give more images per "
            "class, or --validation-fraction 0"
        )
    if config.cycles > left:
        raise DataError(
            f"--cycles {config.cycles}; a class has {left} images to train on, give {left} or less"
        )
    # The online setting has one pass and validates nothing.
    if config.protocol.validates and not fraction and {*settings} != {"online"}:
        best = config.protocol.select == "best"
        option, instead = ("--select best", "last") if best else ("--plateau-factor", "1")
        raise DataError(
            f"{option} needs validation images, and --validation-fraction 0 leaves none; give a "
            f"fraction, or {option.split()[0]} {instead}"
        )
    size = config.buffer_size
    if size is not None and size < classes:
        raise DataError(f"--buffer-size {size} for {classes} classes; give {classes} or more")


def check_division(config: Config, classes: int) -> None:
    """Refuse tasks into which so many classes cannot be divided.

    Raises:
      DataError: the message has the option, its value and the remedy.
    """
    count, sizes = config.number_of_tasks, config.task_sizes
    if sizes is None and count > classes and config.stream in DIVIDING:
        raise DataError(f"--tasks {count} of {classes} classes; give {classes} or fewer")
    if config.stream == "split-domains" and classes % count:
        raise DataError(
            f"--stream split-domains with --tasks {count} of {classes} classes; give a "
            "number of tasks that divides them, or --classes"
        )
    if sizes is not None and sum(sizes) != classes:
        raise DataError(
            f"--tasks {' '.join(map(str, sizes))} are {sum(sizes)} classes of {classes}; give "
            "sizes that sum to the number of classes, or only the number of tasks"
        )
