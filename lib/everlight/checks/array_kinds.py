"""Arrays of any library by their shape and dtype."""

import types
import typing
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import AbstractArray, Int


def is_array(value: Any) -> bool:
    """Return True for an array of any library, and for a shape and dtype without values."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_masked(value: Any) -> bool:
    """Return True for NumPy's masked arrays, whose mask JAX drops silently."""
    return isinstance(value, np.ma.MaskedArray)


def is_array_type(hint: Any) -> bool:
    """Return True for an annotation of jaxtyping."""
    return isinstance(hint, type) and issubclass(hint, AbstractArray)


def array_types(hint: Any) -> Iterator[type]:
    """Yield the annotations of jaxtyping in an annotation."""
    if is_array_type(hint):
        yield hint
    elif typing.get_origin(hint) in (typing.Union, types.UnionType, Annotated):
        for part in typing.get_args(hint):
            yield from array_types(part)


def axis_names(hint: Any) -> set[str]:
    """Return the names of the axes in an annotation."""
    words = (word.lstrip("*") for kind in array_types(hint) for word in kind.dim_str.split())
    return {word for word in words if word.isidentifier() and word != "_"}


def widen_integers(value: Any, hint: Any) -> Any:
    """Return unsigned and narrow integers as wider ones where an annotation requires integers.

    Labels are often stored as uint8, in which sums and differences of indices would wrap. NumPy's
    become int64 and JAX's of 8 and 16 bits int32, which hold all of their values. Other values are
    returned unchanged.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return widen_integers(value, arguments[0])
    if origin in (typing.Union, types.UnionType):
        kinds = {member.dtype for member in arguments if is_array_type(member)}
        array_hint = next((member for member in arguments if is_array_type(member)), None)
        return widen_integers(value, array_hint) if kinds == {Int} else value
    if origin is Sequence and isinstance(value, np.ndarray):
        return widen_integers(value, arguments[0])
    if origin is Sequence and isinstance(value, list | tuple):
        items = [widen_integers(element, arguments[0]) for element in value]
        changed = any(new is not old for new, old in zip(items, value, strict=True))
        return items if changed else value
    if not is_array_type(hint) or hint.dtype is not Int or is_masked(value):
        return value
    is_narrow = (
        value.dtype in (np.int8, np.int16, np.uint8, np.uint16) if is_array(value) else False
    )
    if isinstance(value, np.ndarray) and (is_narrow or value.dtype.kind == "u"):
        fits = value.dtype.itemsize < 8 or not value.size or value.max() <= np.iinfo(np.int64).max
        return value.astype(np.int64) if fits else value
    return value.astype(jnp.int32) if isinstance(value, jax.Array) and is_narrow else value


class Stub:
    """Shape and dtype of an array of any library."""

    def __init__(self, shape: tuple[int, ...], dtype: Any):
        self.shape, self.dtype = shape, dtype


def stubs(value: Any) -> Iterator[Stub]:
    """Yield the arrays that a value is, or that a number counts as; none for masked arrays."""
    if is_masked(value):
        return
    if is_array(value):
        yield Stub(tuple(value.shape), value.dtype)
    elif isinstance(value, bool):
        yield Stub((), np.dtype(bool))
    elif isinstance(value, int | float):
        yield Stub((), np.dtype(np.float32))
        if isinstance(value, int):
            yield Stub((), np.dtype(np.int32))


@cache
def stub_annotation(hint: type, axes: str = "") -> type:
    """Return an annotation of arrays as one of stubs, with more axes in front."""
    return hint.dtype[Stub, axes + hint.dim_str]
