"""Any Flax network with the call signature of the engine."""

import inspect

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.base import Outputs

_WHEN_TRAINING = frozenset({"train", "training", "is_training"})
_WHEN_NOT = frozenset({"deterministic", "use_running_average"})
_A_NET = (
    "give a Flax module called as net(images), net(images, train) or net(images, deterministic), "
    "which returns logits or Outputs"
)


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


def adapt_net(net: nn.Module, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the network with the engine's call signature, after checking its outputs.

    Args:
      net: Flax module called as `net(images)`, or with an argument for the training mode.
      shape: shape of one image.
      classes: number of outputs.

    Raises:
      ValueError: the network cannot be called this way, or its outputs do not fit.
    """
    _, _, *others = inspect.signature(type(net).__call__).parameters.values()
    plain = [each for each in others if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    flags = [each.name for each in plain if each.name in _WHEN_TRAINING | _WHEN_NOT]
    unknown = [each.name for each in plain if each.default is each.empty and each.name not in flags]
    if unknown or len(flags) > 1:
        wanted = ", ".join(unknown or flags)
        raise ValueError(f"net needs {wanted} besides its images; {_A_NET}")
    called = _CalledNet(net, flags[0] if flags else None)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    try:
        given, variables = jax.eval_shape(
            lambda: called.init_with_output(keys, jnp.zeros((2, *shape)), True)
        )
    # A network may raise any exception about its inputs.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"net cannot be called with images of shape {shape} "
            f"({type(error).__name__}: {reason}); {_A_NET}"
        ) from error
    logits = getattr(given.logits, "shape", None)
    if logits != (2, classes):
        found = f"of shape {logits}" if logits else f"of type {type(given.logits).__name__}"
        raise ValueError(
            f"net returns outputs {found} for 2 images of {classes} classes; give one whose logits "
            f"have the shape (2, {classes})"
        )
    extra = sorted(set(variables) - {"params", "batch_stats"})
    if extra:
        raise ValueError(
            f"net has {', '.join(extra)} besides parameters and batch_stats; remove them"
        )
    return called
