"""`--method-arguments`: values of arguments of methods' functions."""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

from everlight.calls import parse_call
from everlight.continual.methods.method import Method
from everlight.errors import ArgumentError
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_experiments.continual.training.hyperparameters import refuse_unfit
from everlight_experiments.images.config import Config, MethodSettings

OPTION = "--method-arguments"


def with_method_arguments(config: Any, texts: Sequence[str], methods: Sequence[Method]) -> Any:
    """Return a configuration in which methods' functions have the given arguments.

    Each text is of one method, as in `DER++:alpha=0.2,beta=0.5`.

    Raises:
      DataError: a benchmark of another kind, a method that is not run or comes twice, or an
        argument that the method does not have, of another type, or that another option sets.
    """
    if not texts:
        return config
    if not isinstance(config, Config):
        raise DataError(f"{OPTION}: methods have the arguments of the paper here; leave it out")
    rows, by_method = {method.name: method for method in methods}, {}
    for text in texts:
        try:
            name, values, arguments = parse_call(text, words=True)
        except ArgumentError as error:
            raise DataError(f"{OPTION} {text!a}: {error}") from error
        check_name("method among those that are run:", name, list(rows))
        if values or not arguments:
            raise DataError(f"{OPTION} {text!a}; give NAME:ARGUMENT=VALUE,...")
        if name in by_method:
            raise DataError(f"{OPTION} has {name!r} twice; give all its arguments in one")
        checked = {key: _check_argument(rows[name], key, value) for key, value in arguments.items()}
        base = config.method_settings.get(name, MethodSettings())
        by_method[name] = replace(base, arguments={**(base.arguments or {}), **checked})
    return replace(config, method_settings={**config.method_settings, **by_method})


def argument_defaults(method: Method) -> dict[str, float | str]:
    """Return the numbers, switches and words of a method's function that no other option sets."""
    tuned = method.tunes if method.hyperparameters else None
    choices = _choices(method)
    return {
        parameter.name: parameter.default
        for parameter in _parameters(method)
        if (isinstance(parameter.default, bool | int | float) or parameter.name in choices)
        and parameter.name not in (tuned, "buffer_size")
    }


def loss_arguments(config: Config, method: Method) -> dict[str, str]:
    """Return the argument that states the classes of a method's loss, if the benchmark sets them.

    With `loss_classes="all"` the objective covers all classes whatever a method's `loss_over`; the
    report then has this value.
    """
    takes = any(parameter.name == "loss_over" for parameter in _parameters(method))
    return {"loss_over": "all"} if takes and config.loss_classes == "all" else {}


def _parameters(method: Method) -> list[inspect.Parameter]:
    _, *parameters = inspect.signature(method.factory).parameters.values()
    return parameters


def _choices(method: Method) -> dict[str, tuple[str, ...]]:
    """Return the allowed words of every argument that takes words."""
    return {
        parameter.name: get_args(parameter.annotation)
        for parameter in _parameters(method)
        if get_origin(parameter.annotation) is Literal and isinstance(parameter.default, str)
    }


def _check_argument(method: Method, argument: str, value: Any) -> float | str:
    if method.hyperparameters and argument == method.tunes:
        raise DataError(
            f"{OPTION}: {argument} of {method.name} is its hyper-parameter; give "
            f"--hyperparameters '{method.name}={value}'"
        )
    defaults = argument_defaults(method)
    check_name(f"argument of {method.name}", argument, list(defaults))
    choices = _choices(method).get(argument)
    if choices is not None:
        check_name(f"{argument} of {method.name}", str(value), list(choices))
        return value
    default = defaults[argument]
    if type(default) is float and type(value) is int:
        value = float(value)
    if type(value) is not type(default):
        kind = {bool: "True or False", int: "a whole number", float: "a number"}[type(default)]
        raise DataError(f"{OPTION}: {argument} of {method.name} is {kind}, not {value!a}")
    refuse_unfit(method, argument, value, f"{OPTION} {method.name}: ")
    return value
