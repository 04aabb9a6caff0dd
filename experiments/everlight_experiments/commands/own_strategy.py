"""A user's own strategy, from a Python file of theirs, as one more method."""

import functools
import importlib.util
import inspect
import sys
import zlib
from pathlib import Path
from typing import Any

from everlight.continual import Setup, Strategy
from everlight_data.errors import DataError
from everlight_data.files import one_line, read_bytes
from everlight_experiments.common.settings import nearest_names
from everlight_experiments.continual.methods import METHODS, Method, Needs

_FORM = "give --strategy my_file.py:my_strategy, a function from a Setup to a Strategy"
HYPERPARAMETERS = "HYPERPARAMETERS"
"""Name of a file's values from which one is chosen."""
_RENAMED = {
    "capacity": "buffer_size",
    "exemplars": "exemplars_per_class",
    "strength": "hyperparameter",
}
_BYTES = 10_000_000


def load_strategy(asked: str) -> Method:
    """The method that `my_file.py:my_strategy` names; the file is run.

    Parameters of the function that are called as what `Needs` has (`exemplars_per_class`, `tasks`,
    `replay_batch_size`) get it; one with a default keeps that where `Needs` has None. One called
    `buffer_size` gets the samples of a whole memory, and one called `hyperparameter` gets what is
    chosen from the file's `HYPERPARAMETERS`.

    Raises:
      MissingDataError: there is no such file.
      DataError: it fails, or holds no such function; the table has that name; or the function
        wants something that nothing fills.
    """
    path, colon, name = asked.rpartition(":")
    if not colon or not path or not name.isidentifier():
        raise DataError(f"--strategy {asked!a}; {_FORM}")
    if name in METHODS:
        raise DataError(f"--strategy {asked!a}: the table has a method {name!r}; rename yours")
    version = f"{zlib.crc32(read_bytes(Path(path), _BYTES, f'To run yours {_FORM}.')):08x}"
    spec = importlib.util.spec_from_file_location(f"own_strategy_{version}", path)
    if spec is None:
        raise DataError(f"{path} is no Python file; {_FORM}")
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses look for the names in their annotations.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    # It is anybody's code.
    except Exception as error:
        raise DataError(
            f"{path} cannot be run ({type(error).__name__}: {one_line(error)})"
        ) from error
    factory = getattr(module, name, None)
    if not callable(factory):
        there = [each for each, value in vars(module).items() if callable(value)]
        near = nearest_names(name, there)
        meant = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise DataError(f"{path} has no function {name!r}.{meant} To run yours {_FORM}.")

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
