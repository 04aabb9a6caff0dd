"""Optimizers of optax by name and arguments: `sgd:momentum=0.9`, `adam:b1=0.8`."""

import ast
import inspect
from typing import Any, NamedTuple

import optax

from everlight_data.errors import DataError
from everlight_experiments.common.settings import nearest_names


class Optimizer(NamedTuple):
    """An optimizer and what penalties need of it."""

    transformation: optax.GradientTransformation
    implicit_rate: float | None
    """Learning rate of gradient descent divided by 1 - momentum, for implicit steps on penalties;
    None for other optimizers, where gradients of penalties are added."""
    note: str


def optimizer(text: str, learning_rate: float) -> Optimizer:
    """Return the optimizer that `--optimizer` names.

    Args:
      text: a factory of optax that takes a learning rate, with its arguments after a colon.
      learning_rate: the first argument of the factory.

    Raises:
      DataError: optax has no such factory, or it does not take the arguments.
    """
    name, _, after = text.partition(":")
    form = "give a name of optax with arguments, as in sgd:momentum=0.9"
    factory = getattr(optax, name, None)
    if not callable(factory) or not _takes_rate(factory):
        known = [each for each in dir(optax) if _takes_rate(getattr(optax, each))]
        near = nearest_names(name, known)
        meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
        raise DataError(f"--optimizer {name!a}: optax has none of this name{meant} {form}")
    arguments = _arguments(after, form)
    try:
        made = factory(learning_rate, **arguments)
    except (TypeError, ValueError) as error:
        raise DataError(f"--optimizer {text}: {error}; {form}") from error
    plain = name == "sgd" and not arguments.get("nesterov")
    rate = learning_rate / (1 - (arguments.get("momentum") or 0)) if plain else None
    given = "".join(f" and {key} {value:g}" for key, value in arguments.items())
    called = "SGD" if name == "sgd" else name.capitalize()
    return Optimizer(made, rate, f"{called} with learning rate {learning_rate:g}{given}")


def _takes_rate(factory: Any) -> bool:
    if not inspect.isfunction(factory):
        return False
    return next(iter(inspect.signature(factory).parameters), "") == "learning_rate"


def _arguments(text: str, form: str) -> dict[str, Any]:
    found = {}
    for each in text.split(",") if text else ():
        name, equals, value = each.partition("=")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError) as error:
            raise DataError(f"--optimizer: {each!a} is no NAME=NUMBER; {form}") from error
        if not (name and equals):
            raise DataError(f"--optimizer: {each!a} is no NAME=NUMBER; {form}")
    return found
