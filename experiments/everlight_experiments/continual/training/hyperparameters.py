"""`--hyperparameters`: the values that are tried for each method."""

import itertools
from collections.abc import Sequence

import numpy as np

from everlight.checks import check_arguments
from everlight.continual.methods.method import Method
from everlight.errors import ArgumentError
from everlight_data.errors import DataError
from everlight_data.names import check_name


def read_hyperparameters(
    texts: Sequence[str], methods: Sequence[Method]
) -> dict[str, tuple[float, ...]]:
    """Return the grids of the command line by method, ascending.

    Raises:
      DataError: a text is not NAME=NUMBER,...; a method is not run, has no hyper-parameter or
        occurs twice; or a value is negative, not a number, or infinite in 32 bits.
    """
    known = {method.name: method for method in methods if method.hyperparameters}
    grids: dict[str, tuple[float, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        option = f"--hyperparameters {text!a}"
        if not equals:
            raise DataError(f"{option}; give NAME=NUMBER,..., as in EWC=1e2,1e4,1e6")
        check_name("method with hyper-parameters among those that are run:", name, list(known))
        try:
            hyperparameters = {float(value) for value in values.split(",")}
        except ValueError as error:
            raise DataError(f"{option}; give numbers, as in {name}=1e2,1e4") from error
        # Programs have them in 32 bits.
        with np.errstate(over="ignore"):
            usable = all(0 <= np.float32(value) < np.inf for value in hyperparameters)
        if not usable:
            raise DataError(f"{option}; give finite numbers of 0 or more")
        for value in hyperparameters:
            refuse_unfit(known[name], known[name].tunes, value, f"{option}: ")
        if name in grids:
            raise DataError(f"--hyperparameters has {name!r} twice; give all its values in one")
        grids[name] = tuple(sorted(hyperparameters))
    return grids


def refuse_unfit(method: Method, argument: str, value: float, option: str) -> None:
    """Refuse a number outside an argument's bounds; a user's own function is traced instead."""
    if method.version:
        return
    try:
        check_arguments(method.factory, {argument: value})
    except ArgumentError as error:
        raise DataError(f"{option}{error}") from error


def value_name(hyperparameter: float) -> str:
    """Return the text of a hyper-parameter in the name of a training run, of six digits."""
    return f"{hyperparameter:g}"


def refuse_equal_names(method: Method) -> None:
    """Refuse values of a hyper-parameter whose training runs would have one name.

    Raises:
      DataError: the message has two such values.
    """
    # Equal names are neighbours in ascending order.
    for values in itertools.pairwise(sorted(method.hyperparameters)):
        names = [*map(value_name, values)]
        if names[0] == names[1]:
            raise DataError(
                f"{method.name} has the hyper-parameters {values[0]!r} and {values[1]!r}, whose "
                f"training runs are both named {names[0]}; give values that differ in six digits"
            )
