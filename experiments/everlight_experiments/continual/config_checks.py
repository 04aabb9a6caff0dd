"""Checks that the parts of a configuration fit together and fit the images of a data set."""

import numpy as np
from jaxtyping import Int

from everlight_data.errors import DataError
from everlight_experiments.continual.config import Config


def check_parts(config: Config, settings: tuple[str, ...], images: Int[np.ndarray, "c"]) -> None:
    """Refuse sizes of tasks, validation and memory that a data set does not have.

    Args:
      config: configuration of the benchmark.
      settings: settings that are run.
      images: number of training images of every class.

    Raises:
      DataError: parts do not fit; the message has the option, its value and the remedy.
    """
    tasks, classes, fewest = config.tasks, len(images), int(images.min())
    fraction = config.validation_fraction
    # Every class has a validation image.
    left = fewest - (max(int(fraction * fewest), 1) if fraction else 0)
    if left == 0 and config.stream == "classes":
        raise DataError(
            "a class has one training image, which validation would take; give more images per "
            "class, or --validation-fraction 0"
        )
    if config.cycles > left:
        raise DataError(
            f"--cycles {config.cycles}; a class has {left} images to train on, give {left} or less"
        )
    if config.cycles > 1 and config.protocol.evaluate_steps:
        raise DataError(
            f"--cycles {config.cycles} with --evaluate-steps, whose scores compare a task with its "
            "first accuracy; leave one of them out"
        )
    # The online setting has one pass and validates nothing.
    if config.protocol.validates and not fraction and {*settings} != {"online"}:
        best = config.protocol.select == "best"
        option, instead = ("--select best", "last") if best else ("--plateau-factor", "1")
        raise DataError(
            f"{option} needs validation images, and --validation-fraction 0 leaves none; give a "
            f"fraction, or {option.split()[0]} {instead}"
        )
    if not tasks:
        raise DataError("--tasks without a number; give how many tasks there are")
    if len(tasks) == 1 and tasks[0] > classes and config.stream == "classes":
        raise DataError(f"--tasks {tasks[0]} of {classes} classes; give {classes} or fewer")
    if len(tasks) > 1 and sum(tasks) != classes:
        raise DataError(
            f"--tasks {' '.join(map(str, tasks))} are {sum(tasks)} classes of {classes}; give "
            "sizes that sum to the number of classes, or only the number of tasks"
        )
    size = config.buffer_size
    if size is not None and size < classes:
        raise DataError(f"--buffer-size {size} for {classes} classes; give {classes} or more")
