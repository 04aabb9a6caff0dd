"""Contents of the state of many runs: where each diverged, and its result.

On a mesh over several processes, all of them call these functions with the same arguments.
"""

from collections.abc import Callable
from functools import lru_cache

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Int, PyTree

from everlight.checks import NonNegativeInt, checked
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import SequenceResult, SequenceState
from everlight.meshes import REPLICATED, RUNS_SPEC, fetch
from everlight.trees import rows_of, shapes_with

NOT_DIVERGED = (-1, -1)
"""Place of a run that did not diverge."""


@checked
def first_divergence(protocol: Protocol, state: SequenceState) -> Int[np.ndarray, "runs 2"]:
    """Return task and epoch of each run's first loss that is not finite; -1 and -1 without one.

    Args:
      protocol: protocol of the runs.
      state: their state; epochs that are not finished do not count.
    """
    losses = fetch(state.result.losses)
    _, tasks, epochs = losses.shape
    task, epoch = int(state.task), int(state.epoch)
    done = [protocol.epochs_of(index) if index < task else epoch for index in range(tasks)]
    done = np.where(np.arange(tasks) <= task, done, 0)
    wrong = (np.arange(epochs) < done[:, None]) & ~np.isfinite(losses)
    wrong = wrong.reshape(len(losses), -1)
    places = np.stack(np.divmod(wrong.argmax(axis=1), epochs), axis=1)
    return np.where(wrong.any(axis=1, keepdims=True), places, NOT_DIVERGED)


@checked
def epochs_done(protocol: Protocol, state: SequenceState) -> int:
    """Return the number of finished epochs from the beginning of the sequence on."""
    return protocol.epochs_before(int(state.task)) + int(state.epoch)


@checked
def result_of_run(state: SequenceState, number: NonNegativeInt, mesh: Mesh) -> SequenceResult:
    """Return the result of one run, in every process.

    Args:
      state: state of many runs.
      number: position of the run, from 0.
      mesh: mesh on which they are trained.
    """
    # NaN stands for values that a run does not have, such as validation without samples.
    with jax.debug_nans(False):
        if not mesh.is_multi_process:
            return rows_of(state.result, number)
        row = _take_row(mesh)(state.result, np.int32(number))
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), row)


@lru_cache(4)
def _take_row(mesh: Mesh) -> Callable[[PyTree, np.int32], PyTree]:
    """Return the compiled function that brings one of the runs to all devices."""
    return jax.jit(rows_of, out_shardings=NamedSharding(mesh, REPLICATED))


@checked
def shapes_on_mesh(state: SequenceState, mesh: Mesh) -> SequenceState:
    """Return a state's shapes and dtypes with the devices on which a mesh puts its parts.

    Args:
      state: shapes and dtypes of `initial_runs_state`.
      mesh: mesh of the runs; on one of a single process, parts may be anywhere.
    """
    if not mesh.is_multi_process:
        return state
    of_all = shapes_with(NamedSharding(mesh, REPLICATED), state)
    result, best = shapes_with(NamedSharding(mesh, RUNS_SPEC), (state.result, state.best))
    return of_all._replace(result=result, best=best)
