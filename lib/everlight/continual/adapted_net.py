"""Any linen network with the call signature of the engine, and checks of networks of any kind."""

import inspect
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from everlight.base import Outputs
from everlight.continual.engine import ComputedInputs, network_setup
from everlight.continual.engine.network_setup import Net, random_argument
from everlight.continual.objectives import softmax_objective

_WHEN_TRAINING = frozenset({"train", "training", "is_training"})
_WHEN_NOT = frozenset({"deterministic", "use_running_average"})
_A_NET = (
    "give a Flax module called as net(images), net(images, train) or net(images, deterministic), "
    "which returns logits or Outputs"
)
_MADE = {
    "rngs": "give a function of rngs that returns an NNX module called as net(images)",
    "key": "give a function of key that returns an Equinox module called as net(image) or "
    "net(image, key=key), with state as net(image, state)",
}


class _CalledNet(nn.Module):
    """Wrapper with the engine's call signature; the network's parameters keep their names."""

    net: nn.Module
    flag: str | None
    """Name of the network's argument for training or evaluation mode, if any."""

    def setup(self) -> None:
        nn.share_scope(self, self.net)

    def __call__(self, images: Float[Array, "b *shape"], train: bool) -> Outputs:
        value = not train if self.flag in _WHEN_NOT else train
        given = self.net(images) if self.flag is None else self.net(images, **{self.flag: value})
        return given if isinstance(given, Outputs) else Outputs(given, given)


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
    if isinstance(net, nn.Module):
        return _adapt_linen(net, shape, classes)
    form = _MADE[random_argument(net)]

    def outputs() -> Outputs:
        source = ComputedInputs(lambda index: jnp.zeros((len(index), *shape)), shape)
        setup = network_setup(net, source, softmax_objective(), optax.identity())
        params, batch_stats = setup.init(jax.random.key(0))
        inputs = setup.gather(jnp.arange(2), None)
        return setup.apply(params, batch_stats, inputs, True, jax.random.key(1))[0]

    _check_logits(_outputs_of(outputs, shape, form), classes)
    return net


def _adapt_linen(net: nn.Module, shape: tuple[int, ...], classes: int) -> nn.Module:
    _, _, *others = inspect.signature(type(net).__call__).parameters.values()
    plain = [each for each in others if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    flags = [each.name for each in plain if each.name in _WHEN_TRAINING | _WHEN_NOT]
    unknown = [each.name for each in plain if each.default is each.empty and each.name not in flags]
    if unknown or len(flags) > 1:
        wanted = ", ".join(unknown or flags)
        raise ValueError(f"net needs {wanted} besides its images; {_A_NET}")
    called = _CalledNet(net, flags[0] if flags else None)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    given, variables = _outputs_of(
        lambda: called.init_with_output(keys, jnp.zeros((2, *shape)), True), shape, _A_NET
    )
    _check_logits(given, classes)
    extra = sorted(set(variables) - {"params", "batch_stats"})
    if extra:
        raise ValueError(
            f"net has {', '.join(extra)} besides parameters and batch_stats; remove them"
        )
    return called


def _outputs_of(call: Callable, shape: tuple[int, ...], form: str) -> Outputs | tuple:
    """Return the shapes of what a network returns; its own errors become one line."""
    try:
        return jax.eval_shape(call)
    except ImportError:
        raise
    # A network may raise any exception about its inputs.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"net cannot be called with images of shape {shape} "
            f"({type(error).__name__}: {reason}); {form}"
        ) from error


def _check_logits(given: Outputs, classes: int) -> None:
    logits = getattr(given.logits, "shape", None)
    if logits != (2, classes):
        found = f"of shape {logits}" if logits else f"of type {type(given.logits).__name__}"
        raise ValueError(
            f"net returns outputs {found} for 2 images of {classes} classes; give one whose logits "
            f"have the shape (2, {classes})"
        )
