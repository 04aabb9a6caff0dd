"""Training of many runs of one shape at once on a mesh: seeds, task orders, hyper-parameters.

Runs are distributed over the mesh's axis "runs"; devices do not communicate (`shard_map`). Runs on
one device are vmapped. On CPU they run one after another, since XLA for CPU has no fast kernel of
grouped convolutions. Streamed images are read by the process of the device that requests them
(`StreamedImages`). The devices of the axis "data", if the mesh has it, share each batch of a run;
the compiler (GSPMD) sums their results. All runs advance together, a chunk of epochs at a time, so
that their state can be saved between chunks. A killed process loses one chunk.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree, Shaped

from everlight.base import TaskSequence
from everlight.checks import PositiveInt, Stacked, check_fields, checked
from everlight.continual.engine.input_checks import refuse_unfit
from everlight.continual.engine.placeholders import nan_to_unmeasured, unmeasured_to_nan
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import Announce, Build, Run, SequenceState
from everlight.continual.engine.run_states import first_divergence
from everlight.continual.engine.tasks import (
    begin_state,
    begin_task,
    end_task,
    learn_epochs,
    next_epoch,
)
from everlight.errors import ArgumentError
from everlight.meshes import REPLICATED, RUNS_AXIS, RUNS_SPEC, pad_runs, put_on_mesh, runs_mesh
from everlight.trees import named_leaves

PROGRAMS = 40
"""Number of programs that a process caches, five per build; each may take several MB."""

_RUNS_AXES = SequenceState(result=0, task=None, epoch=None, best=0)
"""Axes of a state for `vmap`: 0 for the parts with a leading axis over runs."""
_STATE_SPECS = SequenceState(result=RUNS_SPEC, task=REPLICATED, epoch=REPLICATED, best=RUNS_SPEC)
"""Specifications of a state on a mesh."""

Join = Callable[[Any, PyTree], Any]
"""Function that combines the data of all runs with those of one run, for its `Build`."""


def ignore_run_data(shared: Any, run_data: PyTree) -> Any:
    """Return the shared data, for runs without data of their own."""
    return shared


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of equal shapes (`scenarios.pad_sequences`), which are trained together.

    Raises:
      ValueError: a field does not match its type, or arrays of another number of runs.
    """

    build: Build
    """Function from the data of a run to the setup and the strategy."""
    protocol: Protocol
    data: Any
    """Data of all runs, stored once per device."""
    sequence: Annotated[TaskSequence, Stacked]
    """Tasks and test samples; every leaf has a leading axis over runs."""
    key: Shaped[PRNGKeyArray, "runs"]
    """Random key of every run."""
    run_data: PyTree = ()
    """Other data of each run, such as hyper-parameters or groups of classes; every leaf has a
    leading axis over runs."""
    join: Join = ignore_run_data
    """Function from `data` and a run's `run_data` to the data of its build."""

    def __post_init__(self):
        check_fields(self)
        runs = self.key.shape[0]
        fields = {"sequence": self.sequence, "run_data": self.run_data}
        for name, leaf in named_leaves(fields).items():
            shape = np.shape(leaf)
            if shape[:1] != (runs,):
                raise ArgumentError(
                    f"{name.replace('/', '.')} has the shape {shape}, and key {runs} runs; give "
                    "every array a leading axis over the runs"
                )

    @classmethod
    def of(cls, run: Run) -> "Runs":
        """Return `Runs` with a single run."""
        sequence, key = jax.tree.map(lambda leaf: leaf[None], (run.sequence, run.key))
        return cls(run.build, run.protocol, run.data, sequence, key)


@checked
def drive_runs(
    runs: Runs,
    chunk: PositiveInt = 10,
    mesh: Mesh | None = None,
    state: SequenceState | None = None,
    announce: Announce | None = None,
    epochs: PositiveInt | None = None,
) -> Iterator[SequenceState]:
    """Train all runs together; yields their state after every chunk of epochs and every task.

    Leaves of a state's `result` and `best` have a leading axis over runs; `task` and `epoch` are
    common to all. Training continues from any yielded state with bit-identical results, if the
    other arguments are the same. A finished state is yielded unchanged. The next iteration donates
    a state's arrays: save or copy it before. A run that diverges has NaN losses from then on, and
    the other runs continue. A mesh that the caller has set (`jax.set_mesh`) has no effect.

    Args:
      runs: runs to train; `Runs.of(run)` is a single one.
      chunk: maximal number of epochs between two states; the end of a task is a state too. It is 1
        with `announce`.
      mesh: mesh of `runs_mesh`; None is all devices, or as many as there are runs. On a mesh over
        several processes the number of runs must be a multiple of the axis "runs", and all
        processes make the same call.
      state: state to continue from, whose arrays are donated; None starts from the beginning.
      announce: function called before every epoch with the samples that this process's devices will
        read, batch by batch; None means no call.
      epochs: epochs after which every task ends, to time programs on few of them; None is the
        protocol's number, which is also the largest.

    Raises:
      ValueError: `chunk` is below 1; the runs do not fill a mesh over several processes; or an
        error of `run_sequence`.
    """
    protocol = runs.protocol
    refuse_unfit(protocol, runs.data, runs.sequence)
    tasks, count = runs.sequence.tasks.id.shape[1], runs.key.shape[0]
    if mesh is None:
        mesh = runs_mesh(jax.devices() if jax.process_count() > 1 else jax.devices()[:count])
    if state is not None and int(state.task) == tasks:
        yield state
        return
    chunk = chunk if announce is None else 1
    missing = _missing_runs(count, mesh)
    programs = Programs(runs.build, protocol, runs.join, mesh)
    program = partial(_program, programs)
    inputs = RunInputs(runs.sequence, runs.key, runs.run_data)
    if state is not None and missing:
        # They stay where they are, such as on one device: a restored state is not on the mesh yet.
        state = _map_runs(state, partial(pad_runs, missing=missing))
    # Programs run in their own mesh, independent of the caller's.
    with jax.set_mesh(mesh):
        data = put_on_mesh(mesh, REPLICATED, runs.data)
        inputs = put_on_mesh(mesh, RUNS_SPEC, pad_runs(inputs, missing) if missing else inputs)
        if state is None:
            state = program(begin_state)(data, inputs)
        else:
            state = nan_to_unmeasured(protocol, _state_on_mesh(mesh, state))
    while (task := int(state.task)) < tasks:
        with jax.set_mesh(mesh):
            if int(state.epoch) == 0:
                state = program(begin_task)(data, inputs, state)
            if announce is not None:
                index, samples = _orders(programs)(data, inputs, state)
                announce(_next_samples(_is_sequential(mesh), protocol.batch_size, index, samples))
            length = protocol.epochs_of(task)
            left = (length if epochs is None else min(epochs, length)) - int(state.epoch)
            number = put_on_mesh(mesh, REPLICATED, np.int32(min(chunk, left)))
            state = program(learn_epochs)(data, inputs, state, number)
            if left <= chunk:
                state = program(end_task)(data, inputs, state)
            yielded = (
                _map_runs(state, partial(_first_runs_program(mesh), count)) if missing else state
            )
            yielded = unmeasured_to_nan(protocol, yielded)
        yield yielded


def _missing_runs(count: int, mesh: Mesh) -> int:
    """Return the number of runs by which a number of them is short of a multiple of the devices."""
    devices = mesh.shape[RUNS_AXIS]
    missing = -count % devices
    if missing and mesh.is_multi_process:
        raise ArgumentError(f"{count} runs on {devices} devices; give a multiple of these")
    return missing


def _state_on_mesh(mesh: Mesh, state: SequenceState) -> SequenceState:
    state = _map_runs(state, partial(put_on_mesh, mesh, RUNS_SPEC))
    task, epoch = put_on_mesh(mesh, REPLICATED, (state.task, state.epoch))
    return state._replace(task=task, epoch=epoch)


@checked
def initial_runs_state(runs: Runs) -> SequenceState:
    """Return shapes and dtypes of the state before the first task, to read a stored state.

    Args:
      runs: the runs, of which nothing is computed.
    """
    inputs = RunInputs(runs.sequence, runs.key, runs.run_data)

    def begin(one: RunInputs) -> SequenceState:
        return begin_state(_run(runs, runs.data, one))

    return jax.eval_shape(jax.vmap(begin, out_axes=_RUNS_AXES), inputs)


@checked
def diverged_runs(protocol: Protocol, state: SequenceState) -> Bool[np.ndarray, "runs"]:
    """Return True for runs that diverged in a finished epoch: its loss is NaN.

    Args:
      protocol: protocol of the runs.
      state: state of all runs, as `drive_runs` yields it.
    """
    return first_divergence(protocol, state)[:, 0] >= 0


class RunInputs(NamedTuple):
    """Inputs that differ between runs: of one run or, with a leading axis, of many."""

    sequence: TaskSequence
    key: Shaped[PRNGKeyArray, "*runs"]
    run_data: PyTree


class Programs(NamedTuple):
    """Static part of runs on a mesh, by which their compiled programs are cached."""

    build: Build
    protocol: Protocol
    join: Join
    mesh: Mesh


def _run(static: Runs | Programs, data: Any, inputs: RunInputs) -> Run:
    """Return one of many runs, with its own data joined to that of all."""
    joined = static.join(data, inputs.run_data)
    return Run(static.build, static.protocol, joined, inputs.sequence, inputs.key)


@lru_cache(PROGRAMS)
def _program(static: Programs, part: Callable[..., SequenceState]) -> Callable[..., SequenceState]:
    """Return a function of a run and its state, compiled for the runs of a mesh.

    All but `begin_state` take a state, which is donated; `learn_epochs` takes their number too.
    """

    def run_on_device(data: Any, inputs: RunInputs, *state_and_epochs: Any) -> SequenceState:
        def advance_run(one: RunInputs, *state_and_epochs: Any) -> SequenceState:
            return part(_run(static, data, one), *state_and_epochs)

        # A vmapped `cond` would take both of its branches.
        if _is_sequential(static.mesh) or inputs.key.shape[0] == 1:
            return _advance_sequentially(advance_run, inputs, *state_and_epochs)
        axes = (0, _RUNS_AXES, None)[: 1 + len(state_and_epochs)]
        return jax.vmap(advance_run, in_axes=axes, out_axes=_RUNS_AXES)(inputs, *state_and_epochs)

    def run_on_mesh(data: Any, inputs: RunInputs, *state_and_epochs: Any) -> SequenceState:
        specs = (_STATE_SPECS, REPLICATED)[: len(state_and_epochs)]
        mapped = _map_over_mesh(static.mesh, run_on_device, *specs, out_specs=_STATE_SPECS)
        return jax.tree.map(_strongly_typed, mapped(data, inputs, *state_and_epochs))

    return jax.jit(run_on_mesh, donate_argnums=() if part is begin_state else 2)


def _strongly_typed(leaf: Array) -> Array:
    """Return the array with its dtype as the type.

    Weak types of Python's numbers, such as in a memory's first state, would compile the programs of
    the first task and those of later ones separately.
    """
    return jax.lax.convert_element_type(leaf, leaf.dtype) if leaf.weak_type else leaf


@lru_cache(PROGRAMS)
def _orders(static: Programs) -> Callable[..., tuple[Int[Array, "runs n"], Int[Array, "runs"]]]:
    """Return the compiled function for every run's samples of the next epoch, and their number."""

    def run_on_device(data: Any, inputs: RunInputs, state: SequenceState) -> tuple:
        def advance_run(one: RunInputs, state: SequenceState) -> tuple:
            epoch = next_epoch(_run(static, data, one), state)
            return epoch.samples.index[epoch.slots], epoch.count

        return jax.vmap(advance_run, in_axes=(0, _RUNS_AXES))(inputs, state)

    return jax.jit(_map_over_mesh(static.mesh, run_on_device, _STATE_SPECS, out_specs=RUNS_SPEC))


def _map_over_mesh(
    mesh: Mesh, run_on_device: Callable, *other_specs: Any, out_specs: Any
) -> Callable:
    return jax.shard_map(
        run_on_device,
        mesh=mesh,
        in_specs=(REPLICATED, RUNS_SPEC, *other_specs),
        out_specs=out_specs,
        axis_names={RUNS_AXIS},
        check_vma=False,
    )


def _is_sequential(mesh: Mesh) -> bool:
    """Return True if a device advances its runs one after another."""
    return all(device.platform == "cpu" for device in mesh.devices.flat)


def _advance_sequentially(
    advance_run: Callable[..., SequenceState],
    inputs: RunInputs,
    state: SequenceState | None = None,
    *epochs: Int[Array, ""],
) -> SequenceState:
    """Advance a device's runs one after another; task and epoch are the same for all."""
    if state is None:
        states = jax.lax.map(advance_run, inputs)
    else:

        def advance(part: tuple) -> SequenceState:
            one, result, best = part
            return advance_run(one, state._replace(result=result, best=best), *epochs)

        states = jax.lax.map(advance, (inputs, state.result, state.best))
    return states._replace(task=states.task[0], epoch=states.epoch[0])


def _next_samples(
    sequential: bool, size: int, index: Int[Array, "runs n"], count: Int[Array, "runs"]
) -> Int[np.ndarray, "k"]:
    """Return the samples that this process's runs read in an epoch, batch by batch in turn."""
    samples, moments = [], []
    for indices, counts in zip(index.addressable_shards, count.addressable_shards, strict=True):
        local_runs = zip(np.asarray(indices.data), np.asarray(counts.data), strict=True)
        for turn, (order, length) in enumerate(local_runs):
            samples.append(order[:length])
            # A device that takes its runs in turn reads the second one's samples much later.
            waits = turn * index.shape[1] if sequential else 0
            moments.append(waits + np.arange(length) // size)
    return np.concatenate(samples)[np.argsort(np.concatenate(moments), kind="stable")]


@lru_cache(PROGRAMS)
def _first_runs_program(mesh: Mesh) -> Callable[[int, PyTree], PyTree]:
    """Return a function that takes the first runs of every leaf, replicated on every device.

    It is one program. One program per leaf would synchronize the devices many times; on CPU this
    was seen to deadlock.
    """
    return jax.jit(_first_runs, static_argnums=0, out_shardings=NamedSharding(mesh, REPLICATED))


def _first_runs(count: int, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[:count], tree)


def _map_runs(state: SequenceState, function: Callable[[PyTree], PyTree]) -> SequenceState:
    """Return the state with a function applied to the parts with an axis over runs."""
    result, best = function((state.result, state.best))
    return state._replace(result=result, best=best)
