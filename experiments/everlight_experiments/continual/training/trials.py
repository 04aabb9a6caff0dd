"""Trials: the programs of a run are compiled, and timed on a share of its samples.

A trial learns every task with few samples and epochs, so that memories fill and more and more test
samples count, as in training. Its seconds are continued along a line to all samples and epochs. It
changes no result: training has random keys and states of its own.
"""

import time
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Bool, Float

from everlight.base import Samples, TaskSequence
from everlight.continual import Runs, drive_runs
from everlight.continual.engine.run import Announce
from everlight.continual.engine.run_states import epochs_done, first_divergence

EPOCHS = 3
"""Epochs of a task in a trial: the first one, one for all others, and the last one."""
BATCHES = 4
"""Mean number of batches of an epoch in the smallest trial."""
GROWTH = 4
"""Factor between the shares of samples of two trials."""
ENOUGH, TOO_LONG = 0.5, 2.0
"""Seconds of a trial that need no larger one, and those after which it skips further tasks."""


class Trial(NamedTuple):
    """Seconds of a trial and of what it stands for."""

    compilation: float
    """Seconds until all programs had been called once."""
    seconds: float
    """Seconds that all runs take, without compilation."""


def try_runs(
    runs: Runs, mesh: Mesh, tasks: int | None = None, announce: Announce | None = None
) -> Trial:
    """Return the seconds of compiling the programs of runs, and those of training them at once.

    Args:
      runs: runs that are trained at once.
      mesh: their mesh.
      tasks: number of tasks that they learn; None is all.
      announce: as for `drive_runs`.
    """
    tasks = tasks or runs.sequence.tasks.id.shape[1]
    began, share = time.monotonic(), _least_share(runs)
    _time_tasks(runs, mesh, 1, announce, share)
    compilation = time.monotonic() - began
    seconds = _time_long_enough(runs, mesh, tasks, announce, share)
    return Trial(compilation, seconds)


def _time_long_enough(
    runs: Runs, mesh: Mesh, tasks: int, announce: Announce | None, share: float
) -> float:
    """Return the seconds of all tasks, from trials that grow until they can be measured well."""
    smaller, took = share, _time_tasks(runs, mesh, tasks, announce, share)
    before = took
    while share < 1 and took.wall < ENOUGH:
        smaller, before = share, took
        share = min(1.0, GROWTH * share)
        took = _time_tasks(runs, mesh, tasks, announce, share)
    if share == 1:
        total, walls, count = took.tasks.sum(), took.wall, 1
        while walls < ENOUGH:
            again = _time_tasks(runs, mesh, tasks, announce, share)
            total, walls, count = total + again.tasks.sum(), walls + again.wall, count + 1
        return float(total) / count
    if smaller == share:
        smaller = share / 2
        before = _time_tasks(runs, mesh, tasks, announce, smaller)
    slopes = np.maximum((took.tasks - before.tasks) / (share - smaller), 0)
    return float(np.sum(took.tasks + (1 - share) * slopes))


def _least_share(runs: Runs) -> float:
    """Return the share of samples with which an epoch has a few batches."""
    counts = np.asarray(runs.sequence.tasks.train.mask).sum(axis=-1)
    return min(1.0, BATCHES * runs.protocol.batch_size / max(1.0, float(counts.mean())))


class _Times(NamedTuple):
    tasks: Float[np.ndarray, "t"]
    """Seconds that each task takes with all of its epochs."""
    wall: float
    """Seconds that this was measured in."""


def _time_tasks(
    runs: Runs, mesh: Mesh, tasks: int, announce: Announce | None, share: float
) -> _Times:
    """Return the seconds of tasks with a share of their samples."""
    sequence = runs.sequence if share == 1 else _thinned(runs.sequence, share)
    seconds, chunks = [], []
    began = since = time.monotonic()
    states = drive_runs(replace(runs, sequence=sequence), 1, mesh, announce=announce, epochs=EPOCHS)
    for state in states:
        jax.block_until_ready(state)
        # Training reads these after every epoch too, which counts where epochs are short.
        epochs_done(runs.protocol, state), first_divergence(runs.protocol, state)
        now = time.monotonic()
        chunks.append(now - since)
        since = now
        if int(state.epoch) == 0:
            seconds.append(_all_epochs(chunks, runs.protocol.epochs_of(len(seconds))))
            chunks = []
            if len(seconds) == tasks or now - began > TOO_LONG:
                break
    seconds += seconds[-1:] * (tasks - len(seconds))
    return _Times(np.array(seconds), time.monotonic() - began)


def _all_epochs(chunks: list[float], epochs: int) -> float:
    """Return the seconds of a task of so many epochs from those of some, the last among them."""
    middle = chunks[len(chunks) // 2]
    return sum(chunks) + (epochs - len(chunks)) * middle


def _thinned(sequence: TaskSequence, share: float) -> TaskSequence:
    """Return a sequence in which a share of all samples, evenly spaced, is not padding."""

    def thin(samples: Samples) -> Samples:
        return samples._replace(mask=_every_few(np.asarray(samples.mask), share))

    tasks = sequence.tasks
    tasks = tasks._replace(train=thin(tasks.train), valid=thin(tasks.valid))
    return sequence._replace(tasks=tasks, test=thin(sequence.test))


def _every_few(mask: Bool[np.ndarray, "*axes n"], share: float) -> Bool[np.ndarray, "*axes n"]:
    """Return a mask with a share of its true entries, the first among them."""
    rank = np.cumsum(mask, axis=-1)
    return mask & (np.ceil(rank * share) > np.ceil((rank - 1) * share))
