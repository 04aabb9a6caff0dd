"""A strategy whose memory is one part of another strategy's memory."""

import functools
from collections.abc import Callable
from typing import Any

from everlight.base import Memory, Strategy

CHANGING = ("begin_task", "after_step", "end_task", "before_evaluation")
"""Functions of a strategy that return its memory and the learner."""
READING = ("epoch_data", "valid_data", "draw", "grads", "predict", "predict_task", "stored_samples")
"""Functions of a strategy that read its memory and do not change it."""


def with_outer_memory(strategy: Strategy, field: str) -> Strategy:
    """Return the strategy for a memory that holds its own in one field.

    All functions but `init` receive that field, and those that change memory replace it. A strategy
    around another one begins with this and replaces the functions in which it differs.

    Args:
      strategy: strategy whose functions are called; those that are None stay None.
      field: field of the outer memory, a named tuple, that holds the strategy's own memory.
    """

    def wrap_outer(name: str) -> Callable | None:
        function = getattr(strategy, name)
        if function is None:
            return None

        @functools.wraps(function)
        def wrapped(memory: Memory, *rest: Any) -> Any:
            result = function(getattr(memory, field), *rest)
            if name not in CHANGING:
                return result
            inner, learner = result
            return memory._replace(**{field: inner}), learner

        return wrapped

    return strategy._replace(**{name: wrap_outer(name) for name in (*CHANGING, *READING)})
