"""A user's own strategy, from a Python file of theirs, as one more method."""

import functools
import inspect
from typing import Any

from everlight.continual import Setup, Strategy
from everlight.continual.registry import METHODS, Method, Needs
from everlight_data.errors import DataError
from everlight_experiments.common.python_files import load_object

_FORM = "give --strategy my_file.py:my_strategy, a function from a Setup to a Strategy"
HYPERPARAMETERS = "HYPERPARAMETERS"
"""Name of a file's tuple of values, from which one is selected."""
_RENAMED = {
    "capacity": "buffer_size",
    "exemplars": "exemplars_per_class",
    "strength": "hyperparameter",
}


def load_strategy(asked: str) -> Method:
    """Return the method that `my_file.py:my_strategy` names; the file is run.

    Parameters of the function with the names of fields of `Needs` (`exemplars_per_class`, `tasks`,
    `replay_batch_size`) get their values; a default stays where `Needs` has None. The parameter
    `buffer_size` gets the number of samples of the whole memory. The parameter `hyperparameter`
    gets the value that is selected from the file's `HYPERPARAMETERS`.

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
    parameters = list(inspect.signature(factory).parameters.values())[1:]
    known = {each.name for each in parameters} & {*Needs._fields}
    if hasattr(module, "STRENGTHS"):
        raise DataError(f"{asked}: the tuple STRENGTHS is now {HYPERPARAMETERS}")
    hyperparameters = tuple(getattr(module, HYPERPARAMETERS, ()))
    if not hyperparameters:
        known.discard("hyperparameter")
    for each in parameters:
        if each.name in _RENAMED:
            new = _RENAMED[each.name]
            raise DataError(f"{asked}: the parameter {each.name!r} is now {new!r}")
        if each.name not in known and each.default is each.empty and each.kind != each.VAR_KEYWORD:
            missing = each.name == "hyperparameter"
            or_these = f", or the file a tuple {HYPERPARAMETERS}" if missing else ""
            raise DataError(
                f"{asked} wants {each.name!r}, which nothing fills; give it a default{or_these}"
            )

    @functools.wraps(factory)
    def make(setup: Setup, **given: Any) -> Strategy:
        strategy = factory(setup, **given)
        if not isinstance(strategy, Strategy):
            raise DataError(
                f"{asked} gave {type(strategy).__name__}; it must give a Strategy, such as "
                "naive(setup)._replace(...)"
            )
        return strategy

    defaults = {each.name for each in parameters if each.default is not each.empty}

    def given(needs: Needs) -> dict[str, Any]:
        filled = needs._replace(buffer_size=needs.total_buffer_size)
        values = {each: getattr(filled, each) for each in known}
        return {k: v for k, v in values.items() if v is not None or k not in defaults}

    chosen = hyperparameters if "hyperparameter" in known else ()
    return Method(
        make,
        given,
        chosen,
        name=name,
        version=version,
    )
