"""`where_under_vmap` and `cond_under_vmap`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.conditional import cond_under_vmap, where_under_vmap


def negative_of(computed):
    def negative(needed, value, shared):
        def make():
            jax.debug.callback(lambda: computed.append(1))
            return {"x": -value * shared["factor"], "key": jax.random.fold_in(shared["key"], 1)}

        options = {"x": value, "key": shared["key"]}
        return where_under_vmap(needed, make, options)["x"]

    return negative


SHARED = {"factor": jnp.float32(2), "key": jax.random.key(0)}


@pytest.mark.parametrize(
    "needed", [[False] * 4, [False, True, False, False], [True] * 4], ids=["none", "one", "all"]
)
@pytest.mark.parametrize("nested", [False, True])
def test_under_vmap_the_costly_side_is_computed_only_if_a_run_needs_it(needed, nested):
    computed, values = [], jnp.arange(4.0) + 1
    item = jax.vmap(negative_of(computed), in_axes=(0, 0, None))
    needed = jnp.array(needed)
    if nested:
        shape, item = (2, 2), jax.vmap(item, in_axes=(0, 0, None))
    else:
        shape = (4,)
    result = jax.jit(item)(needed.reshape(shape), values.reshape(shape), SHARED)
    jax.effects_barrier()
    expected = np.where(needed, -2, 1) * np.arange(1, 5)
    np.testing.assert_array_equal(np.asarray(result).ravel(), expected)
    assert bool(computed) == bool(needed.any())


def test_values_common_to_all_runs_may_be_unbatched():
    """Only the condition, only the value, or nothing but the size differs between runs."""
    negative = negative_of([])
    run = jax.jit(jax.vmap(negative, in_axes=(0, None, None)))
    np.testing.assert_array_equal(run(jnp.array([True, False]), 3.0, SHARED), [-6, 3])
    run = jax.jit(jax.vmap(negative, in_axes=(None, 0, None)))
    np.testing.assert_array_equal(run(jnp.array(True), jnp.arange(2.0), SHARED), [0, -2])
    np.testing.assert_array_equal(negative(jnp.array(True), 3.0, SHARED), -6)
    scanned = jax.lax.scan(
        lambda value, needed: (negative(needed, value, SHARED), value),
        jnp.float32(1),
        jnp.array([True, False, True]),
    )
    assert scanned[0] == 4


@pytest.mark.parametrize(
    "condition", [[False] * 4, [False, True, False, False], [True] * 4], ids=["none", "one", "all"]
)
@pytest.mark.parametrize("nested", [False, True])
def test_under_vmap_either_side_is_computed_only_if_a_run_needs_it(condition, nested):
    computed = []

    def choice(condition, value, shared):
        def side(name, factor):
            jax.debug.callback(lambda: computed.append(name))
            return {"x": value * factor, "key": jax.random.fold_in(shared["key"], 1)}

        first, second = (partial(side, *part) for part in (("first", 2), ("second", -3)))
        return cond_under_vmap(condition, first, second)["x"]

    runs, shape = jax.vmap(choice, in_axes=(0, 0, None)), (4,)
    if nested:
        runs, shape = jax.vmap(runs, in_axes=(0, 0, None)), (2, 2)
    condition = np.array(condition)
    values = jnp.arange(4.0) + 1
    result = jax.jit(runs)(condition.reshape(shape), values.reshape(shape), SHARED)
    jax.effects_barrier()
    expected = np.where(condition, 2, -3) * np.arange(1, 5)
    np.testing.assert_array_equal(np.asarray(result).ravel(), expected)
    assert ("first" in computed, "second" in computed) == (condition.any(), not condition.all())
    assert choice(condition[1], 3.0, SHARED) == (6 if condition[1] else -9)
