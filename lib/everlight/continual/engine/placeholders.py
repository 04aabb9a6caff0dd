"""Values that were not measured: 0 inside programs, NaN in public states and results."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import SequenceState, StepEvaluations


def nan_where(condition: Bool[Array, ""], tree: PyTree) -> PyTree:
    """Return the tree with NaN in its floating-point leaves if the condition holds."""
    return jax.tree.map(
        lambda leaf: jnp.where(condition, jnp.nan, leaf) if _is_float(leaf) else leaf, tree
    )


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """Return True if every number of every floating-point leaf is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def planned_epochs(protocol: Protocol, tasks: int) -> Bool[np.ndarray, "t e"]:
    """Return True for the epochs that the protocol plans, `[tasks, most epochs]`."""
    epochs = np.array([protocol.epochs_of(task) for task in range(tasks)])
    return np.arange(protocol.most_epochs) < epochs[:, None]


def evaluated_tasks(protocol: Protocol, tasks: int) -> Bool[np.ndarray, "t"]:
    """Return True for tasks after which all test samples are evaluated, `[tasks]`."""
    number = np.arange(1, tasks + 1)
    return (number % protocol.evaluate_every == 0) | (number == tasks)


def unmeasured_to_nan(protocol: Protocol, state: SequenceState) -> SequenceState:
    """Return the state in its public form, with NaN where nothing was measured.

    Inside programs these entries are 0, or -inf for validation and prequential metric of an epoch
    without samples. `jax_debug_nans` therefore finds only the NaN that training produces.
    """
    return _with_placeholders(protocol, state, jnp.nan)


def nan_to_unmeasured(protocol: Protocol, state: SequenceState) -> SequenceState:
    """Return the internal form of a public state, the inverse of `unmeasured_to_nan`."""
    return _with_placeholders(protocol, state, 0.0)


def _with_placeholders(protocol: Protocol, state: SequenceState, value: float) -> SequenceState:
    result = state.result
    # Memory and learner hold no placeholders, and need not go through a program.
    measured = Measurements(
        result.evaluation, result.losses, result.validation, result.prequential, result.within_tasks
    )
    # The check is for what training makes.
    with jax.debug_nans(False):
        filled = _fill_unmeasured(protocol, state.task, state.epoch, measured, value)
    return state._replace(result=result._replace(**filled._asdict()))


class Measurements(NamedTuple):
    """Fields of `SequenceResult` that may hold placeholders."""

    evaluation: PyTree
    losses: Float[Array, "*runs t e"]
    validation: Float[Array, "*runs t e"]
    prequential: Float[Array, "*runs t e"] | None
    within_tasks: StepEvaluations | None


@partial(jax.jit, static_argnums=0)
def _fill_unmeasured(
    protocol: Protocol,
    task: Int[Array, ""],
    epoch: Int[Array, ""],
    result: Measurements,
    value: Float[Array, ""],
) -> Measurements:
    """Return the measurements with a value where nothing was measured; runs may lead."""
    tasks, most = result.losses.shape[-2:]
    number = jnp.arange(tasks)
    reached = number < task
    epochs = jnp.where(reached[:, None], most, jnp.where(number[:, None] == task, epoch, 0))
    measured = planned_epochs(protocol, tasks) & (jnp.arange(most) < epochs)
    evaluated = reached & evaluated_tasks(protocol, tasks)
    evaluated = evaluated.reshape(*[1] * (result.losses.ndim - 2), tasks)
    without = jnp.where(jnp.isnan(value), jnp.nan, -jnp.inf)

    def fill_curve(curve: Array) -> Array:
        missing = jnp.isneginf(curve) | jnp.isnan(curve)
        return jnp.where(measured, jnp.where(missing, without, curve), value)

    within = result.within_tasks
    if within is not None:
        filled = _fill_floats(within.steps > 0, within.evaluation, value)
        within = within._replace(evaluation=filled)
    return Measurements(
        evaluation=_fill_floats(evaluated, result.evaluation, value),
        losses=jnp.where(measured, result.losses, value),
        validation=fill_curve(result.validation),
        prequential=None if result.prequential is None else fill_curve(result.prequential),
        within_tasks=within,
    )


def _fill_floats(measured: Bool[Array, "*lead"], tree: PyTree, value: Float[Array, ""]) -> PyTree:
    """Return the tree with a value in its floats where nothing was measured on the first axes."""

    def filled(leaf: Array) -> Array:
        if not _is_float(leaf):
            return leaf
        rows = measured.reshape(*measured.shape, *[1] * (leaf.ndim - measured.ndim))
        return jnp.where(rows, leaf, value)

    return jax.tree.map(filled, tree)


def _is_float(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.inexact)
