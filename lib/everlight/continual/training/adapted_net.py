"""Any linen network with the call signature of the engine, and checks of networks of any kind."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from everlight.base import Outputs
from everlight.continual.engine import ComputedInputs, network_setup
from everlight.continual.engine.setups.network_setup import Net, random_argument
from everlight.continual.objectives import softmax_objective
from everlight.continual.strategies.parts.hidden_units import layer_widths
from everlight.errors import ArgumentError, describe_error

_WHEN_TRAINING = frozenset({"train", "training", "is_training"})
_WHEN_NOT = frozenset({"deterministic", "use_running_average"})
_A_NET = (
    "give a Flax module called as net(images), net(images, train) or net(images, deterministic), "
    "which returns logits or Outputs"
)
_A_STEPPED_NET = "give a linen module called as net(images, train), which returns logits or Outputs"
_FORMS_BY_ARGUMENT = {
    "rngs": "give a function of rngs that returns an NNX module called as net(images)",
    "key": "give a function of key that returns an Equinox module called as net(image) or "
    "net(image, key=key), with state as net(image, state)",
}
_BATCHES = (2, 1)
"""Numbers of images with which a network is traced: steps have several, some methods take one."""


class NamedLayers(NamedTuple):
    """Layers of a network that strategies read by name."""

    head: bool
    """True if a linear layer named head, of one output per class, is among the parameters."""
    hidden: tuple[str, ...]
    """Names of all layers below it in order; empty where the network does not return the
    activations of all (`Outputs.hidden`), or where one does not read the one before."""


class _CalledNet(nn.Module):
    """Wrapper with the engine's call signature; the network's parameters keep their names."""

    net: nn.Module
    flag: str | None
    """Name of the network's argument for training or evaluation mode, if any."""

    def setup(self) -> None:
        nn.share_scope(self, self.net)

    def __call__(self, images: Float[Array, "b *shape"], train: bool) -> Any:
        value = not train if self.flag in _WHEN_NOT else train
        return self.net(images) if self.flag is None else self.net(images, **{self.flag: value})


def adapt_net(net: Net, shape: tuple[int, ...], classes: int) -> Net:
    """Return the network after checking its outputs; a linen module with the engine's signature.

    Args:
      net: linen module called as `net(images)`, or with an argument for the training mode; or a
        function that makes an NNX or Equinox module.
      shape: shape of one image.
      classes: number of outputs.

    Raises:
      ImportError: the function makes an Equinox module, and Equinox is not installed.
      ValueError: the network cannot be called this way, or its outputs do not fit.
    """
    called = _adapt_linen(net) if isinstance(net, nn.Module) else net
    check_outputs(called, shape, classes, _A_NET)
    return called


def adapt_to_any_width(net: Net, shape: tuple[int, ...]) -> tuple[Net, int]:
    """Return the network as `adapt_net` does, and its number of outputs.

    Raises:
      ImportError: the function makes an Equinox module, and Equinox is not installed.
      ValueError: the network cannot be called this way, or its outputs are not a matrix.
    """
    called = _adapt_linen(net) if isinstance(net, nn.Module) else net
    form = _A_NET if isinstance(net, nn.Module) else _FORMS_BY_ARGUMENT[random_argument(net)]
    count = _BATCHES[0]
    traced = _trace(lambda: _traced_outputs(called, shape, count), count, shape, form)
    logits = getattr(traced.logits, "shape", ())
    if len(logits) != 2:
        raise ArgumentError(
            f"net returns outputs of shape {logits} for {count} images; give one whose outputs "
            f"have the shape ({count}, number of outputs)"
        )
    check_outputs(called, shape, logits[1], _A_NET)
    return called, logits[1]


def _traced_outputs(net: Net, shape: tuple[int, ...], count: int) -> Outputs:
    """Return the outputs for zeros in evaluation mode."""
    source = ComputedInputs(lambda index: jnp.zeros((len(index), *shape)), shape)
    setup = network_setup(net, source, softmax_objective(), optax.identity())
    params, batch_stats = setup.init(jax.random.key(0))
    inputs = setup.gather(jnp.arange(count), None)
    return setup.apply(params, batch_stats, inputs, False, None)[0]


def check_outputs(
    net: Net, shape: tuple[int, ...], classes: int, linen: str = _A_STEPPED_NET
) -> NamedLayers:
    """Check by one trace that steps and evaluations can call a network and use its outputs.

    Args:
      net: network as `network_setup` takes it.
      shape: shape of one image.
      classes: number of outputs.
      linen: sentence on what to give where a linen module cannot be called.

    Returns:
      The layers that strategies read by name.

    Raises:
      ImportError: the function makes an Equinox module, and Equinox is not installed.
      ValueError: the network cannot be called this way, or its outputs do not fit.
    """
    form = linen if isinstance(net, nn.Module) else _FORMS_BY_ARGUMENT[random_argument(net)]
    if isinstance(net, nn.Module):
        images, key = jnp.zeros((_BATCHES[0], *shape)), jax.random.key(0)
        variables = _trace(lambda: net.init(key, images, False), _BATCHES[0], shape, form)
        if "params" not in variables:
            raise ArgumentError("net has no parameters; give one that can be trained")
        extra = sorted(set(variables) - {"params", "batch_stats"})
        if extra:
            raise ArgumentError(
                f"net has {', '.join(extra)} besides parameters and batch_stats; remove them"
            )

    layers: list[NamedLayers] = []

    def outputs(count: int) -> tuple[Outputs, Outputs]:
        source = ComputedInputs(lambda index: jnp.zeros((len(index), *shape)), shape)
        setup = network_setup(net, source, softmax_objective(), optax.identity())
        learned = setup.init(jax.random.key(0))
        inputs = setup.gather(jnp.arange(count), None)
        trained, _ = setup.apply(*learned, inputs, True, jax.random.key(1))
        hidden = trained.hidden if isinstance(trained.hidden, Mapping) else {}
        # Equinox networks are vmapped, which sorts the names; their attributes are in order.
        is_equinox = not isinstance(net, nn.Module) and random_argument(net) == "key"
        order = tuple(learned[0] if is_equinox else hidden)
        layers.append(_named_layers(learned[0], hidden, order, classes))
        return trained, setup.apply(*learned, inputs, False, None)[0]

    for count in _BATCHES:
        for returned in _trace(partial(outputs, count), count, shape, form):
            _refuse_unfit(returned, count, classes)
    return layers[0]


def _named_layers(
    params: PyTree, hidden: Mapping[str, Array], order: tuple[str, ...], classes: int
) -> NamedLayers:
    head = params.get("head", {})
    shape = getattr(head.get("kernel"), "shape", ()) if isinstance(head, Mapping) else ()
    named = len(shape) == 2 and shape[1] == classes and set(head) <= {"kernel", "bias"}
    layers = tuple(name for name in order if name in params and name in hidden)
    if not named or {*layers, "head"} != set(params):
        return NamedLayers(named, ())
    try:
        widths = layer_widths(params, layers)
    # Its layers do not form a chain.
    except ArgumentError:
        return NamedLayers(named, ())
    is_divisible = all(hidden[name].shape[-1] % width == 0 for name, width in widths.items())
    return NamedLayers(named, layers if is_divisible else ())


def _trace(call: Callable[[], Any], count: int, shape: tuple[int, ...], form: str) -> Any:
    """Return the shapes of what a call returns; a network's own errors become one line."""
    try:
        return jax.eval_shape(call)
    except ImportError:
        raise
    # A network may raise any exception about its inputs.
    except Exception as error:
        images = "images" if count > 1 else "a single image"
        raise ArgumentError(
            f"net cannot be called with {images} of shape {shape} ({describe_error(error)}); {form}"
        ) from error


def _refuse_unfit(outputs: Outputs, count: int, classes: int) -> None:
    logits, features = outputs.logits, outputs.features
    images = f"{count} images" if count > 1 else "a single image"
    shape = getattr(logits, "shape", None)
    if shape != (count, classes):
        description = f"of shape {shape}" if shape else f"of type {type(logits).__name__}"
        several = isinstance(logits, tuple | list | Mapping)
        form = "; several values are returned as Outputs(logits, features)" * several
        raise ArgumentError(
            f"net returns outputs {description} for {images} of {classes} classes; give one whose "
            f"logits have the shape {(count, classes)}{form}"
        )
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise ArgumentError(
            f"net returns logits of dtype {logits.dtype}, which cannot be trained; give floats"
        )
    if getattr(features, "shape", ())[:1] != (count,):
        description = getattr(features, "shape", type(features).__name__)
        raise ArgumentError(
            f"net returns features {description} for {images}; give the inputs of the last layer, "
            f"of shape ({count}, number of features), or return only logits"
        )


def _adapt_linen(net: nn.Module) -> nn.Module:
    _, _, *others = inspect.signature(type(net).__call__).parameters.values()
    plain = [arg for arg in others if arg.kind not in (arg.VAR_POSITIONAL, arg.VAR_KEYWORD)]
    flags = [arg.name for arg in plain if arg.name in _WHEN_TRAINING | _WHEN_NOT]
    unknown = [arg.name for arg in plain if arg.default is arg.empty and arg.name not in flags]
    if unknown or len(flags) > 1:
        names = ", ".join(unknown or flags)
        raise ArgumentError(f"net needs {names} besides its images; {_A_NET}")
    return _CalledNet(net, flags[0] if flags else None)
