"""A `Setup` from a network of Flax linen, Flax NNX or Equinox, whichever it is."""

import inspect
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import optax
from flax import nnx

from everlight.base import Objective, Setup
from everlight.checks import checked
from everlight.continual.engine.setups.equinox_setup import equinox_setup
from everlight.continual.engine.setups.flax_setup import flax_setup
from everlight.continual.engine.setups.nnx_setup import nnx_setup
from everlight.continual.engine.sources import Augment, InputSource
from everlight.errors import ArgumentError

Net = nn.Module | Callable[..., Any]
"""A linen module, a function of `rngs` that returns an NNX module, or a function of `key` that
returns an Equinox module, or module and state."""
_FORMS = (
    "give a linen module, a function of rngs that returns an NNX module, or a function of key that "
    "returns an Equinox module"
)


@checked
def network_setup(
    net: Net,
    source: InputSource,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    augment: Augment | None = None,
) -> Setup:
    """Return the setup of a network of Flax linen, Flax NNX or Equinox.

    Args:
      net: linen module (`flax_setup`); function with an argument `rngs` that returns an NNX module
        (`nnx_setup`); or function with an argument `key` that returns an Equinox module
        (`equinox_setup`).
      source: stored or streamed images or computed inputs, which the step normalizes.
      objective: loss, scores and metrics of the outputs.
      optimizer: optimizer, reset at every task.
      augment: random function of one training image, applied before normalization.

    Raises:
      ImportError: `net` is a function of `key`, and Equinox is not installed.
      ValueError: `net` is none of these.
    """
    if isinstance(net, nn.Module):
        return flax_setup(net, source, objective, optimizer, augment)
    made_by = {"rngs": nnx_setup, "key": equinox_setup}[random_argument(net)]
    return made_by(_pass_by_position(net), source, objective, optimizer, augment)


def random_argument(net: Callable[..., Any]) -> str:
    """Return the argument of a function that makes a network: `rngs` of NNX, `key` of Equinox.

    Raises:
      ValueError: `make` is a module itself, or has none of these arguments or both.
    """
    equinox = sys.modules.get("equinox")
    is_nnx = isinstance(net, nnx.Module)
    if is_nnx or (equinox is not None and isinstance(net, equinox.Module)):
        argument = "rngs" if is_nnx else "key"
        raise ArgumentError(
            f"net is a module, {type(net).__name__}; give a function that makes one for every "
            f"seed, such as lambda {argument}: Net({argument}={argument}), or lambda {argument}: "
            "net to begin with its weights"
        )
    arguments = {"rngs", "key"} & argument_names(net)
    if len(arguments) != 1:
        name = getattr(net, "__name__", type(net).__name__)
        raise ArgumentError(f"net is {name}, without the argument rngs or key; {_FORMS}")
    return arguments.pop()


def argument_names(make: Callable[..., Any]) -> set[str]:
    """Return the names of the arguments that a function, class or partial of one still takes."""
    if isinstance(make, partial) and isinstance(make.func, type):
        # The first argument stands for `self`.
        make = partial(make.func.__init__, None, *make.args, **make.keywords)
    passed = set(make.keywords) if isinstance(make, partial) else set()
    # The call of an NNX class shows no arguments of its own.
    called = make.__init__ if isinstance(make, type) else make
    return set(inspect.signature(called).parameters) - passed


def _pass_by_position(net: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return the function with its random argument as the only one."""
    argument = random_argument(net)
    return lambda random: net(**{argument: random})
