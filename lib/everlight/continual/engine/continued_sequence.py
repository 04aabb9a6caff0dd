"""Continuation of a finished sequence by further tasks, which may bring further classes."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from everlight.checks import PositiveInt, checked
from everlight.continual.engine.evaluation import Measured, evaluate, measure
from everlight.continual.engine.run import Run, SequenceResult, SequenceState
from everlight.continual.engine.tasks import begin_state
from everlight.errors import ArgumentError
from everlight.trees import named_leaves


@checked
def continued_state(run: Run, result: SequenceResult, tasks: PositiveInt) -> SequenceState:
    """Return the state in which a run continues after tasks that an earlier run learned.

    Arrays of the earlier run that are smaller, such as the head of fewer classes, become the first
    entries of the run's own initial arrays. The last evaluation is repeated on the test sets of the
    run. Others, those within tasks included, are NaN on test sets that the earlier run did not
    have.

    Args:
      run: the longer run; classes and tasks of the earlier one are its first.
      result: result of the earlier run after its last task. Without a state of the optimizer
        (`opt_state=()`), that of the run's start is taken.
      tasks: number of tasks of the earlier run.

    Raises:
      ValueError: there is no further task, or an array of the earlier run is larger or of another
        structure than the run's own.
    """
    if tasks >= run.tasks:
        raise ArgumentError(f"{tasks} tasks are learned, and the run has {run.tasks}; give more")
    start = begin_state(run)
    learner, initial = result.learner, start.result.learner
    if learner.opt_state == ():
        learner = learner._replace(opt_state=initial.opt_state)
    larger = _with_unmeasured_tasks(start.result, tasks)
    grown = grow_arrays(result._replace(learner=learner), larger)
    setup, strategy = run.setup_and_strategy()
    size = run.protocol.evaluation_batch
    row = evaluate(setup, strategy, grown.memory, grown.learner, run.sequence, size)
    if setup.measure is not None:
        row = Measured(row, measure(setup, grown.learner, run.sequence.test))
    evaluation = jax.tree.map(
        lambda rows, last: rows.at[tasks - 1].set(last), grown.evaluation, row
    )
    return start._replace(
        result=grown._replace(evaluation=evaluation), task=jnp.int32(tasks), epoch=jnp.int32(0)
    )


@checked
def grow_arrays(tree: PyTree, larger: PyTree) -> PyTree:
    """Return `larger` with the arrays of a tree as the first entries of its arrays.

    Raises:
      ValueError: the trees have different leaves, or a leaf of `tree` is larger along an axis or of
        another dtype; the message has its name.
    """
    before, after = named_leaves(tree), named_leaves(larger)
    if before.keys() != after.keys():
        other = sorted(before.keys() ^ after.keys())
        raise ArgumentError(f"{other[0]} is in one of the trees only; give trees of one structure")
    grown = [_grow(name, leaf, after[name]) for name, leaf in before.items()]
    return jax.tree.unflatten(jax.tree.structure(larger), grown)


def _grow(name: str, leaf: Array, larger: Array) -> Array:
    if leaf.shape == larger.shape and leaf.dtype == larger.dtype:
        return leaf
    fits = leaf.ndim == larger.ndim and leaf.dtype == larger.dtype
    if not fits or np.any(np.array(leaf.shape) > np.array(larger.shape)):
        raise ArgumentError(
            f"{name} has dtype {leaf.dtype} and shape {leaf.shape}, which {larger.dtype} and "
            f"{larger.shape} cannot hold; give arrays that only grow"
        )
    return larger.at[tuple(slice(size) for size in leaf.shape)].set(leaf)


def _with_unmeasured_tasks(result: SequenceResult, tasks: int) -> SequenceResult:
    """Return the result with NaN in the evaluations after and within the first tasks."""
    evaluation, within = jax.tree.map(
        lambda leaf: _nan_in_rows(leaf, tasks),
        (result.evaluation, result.within_tasks and result.within_tasks.evaluation),
    )
    if result.within_tasks is not None:
        result = result._replace(within_tasks=result.within_tasks._replace(evaluation=within))
    return result._replace(evaluation=evaluation)


def _nan_in_rows(leaf: Array, rows: int) -> Array:
    if not jnp.issubdtype(leaf.dtype, jnp.inexact):
        return leaf
    return leaf.at[:rows].set(jnp.nan)
