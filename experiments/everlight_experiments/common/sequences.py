"""Sequences of tasks driven with checkpoints and progress; images brought to the device."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from everlight.continual.base import TaskSequence
from everlight.continual.engine.flax_setup import StoredImages
from everlight.continual.engine.sequence import (
    DivergedError,
    Protocol,
    drive_sequence,
    initial_state,
)
from everlight.continual.engine.state import Build, SequenceResult, SequenceState
from everlight_data.errors import DataError
from everlight_data.images.image_set import Channels, ImageSet
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.common.interruption import (
    saving_when_stopped,
    uninterrupted,
)
from everlight_experiments.common.progress import progress
from everlight_experiments.common.run_folder import RunFolder


class DivergedRunError(DataError):
    """A loss that is not finite; names run, task and epoch, counted from 0, and what to do."""

    def __init__(self, message: str, place: tuple[int, int]):
        super().__init__(message)
        self.place = place
        """Task and epoch of the first that is not."""


def store_images(
    images: ImageSet, channels: Channels | None = None, unit: bool = False
) -> StoredImages:
    """Return the images on the device, normalized by channel when a network reads them.

    Args:
      images: of the set.
      channels: mean and deviation, 0 to 1, of each; None is those of the training images.
      unit: divide by 255 instead.
    """
    stored = images.images
    if unit:
        return StoredImages.of(stored, jnp.float32(0), jnp.float32(255))
    if channels is not None:
        return StoredImages.of(stored, *(255 * jnp.asarray(each, jnp.float32) for each in channels))
    train = images.images[: len(images.train_labels)]
    # Channel by channel and by counts of values, since a float copy would be four times the data.
    counts = [
        np.bincount(train[..., channel].ravel(), minlength=256)
        for channel in range(train.shape[-1])
    ]
    values = np.arange(256)
    mean = np.array([np.average(values, weights=count) for count in counts])
    square = np.array([np.average(values**2, weights=count) for count in counts])
    deviation = np.maximum(np.sqrt(square - mean**2), 1.0)
    return StoredImages.of(
        stored, jnp.asarray(mean, jnp.float32), jnp.asarray(deviation, jnp.float32)
    )


def train_sequence(
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    folder: Path,
    facts: dict,
    after_task: Callable[[int, SequenceResult], None] | None = None,
) -> SequenceResult:
    """Drives a sequence; stopped at any moment and called again, it goes on to the same bits.

    A signal to stop saves the newest epoch first; a damaged checkpoint gives way to the one before.

    Args:
      build, protocol, data, sequence, key: as for `drive_sequence`.
      folder: of the checkpoints.
      facts: what else tells this configuration from any other: strategy, its settings, data, task
        order; stored with every checkpoint, beside protocol and key.
      after_task: told of every task that is learnt here, from 0, what it left.

    Raises:
      DataError: the folder holds checkpoints of another configuration, or processes were joined.
      DivergedRunError: a loss is not finite.
    """
    if jax.process_count() > 1:
        raise DataError("this trains on one device; leave out --distributed")
    facts = {
        **facts,
        "protocol": dataclasses.asdict(protocol),
        "key": jax.random.key_data(key).tolist(),
    }
    checkpoints = Checkpoints(folder)
    parts = (build, protocol, data, sequence, key)
    done, state = checkpoints.resume(facts, lambda: initial_state(*parts)) or (0, None)
    total = epochs_before(sequence.tasks.id.shape[0], protocol)

    def save() -> None:
        epochs = 0 if state is None else epochs_done(state, protocol)
        if epochs > (checkpoints.newest() or 0):
            checkpoints.save(epochs, state, facts)

    try:
        with saving_when_stopped(save), progress(folder.name, total, done, "epoch") as bar:
            for reached in drive_sequence(*parts, state):
                with uninterrupted():
                    # Before the checkpoint from which it would not come again.
                    if after_task is not None and int(reached.epoch) == 0:
                        after_task(int(reached.task) - 1, reached.result)
                    state = reached
                if checkpoints.due():
                    with uninterrupted():
                        save()
                bar.update()
    except DivergedError as error:
        newest = checkpoints.newest()
        good = (
            "there is no checkpoint before it"
            if newest is None
            else (f"the last good checkpoint is {checkpoints.folder / str(newest)}")
        )
        raise DivergedRunError(
            f"{folder.name}: {error}; {good}. Lower the learning rate or the hyper-parameter.",
            (error.task, error.epoch),
        ) from error
    return state.result


def train_unit(
    folder: RunFolder,
    unit: str,
    facts: dict,
    build: Build,
    protocol: Protocol,
    data: Any,
    sequence: TaskSequence,
    key: PRNGKeyArray,
    keep: Callable[[SequenceResult], dict[str, Any]],
    after_task: Callable[[int, SequenceResult], None] | None = None,
) -> dict[str, np.ndarray]:
    """A sequence as a part of a run, trained once: its numbers are read back ever after.

    Args:
      folder: the run's.
      unit: name of the part.
      facts: what tells this configuration from any other.
      build, protocol, data, sequence, key: as for `drive_sequence`.
      keep: from what the sequence left to the arrays that the run keeps.
      after_task: as for `train_sequence`.

    Raises:
      DataError: the folder holds this part or its checkpoints with other facts.
      DivergedRunError: a loss is not finite.
    """
    checkpoints = folder.checkpoints / unit
    done = folder.read_unit(unit, facts)
    if done is not None:
        # A run that was killed while it removed them left some.
        shutil.rmtree(checkpoints, ignore_errors=True)
        return done
    result = train_sequence(build, protocol, data, sequence, key, checkpoints, facts, after_task)
    arrays = {name: np.asarray(value) for name, value in keep(result).items()}
    folder.save_unit(unit, facts, **arrays)
    # What is kept of a finished sequence is its numbers; its nets would be most of the disk.
    shutil.rmtree(checkpoints, ignore_errors=True)
    return arrays


def epochs_done(state: SequenceState, protocol: Protocol) -> int:
    """Return the number of finished epochs from the beginning of the sequence on."""
    return epochs_before(int(state.task), protocol) + int(state.epoch)


def epochs_before(task: int, protocol: Protocol) -> int:
    """Return the number of epochs before a task begins."""
    return sum(protocol.epochs_of(number) for number in range(task))
