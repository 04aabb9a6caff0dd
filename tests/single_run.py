"""A single run driven by `drive_runs`: its states, without the axis over runs."""

import jax
import jax.numpy as jnp

from everlight.continual.engine.driver import Runs, drive_runs


def drive_run(run, state=None, chunk=1, announce=None):
    """Yield copies of a run's states, which outlive the next chunk; `state` is one of them."""
    if state is not None:
        state = on_copies(state, lambda leaf: leaf[None])
    for item in drive_runs(Runs.of(run), chunk, state=state, announce=announce):
        yield on_copies(item, lambda leaf: leaf[0])


def on_copies(state, function):
    """Return a copy of the state with a function of the leaves that have an axis over runs."""
    # NaN stands for values that were not measured.
    with jax.debug_nans(False):
        state = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)
        result, best = jax.tree.map(function, (state.result, state.best))
    return state._replace(result=result, best=best)
