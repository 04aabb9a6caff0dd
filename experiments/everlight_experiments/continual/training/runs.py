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
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Bool, Float, PRNGKeyArray, PyTree

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
    epochs_done,
    first_divergence,
    result_of_run,
    shapes_on_mesh,
)
from everlight.meshes import RUNS_AXIS
from everlight.trees import stacked
from everlight_data.errors import DataError
from everlight_data.progress import progress
from everlight_data.runs.checkpoints import Checkpoints, Resumed
from everlight_data.runs.events import PART
from everlight_data.runs.processes import is_first
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.continual.training.progress_lines import GroupLines, LinesOfRun
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.interruption import save_when_stopped, uninterrupted
from everlight_experiments.run_folder.memory import refuse_large

DIVERGED_AT = "diverged_at"
"""Task and epoch of the first loss that is not a finite number, or `NOT_DIVERGED`."""
POLL = 0.5
"""Seconds between checks for runs that other processes have finished."""


class TrainingRun(NamedTuple):
    """A training of one method on one sequence, with one hyper-parameter."""

    name: str
    fingerprint: dict
    """Values that identify the run, independent of its neighbours."""
    sequence: TaskSequence
    key: PRNGKeyArray
    run_data: PyTree = ()
    """Data that `join` adds to those that all share: a hyper-parameter, the groups of classes."""
    title: str = ""
    """Name on the progress bar; empty is the name."""
    method: str = ""
    """Method with its column, to which lines of metrics.jsonl belong; empty is the name."""
    sequence_id: SequenceId | None = None
    """Sequence of a benchmark that the run learns; None outside benchmarks."""


class RunScore(NamedTuple):
    """Score of a run after every task."""

    name: str
    compute: Callable[[TrainingRun, dict[str, np.ndarray]], Float[np.ndarray, "t"]]
    """Function of a run and its arrays; tasks not reached yet may have any score."""


class SharedTraining(NamedTuple):
    """Programs and data that all runs of a call share."""

    build: Build
    protocol: Protocol
    shared: Any
    """Data of all runs."""
    keep: Callable[[SequenceResult], dict[str, Any]]
    """Function from the result of a sequence to the arrays that the run saves."""
    join: Join = ignore_run_data
    """Function from `shared` and a run's `run_data` to its data; it must live as long as `build`,
    since programs are compiled once for both."""
    score: RunScore | None = None
    """Score of finished tasks, for lines of metrics.jsonl."""
    start: Callable[[TrainingRun], SequenceState] | None = None
    """State from which a run starts, the same position for all; None starts before any task."""
    announce: Announce | None = None
    """Function that receives the next images of a stream (`drive_runs`); None without a stream."""
    one_by_one: bool = False
    """True if runs follow one another on one device, so that each has its own time."""

    def group_size(self, runs: int) -> int:
        """Return the number of so many runs that are trained at once."""
        if self.one_by_one:
            return 1
        one_each = jax.default_backend() == "cpu" or self.announce is not None
        return runs_mesh().size if one_each else max(1, runs)

    def group_mesh(self, runs: int) -> Mesh:
        """Return the mesh on which so many runs are trained at once."""
        mesh = runs_mesh()
        if self.one_by_one or (self.announce is not None and not mesh.is_multi_process):
            # A device without a run of its own would read the last one's images again.
            return runs_mesh(jax.devices()[:runs])
        return mesh

    def lines_of(self, run: TrainingRun) -> LinesOfRun:
        """Return what the lines of a run name and compute."""
        names = run.name, run.method or run.name
        if self.score is None:
            return LinesOfRun(*names)
        name, compute = self.score
        return LinesOfRun(*names, name, lambda result: compute(run, _arrays_of(self, result)))

    def first_state(self, group: Sequence[TrainingRun]) -> Resumed:
        """Return the state of a group without checkpoints, and its number of finished epochs."""
        if self.start is None:
            return Resumed(0, None)
        states = [self.start(run) for run in group]
        result, best = stacked([(state.result, state.best) for state in states])
        state = states[0]._replace(result=result, best=best)
        return Resumed(epochs_done(self.protocol, state), state)

    def runs_of(self, group: Sequence[TrainingRun]) -> Runs:
        """Return runs as the engine trains them together."""
        rows = stacked(
            [{"sequence": run.sequence, "key": run.key, "run_data": run.run_data} for run in group]
        )
        return Runs(
            build=self.build, protocol=self.protocol, data=self.shared, join=self.join, **rows
        )


AfterTask = Callable[[TrainingRun, int, SequenceResult], None]
"""Called with a run's result of each task, from 0, unless it diverged; restarts may repeat it."""


def train_runs(
    folder: RunFolder,
    runs: Sequence[TrainingRun],
    training: SharedTraining,
    after_task: AfterTask | None = None,
    tasks: int | None = None,
) -> list[dict[str, np.ndarray]]:
    """Train runs of one shape together; finished runs are read back.

    On CPU, and where images are streamed, one run per device is trained at once, elsewhere all.
    After an interruption the same call continues to the same bits. Other processes that share the
    folder train some of the runs meanwhile, and runs of a process that dies are taken over. Joined
    processes (`processes.py`) train on all of their devices together; if one is killed, all end.
    Each run's share of its process's seconds goes to metrics.jsonl, unless it continued from a
    checkpoint, with those of compilation where the programs were not called before. Lines on its
    progress come first (`progress_lines.py`).

    Args:
      folder: folder of the run.
      runs: runs of equal shapes (`scenarios.pad_sequences`), perhaps none.
      training: programs and data of all runs.
      after_task: called after every task that this process learns.
      tasks: number of tasks that are learned, the first ones; None is all. Results of the others
        are placeholders.

    Returns:
      Arrays of each run; `DIVERGED_AT` states whether it diverged.

    Raises:
      DataError: the folder holds one of the runs, or their checkpoints, with another
        fingerprint; the runs need more memory than is free; or processes were joined and the runs
        are trained one by one.
    """
    finished, fits = {}, False
    if training.one_by_one and runs_mesh().is_multi_process:
        raise DataError("this trains on one device; leave out --distributed")
    for group, read in _claim_groups(folder, runs, training.group_size(len(runs))):
        finished |= read
        if not group:
            continue
        mesh = training.group_mesh(len(group))
        checkpoints = folder.checkpoints / group_name(group)
        batch = training.runs_of(_padded_group(group, mesh))
        if not fits:
            # All groups have these shapes, and later ones are no larger.
            refuse_large(initial_runs_state(batch), "--net", "--buffer-size")
            fits = True
        continued, began = checkpoints.exists(), time.monotonic()
        tasks = tasks or batch.sequence.tasks.id.shape[1]
        runs_lines = [training.lines_of(run) for run in group]
        lines = GroupLines(folder, runs_lines, training.protocol, tasks, mesh)
        state = GroupTraining(
            checkpoints=Checkpoints(checkpoints),
            group=group,
            runs=batch,
            training=training,
            mesh=mesh,
            lines=lines,
        ).train(after_task)
        divergences = first_divergence(training.protocol, state)
        for number, run in enumerate(group):
            arrays = _arrays_of(training, result_of_run(state, number, mesh))
            arrays[DIVERGED_AT] = divergences[number]
            folder.save_part(run.name, run.fingerprint, **arrays)
            seconds = None if continued else (time.monotonic() - began) / len(group)
            folder.log_part(run.name, seconds=seconds, diverged=has_diverged(arrays))
            finished[run.name] = arrays
        # The numbers of finished runs are kept; their networks would take most of the disk.
        if is_first():
            shutil.rmtree(checkpoints, ignore_errors=True)
    if is_first():
        _remove_stale_checkpoints(folder, runs)
    return [finished[run.name] for run in runs]


def _arrays_of(training: SharedTraining, result: SequenceResult) -> dict[str, np.ndarray]:
    return {name: np.asarray(value) for name, value in training.keep(result).items()}


def has_diverged(arrays: dict[str, np.ndarray]) -> bool:
    """Return True if the arrays are those of a run that diverged."""
    return bool(arrays[DIVERGED_AT][0] >= 0)


def _claim_groups(
    folder: RunFolder, runs: Sequence[TrainingRun], size: int
) -> Iterator[tuple[list[TrainingRun], dict[str, dict[str, np.ndarray]]]]:
    """Yield runs for this process to train, at most so many at once, and arrays of finished ones.

    It ends when all runs were yielded as one or the other.
    """
    printed, missing = False, list(runs)
    while missing:
        group, read = [], {}
        for run in missing:
            if len(group) == size:
                break
            # First the claim: between reading and claiming, another could finish it.
            claimed = folder.claim_part(run.name)
            arrays = folder.read_part(run.name, run.fingerprint)
            if arrays is not None:
                read[run.name] = {DIVERGED_AT: np.array(NOT_DIVERGED), **arrays}
                folder.release_part(run.name)
            elif claimed:
                group.append(run)
        yield group, read
        done = {*read, *(run.name for run in group)}
        missing = [run for run in missing if run.name not in done]
        if missing and not group:
            if not printed:
                print(f"waits for what other processes train in {folder.path}", flush=True)
                printed = True
            time.sleep(POLL)


def group_name(group: Sequence[TrainingRun]) -> str:
    """Return the name of a group's checkpoints, with a checksum: other groups may begin alike."""
    if len(group) == 1:
        return group[0].name
    checksum = zlib.crc32(json.dumps([run.name for run in group]).encode())
    return f"{group[0].name} and {len(group) - 1} more {checksum:08x}"


def _remove_stale_checkpoints(folder: RunFolder, runs: Sequence[TrainingRun]) -> None:
    """Remove the checkpoints of groups that were stopped and did not form again."""
    for run in runs:
        groups = folder.checkpoints.glob(f"{glob.escape(run.name)} and * more *")
        for left in (folder.checkpoints / run.name, *groups):
            shutil.rmtree(left, ignore_errors=True)


@dataclasses.dataclass
class GroupTraining:
    """Training of a group of runs together, which continues from its newest checkpoint."""

    checkpoints: Checkpoints
    group: Sequence[TrainingRun]
    runs: Runs
    """The group in the form in which the engine trains it, perhaps padded."""
    training: SharedTraining
    mesh: Mesh
    lines: GroupLines

    def __post_init__(self):
        self._fingerprint = {
            "runs": [{PART: run.name, **run.fingerprint} for run in self.group],
            "protocol": dataclasses.asdict(self.training.protocol),
            "keys": jax.random.key_data(self.runs.key).tolist(),
        }
        if self.mesh.is_multi_process:
            self._fingerprint["devices"] = self.mesh.size
        self._diverged_at = np.tile(NOT_DIVERGED, (len(self.group), 1))
        self._reached, self._state = self.checkpoints.resume(
            self._fingerprint, lambda: shapes_on_mesh(initial_runs_state(self.runs), self.mesh)
        ) or self.training.first_state(_padded_group(self.group, self.mesh))
        self._driven = drive_runs(self.runs, 1, self.mesh, self._state, self.training.announce)

    @property
    def title(self) -> str:
        """Name on the progress bar."""
        count = len(self.group)
        return (self.group[0].title or self.group[0].name) + f" ({count} runs)" * (count > 1)

    @property
    def diverged(self) -> Bool[np.ndarray, "runs"]:
        """True for each run that has diverged since this training began."""
        return self._diverged_at[:, 0] >= 0

    def train(self, after_task: AfterTask | None) -> SequenceState:
        """Return the state after the tasks of the lines, or where all runs have diverged."""
        # A signal may come to one of several processes, which save together.
        saving = nullcontext() if jax.process_count() > 1 else save_when_stopped(self.save)
        total = self.lines.epochs
        self.lines.start(self._state)
        with saving, progress(self.title, total, self._reached, "epoch") as bar:
            while not self.diverged.all() and self._reached < total:
                before = self.diverged
                rate = self.advance(after_task)
                # Complete runs are kept as parts at once.
                if self._reached < total and self.checkpoints.due():
                    with uninterrupted():
                        self.save()
                if rate is not None:
                    bar.set_postfix_str(f"{rate:,.0f} steps/s", refresh=False)
                bar.update(self._reached - bar.n)
                self._print_diverged(self.diverged & ~before)
        return self._state

    def advance(self, after_task: AfterTask | None) -> float | None:
        """Train an epoch, and return the optimizer steps per second; None if no line is due."""
        # The next state takes over the arrays of this one; a signal waits until it is complete.
        with uninterrupted():
            with _naming_epoch(self.title, self.lines.place(self._reached)):
                self._state = next(self._driven, self._state)
            self._reached = epochs_done(self.training.protocol, self._state)
            divergences = first_divergence(self.training.protocol, self._state)
            self._diverged_at = divergences[: len(self.group)]
            # Ended tasks are announced before the checkpoint, from which a run would skip them.
            if after_task is not None and int(self._state.epoch) == 0:
                for number in np.flatnonzero(~self.diverged).tolist():
                    result = result_of_run(self._state, number, self.mesh)
                    after_task(self.group[number], int(self._state.task) - 1, result)
            return self.lines.write(self._state, self.diverged)

    def save(self) -> None:
        """Write a checkpoint, unless the newest has as many epochs."""
        protocol, state = self.training.protocol, self._state
        epochs = 0 if state is None else epochs_done(protocol, state)
        if epochs > (self.checkpoints.newest() or 0):
            self.checkpoints.save(epochs, state, self._fingerprint)

    def _print_diverged(self, runs: Bool[np.ndarray, "runs"]) -> None:
        for number in np.flatnonzero(runs):
            place = self.lines.place_words(*self._diverged_at[number])
            message = _divergence(self.group[number], place)
            if jax.config.jax_debug_nans:
                # JAX may not read the results of a program that was called before.
                raise FloatingPointError(message)
            print(message, flush=True)


def _divergence(run: TrainingRun, place: str) -> str:
    return (
        f"{run.title or run.name}: diverged in {place}; loss or parameters are not finite, and the "
        "scores of this run are NaN"
    )


@contextmanager
def _naming_epoch(title: str, place: str) -> Iterator[None]:
    """Add the training and its epoch to an error where `jax.debug_nans` looks for NaN.

    JAX repeats a program that gave NaN, and raises RuntimeError if its arguments were donated.
    """
    try:
        yield
    except (FloatingPointError, RuntimeError) as error:
        if jax.config.jax_debug_nans:
            error.add_note(f"error: {title}: ended in {place}")
        raise


def _padded_group(group: Sequence[TrainingRun], mesh: Mesh) -> list[TrainingRun]:
    """Return the group, its last run repeated until each of several processes has as many."""
    missing = -len(group) % mesh.shape[RUNS_AXIS] if mesh.is_multi_process else 0
    return [*group, *group[-1:] * missing]
