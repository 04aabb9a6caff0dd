"""Classification heads on features: linear, and the cosine head of LUCIR."""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.checks import PositiveInt, checked

HeadKind = Literal["linear", "cosine"]
SMALLEST_SQUARE = 1e-24
"""Smallest squared length used in normalisation, so that a zero vector has a finite gradient."""


class CosineHead(nn.Module):
    """Scaled cosines between features and class weights (Hou et al. 2019, eq. 4).

    The logits are scale * cosine, before any sigmoid or softmax. Weights are initialised uniformly
    within 1/sqrt(features) of zero, and the learnable scale at 1.

    Attributes:
      classes: number of outputs.
    """

    classes: int

    @nn.compact
    def __call__(self, features: Float[Array, "*b f"]) -> Float[Array, "*b c"]:
        """Return the logits."""
        kernel = self.param("kernel", uniform_weights, (features.shape[-1], self.classes))
        scale = self.param("scale", nn.initializers.ones, ())
        return scale * cosines(features, kernel)


@checked
def cosines(features: Float[Array, "*b f"], kernel: Float[Array, "f c"]) -> Float[Array, "*b c"]:
    """Cosines between features, `[..., f]`, and the columns of `kernel`, `[f, c]`."""
    return unit(features, -1) @ unit(kernel, 0)


@checked
def make_head(kind: HeadKind, classes: PositiveInt) -> nn.Module:
    """Return the module "head", with parameters `kernel`, `[f, c]`, and `bias` or `scale`.

    The linear head's kernel is initialised normally with variance 1/features, its bias at 0.

    Args:
      kind: "linear" or "cosine".
      classes: number of outputs.

    Raises:
      ValueError: `kind` is neither.
    """
    if kind == "linear":
        return nn.Dense(classes, kernel_init=nn.initializers.lecun_normal(), name="head")
    return CosineHead(classes, name="head")


@checked
def unit(vectors: Float[Array, "*shape"], axis: int) -> Float[Array, "*shape"]:
    """Normalise vectors along an axis to length 1; zero stays zero."""
    squares = jnp.sum(vectors**2, axis=axis, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(squares, SMALLEST_SQUARE))


def head_layer(params: PyTree) -> PyTree:
    """Return the parameters of the layer named head.

    Raises:
      ValueError: there is no such layer, or its weights are not named kernel.
    """
    if "head" not in params or "kernel" not in params["head"]:
        raise ValueError(
            f"the parameters are {', '.join(params)}; name the network's last layer head, whose "
            "weights are kernel, [features, classes]"
        )
    return params["head"]


def head_kernel(params: PyTree) -> Float[Array, "f c"]:
    """Return the weights of the layer named head."""
    return head_layer(params)["kernel"]


def with_head_kernel(params: PyTree, kernel: Float[Array, "f c"]) -> PyTree:
    """Return the parameters with other weights of the layer named head."""
    return {**params, "head": {**head_layer(params), "kernel": kernel}}


def uniform_weights(
    key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32
) -> Float[Array, "f ..."]:
    """Return weights uniform in ±1 / √f, the initial values of PyTorch's linear layers."""
    bound = shape[0] ** -0.5
    return jax.random.uniform(key, shape, dtype, minval=-bound, maxval=bound)
