"""A user's own strategy, from a Python file of theirs, as one more method."""

import functools
import inspect
from typing import Any

from everlight.continual import Setup, Strategy
from everlight.continual.method import Method
from everlight.continual.own_factory import fill_by_name
from everlight.continual.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.python_files import load_object

_FORM = "give my_file.py:my_strategy, a function from a Setup to a Strategy"
HYPERPARAMETERS = "HYPERPARAMETERS"
"""Name of a file's tuple of values, from which one is selected."""


def load_strategy(asked: str) -> Method:
    """Return the method that `my_file.py:my_strategy` names; the file is run.

    Parameters are filled by name (`everlight.continual.own_factory`). The parameter
    `hyperparameter` gets the value that is selected from the file's `HYPERPARAMETERS`.

    Raises:
      MissingDataError: there is no such file.
      DataError: it fails, or has no such function; the table has that name; or the function has a
        parameter that nothing fills.
    """
    name = asked.rpartition(":")[2]
    if name in METHODS:
        raise DataError(f"--strategy {asked!a}: the table has a method {name!r}; rename yours")
    factory, module, version = load_object(asked, "--strategy", _FORM)
    if not callable(factory):
        raise DataError(f"{asked} is {type(factory).__name__}; {_FORM}")
    parameters = [*inspect.signature(factory).parameters][1:]
    values = tuple(getattr(module, HYPERPARAMETERS, ()))
    try:
        given = fill_by_name(factory, bool(values))
    except ValueError as error:
        or_these = f", or the file a tuple {HYPERPARAMETERS}" * ("'hyperparameter'" in str(error))
        raise DataError(f"{asked} {error}{or_these}") from error

    @functools.wraps(factory)
    def make(setup: Setup, **arguments: Any) -> Strategy:
        strategy = factory(setup, **arguments)
        if not isinstance(strategy, Strategy):
            raise DataError(
                f"{asked} gave {type(strategy).__name__}; it must give a Strategy, such as "
                "naive(setup)._replace(...)"
            )
        return strategy

    tuned = values if "hyperparameter" in parameters else ()
    return Method(make, given, tuned, name=name, version=version)
