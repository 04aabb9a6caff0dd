"""Fast convolutions in networks of any framework: XLA's are replaced while a network is traced.

Networks of linen, NNX and Equinox call `jax.lax.conv_general_dilated`, whose gradients XLA computes
many times slower in a compiled loop on CPU, and one kernel per run under `vmap` on a GPU. What such
a function computes is traced to a jaxpr, in which those convolutions become `convolve`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.extend.core.primitives as primitives
import jax.numpy as jnp
from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var
from jaxtyping import Array, PyTree

from everlight.models.layers.convolution import convolve


def with_fast_convolutions(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays with fast gradients of its convolutions.

    Replaced are convolutions over two dimensions with square kernels, equal strides, no dilation
    and the default precision, in any layout, with groups or without, also within `jax.jit` and
    `jax.checkpoint`. Others stay as they are: dilated and transposed ones, and those within loops
    or within functions with derivatives of their own.

    Args:
      function: function of trees of arrays that can be traced. Where the first call replaces
        nothing, later calls are the function's.
    """
    replaces = True

    def fast(*arguments: PyTree) -> Any:
        nonlocal replaces
        if replaces:
            traced, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
            replaces = _has_replaced(traced.jaxpr)
        if not replaces:
            return function(*arguments)
        results = _evaluate(traced.jaxpr, traced.consts, jax.tree.leaves(arguments))
        return jax.tree.structure(shapes).unflatten(results)

    return fast


def fast_in_both_modes(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a network's pass with fast gradients of its convolutions.

    Args:
      apply: function of parameters, batch statistics, inputs, `train` and a key, as `Setup.apply`.
    """
    by_mode = {
        train: with_fast_convolutions(
            lambda params, batch_stats, inputs, key, train=train: apply(
                params, batch_stats, inputs, train, key
            )
        )
        for train in (False, True)
    }

    def fast_apply(
        params: PyTree, batch_stats: PyTree, inputs: Array, train: bool, key: Array | None
    ) -> Any:
        return by_mode[train](params, batch_stats, inputs, key)

    return fast_apply


def _equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """Return the equations of a jaxpr and of those that `_evaluate` goes into."""
    for equation in jaxpr.eqns:
        yield equation
        if equation.primitive is primitives.jit_p:
            yield from _equations(equation.params["jaxpr"].jaxpr)
        if equation.primitive is primitives.remat_p:
            yield from _equations(equation.params["jaxpr"])


def _evaluate(jaxpr: Jaxpr, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    values: dict[Var, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values |= zip(jaxpr.invars, arguments, strict=True)

    def value(atom: Var | Literal) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        inputs = list(map(value, equation.invars))
        values |= zip(equation.outvars, _results(jaxpr, equation, inputs), strict=True)
    return list(map(value, jaxpr.outvars))


def _results(jaxpr: Jaxpr, equation: JaxprEqn, inputs: list[Any]) -> Sequence[Any]:
    """Return the values of a jaxpr's equation, at these values of its inputs."""
    params = equation.params
    if _is_replaced(equation):
        return [_convolved(equation, *inputs)]
    # A function without convolutions stays one.
    inner = params.get("jaxpr")
    if equation.primitive is primitives.jit_p and _has_replaced(inner.jaxpr):
        return _evaluate(inner.jaxpr, inner.consts, inputs)
    if equation.primitive is primitives.remat_p and _has_replaced(inner):
        recomputed = jax.checkpoint(
            lambda *arrays: _evaluate(inner, (), arrays),
            prevent_cse=params["prevent_cse"],
            policy=params["policy"],
        )
        return recomputed(*inputs)
    variables = {
        atom: value
        for atom, value in zip(equation.invars, inputs, strict=True)
        if not isinstance(atom, Literal)
    }
    single = jaxpr.replace(
        constvars=(),
        invars=list(variables),
        outvars=equation.outvars,
        eqns=[equation],
        effects=equation.effects,
        debug_info=jaxpr.debug_info.with_unknown_names(),
    )
    return jax.core.eval_jaxpr(single, (), *variables.values())


def _has_replaced(jaxpr: Jaxpr) -> bool:
    return any(map(_is_replaced, _equations(jaxpr)))


def _is_replaced(equation: JaxprEqn) -> bool:
    """Return True for a convolution that `convolve` computes."""
    if equation.primitive is not primitives.conv_general_dilated_p:
        return False
    params, (images, kernel) = equation.params, (atom.aval for atom in equation.invars)
    _, _, *sides = (kernel.shape[axis] for axis in params["dimension_numbers"].rhs_spec)
    # One-dimensional convolutions have one side.
    return (
        len(sides) == 2
        and sides[0] == sides[1]
        and len({*params["window_strides"]}) == 1
        and {*params["lhs_dilation"], *params["rhs_dilation"], params["batch_group_count"]} == {1}
        and min(min(margins) for margins in params["padding"]) >= 0
        and images.dtype == kernel.dtype
        and params["preferred_element_type"] in (None, images.dtype)
        and params["precision"] == _default_precision()
        and jnp.issubdtype(images.dtype, jnp.floating)
    )


def _default_precision() -> tuple[jax.lax.Precision, jax.lax.Precision] | None:
    """Return the precision of a convolution that states none."""
    default = jax.config.jax_default_matmul_precision
    return None if default is None else (jax.lax.Precision(default),) * 2


def _convolved(equation: JaxprEqn, images: Array, kernel: Array) -> Array:
    params = equation.params
    numbers = params["dimension_numbers"]
    # The specifications are batch and features, or output and input features, then the sides.
    batch, channels, *sides = numbers.lhs_spec
    outputs, inputs, *kernel_sides = numbers.rhs_spec
    convolved = convolve(
        images.transpose(batch, *sides, channels),
        kernel.transpose(*kernel_sides, inputs, outputs),
        params["window_strides"][0],
        tuple(params["padding"]),
        params["feature_group_count"],
    )
    batch, channels, *sides = numbers.out_spec
    axes = (batch, *sides, channels)
    return convolved.transpose([axes.index(axis) for axis in range(4)])
