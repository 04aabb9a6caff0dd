"""Data sets that are loaded once while a program compares configurations on the same data."""

import functools
import inspect
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_LOADED: ContextVar[dict[Hashable, Any] | None] = ContextVar("loaded", default=None)


@contextmanager
def loading_once() -> Iterator[None]:
    """Let loaders return the same data again for equal arguments, until the context ends.

    The data stay in memory as long. They must not be changed in place.
    """
    token = _LOADED.set({})
    try:
        yield
    finally:
        _LOADED.reset(token)


def loaded_once(load: Callable[P, T]) -> Callable[P, T]:
    """Wrap a loader, whose arguments are hashable, so that `loading_once` applies to it."""

    signature = inspect.signature(load)

    @functools.wraps(load)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        loaded = _LOADED.get()
        if loaded is None:
            return load(*args, **kwargs)
        # One key, whether an argument was given by place, by name or by default.
        arguments = signature.bind(*args, **kwargs)
        arguments.apply_defaults()
        key = load, *arguments.arguments.items()
        if key not in loaded:
            loaded[key] = load(*args, **kwargs)
        return loaded[key]

    return call
