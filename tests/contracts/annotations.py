"""Readers of a public function's annotations: members of unions, bounds, and axes of arrays."""

import types
import typing
from typing import Annotated, Any

from everlight.checks import Between


def flat(hint: Any) -> tuple[list[Any], list[Between]]:
    """Return the members of a union, and the bounds anywhere in it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        options, bounds = flat(arguments[0])
        return options, bounds + [item for item in arguments[1:] if isinstance(item, Between)]
    if origin in (typing.Union, types.UnionType):
        parts = [flat(item) for item in arguments]
        return [o for part in parts for o in part[0]], [b for part in parts for b in part[1]]
    return [hint], []


def arrays_of(hint: Any) -> list[Any]:
    return [item for item in flat(hint)[0] if is_array_type(item)]


def is_array_type(hint: Any) -> bool:
    return isinstance(hint, type) and hasattr(hint, "dim_str")


def axes(hint: Any) -> list[str]:
    return [
        dim for item in arrays_of(hint)[:1] for dim in item.dim_str.split() if dim.isidentifier()
    ]
