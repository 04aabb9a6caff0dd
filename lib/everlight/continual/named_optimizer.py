"""Optimizers of optax by name and arguments: `sgd:momentum=0.9`, `adam:b1=0.8`."""

import difflib
import inspect
from typing import Any, NamedTuple

import jax
import optax

from everlight.calls import parse_call
from everlight.checks import NonNegativeFloat, PositiveFloat, checked
from everlight.continual.engine.optimizer_check import check_optimizer
from everlight.errors import Argument, ArgumentError

_PARAMS = {
    "kernel": jax.ShapeDtypeStruct((3, 2), "float32"),
    "bias": jax.ShapeDtypeStruct((2,), "float32"),
}
"""Shapes of a layer, on which an optimizer is tried."""


class Optimizer(NamedTuple):
    """An optimizer and what penalties need of it."""

    transformation: optax.GradientTransformation
    implicit_rate: float | None
    """Learning rate of gradient descent divided by 1 - momentum, for implicit steps on penalties;
    None for other optimizers, where gradients of penalties are added."""
    note: str
    """Name and values in words."""


@checked
def named_optimizer(
    text: str, learning_rate: PositiveFloat, weight_decay: NonNegativeFloat = 0.0
) -> Optimizer:
    """Return an optimizer of optax by its name.

    Args:
      text: a factory of optax that takes a learning rate, with its other arguments after a colon,
        as in `sgd:momentum=0.9` or `adam:b1=0.8,b2=0.99`.
      learning_rate: first argument of the factory.
      weight_decay: coefficient of the parameters that is added to every gradient.

    Raises:
      ValueError: optax has no such factory, with the nearest names, it does not take the
        arguments, `momentum` is 1 or more, or its optimizer needs more than gradients and
        parameters, as `lbfgs` does.
    """
    name, values, options = parse_call(text)
    factory = getattr(optax, name, None)
    if _is_optimizer(factory) and not _takes_rate(factory):
        first = next(iter(inspect.signature(factory).parameters), "nothing")
        raise ArgumentError(f"it takes {first} first; give one that takes a learning_rate first")
    if not _takes_rate(factory):
        known = [attribute for attribute in dir(optax) if _takes_rate(getattr(optax, attribute))]
        near = difflib.get_close_matches(name, known, cutoff=0.5)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ArgumentError(f"optax has no optimizer of this name{hint}")
    if values:
        raise ArgumentError(f"{values[0]!r} has no name; arguments are NAME=NUMBER")
    for key, value in options.items():
        if not isinstance(value, int | float):
            raise ArgumentError(Argument(key, value), remedy=("give a number",))
    momentum = options.get("momentum") or 0
    if not momentum < 1:
        raise ArgumentError(Argument("momentum", momentum), remedy=("give less than 1",))
    try:
        update = factory(learning_rate, **options)
    # Factories check their numbers in various ways.
    except Exception as error:
        raise ArgumentError(" ".join(str(error).split())) from error
    check_optimizer(update, _PARAMS)
    plain = name == "sgd" and not options.get("nesterov")
    rate = learning_rate / (1 - momentum) if plain else None
    options_text = "".join(f" and {key} {value:g}" for key, value in options.items())
    called = "SGD" if name == "sgd" else name.capitalize()
    if weight_decay:
        update = optax.chain(optax.add_decayed_weights(weight_decay), update)
        options_text += f" and weight decay {weight_decay:g}"
    return Optimizer(update, rate, f"{called} with learning rate {learning_rate:g}{options_text}")


def _is_optimizer(factory: Any) -> bool:
    """Return True if a function of optax is annotated to return an optimizer."""
    if not inspect.isfunction(factory):
        return False
    return "GradientTransformation" in str(inspect.signature(factory).return_annotation)


def _takes_rate(factory: Any) -> bool:
    if not inspect.isfunction(factory):
        return False
    return next(iter(inspect.signature(factory).parameters), "") == "learning_rate"
