"""Arguments of a strategy of your own, filled by name from what a benchmark has."""

import inspect
from collections.abc import Callable
from typing import Any

from everlight.base import Strategy
from everlight.continual.method import Needs, RowArguments
from everlight.errors import ArgumentError


def fill_by_name(factory: Callable[..., Strategy], tuned: bool) -> RowArguments:
    """Return the function from `Needs` to a factory's arguments beside the setup.

    A parameter with the name of a field of `Needs` gets its value; its default stays where `Needs`
    has None. `buffer_size` gets the number of samples of the whole memory.

    Args:
      factory: function from a setup and other arguments to a strategy.
      tuned: True if there are values for the parameter `hyperparameter`.

    Raises:
      ValueError: a parameter has no default and is not filled; the message names it.
    """
    parameters = list(inspect.signature(factory).parameters.values())[1:]
    known = {arg.name for arg in parameters} & set(Needs._fields)
    if not tuned:
        known.discard("hyperparameter")
    defaults = {arg.name for arg in parameters if arg.default is not arg.empty}
    for arg in parameters:
        if arg.name not in known | defaults and arg.kind != arg.VAR_KEYWORD:
            raise ArgumentError(f"wants {arg.name!r}, which nothing fills; give it a default")

    def row_arguments(needs: Needs) -> dict[str, Any]:
        filled = needs._replace(buffer_size=needs.total_buffer_size)
        values = {name: getattr(filled, name) for name in known}
        return {k: v for k, v in values.items() if v is not None or k not in defaults}

    return row_arguments
