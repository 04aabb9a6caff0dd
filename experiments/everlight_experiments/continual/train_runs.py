"""Training of all seeds and hyper-parameter values of one method at once, with checkpoints.

The result of each is kept as one file of the run folder, which later starts read back.
"""

import dataclasses
import glob
import json
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray, PyTree

from everlight.continual import (
    Build,
    Protocol,
    Runs,
    SequenceResult,
    SequenceState,
    TaskSequence,
    drive_runs,
    initial_runs_state,
    runs_mesh,
)
from everlight.continual.engine.driver import Join, ignore_run_data
from everlight.continual.engine.run import Announce
from everlight.continual.engine.run_states import (
    NOT_DIVERGED,
    diverged_at,
    epochs_done,
    result_of_run,
    shapes_on_mesh,
)
from everlight.meshes import RUNS_AXIS
from everlight.trees import stacked
from everlight_data.errors import DataError
from everlight_data.progress import progress
from everlight_data.runs.checkpoints import Checkpoints
from everlight_data.runs.processes import is_first
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.interruption import saving_when_stopped, uninterrupted
from everlight_experiments.run_folder.memory import refuse_large

DIVERGED_AT = "diverged_at"
"""Task and epoch of the first loss that is not a finite number, or `NOT_DIVERGED`."""
POLL = 0.5
"""Seconds between checks for runs that other processes have finished."""


class Unit(NamedTuple):
    """One run among several."""

    name: str
    fingerprint: dict
    """Values that identify the run, independent of its neighbours."""
    sequence: TaskSequence
    key: PRNGKeyArray
    run_data: PyTree = ()
    """Data that `join` adds to those that all share: a hyper-parameter, the groups of classes."""
    title: str = ""
    """Name on the progress bar; empty is the name."""


class UnitTraining(NamedTuple):
    """Programs and data that all units of a call share."""

    build: Build
    protocol: Protocol
    shared: Any
    """Data of all runs."""
    keep: Callable[[SequenceResult], dict[str, Any]]
    """Function from the result of a sequence to the arrays that the run saves."""
    join: Join = ignore_run_data
    """Function from `shared` and a unit's `run_data` to its data; it must live as long as `build`,
    since programs are compiled once for both."""

    def runs_of(self, group: Sequence[Unit]) -> Runs:
        """Return units as the engine trains them together."""
        rows = stacked([(unit.sequence, unit.key, unit.run_data) for unit in group])
        return Runs(self.build, self.protocol, self.shared, *rows, self.join)


AfterTask = Callable[[Unit, int, SequenceResult], None]
"""Called with a run's result of each task, from 0, unless it diverged; restarts may repeat it."""


def train_units(
    folder: RunFolder,
    units: Sequence[Unit],
    training: UnitTraining,
    after_task: AfterTask | None = None,
    announce: Announce | None = None,
    one_by_one: bool = False,
    tasks: int | None = None,
) -> list[dict[str, np.ndarray]]:
    """Train runs of one shape together; finished runs are read back.

    On CPU, and where images are streamed, one run per device is trained at once, elsewhere all.
    After an interruption the same call continues to the same bits. Other processes that share the
    folder train some of the runs meanwhile, and runs of a process that dies are taken over. Joined
    processes (`processes.py`) train on all of their devices together; if one is killed, all end.
    Each unit's share of its process's seconds, compilation included, goes to metrics.jsonl, unless
    it continued from a checkpoint.

    Args:
      folder: folder of the run.
      units: runs of equal shapes (`scenarios.same_shapes`), perhaps none.
      training: programs and data of all units.
      after_task: called after every task that this process learns.
      announce: as for `drive_runs`.
      one_by_one: whether runs follow one another on one device, so that each has its own time.
      tasks: number of tasks that are learned, the first ones; None is all. Results of the others
        are placeholders.

    Returns:
      Arrays of each unit; `DIVERGED_AT` states whether its run diverged.

    Raises:
      DataError: the folder holds one of the units, or their checkpoints, with another
        fingerprint; the runs need more memory than is free; or processes were joined and the runs
        are trained one by one.
    """
    full_mesh, finished, fits = runs_mesh(), {}, False
    if one_by_one and full_mesh.is_multi_process:
        raise DataError("this trains on one device; leave out --distributed")
    one_each = jax.default_backend() == "cpu" or announce is not None
    at_once = 1 if one_by_one else full_mesh.size if one_each else max(1, len(units))
    for group, read in _claimed(folder, units, at_once):
        finished |= read
        if not group:
            continue
        mesh = full_mesh
        if one_by_one or (announce is not None and not full_mesh.is_multi_process):
            # A device without a run of its own would read the last one's images again.
            mesh = runs_mesh(jax.devices()[: len(group)])
        checkpoints = folder.checkpoints / group_name(group)
        runs = training.runs_of(_padded_group(group, mesh))
        if not fits:
            # All groups have these shapes, and later ones are no larger.
            refuse_large(initial_runs_state(runs), "--net", "--buffer-size")
            fits = True
        continued, began = checkpoints.exists(), time.monotonic()
        state = _train_group(
            Checkpoints(checkpoints), group, runs, mesh, after_task, announce, tasks
        )
        places = diverged_at(training.protocol, state)
        for number, unit in enumerate(group):
            outputs = training.keep(result_of_run(state, number, mesh))
            arrays = {name: np.asarray(value) for name, value in outputs.items()}
            arrays[DIVERGED_AT] = places[number]
            folder.save_unit(unit.name, unit.fingerprint, **arrays)
            seconds = None if continued else (time.monotonic() - began) / len(group)
            folder.log(unit=unit.name, seconds=seconds, diverged=has_diverged(arrays))
            finished[unit.name] = arrays
        # What is kept of finished runs is their numbers; their nets would be most of the disk.
        if is_first():
            shutil.rmtree(checkpoints, ignore_errors=True)
    if is_first():
        _remove_left(folder, units)
    return [finished[unit.name] for unit in units]


def has_diverged(arrays: dict[str, np.ndarray]) -> bool:
    """Return whether a unit's arrays are those of a run that diverged."""
    return bool(arrays[DIVERGED_AT][0] >= 0)


def _claimed(
    folder: RunFolder, units: Sequence[Unit], at_once: int
) -> Iterator[tuple[list[Unit], dict[str, dict[str, np.ndarray]]]]:
    """Yield units for this process to train, at most so many at once, and arrays of finished ones.

    It ends when all units were yielded as one or the other.
    """
    printed, missing = False, list(units)
    while missing:
        group, read = [], {}
        for unit in missing:
            if len(group) == at_once:
                break
            # First the claim: between reading and claiming, another could finish it.
            claimed = folder.claim_run(unit.name)
            arrays = folder.read_unit(unit.name, unit.fingerprint)
            if arrays is not None:
                read[unit.name] = {DIVERGED_AT: np.array(NOT_DIVERGED), **arrays}
                folder.release_run(unit.name)
            elif claimed:
                group.append(unit)
        yield group, read
        done = {*read, *(unit.name for unit in group)}
        missing = [unit for unit in missing if unit.name not in done]
        if missing and not group:
            if not printed:
                print(f"waits for what other processes train in {folder.path}", flush=True)
                printed = True
            time.sleep(POLL)


def group_name(group: Sequence[Unit]) -> str:
    """Return the name of a group's checkpoints, with a checksum: other groups may begin alike."""
    if len(group) == 1:
        return group[0].name
    checksum = zlib.crc32(json.dumps([unit.name for unit in group]).encode())
    return f"{group[0].name} and {len(group) - 1} more {checksum:08x}"


def _remove_left(folder: RunFolder, units: Sequence[Unit]) -> None:
    """Remove the checkpoints of groups that were stopped and did not form again."""
    for unit in units:
        groups = folder.checkpoints.glob(f"{glob.escape(unit.name)} and * more *")
        for left in (folder.checkpoints / unit.name, *groups):
            shutil.rmtree(left, ignore_errors=True)


def _train_group(
    checkpoints: Checkpoints,
    group: Sequence[Unit],
    runs: Runs,
    mesh: Mesh,
    after_task: AfterTask | None,
    announce: Announce | None,
    tasks: int | None,
) -> SequenceState:
    """Return the state after so many tasks, or where all of them have diverged."""
    protocol = runs.protocol
    fingerprint = {
        "runs": [{"unit": unit.name, **unit.fingerprint} for unit in group],
        "protocol": dataclasses.asdict(protocol),
        "keys": jax.random.key_data(runs.key).tolist(),
    }
    if mesh.is_multi_process:
        fingerprint["devices"] = mesh.size

    def like() -> SequenceState:
        return shapes_on_mesh(initial_runs_state(runs), mesh)

    done, state = checkpoints.resume(fingerprint, like) or (0, None)
    driven = drive_runs(runs, 1, mesh, state, announce)

    def save() -> None:
        epochs = 0 if state is None else epochs_done(protocol, state)
        if epochs > (checkpoints.newest() or 0):
            checkpoints.save(epochs, state, fingerprint)

    # A signal may come to one of several processes, which save together.
    saving = nullcontext() if jax.process_count() > 1 else saving_when_stopped(save)
    total = protocol.epochs_before(tasks or runs.sequence.tasks.id.shape[1])
    title = (group[0].title or group[0].name) + f" ({len(group)} runs)" * (len(group) > 1)
    diverged = np.zeros(len(group), bool)
    with saving, progress(title, total, done, "epoch") as bar:
        while not diverged.all() and bar.n < total:
            # Its arrays are taken back for the next one's: a signal waits until that is there.
            with uninterrupted():
                state = next(driven, state)
                reached = epochs_done(protocol, state)
                places = diverged_at(protocol, state)[: len(group)]
                now = places[:, 0] >= 0
                # Before the checkpoint from which they would not come again.
                if after_task is not None and int(state.epoch) == 0:
                    for number in np.flatnonzero(~now).tolist():
                        result = result_of_run(state, number, mesh)
                        after_task(group[number], int(state.task) - 1, result)
            # What is complete is kept as units at once.
            if reached < total and checkpoints.due():
                with uninterrupted():
                    save()
            bar.update(reached - bar.n)
            for number in np.flatnonzero(now & ~diverged):
                place = "task {}, epoch {}".format(*places[number])
                print(f"{group[number].name}: the loss is not finite at {place}", flush=True)
            diverged = now
    return state


def _padded_group(group: Sequence[Unit], mesh: Mesh) -> list[Unit]:
    """Return the group, its last unit repeated until each of several processes has as many."""
    missing = -len(group) % mesh.shape[RUNS_AXIS] if mesh.is_multi_process else 0
    return [*group, *group[-1:] * missing]
