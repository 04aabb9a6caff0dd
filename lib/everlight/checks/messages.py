"""Texts of messages about arguments: the given value, and what an annotation requires."""

import numbers
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Int, PRNGKeyArray

from everlight.checks.array_kinds import is_array, is_array_type, is_masked

WORDS = {"Float": "floats", "Int": "integers", "Bool": "booleans", "Shaped": "an array"}
RANDOM_KEYS = typing.get_args(PRNGKeyArray)
KINDS = {int: "an integer", float: "a number", bool: "True or False", str: "text"}


def show_value(value: Any) -> str:
    """Return a number or text as it is, an array's dtype and shape, and others' type."""
    if is_array(value):
        masked = "a masked " if is_masked(value) else ""
        return f"{masked}{value.dtype}{list(value.shape)}"
    if value is None or isinstance(value, bool | numbers.Real | str):
        return repr(value)[:80]
    return f"of type {type(value).__name__}"


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name, with its class if it has one."""
    return function.__qualname__.rpartition("<locals>.")[2]


def missing_form(value: Any, hint: Any) -> str:
    """Return the words of a message for what a value lacks, such as "an array of "; else ""."""
    if not is_array_type(hint):
        return ""
    unsigned = is_array(value) and np.issubdtype(value.dtype, np.unsignedinteger)
    if unsigned and hint.dtype is Int:
        return "signed "
    return "an array of " if isinstance(value, list | tuple) else ""


def join_alternatives(words: list[str]) -> str:
    """Return words with commas between them, and "or" before the last."""
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def requirement(hint: Any) -> str:
    """Return what an annotation allows."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in RANDOM_KEYS:
        return "a random key, such as jax.random.key(0)"
    if origin is Annotated:
        return requirement(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return join_alternatives(list(dict.fromkeys(map(requirement, arguments))))
    if origin is Literal:
        return join_alternatives(list(map(repr, arguments)))
    if hint is type(None):
        return "None"
    if is_array_type(hint):
        kind = hint.dtype.__name__
        return f"{WORDS.get(kind, kind)} [{', '.join(hint.dim_str.split())}]"
    if origin is Callable:
        return "a function"
    if origin is tuple and arguments[-1] is not ...:
        return f"a tuple of {len(arguments)}: {', '.join(map(requirement, arguments))}"
    if origin in (Sequence, list, tuple):
        return f"a {origin.__name__.lower()} of {requirement(arguments[0])}"
    if origin is not None and len(arguments) == 2:
        return f"a mapping from {requirement(arguments[0])} to {requirement(arguments[1])}"
    return KINDS.get(hint, getattr(hint, "__name__", str(hint)))
