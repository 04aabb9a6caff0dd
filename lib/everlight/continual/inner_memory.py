"""A strategy whose memory is one part of another strategy's memory."""

from collections.abc import Callable
from typing import Any

from everlight.base import Memory, Strategy

READING = ("epoch_data", "valid_data", "draw", "grads", "stored_samples")
"""Functions of a strategy that read its memory and do not change it."""


def reading_inner(
    strategy: Strategy, inner_of: Callable[[Memory], Memory]
) -> dict[str, Callable | None]:
    """Return the functions `READING` of a strategy by name, for a memory that holds its own.

    Args:
      strategy: strategy whose functions are called; those that are None stay None.
      inner_of: function from the outer memory to the strategy's own.
    """

    def reading(function: Callable | None) -> Callable | None:
        def of_inner(memory: Memory, *rest: Any) -> Any:
            return function(inner_of(memory), *rest)

        return function and of_inner

    return {name: reading(getattr(strategy, name)) for name in READING}
