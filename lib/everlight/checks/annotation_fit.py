"""Fit of values to annotations: kind of a value, dtype and shape of an array.

Sizes of the same name must agree within the innermost `jaxtyping.jaxtyped("context")`.
"""

import dataclasses
import numbers
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import jax
import numpy as np

from everlight.checks.array_kinds import is_array, is_array_type, is_masked, stub_annotation, stubs


# Sizes are bound in the context of the caller: a hook that instruments functions would give this
# one a context of its own.
@typing.no_type_check
def fits(value: Any, hint: Any) -> bool:
    """Return True if a value has the kind, and an array the dtype and shape, ignoring its range."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return fits(value, arguments[0])
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, member) for member in arguments)
    if origin is Literal:
        # The type is compared first, since an array equals a member element by element.
        return any(fits(value, type(member)) and value == member for member in arguments)
    if hint is None or hint is type(None):
        return value is None
    if is_array_type(hint):
        return any(isinstance(stub, stub_annotation(hint)) for stub in stubs(value))
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if hint in (int, float):
        return _is_number(value, numbers.Integral if hint is int else numbers.Real)
    if origin is Callable or getattr(hint, "_is_protocol", False):
        return callable(value)
    if origin is tuple and arguments[-1] is not ...:
        return (
            isinstance(value, tuple)
            and len(value) == len(arguments)
            and all(map(fits, value, arguments))
        )
    if origin in (Sequence, list, tuple):
        sequences = (Sequence, np.ndarray, jax.Array) if origin is Sequence else origin
        if not isinstance(value, sequences) or isinstance(value, str) or is_masked(value):
            return False
        return all(fits(element, arguments[0]) for element in value)
    if is_mapping_type(hint):
        pairs = value.items() if isinstance(value, Mapping) else None
        return pairs is not None and all(
            fits(key, arguments[0]) and fits(element, arguments[1]) for key, element in pairs
        )
    # Trees, type variables and Any are anything; Any is a class from Python 3.11 on.
    return hint is Any or not isinstance(hint, type) or isinstance(value, hint)


def is_mapping_type(hint: Any) -> bool:
    """Return True for an annotation of mappings with types of keys and values."""
    origin = typing.get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _is_number(value: Any, kind: type) -> bool:
    if isinstance(value, bool | np.bool_) or is_masked(value):
        return False
    if isinstance(value, kind):
        return True
    dtype_class = np.integer if kind is numbers.Integral else np.floating
    return is_array(value) and not value.shape and np.issubdtype(value.dtype, dtype_class)


def is_record_type(hint: Any) -> bool:
    """Return True for named tuples and data classes."""
    if not isinstance(hint, type):
        return False
    return hasattr(hint, "_fields") or dataclasses.is_dataclass(hint)
