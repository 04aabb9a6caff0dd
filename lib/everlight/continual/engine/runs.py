"""Training of many runs of one shape at once on a mesh: seeds, task orders, hyperparameters.

Runs are distributed over the mesh's axis "runs"; devices do not communicate (`shard_map`). Runs on
one device are vmapped. On CPU they run one after another, since grouped convolutions have no fast
kernel there. Streamed images are read by the process of the device that requests them
(`StreamedImages`). The devices of the axis "data", if the mesh has it, share each batch of a run;
the compiler (GSPMD) sums their results. All runs advance together, a chunk of epochs at a time, so
that their state can be saved between chunks. A killed process loses one chunk.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree, Shaped

from everlight.checks import PositiveInt, checked
from everlight.continual.base import TaskSequence
from everlight.continual.engine.entry import refuse_unfit
from everlight.continual.engine.state import (
    PROGRAMS,
    Announce,
    Build,
    SequenceState,
    begin_state,
    begin_task_state,
    close_task_state,
    give_out,
    learn_epochs,
    open_epoch_state,
    take_in,
)
from everlight.continual.engine.steps import Protocol
from everlight.meshes import (
    REPLICATED,
    RUNS_AXIS,
    RUNS_SPEC,
    fetch,
    pad_runs,
    put_on_mesh,
    runs_mesh,
)

_OVER_RUNS = SequenceState(result=0, task=None, epoch=None, best=0)
"""Axes of a state for `vmap`: 0 for the parts with a leading axis over runs."""


class Runs(NamedTuple):
    """Data that differ between runs; every leaf has a leading axis over runs."""

    sequence: TaskSequence
    key: Shaped[PRNGKeyArray, "runs"]
    own: PyTree = ()
    """Other data of each run, such as hyperparameters or groups of classes."""


Join = Callable[[Any, PyTree], Any]
"""Function from the shared data and a run's own data to the data of its `Build`."""


def shared_alone(shared: Any, own: PyTree) -> Any:
    """Return the shared data, for runs without data of their own."""
    return shared


@checked
def drive_runs(
    build: Build,
    protocol: Protocol,
    shared: Any,
    runs: Runs,
    join: Join = shared_alone,
    chunk: PositiveInt = 10,
    mesh: Mesh | None = None,
    state: SequenceState | None = None,
    announce: Announce | None = None,
) -> Iterator[SequenceState]:
    """Train all runs together; yields their state after every chunk of epochs and every task.

    Leaves of a state's `result` and `best` have a leading axis over runs; `task` and `epoch` are
    common to all. Training continues from any yielded state with bit-identical results, if the
    other arguments are the same. A finished state is yielded unchanged. The next iteration donates
    a state's arrays: save or copy it before. A run that diverges has NaN losses from there on, and
    the other runs continue. A mesh that the caller has set (`jax.set_mesh`) has no effect.

    Args:
      build: function from the data to the setup and the strategy.
      protocol: epochs, batches and selection of the best epoch.
      shared: data of all runs, stored once per device.
      runs: runs of equal shapes (`scenarios.same_shapes`).
      join: function from `shared` and a run's `own` to its data.
      chunk: maximal number of epochs between two states; the end of a task is a state too. It is 1
        with `announce`.
      mesh: mesh of `runs_mesh`; None is all devices, with one run on each. On a mesh over several
        processes the number of runs must be a multiple of the axis "runs", and all processes make
        the same call.
      state: state to continue from, whose arrays are donated; None starts from the beginning.
      announce: function called before every epoch with the samples that this process's devices will
        read, batch by batch; None is no call.

    Raises:
      ValueError: `chunk` is below 1; the runs do not fill a mesh over several processes; or an
        error of `run_sequence`.
    """
    refuse_unfit(protocol, shared, runs.sequence)
    mesh = runs_mesh() if mesh is None else mesh
    tasks = runs.sequence.tasks.id.shape[1]
    if state is not None and int(state.task) == tasks:
        yield state
        return
    count, chunk = runs.key.shape[0], chunk if announce is None else 1
    missing = -count % mesh.shape[RUNS_AXIS]
    if missing and mesh.is_multi_process:
        raise ValueError(
            f"{count} runs on {mesh.shape[RUNS_AXIS]} devices; give a multiple of these"
        )
    parts = _compiled(build, protocol, join, mesh)
    # Programs run in their own mesh, independent of the caller's.
    with jax.set_mesh(mesh):
        runs = put_on_mesh(mesh, RUNS_SPEC, pad_runs(runs, missing) if missing else runs)
        shared = put_on_mesh(mesh, REPLICATED, shared)
        if state is None:
            state = parts.begin(shared, runs)
        else:
            fill = partial(pad_runs, missing=missing) if missing else lambda tree: tree
            state = _on_runs(state, fill, partial(put_on_mesh, mesh, RUNS_SPEC))
            of_all = put_on_mesh(mesh, REPLICATED, (state.task, state.epoch))
            state = take_in(protocol, state._replace(task=of_all[0], epoch=of_all[1]))
    while (task := int(state.task)) < tasks:
        with jax.set_mesh(mesh):
            if int(state.epoch) == 0:
                state = parts.begin_task(shared, runs, state)
            if announce is not None:
                orders = parts.orders(shared, runs, state)
                announce(_coming(parts, protocol.batch_size, *orders))
            left = protocol.epochs_of(task) - int(state.epoch)
            epochs = put_on_mesh(mesh, REPLICATED, np.int32(min(chunk, left)))
            state = parts.learn_epochs(shared, runs, state, epochs)
            if left <= chunk:
                state = parts.close_task(shared, runs, state)
            given_out = _on_runs(state, partial(parts.first, count)) if missing else state
            given_out = give_out(protocol, given_out)
        yield given_out


@checked
def initial_runs_state(
    build: Build, protocol: Protocol, shared: Any, runs: Runs, join: Join = shared_alone
) -> SequenceState:
    """Return shapes and dtypes of the state before the first task, to read a stored state."""

    def of_run(run: Runs) -> SequenceState:
        return begin_state(build, protocol, join(shared, run.own), run.sequence, run.key)

    return jax.eval_shape(jax.vmap(of_run, out_axes=_OVER_RUNS), runs)


@checked
def diverged(protocol: Protocol, state: SequenceState) -> Bool[np.ndarray, "runs"]:
    """Return True for runs that diverged in a finished epoch: its loss is NaN."""
    losses = fetch(state.result.losses)
    done = [protocol.epochs_of(task) for task in range(int(state.task))] + [int(state.epoch)]
    # There is no further task after the last one.
    reached = [losses[:, task, :epochs] for task, epochs in enumerate(done[: losses.shape[1]])]
    return ~np.isfinite(np.concatenate(reached, axis=1)).all(axis=1)


class _Parts(NamedTuple):
    one_by_one: bool
    """True if a device advances its runs one after another."""
    begin: Callable[..., SequenceState]
    begin_task: Callable[..., SequenceState]
    orders: Callable[..., tuple[Int[Array, "runs n"], Int[Array, "runs"]]]
    """Function that returns every run's samples of the next epoch in order, and their number."""
    learn_epochs: Callable[..., SequenceState]
    close_task: Callable[..., SequenceState]
    first: Callable[[int, PyTree], PyTree]
    """Function that returns the first runs of every leaf, replicated on every device, in one
    program. One program per leaf would synchronise the devices many times; on CPU this was seen to
    deadlock."""


@lru_cache(PROGRAMS)
def _compiled(build: Build, protocol: Protocol, join: Join, mesh: Mesh) -> _Parts:
    """Return each part for all runs, compiled once for these functions, protocol and mesh.

    The cache holds the last `PROGRAMS` results.
    """
    one_by_one = all(device.platform == "cpu" for device in mesh.devices.flat)
    of_state = SequenceState(result=RUNS_SPEC, task=REPLICATED, epoch=REPLICATED, best=RUNS_SPEC)

    def over_mesh(on_device: Callable, *given: Any, out_specs: Any) -> Callable:
        return jax.shard_map(
            on_device,
            mesh=mesh,
            in_specs=(REPLICATED, RUNS_SPEC, *given),
            out_specs=out_specs,
            axis_names={RUNS_AXIS},
            check_vma=False,
        )

    def compiled(part: Callable[..., SequenceState], *given: Any) -> Callable:
        """Return a part, compiled; all but the first one take a state."""
        takes_state = bool(given)

        def on_device(shared: Any, runs: Runs, *rest: Any) -> SequenceState:
            def of_run(run: Runs, *rest: Any) -> SequenceState:
                return part(build, protocol, join(shared, run.own), run.sequence, run.key, *rest)

            if one_by_one:
                return _one_by_one(of_run, runs, rest, takes_state)
            axes = (0, *((_OVER_RUNS,) if takes_state else ()), *[None] * (len(rest) - takes_state))
            return jax.vmap(of_run, in_axes=axes, out_axes=_OVER_RUNS)(runs, *rest)

        sharded = over_mesh(on_device, *given, out_specs=of_state)
        return jax.jit(sharded, donate_argnums=(2,) if takes_state else ())

    def orders(shared: Any, runs: Runs, state: SequenceState) -> tuple:
        def of_run(run: Runs, state: SequenceState) -> tuple:
            data = join(shared, run.own)
            given = (build, protocol, data, run.sequence, run.key, state)
            epoch, order = open_epoch_state(*given)
            return epoch.samples.index[order.slots], order.count

        return jax.vmap(of_run, in_axes=(0, _OVER_RUNS))(runs, state)

    return _Parts(
        one_by_one,
        compiled(begin_state),
        compiled(begin_task_state, of_state),
        jax.jit(over_mesh(orders, of_state, out_specs=RUNS_SPEC)),
        compiled(learn_epochs, of_state, REPLICATED),
        compiled(close_task_state, of_state),
        jax.jit(_first, static_argnums=0, out_shardings=NamedSharding(mesh, REPLICATED)),
    )


def _one_by_one(
    of_run: Callable[..., SequenceState], runs: Runs, rest: tuple, takes_state: bool
) -> SequenceState:
    """Advance a device's runs one after another; task and epoch are the same for all."""
    if not takes_state:
        every = jax.lax.map(of_run, runs)
    else:
        state, *others = rest

        def advance(part: tuple) -> SequenceState:
            run, result, best = part
            return of_run(run, state._replace(result=result, best=best), *others)

        every = jax.lax.map(advance, (runs, state.result, state.best))
    return every._replace(task=every.task[0], epoch=every.epoch[0])


def _coming(
    parts: _Parts, size: int, index: Int[Array, "runs n"], count: Int[Array, "runs"]
) -> Int[np.ndarray, "k"]:
    """Return the samples that this process's runs read in an epoch, batch by batch in turn."""
    samples, moments = [], []
    for indices, counts in zip(index.addressable_shards, count.addressable_shards, strict=True):
        own = zip(np.asarray(indices.data), np.asarray(counts.data), strict=True)
        for turn, (order, length) in enumerate(own):
            samples.append(order[:length])
            # Where a device takes its runs in turn, the second one's reading begins much later.
            waits = turn * index.shape[1] if parts.one_by_one else 0
            moments.append(waits + np.arange(length) // size)
    return np.concatenate(samples)[np.argsort(np.concatenate(moments), kind="stable")]


def _first(count: int, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[:count], tree)


def _on_runs(state: SequenceState, *functions: Callable[[PyTree], PyTree]) -> SequenceState:
    """Return the state after applying functions in order to the parts with an axis over runs."""
    over_runs = state.result, state.best
    for function in functions:
        over_runs = function(over_runs)
    return state._replace(result=over_runs[0], best=over_runs[1])
