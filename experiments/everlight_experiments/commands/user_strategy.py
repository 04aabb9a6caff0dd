"""A user's strategy, from a Python file, as one more method."""

import contextlib
import functools
import inspect
import numbers
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from everlight.checks import LARGEST
from everlight.continual import Setup, Strategy
from everlight.continual.methods.method import BENCHMARK_ARGUMENTS, Method, Publication
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.texts import one_line
from everlight_data.user_code.objects import load_object, place_in

_FORM = "give my_file.py:my_strategy, a function from a Setup to a Strategy"
_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)
_MAPPING = inspect.Parameter.VAR_KEYWORD
HYPERPARAMETERS = "HYPERPARAMETERS"
"""Name of a file's tuple of values, from which one is selected."""


def load_strategy(reference: str) -> Method:
    """Return the method that `my_file.py:my_strategy` names; the file is run.

    Parameters are filled by name (`Method.row_arguments`). The parameter `hyperparameter` gets the
    value that is selected from the file's `HYPERPARAMETERS`.

    Raises:
      MissingDataError: there is no such file.
      DataError: the file fails or has no such function; a method of the table has that name; or the
        function has a parameter that nothing fills.
    """
    name = reference.rpartition(":")[2]
    if name in METHODS:
        raise DataError(f"--strategy {reference!a}: the table has a method {name!r}; rename yours")
    factory, module, version = load_object(reference, "--strategy", _FORM)
    if not callable(factory):
        raise DataError(f"{reference} is {type(factory).__name__}; {_FORM}")
    parameters = _parameters(reference, factory)
    values = _values(reference, module)
    tunes = "hyperparameter" if values and "hyperparameter" in parameters else ""
    _refuse_unfilled(reference, parameters, tunes)
    stored = not parameters.keys().isdisjoint(("exemplars_per_class", "buffer_size"))
    named = naming_lines(f"--strategy {reference}", _FORM, module)

    @functools.wraps(factory)
    def make(setup: Setup, **arguments: Any) -> Strategy:
        strategy = named(factory)(setup, **arguments)
        if not isinstance(strategy, Strategy):
            raise DataError(
                f"{reference} returned {type(strategy).__name__}; it must return a Strategy, such "
                "as naive(setup)._replace(...)"
            )
        functions = {key: part for key, part in strategy._asdict().items() if callable(part)}
        return strategy._replace(**{key: named(part) for key, part in functions.items()})

    return Method(
        name,
        make,
        Publication(keeps=("samples",) if stored else ()),
        f"strategy of {reference}",
        tunes=tunes,
        hyperparameters=values if tunes else (),
        planned_total="tasks" if "tasks" in parameters else None,
        version=version,
    )


def _refuse_unfilled(
    reference: str, parameters: Mapping[str, inspect.Parameter], tunes: str
) -> None:
    """Refuse a parameter that has no default and that nothing fills."""
    for name, parameter in parameters.items():
        optional = parameter.default is not parameter.empty or parameter.kind == _MAPPING
        if not optional and name not in BENCHMARK_ARGUMENTS | {tunes}:
            values = f", or the file a tuple {HYPERPARAMETERS}" * (name == "hyperparameter")
            raise DataError(
                f"{reference} has the parameter {name!r}, which no value fills; give "
                f"it a default{values}"
            )


@contextlib.contextmanager
def naming_lines(reference: str, form: str, module: ModuleType) -> Iterator[None]:
    """Convert errors that a user's file causes into one line with the place in the file.

    Args:
      reference: option and object, for messages.
      form: sentence that states the expected object, for messages.
      module: the user's file.
    """
    try:
        yield
    except DataError:
        raise
    except SystemExit as error:
        raise DataError(f"{reference} ends the process ({error.code}); {form}") from error
    # Anything may fail in a user's code.
    except Exception as error:
        place = place_in(module, error)
        if place is None:
            raise
        message = f"{type(error).__name__}: {one_line(error)}"
        raise DataError(f"{reference}: {message} ({place})") from error


def _parameters(reference: str, factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return a factory's parameters by name without the first, which gets the setup."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError) as error:
        raise DataError(f"{reference} has parameters that cannot be inspected; {_FORM}") from error
    if not parameters or next(iter(parameters.values())).kind not in _POSITIONAL:
        raise DataError(f"{reference} takes no setup; {_FORM}")
    return dict([*parameters.items()][1:])


def _values(reference: str, module: ModuleType) -> tuple[float, ...]:
    """Return a file's values of the hyper-parameter."""
    with naming_lines(f"--strategy {reference}", _FORM, module):
        hyperparameters = getattr(module, HYPERPARAMETERS, ())
        shown = one_line(repr(hyperparameters))[:60]
    listed = hyperparameters if isinstance(hyperparameters, tuple | list) else None
    usable = listed is not None and all(_is_value(number) for number in listed)
    if not usable or len(set(map(np.float32, listed))) < len(listed):
        raise DataError(
            f"{reference}: {HYPERPARAMETERS} is {shown}; give a tuple of finite "
            "numbers of 0 or more, each once, as in (1.0, 10.0)"
        )
    return tuple(sorted(map(float, listed)))


def _is_value(value: Any) -> bool:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    # Programs have them in 32 bits.
    return number and 0 <= value <= LARGEST
