"""Arrays of any library by their shape and dtype."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import AbstractArray


def is_array(value: Any) -> bool:
    """Return True for an array of any library, and for its shape and dtype alone."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_masked(value: Any) -> bool:
    """Return True for NumPy's masked arrays, whose mask JAX drops without a word."""
    return isinstance(value, np.ma.MaskedArray)


def is_array_type(hint: Any) -> bool:
    """Return True for an annotation of jaxtyping."""
    return isinstance(hint, type) and issubclass(hint, AbstractArray)


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
def of_stubs(hint: type, axes: str = "") -> type:
    """Return an annotation of arrays as one of stubs, with more axes in front."""
    return hint.dtype[Stub, axes + hint.dim_str]
