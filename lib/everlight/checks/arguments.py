"""Checks of public functions' arguments against their annotations: kind, dtype, shape, range.

Kinds, dtypes and shapes are static, so under `jit` they cost only tracing time. Values are checked
outside `jit` only; traced values are not checked. Arrays of NumPy and JAX are equivalent, and so
are Python numbers and arrays without axes.
"""

import dataclasses
import inspect
import math
import numbers
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce, wraps
from typing import Annotated, Any, Literal, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import jaxtyped

from everlight.checks.annotation_fit import fits, is_mapping_type, is_record_type
from everlight.checks.array_kinds import (
    array_types,
    axis_names,
    is_array,
    is_array_type,
    is_masked,
    stub_annotation,
    widen_integers,
)
from everlight.checks.messages import missing_form, name_of, requirement, show_value
from everlight.errors import Argument, ArgumentError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Between(NamedTuple):
    """Smallest and greatest allowed value, for use in an Annotated type."""

    minimum: float = -math.inf
    maximum: float = math.inf
    or_nan: bool = False
    """True if NaN is also allowed."""

    def __str__(self) -> str:
        if self == Between():
            return "no NaN"
        if self == FINITE:
            return "finite values"
        least = "more than 0" if self.minimum == SMALLEST else f"{self.minimum:g} or more"
        if self.maximum == BELOW_ONE:
            return f"{least}, and less than 1"
        finite = ", but not infinite" if self.maximum == LARGEST else ""
        if finite or self.maximum == math.inf:
            return f"{least}{finite}"
        if self.minimum == SMALLEST:
            return f"{least} and at most {self.maximum:g}"
        return " to ".join(f"{x:,}" if isinstance(x, int) else f"{x:g}" for x in self[:2])


class Stacked:
    """Marker in an Annotated type: every array of the record has one additional, leading axis."""


class NotEmpty:
    """Marker in an Annotated type: no axis of the array has size 0."""


PositiveInt = Annotated[int, Between(1)]
NonNegativeInt = Annotated[int, Between(0)]
UnitInterval = Annotated[float, Between(0, 1)]
BELOW_ONE = float(np.nextafter(np.float32(1), np.float32(0)))
ProperFraction = Annotated[float, Between(0, BELOW_ONE)]
"""Share or decay that leaves the others something: 0 or more, and less than 1."""
SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
FINITE = Between(-LARGEST, LARGEST)
NOT_NEGATIVE = Between(0, LARGEST)
"""Physical quantities and counts: finite, and 0 or more."""
POSITIVE = Between(SMALLEST, LARGEST)
PositiveShare = Annotated[float, Between(SMALLEST, 1)]
"""Share or decay that leaves something: more than 0, and at most 1."""
OpenUnitInterval = Annotated[float, Between(SMALLEST, BELOW_ONE)]
"""Share that takes something and leaves something: more than 0, and less than 1."""
NonNegativeFloat = Annotated[float, NOT_NEGATIVE]
PositiveFloat = Annotated[float, POSITIVE]
FRACTION = Between(0, 1, or_nan=True)
"""Accuracies and other fractions, NaN where there is none."""


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Wrap a function so that its arguments are checked against its annotations.

    Raises:
      ValueError: an argument does not match; the message gives its name, value and requirement.
    """
    signature = inspect.signature(function)
    hints = {
        name: Any if parameter.annotation is parameter.empty else parameter.annotation
        for name, parameter in signature.parameters.items()
    }

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            # Too many or too few, which Python tells with the function's name.
            return function(*args, **kwargs)
        arguments = bound.arguments
        wide = {name: widen_integers(value, hints[name]) for name, value in arguments.items()}
        _check_all(wide, hints, f"{name_of(function)}: ")
        if all(wide[name] is value for name, value in arguments.items()):
            return function(*args, **kwargs)
        arguments.update(wide)
        return function(*bound.args, **bound.kwargs)

    return call


def check_fields(settings: Any) -> None:
    """Check the fields of a data class against their types; call it in `__post_init__`.

    Raises:
      ValueError: a field does not match; the message gives its name, value and requirement.
    """
    kinds = reversed(type(settings).__mro__)
    hints = {name: hint for kind in kinds for name, hint in inspect.get_annotations(kind).items()}
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    _check_all(values, hints, owner=type(settings).__name__)


def check_arguments(function: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Check values of some of a function's arguments against their annotations, without a call.

    Raises:
      ValueError: a value does not match; the message gives its name, value and requirement.
    """
    parameters = inspect.signature(function).parameters
    _check_all(values, {name: parameters[name].annotation for name in values})


def check_range(
    name: str,
    values: Any,
    minimum: float | int,
    maximum: float | int = math.inf,
    or_nan: bool = False,
) -> None:
    """Check that all concrete values lie within bounds that depend on another argument.

    Raises:
      ValueError: a value is out of bounds; the message gives the first one and the bounds.
    """
    _check_bounds(_Location(name), values, Between(minimum, maximum, or_nan))


def check_finite(name: str, values: Any, shape: tuple[int, ...] | None = None) -> None:
    """Check that all concrete values are finite.

    Args:
      name: name of the argument.
      values: array to check.
      shape: original shape of each entry along the first axis, if it differs from the stored one.

    Raises:
      ValueError: some values are not finite, or not in the type that JAX stores them in, float32
        for float64; the message gives their number and the first position.
    """
    # On the device that holds them, and at once where the caller is being traced.
    with jax.ensure_compile_time_eval(), np.errstate(over="ignore"):
        if not _has_values(values):
            return
        finite = jnp.isfinite(values)
        if bool(finite.all()):
            return
        wrong = ~np.asarray(finite)
    overflows = np.isfinite(np.asarray(values)).all()
    reason = "beyond the range of float32" if overflows else "that are not finite"
    wrong = wrong if shape is None else wrong.reshape(-1, *shape)
    position = ", ".join(map(str, np.argwhere(wrong)[0]))
    raise ArgumentError(
        f"{name} holds {wrong.sum()} values {reason}, the first at [{position}]; leave them out"
    )


def check_increasing(name: str, values: Any, or_equal: bool = False) -> None:
    """Check that all concrete values of an array `[n]` are in ascending order.

    Raises:
      ValueError: a value is less than the one before it, or equal to it without `or_equal`.
    """
    if not _has_values(values):
        return
    steps = np.diff(np.asarray(values))
    wrong = np.flatnonzero(~((steps >= 0) if or_equal else (steps > 0)))
    if len(wrong):
        first, second = np.asarray(values)[wrong[0] :][:2]
        raise ArgumentError(f"{name} holds {first} before {second}; give them in ascending order")


def check_sizes(**arrays: tuple[Any, int]) -> None:
    """Check that axes of several arguments, given as `name=(array, axis)`, have equal length.

    Raises:
      ValueError: the lengths differ; the message gives all arguments with their shapes.
    """
    sizes = {array.shape[axis] for array, axis in arrays.values()}
    if len(sizes) > 1:
        shapes = ", ".join(
            f"{name} is {show_value(array)} (axis {axis})" for name, (array, axis) in arrays.items()
        )
        raise ArgumentError(f"{shapes}; give equal sizes along these axes")


class _Location(NamedTuple):
    """Location of a checked value: an argument, a field, or an item of one."""

    name: str
    before: str = ""
    """Text before the name: the function, or the record of which it is a field."""
    owner: str = ""
    """Data class of which it is a field."""
    index: str = ""

    def __str__(self) -> str:
        owner = f"{self.owner}: " if self.owner else ""
        return f"{self.before}{owner}{self.name}{self.index}"

    def item(self, position: int | str) -> "_Location":
        """Return the item at a position, or that of a key."""
        return self._replace(index=f"{self.index}[{position}]")

    def with_value(self, value: Any) -> tuple[str | Argument, ...]:
        """Return the parts of a message that name the value."""
        return self.before, Argument(self.name, value, self.owner, self.index)


def _check_all(
    values: Mapping[str, Any], hints: Mapping[str, Any], before: str = "", owner: str = ""
) -> None:
    """Check values against hints; sizes of the same name must agree among them."""
    with jaxtyped("context"):
        for name, value in values.items():
            try:
                _check(_Location(name, before, owner), value, hints[name])
            except _MisfitError as misfit:
                shared_sizes = _describe_shared_sizes(value, name, values, hints)
                raise ArgumentError(
                    *misfit.description, remedy=(*misfit.remedy, shared_sizes)
                ) from None


class _MisfitError(ArgumentError):
    """Mismatch of kind, dtype or shape."""

    def __init__(self, location: _Location, value: Any, hint: Any):
        verb = "choose" if typing.get_origin(hint) is Literal else "give"
        mask = " without a mask" if is_masked(value) else ""
        remedy = f"{verb} {missing_form(value, hint)}{requirement(hint)}{mask}"
        super().__init__(*_describe_value(location, value), remedy=(remedy,))


def _describe_value(location: _Location, value: Any) -> tuple[str | Argument, ...]:
    """Return a location with its value if the value is plain and short, else with a description."""
    text = show_value(value)
    if value is not None and not isinstance(value, numbers.Real | str):
        return (f"{location} is {text}",)
    return location.with_value(value) if text == repr(value) else (f"{location}={text}",)


# Sizes are bound in the context of `_check_all`: a hook that instruments functions would give this
# one a context of its own.
@typing.no_type_check
def _check(location: _Location, value: Any, hint: Any) -> None:
    origin = typing.get_origin(hint)
    if origin is Annotated:
        base, *notes = typing.get_args(hint)
        if Stacked in notes:
            _check_record(location, value, base, "_ ")
            return
        _check(location, value, base)
        if NotEmpty in notes and is_array(value) and 0 in value.shape:
            raise ArgumentError(
                f"{location} is {show_value(value)}; give one or more along every axis"
            )
        for bounds in notes:
            if isinstance(bounds, Between):
                _check_bounds(location, value, bounds)
    elif origin in (typing.Union, types.UnionType):
        chosen = [member for member in typing.get_args(hint) if fits(value, member)]
        if not chosen:
            raise _MisfitError(location, value, hint)
        _check(location, value, chosen[0])
    elif is_record_type(hint):
        _check_record(location, value, hint, "")
    elif isinstance(value, Mapping) and is_mapping_type(hint):
        key_hint, value_hint = typing.get_args(hint)
        if not all(fits(key, key_hint) for key in value):
            raise _MisfitError(location, value, hint)
        _check_items(
            {location.item(ascii(key)): element for key, element in value.items()}, value_hint
        )
    elif not fits(value, hint):
        _refuse_item(location, value, hint)
        raise _MisfitError(location, value, hint)
    elif origin is tuple and ... not in typing.get_args(hint):
        for position, (element, element_hint) in enumerate(
            zip(value, typing.get_args(hint), strict=True)
        ):
            _check(location.item(position), element, element_hint)
    elif origin in (Sequence, tuple) and Annotated is typing.get_origin(typing.get_args(hint)[0]):
        items = {location.item(position): element for position, element in enumerate(value)}
        _check_items(items, typing.get_args(hint)[0])


def _refuse_item(location: _Location, value: Any, hint: Any) -> None:
    """Raise the error of the first item that does not fit, if a value is a sequence of arrays."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Sequence and isinstance(value, list | tuple) and is_array_type(arguments[0]):
        wrong = (position for position, item in enumerate(value) if not fits(item, arguments[0]))
        for position in wrong:
            raise _MisfitError(location.item(position), value[position], arguments[0])


def _check_items(items: Mapping[_Location, Any], hint: Any) -> None:
    """Check the values of a mapping or sequence, whose sizes need not agree among each other."""
    for location, value in items.items():
        with jaxtyped("context"):
            _check(location, value, hint)


def _check_record(location: _Location, value: Any, kind: type, axes: str) -> None:
    """Check a record's arrays; sizes of the same name must agree within the record only."""
    if not isinstance(value, kind):
        raise _MisfitError(location, value, kind)
    hints = {field: _with_axes(hint, axes) for field, hint in _array_fields(kind).items()}
    _check_all({field: getattr(value, field) for field in hints}, hints, f"{location}.")


def _check_bounds(location: _Location, value: Any, bounds: Between) -> None:
    if not _has_values(value):
        return
    values = np.asarray(value)
    # The greatest number of 32 bits would be infinite in 16, and infinity within its bounds.
    values = values.astype(np.float32) if values.dtype == np.float16 else values
    # Written so that NaN is refused.
    wrong = ~((values >= bounds.minimum) & (values <= bounds.maximum))
    if bounds.or_nan:
        wrong &= ~np.isnan(values)
    if wrong.any():
        first = values[wrong][0]
        described = (f"{location} holds {first}",) if values.ndim else location.with_value(first)
        raise ArgumentError(*described, remedy=(f"give {bounds}",))


def _has_values(value: Any) -> bool:
    """Return False for traced values and for shapes without values."""
    known = isinstance(value, numbers.Real | np.ndarray | np.generic | jax.Array)
    return known and not isinstance(value, jax.core.Tracer)


@cache
def _array_fields(kind: type) -> dict[str, Any]:
    """Return a record's fields whose type contains arrays or a range."""
    hints = inspect.get_annotations(kind)
    return {
        name: hint for name, hint in hints.items() if any(array_types(hint)) or _has_range(hint)
    }


def _has_range(hint: Any) -> bool:
    parts = typing.get_args(hint)
    return any(isinstance(part, Between) or _has_range(part) for part in parts)


def _with_axes(hint: Any, axes: str) -> Any:
    if axes and typing.get_origin(hint) in (typing.Union, types.UnionType):
        parts = (_with_axes(member, axes) for member in typing.get_args(hint))
        return reduce(operator.or_, parts)
    return stub_annotation(hint, axes) if axes and is_array_type(hint) else hint


def _describe_shared_sizes(
    value: Any, name: str, values: Mapping[str, Any], hints: Mapping[str, Any]
) -> str:
    """Describe the arguments that share sizes with a value that would fit alone."""
    with jaxtyped("context"):
        if not fits(value, hints[name]):
            return ""
    axes = axis_names(hints[name])
    others = [
        f"{other} {show_value(values[other])} as {requirement(hints[other])}"
        for other in values
        if other != name and axes & axis_names(hints[other]) and is_array(values[other])
    ]
    return f", with {', '.join(others)}"
