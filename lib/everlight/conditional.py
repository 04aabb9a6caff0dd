"""Conditional work that stays conditional under `vmap`."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, PyTree

Tree = TypeVar("Tree")


def where_under_vmap(needed: Bool[Array, ""], make: Callable[[], Tree], otherwise: Tree) -> Tree:
    """Return the result of `make` if it is needed, and `otherwise` if it is not.

    Under `vmap` a `lax.cond` computes both branches. This calls `make` only if at least one run
    needs it. The result has no derivatives.

    Args:
      needed: True to call `make`.
      make: costly function; its result has the structure and the types of `otherwise`.
      otherwise: result if `make` is not called.
    """
    branch, closed_over = _closure(make)
    return _choice(branch)(needed, closed_over, otherwise)


def cond_under_vmap(
    condition: Bool[Array, ""], first: Callable[[], Tree], second: Callable[[], Tree]
) -> Tree:
    """Return the result of `first` if the condition holds, otherwise that of `second`.

    Under `vmap` a `lax.cond` computes both branches. This computes a branch only if at least one
    run takes it. The result has no derivatives.

    Args:
      condition: True to call `first`.
      first: costly function.
      second: costly function; its result has the structure and the types of that of `first`.
    """
    branch_1, first_values = _closure(first)
    branch_2, second_values = _closure(second)

    @custom_vmap
    def choose(condition: Bool[Array, ""], first_values: list, second_values: list) -> Tree:
        return jax.lax.cond(
            condition, lambda: branch_1(first_values), lambda: branch_2(second_values)
        )

    @choose.def_vmap
    def choose_in_runs(
        runs: int, batched: list[PyTree], condition: Array, first_values: list, second_values: list
    ) -> tuple[Tree, PyTree]:
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(batched))

        def choose_in_run(
            condition: Bool[Array, ""], first_values: list, second_values: list
        ) -> Tree:
            shapes = jax.eval_shape(lambda: branch_2(second_values))
            empty = jax.tree.map(lambda leaf: jnp.empty(leaf.shape, leaf.dtype), shapes)
            other = where_under_vmap(~condition, lambda: branch_2(second_values), empty)
            return where_under_vmap(condition, lambda: branch_1(first_values), other)

        mapped = jax.vmap(choose_in_run, in_axes=axes, axis_size=runs)
        chosen = mapped(condition, first_values, second_values)
        return chosen, jax.tree.map(lambda _: True, chosen)

    return choose(condition, first_values, second_values)


def _closure(make: Callable[[], Tree]) -> tuple[Callable[[list[Array]], Tree], list[Array]]:
    """Return a function of the arrays that `make` closes over, for a rule of `vmap`, and these."""
    traced, shape = jax.make_jaxpr(make, return_shape=True)()

    def branch(closed_over: list[Array]) -> Tree:
        leaves = jax.core.eval_jaxpr(traced.jaxpr, closed_over)
        return jax.tree.unflatten(jax.tree.structure(shape), leaves)

    return branch, traced.consts


def _choice(branch: Callable[[PyTree], Tree]) -> Callable[[Bool[Array, ""], PyTree, Tree], Tree]:
    @custom_vmap
    def choose(needed: Bool[Array, ""], values: PyTree, otherwise: Tree) -> Tree:
        return jax.lax.cond(needed, lambda: branch(values), lambda: otherwise)

    @choose.def_vmap
    def choose_in_runs(
        runs: int, batched: list[PyTree], needed: Array, values: PyTree, otherwise: Tree
    ) -> tuple[Tree, PyTree]:
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, tuple(batched))
        mapped = jax.vmap(lambda tree: tree, in_axes=axes[2:], axis_size=runs)(otherwise)

        def branch_in_runs(parts: tuple[Array, PyTree, Tree]) -> Tree:
            def choose_in_run(needed: Bool[Array, ""], values: PyTree, otherwise: Tree) -> Tree:
                return jax.tree.map(lambda a, b: jnp.where(needed, a, b), branch(values), otherwise)

            return jax.vmap(choose_in_run, in_axes=(*axes[:2], 0), axis_size=runs)(*parts)

        # The same choice again, so that a `vmap` around this one has its rule too.
        chosen = _choice(branch_in_runs)(jnp.any(needed), (needed, values, mapped), mapped)
        return chosen, jax.tree.map(lambda _: True, chosen)

    return choose
