"""Every public function refuses what does not fit its annotations, and names the argument.

Driven by the annotations: of each argument a wrong rank, size, dtype, kind and range is made from
its annotation and its example. Nothing compiles: what is wrong never gets as far.
"""

import copy
import dataclasses
import inspect
import math
import typing
from collections.abc import Iterator
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.checks import FINITE
from tests.contracts.annotations import axes, flat, is_array_type
from tests.contracts.example_arguments import (
    ANYTHING,
    COMPILING,
    OUTSIDE_OF_JIT,
    arguments,
    functions,
    public,
)
from tests.contracts.examples import ROWS
from tests.contracts.small_arrays import floats


def test_every_row_is_of_a_public_function_and_of_its_arguments():
    assert ROWS.keys() <= set(functions())
    for name, row in ROWS.items():
        inputs = row() if callable(row) else row
        assert inputs.keys() <= inspect.signature(public(name)).parameters.keys(), name


@pytest.mark.parametrize("name", functions())
def test_the_examples_are_accepted(name):
    function, inputs = public(name), arguments(name)

    def call():
        function(**inputs)
        return 0

    if name in COMPILING:
        pytest.skip("compiles; its own tests call it")
    call() if name.startswith(OUTSIDE_OF_JIT) else jax.eval_shape(call)


@pytest.mark.parametrize("name", functions())
def test_arguments_of_other_shapes_are_refused_by_name(name):
    function, inputs = public(name), arguments(name)
    hints = {key: item.annotation for key, item in inspect.signature(function).parameters.items()}
    tried = 0
    for argument in inputs.keys() - ANYTHING:
        elsewhere = [axis for key in inputs if key != argument for axis in axes(hints[key])]
        for what, wrong in wrong_values(inputs[argument], hints[argument], elsewhere):
            tried += 1
            try:
                function(**{**inputs, argument: wrong})
            except ValueError as error:
                message = str(error)
                assert argument in message, f"{what} of {argument}: {message}"
                assert message.count("\n") == 0, message
            else:
                pytest.fail(f"{name} takes {what} of {argument}: {wrong!r}")
    assert tried


def wrong_values(value: Any, hint: Any, elsewhere: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield descriptions and values that the annotation excludes."""
    options, bounds = flat(hint)
    yield "a wrong kind", object()
    arrays = [item for item in options if is_array_type(item)]
    if arrays and hasattr(value, "dtype"):
        yield from wrong_arrays(value, arrays, bounds, elsewhere)
    if any(typing.get_origin(item) is Literal for item in options):
        yield "an unknown choice", "nonsense"
    elif int in options or float in options:
        yield "text", "3"
        if float not in options:
            yield "a fraction", 1.5
        for bound in bounds:
            yield from (("too little", v) for v in (bound.minimum - 1,) if math.isfinite(v))
            yield from (("too much", v) for v in (2 * bound.maximum,) if math.isfinite(v))
            if float in options:
                yield "NaN", math.nan
    elif hasattr(value, "_fields") or dataclasses.is_dataclass(value):
        fields = inspect.get_annotations(type(value))
        for field, kind in fields.items():
            old = getattr(value, field)
            if is_array_type(kind) and hasattr(old, "dtype"):
                others = [axis for item in fields.keys() - {field} for axis in axes(fields[item])]
                for what, wrong in wrong_arrays(old, [kind], [], others):
                    yield f"{what} of {field}", replaced(value, field, wrong)


def wrong_arrays(value, arrays, bounds, elsewhere):
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        yield "another dtype", floats(3)
        return
    value, dims = np.asarray(value), arrays[0].dim_str.split()
    if not any(dim.startswith(("*", "...")) for dim in dims):
        yield "one more axis", value[None]
    if not any(item.dtype.__name__ == "Shaped" for item in arrays):
        yield "another dtype", value.astype(other_dtype(value))
    for place, dim in enumerate(reversed(dims), 1):
        if dim.isdigit() or (dim.isidentifier() and [*elsewhere, *dims].count(dim) > 1):
            first = np.take(value, [0], axis=-place)
            yield f"one more along {dim}", np.concatenate([value, first], axis=-place)
    for bound in bounds:
        if bound.minimum == FINITE.minimum:
            yield "too little", np.full_like(value, -math.inf)
        elif math.isfinite(bound.minimum) and value.ndim:
            yield "too little", np.full_like(value, bound.minimum - 1)
        if bound.maximum not in (math.inf, FINITE.maximum) and value.ndim:
            yield "too much", np.full_like(value, 2 * bound.maximum)


def other_dtype(value):
    return np.uint8 if jnp.issubdtype(value.dtype, jnp.floating) else np.float32


def replaced(record, field, wrong):
    if hasattr(record, "_replace"):
        return record._replace(**{field: wrong})
    # This bypasses the frozen data class, and a hook's check of how it is made.
    other = copy.copy(record)
    object.__setattr__(other, field, wrong)
    return other
