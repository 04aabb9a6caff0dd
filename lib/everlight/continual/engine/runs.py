"""Many runs of one shape at once: seeds, orders, strengths, configurations, over a mesh.

Runs are dealt to the devices of the mesh's axis "runs", each of which advances its own without a
word to the others (`shard_map`); on a device they are vmapped, on CPU one after another, where
grouped convolutions have no fast kernel. Images that are streamed are read by the process whose
device asks for them (`StreamedImages`). The devices of the axis "data", where the mesh has it,
share each batch of a run; the compiler (GSPMD) adds up what they found. All advance in step, a
chunk of epochs at a time, so that their state can be saved between chunks: a kill costs a chunk.
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
"""Which parts of a state have an axis over runs."""


class Runs(NamedTuple):
    """What differs between runs; every leaf has a leading axis over them."""

    sequence: TaskSequence
    key: Shaped[PRNGKeyArray, "runs"]
    own: PyTree = ()
    """What else: strengths, groups of classes."""


Join = Callable[[Any, PyTree], Any]
"""From what all runs share and what is a run's own to the data of its `Build`."""


def shared_alone(shared: Any, own: PyTree) -> Any:
    """The data of runs that have nothing of their own."""
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
    """All runs together: yields their state after every chunk of epochs and after every task.

    Leaves of a state's `result` and `best` have a leading axis over runs; `task` and `epoch` are
    one for all. Any state that was yielded, given back with the same other arguments, continues to
    the same bits; a finished one is yielded as it is. A state's arrays are taken back when the next
    one is asked for: save or copy it before. A run that diverges has NaN losses from there on, and
    its neighbours go on. A mesh that the caller has set (`jax.set_mesh`) plays no part.

    Args:
      build: from the data to the setup and the strategy.
      protocol: epochs, batches, selection.
      shared: data of all runs, on every device once.
      runs: of equal shapes (`scenarios.same_shapes`).
      join: from `shared` and a run's `own` to its data.
      chunk: epochs between two states, at most; a task's end is one too. With `announce` it is 1.
      mesh: of `runs_mesh`; None is all devices, a run each. One that spans processes takes as
        many runs as its axis is long or a multiple of it, and all processes call this alike.
      state: to go on from, whose arrays are taken; None is the beginning.
      announce: told before every epoch what the runs of this process's devices will read, batch by
        batch in turn; None is nobody.

    Raises:
      ValueError: fewer than one epoch a chunk, runs that do not fill a mesh over several
        processes, and as for `run_sequence`.
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
    # Programs run in their own mesh, whatever the caller's context is.
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
    """The state before the first task, as shapes and dtypes: what a stored state is read into."""

    def of_run(run: Runs) -> SequenceState:
        return begin_state(build, protocol, join(shared, run.own), run.sequence, run.key)

    return jax.eval_shape(jax.vmap(of_run, out_axes=_OVER_RUNS), runs)


@checked
def diverged(protocol: Protocol, state: SequenceState) -> Bool[np.ndarray, "runs"]:
    """Which runs have diverged among the epochs that are done: `losses` is NaN there."""
    losses = fetch(state.result.losses)
    done = [protocol.epochs_of(task) for task in range(int(state.task))] + [int(state.epoch)]
    # After the last task none is begun.
    reached = [losses[:, task, :epochs] for task, epochs in enumerate(done[: losses.shape[1]])]
    return ~np.isfinite(np.concatenate(reached, axis=1)).all(axis=1)


class _Parts(NamedTuple):
    one_by_one: bool
    """Whether a device advances its runs one after another."""
    begin: Callable[..., SequenceState]
    begin_task: Callable[..., SequenceState]
    orders: Callable[..., tuple[Int[Array, "runs n"], Int[Array, "runs"]]]
    """Every run's samples of the next epoch in their order, and how many are no padding."""
    learn_epochs: Callable[..., SequenceState]
    close_task: Callable[..., SequenceState]
    first: Callable[[int, PyTree], PyTree]
    """The first runs of every leaf, whole on every device, in one program. Leaf by leaf, and of
    parts on several devices, these would meet in each of many programs, and on CPU they were seen
    to wait for each other for ever."""


@lru_cache(PROGRAMS)
def _compiled(build: Build, protocol: Protocol, join: Join, mesh: Mesh) -> _Parts:
    """Each part for all runs, compiled once for these functions, protocol and mesh.

    Kept until `PROGRAMS` others have come.
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
        """A part that takes the state, but at the beginning, and what is shared by all runs."""
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
    """A device's runs one after another; task and epoch are the same for all."""
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
    """What this process's runs read in an epoch: a batch of each, then the next batch of each."""
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
    """The state with functions applied, one after another, to what has an axis over runs."""
    over_runs = state.result, state.best
    for function in functions:
        over_runs = function(over_runs)
    return state._replace(result=over_runs[0], best=over_runs[1])
