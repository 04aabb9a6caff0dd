"""An example of every argument of every public function, from its annotation and the tables."""

import functools
import importlib
import inspect
import typing
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from docs.tools.make_api import PACKAGES
from tests.contracts.annotations import arrays_of, flat
from tests.contracts.example_values import KEY, NAMED, RECORDS, SIZES
from tests.contracts.examples import ROWS
from tests.contracts.small_arrays import booleans, floats, integers

OF_METHODS = {
    f"color.{name}" for name in ("estimate_fold", "estimate_folds", "map_images", "methods_for")
}
"""Functions of a row of the registry, which `test_illuminant_methods.py` calls with every row."""


def public(name: str) -> Any:
    room, function = name.split(".")
    return getattr(importlib.import_module(f"everlight.{room}"), function)


def functions() -> list[str]:
    """Return every public function that takes an argument."""
    return [
        f"{room}.{name}"
        for room in PACKAGES
        for name in importlib.import_module(f"everlight.{room}").__all__
        if f"{room}.{name}" not in OF_METHODS
        and inspect.isroutine(public(f"{room}.{name}"))
        and inspect.signature(public(f"{room}.{name}")).parameters
    ]


@functools.cache
def arguments(name: str) -> dict[str, Any]:
    """Return an example of every argument of a public function.

    Raises:
      KeyError: an argument that neither its annotation nor a table gives an example of.
    """
    row = ROWS.get(name, {})
    inputs = row() if callable(row) else row
    parameters = inspect.signature(public(name)).parameters
    return {
        key: inputs[key] if key in inputs else example(item) for key, item in parameters.items()
    }


def example(parameter: inspect.Parameter) -> Any:
    options, _ = flat(parameter.annotation)
    arrays = arrays_of(parameter.annotation)
    if parameter.default not in (None, parameter.empty):
        return parameter.default
    if parameter.name in NAMED:
        value = NAMED[parameter.name]
        of_jax = arrays and arrays[0].array_type is jax.Array
        return jnp.asarray(value) if of_jax and isinstance(value, np.ndarray) else value
    if arrays:
        return KEY if parameter.name == "key" else array(arrays[0])
    if parameter.default is None:
        return None
    for option in options:
        if option in RECORDS:
            return RECORDS[option]()
        if typing.get_origin(option) is Literal:
            return typing.get_args(option)[0]
        if option in (int, float):
            return 2 if option is int else 0.5
    raise KeyError(f"give {parameter} an example")


def array(kind: Any) -> Any:
    """Return an array of an annotation's type, with five elements along an axis without a size."""
    dims = kind.dim_str.split()
    shape = [int(dim) if dim.isdigit() else SIZES.get(dim, 5) for dim in dims]
    make = {"Int": integers, "Bool": booleans}.get(kind.dtype.__name__, floats)
    return make(*shape)


OUTSIDE_OF_JIT = (
    "illuminant.calibrate_distances",
    "illuminant.cross_",
    "illuminant.interval_coverage",
    "continual.diverged_runs",
    "plots.",
    "scenarios.",
)
"""Called as they are: they look at values, and compile little or nothing."""
COMPILING = {
    *("continual.count_cost", "continual.lower_step", "continual.operations_per_step"),
    *("continual.train", "continual.train_targets"),
}
ANYTHING = {"data", "shared", "memory"}
"""Arguments of type Any: a strategy's own memory, and what a build's own setup gathers from."""
