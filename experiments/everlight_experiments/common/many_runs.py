"""Runs of one shape trained together, one a device at a time, each kept as a unit of the run."""

import dataclasses
import glob
import json
import shutil
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Int, PRNGKeyArray, PyTree

from everlight.continual import (
    Build,
    Protocol,
    Runs,
    SequenceResult,
    SequenceState,
    TaskSequence,
    diverged,
    drive_runs,
    initial_runs_state,
    runs_mesh,
)
from everlight.continual.engine.run import Announce
from everlight.continual.engine.runs import Join, shared_alone
from everlight.meshes import REPLICATED, RUNS_AXIS, RUNS_SPEC, fetch
from everlight_data.errors import DataError
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.common.interruption import saving_when_stopped, uninterrupted
from everlight_experiments.common.processes import is_first
from everlight_experiments.common.progress import progress
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.sequences import (
    DivergedRunError,
    epochs_before,
    epochs_done,
)
from everlight_experiments.common.trees import rows_of, stacked

DIVERGED_AT = "diverged_at"
"""Task and epoch of the first loss that is no finite number, or `NOWHERE`."""
NOWHERE = (-1, -1)
POLL = 0.5
"""Seconds between looks at what other processes have finished."""


class Unit(NamedTuple):
    """One run among several."""

    name: str
    facts: dict
    """Values that identify the run, whatever its neighbours are."""
    sequence: TaskSequence
    key: PRNGKeyArray
    own: PyTree = ()
    """Data that `join` adds to those that all share: a hyper-parameter, the groups of classes."""
    title: str = ""
    """Name on the progress bar; empty is the name."""


AfterTask = Callable[[Unit, int, SequenceResult], None]
"""Told what a run has left after a task, from 0, unless it has diverged; after a kill perhaps
again, to the same bits."""


def train_units(
    folder: RunFolder,
    units: Sequence[Unit],
    build: Build,
    protocol: Protocol,
    shared: Any,
    keep: Callable[[SequenceResult], dict[str, Any]],
    join: Join = shared_alone,
    after_task: AfterTask | None = None,
    announce: Announce | None = None,
    one_by_one: bool = False,
) -> list[dict[str, np.ndarray]]:
    """Trains runs of one shape together; what was trained before is read back.

    On CPU, and where images are streamed, as many at once as there are devices, one each;
    elsewhere all of them. Stopped at any
    moment and called again, they go on to the same bits. Where the folder is shared, other
    processes train some of them meanwhile, and what one that dies was at is taken over. A run that
    diverges is told and leaves its neighbours alone; what it kept says so under `DIVERGED_AT`.
    Processes that were joined (`processes.py`) train on all of their devices together; a kill of
    one of them ends all, and costs what was learnt since the last checkpoint. Each unit's share of
    the seconds that its process spent on it, compilation included, goes to metrics.jsonl, but of
    one that goes on from a checkpoint.

    Args:
      folder: the run's.
      units: of equal shapes (`scenarios.same_shapes`); may be none.
      build, protocol: as for `drive_runs`.
      shared: data of all runs.
      keep: from what one sequence left to the arrays that the run keeps.
      join: from `shared` and a unit's `own` to its data; a function that lives as long as `build`,
        since programs are compiled once for both.
      after_task: told of every task that is learnt here.
      announce: as for `drive_runs`, where images are read as steps ask for them.
      one_by_one: one run after another on one device, so that each one's seconds are its own.

    Raises:
      DataError: the folder holds one of the units, or their checkpoints, with other facts; or
        processes were joined and the runs are trained one by one.
    """
    every, found = runs_mesh(), {}
    if one_by_one and every.is_multi_process:
        raise DataError("this trains on one device; leave out --distributed")
    one_each = jax.default_backend() == "cpu" or announce is not None
    at_once = 1 if one_by_one else every.size if one_each else max(1, len(units))
    for wave in _claimed(folder, units, at_once, found):
        mesh = every
        if one_by_one or (announce is not None and not every.is_multi_process):
            # A device without a run of its own would read the last one's images again.
            mesh = runs_mesh(jax.devices()[: len(wave)])
        label = wave[0].name + (f" and {len(wave) - 1} more" if len(wave) > 1 else "")
        checkpoints = folder.checkpoints / (label + _which(wave))
        rows = stacked([(unit.sequence, unit.key, unit.own) for unit in _full(wave, mesh)])
        runs = Runs(build, protocol, shared, *rows, join)
        continued = checkpoints.exists()
        began = time.monotonic()
        title = (wave[0].title or wave[0].name) + f" ({len(wave)} runs)" * (len(wave) > 1)
        state = _train(Checkpoints(checkpoints), title, wave, runs, mesh, after_task, announce)
        gone = diverged(protocol, state)[: len(wave)]
        for number, unit in enumerate(wave):
            result = _result_of(state, number, mesh)
            arrays = {name: np.asarray(value) for name, value in keep(result).items()}
            place = _diverged_at(protocol, state, number) if gone[number] else NOWHERE
            arrays[DIVERGED_AT] = np.array(place)
            folder.save_unit(unit.name, unit.facts, **arrays)
            seconds = None if continued else (time.monotonic() - began) / len(wave)
            folder.log(unit=unit.name, seconds=seconds, diverged=has_diverged(arrays))
            found[unit.name] = arrays
        # What is kept of finished runs is their numbers; their nets would be most of the disk.
        if is_first():
            shutil.rmtree(checkpoints, ignore_errors=True)
    if is_first():
        _remove_left(folder, units)
    return [found[unit.name] for unit in units]


def has_diverged(arrays: dict[str, np.ndarray]) -> bool:
    """Return whether a unit's arrays are those of a run that diverged."""
    return bool(arrays[DIVERGED_AT][0] >= 0)


def refuse_diverged(units: Sequence[Unit], kept: Sequence[dict[str, np.ndarray]]) -> None:
    """Where no run may diverge.

    Raises:
      DivergedRunError: which did, where, and what to do.
    """
    places = {
        unit.name: tuple(arrays[DIVERGED_AT].tolist())
        for unit, arrays in zip(units, kept, strict=True)
        if has_diverged(arrays)
    }
    if places:
        told = "; ".join(f"{name} at task {at[0]}, epoch {at[1]}" for name, at in places.items())
        raise DivergedRunError(
            f"the loss is not finite: {told}. Lower the learning rate or the hyper-parameter.",
            next(iter(places.values())),
        )


def _claimed(
    folder: RunFolder, units: Sequence[Unit], at_once: int, found: dict[str, dict]
) -> Iterator[list[Unit]]:
    """At most so many units at a time that are this process's to train, until all are in `found`.

    Those that are finished, by whomever, are read into it; the caller adds those that it trains.
    """
    told = False
    while missing := [unit for unit in units if unit.name not in found]:
        wave = []
        for unit in missing:
            if len(wave) == at_once:
                break
            # First the claim: between reading and claiming, another could finish it.
            claimed = folder.claim_unit(unit.name)
            arrays = folder.read_unit(unit.name, unit.facts)
            if arrays is not None:
                found[unit.name] = {DIVERGED_AT: np.array(NOWHERE), **arrays}
                folder.give_up_unit(unit.name)
            elif claimed:
                wave.append(unit)
        if wave:
            yield wave
        elif any(unit.name not in found for unit in missing):
            if not told:
                print(f"waits for what other processes train in {folder.path}", flush=True)
                told = True
            time.sleep(POLL)


def _which(wave: Sequence[Unit]) -> str:
    """Return a checksum of a wave's units: after a stop, other waves may begin alike."""
    if len(wave) == 1:
        return ""
    return f" {zlib.crc32(json.dumps([unit.name for unit in wave]).encode()):08x}"


def _remove_left(folder: RunFolder, units: Sequence[Unit]) -> None:
    """Removes what waves left that were stopped and did not form again."""
    for unit in units:
        waves = folder.checkpoints.glob(f"{glob.escape(unit.name)} and * more *")
        for left in (folder.checkpoints / unit.name, *waves):
            shutil.rmtree(left, ignore_errors=True)


def _train(
    checkpoints: Checkpoints,
    title: str,
    wave: Sequence[Unit],
    runs: Runs,
    mesh: Mesh,
    after_task: AfterTask | None,
    announce: Announce | None,
) -> SequenceState:
    """The state at the end, or where all of them have diverged."""
    protocol = runs.protocol
    facts = {
        "runs": [{"unit": unit.name, **unit.facts} for unit in wave],
        "protocol": dataclasses.asdict(protocol),
        "keys": jax.random.key_data(runs.key).tolist(),
    }
    if mesh.is_multi_process:
        facts["devices"] = mesh.size

    def like() -> SequenceState:
        return _on_mesh(initial_runs_state(runs), mesh)

    done, state = checkpoints.resume(facts, like) or (0, None)
    driven = drive_runs(runs, 1, mesh, state, announce)

    def save() -> None:
        epochs = 0 if state is None else epochs_done(state, protocol)
        if epochs > (checkpoints.newest() or 0):
            checkpoints.save(epochs, state, facts)

    total = epochs_before(runs.sequence.tasks.id.shape[1], protocol)
    gone = np.zeros(len(wave), bool)
    with _saving(save), progress(title, total, done, "epoch") as bar:
        while not gone.all():
            # Its arrays are taken back for the next one's: a signal waits until that is there.
            with uninterrupted():
                state = next(driven, state)
                reached = epochs_done(state, protocol)
                if reached == bar.n:
                    break
                now = diverged(protocol, state)[: len(wave)]
                # Before the checkpoint from which they would not come again.
                if after_task is not None and int(state.epoch) == 0:
                    for number in np.flatnonzero(~now):
                        result = _result_of(state, number, mesh)
                        after_task(wave[number], int(state.task) - 1, result)
            # What is complete is kept as units at once.
            if reached < total and checkpoints.due():
                with uninterrupted():
                    save()
            bar.update(reached - bar.n)
            for number in np.flatnonzero(now & ~gone):
                place = "task {}, epoch {}".format(*_diverged_at(protocol, state, number))
                print(f"{wave[number].name}: the loss is not finite at {place}", flush=True)
            gone = now
    return state


def _diverged_at(protocol: Protocol, state: SequenceState, number: int) -> Int[np.ndarray, "2"]:
    """Where a run that has diverged did so first."""
    losses = fetch(state.result.losses)[number]
    epochs = np.array([protocol.epochs_of(task) for task in range(len(losses))])
    planned = np.arange(losses.shape[1]) < epochs[:, None]
    return np.argwhere(planned & ~np.isfinite(losses))[0]


def _saving(save: Callable[[], None]) -> AbstractContextManager:
    """Saves where a signal comes; but not where it came to one of several processes."""
    return nullcontext() if jax.process_count() > 1 else saving_when_stopped(save)


def _full(wave: Sequence[Unit], mesh: Mesh) -> list[Unit]:
    """The wave with its last unit repeated, where each of several processes needs as many."""
    missing = -len(wave) % mesh.shape[RUNS_AXIS] if mesh.is_multi_process else 0
    return [*wave, *wave[-1:] * missing]


def _on_mesh(state: SequenceState, mesh: Mesh) -> SequenceState:
    """A state's shapes and dtypes with where its parts lie among several processes."""
    if not mesh.is_multi_process:
        return state

    def placed(tree: PyTree, spec: PartitionSpec) -> PyTree:
        sharding = NamedSharding(mesh, spec)
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
        )

    of_all = placed(state, REPLICATED)
    return of_all._replace(
        result=placed(state.result, RUNS_SPEC), best=placed(state.best, RUNS_SPEC)
    )


def _result_of(state: SequenceState, number: int, mesh: Mesh) -> SequenceResult:
    """Return the result of one run; in every process where there are several."""
    if not mesh.is_multi_process:
        return rows_of(state.result, number)
    found = _taking(mesh)(state.result, np.int32(number))
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), found)


@cache
def _taking(mesh: Mesh) -> Callable[[PyTree, np.int32], PyTree]:
    """Takes one of the runs to all devices."""
    return jax.jit(rows_of, out_shardings=NamedSharding(mesh, REPLICATED))
