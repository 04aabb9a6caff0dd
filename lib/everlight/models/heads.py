"""Classification heads over features: linear, and the cosine head of LUCIR."""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.checks import PositiveInt, checked

HeadKind = Literal["linear", "cosine"]
SMALLEST_SQUARE = 1e-24
"""Of a length: below it a vector is taken for this long, so that zero has a finite gradient."""


class CosineHead(nn.Module):
    """Scaled cosines between features and class weights (Hou et al. 2019, eq. 4).

    The logits are scale * cosine, before any sigmoid or softmax. Weights begin uniform within
    1/sqrt(features) of zero, the learnable scale at 1.

    Attributes:
      classes: outputs.
    """

    classes: int

    @nn.compact
    def __call__(self, features: Float[Array, "*b f"]) -> Float[Array, "*b c"]:
        """The logits."""
        kernel = self.param("kernel", _uniform, (features.shape[-1], self.classes))
        scale = self.param("scale", nn.initializers.ones, ())
        return scale * cosines(features, kernel)


@checked
def cosines(features: Float[Array, "*b f"], kernel: Float[Array, "f c"]) -> Float[Array, "*b c"]:
    """The cosines between features, `[..., f]`, and the columns of `kernel`, `[f, c]`."""
    return unit(features, -1) @ unit(kernel, 0)


@checked
def make_head(kind: HeadKind, classes: PositiveInt) -> nn.Module:
    """The module "head": its parameters are `kernel`, `[f, c]`, and `bias` or `scale`.

    The linear head's kernel begins normal with variance 1/features, its bias at 0.

    Args:
      kind: "linear" or "cosine".
      classes: outputs.

    Raises:
      ValueError: a kind that is neither.
    """
    if kind == "linear":
        return nn.Dense(classes, kernel_init=nn.initializers.lecun_normal(), name="head")
    return CosineHead(classes, name="head")


@checked
def unit(vectors: Float[Array, "*shape"], axis: int) -> Float[Array, "*shape"]:
    """The vectors along an axis, at length 1; zero stays zero."""
    squares = jnp.sum(vectors**2, axis=axis, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(squares, SMALLEST_SQUARE))


def _uniform(key: Array, shape: tuple[int, ...]) -> Array:
    bound = shape[0] ** -0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)
