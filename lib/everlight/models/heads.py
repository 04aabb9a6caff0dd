"""Classification heads on features: linear, the cosine head of LUCIR and that of PODNet."""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.checks import PositiveInt, checked
from everlight.errors import ArgumentError

HeadKind = Literal["linear", "cosine", "local similarity"]
SimilarityForm = Literal["code", "paper"]
"""Nearness of features and a proxy: the negative squared distance of the authors' code, or the
paper's cosine."""
MIN_SQUARE = 1e-24
"""Smallest squared length used in normalization, so that a zero vector has a finite gradient."""


class CosineHead(nn.Module):
    """Scaled cosines between features and class weights (Hou et al. 2019, eq. 4).

    The logits are scale * cosine, before any sigmoid or softmax. Weights are initialized uniformly
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


class LocalSimilarityHead(nn.Module):
    """Scaled similarities with several weight vectors, proxies, per class (Douillard et al. 2020).

    The logits are scale * `local_similarities` in the form of the authors' code. Weights are
    initialized uniformly within 1/sqrt(features) of zero, and the learnable scale at 1.

    Attributes:
      classes: number of outputs.
      proxies: number of proxies per class; 10 in the paper.
    """

    classes: int
    proxies: int = 10

    @nn.compact
    def __call__(self, features: Float[Array, "*b f"]) -> Float[Array, "*b c"]:
        """Return the logits."""
        shape = (features.shape[-1], self.proxies, self.classes)
        kernel = self.param("kernel", uniform_weights, shape)
        scale = self.param("scale", nn.initializers.ones, ())
        return scale * local_similarities(features, kernel)


@checked
def cosines(features: Float[Array, "*b f"], kernel: Float[Array, "f c"]) -> Float[Array, "*b c"]:
    """Return cosines between features, `[..., f]`, and the columns of `kernel`, `[f, c]`."""
    return unit_vectors(features, -1) @ unit_vectors(kernel, 0)


@checked
def local_similarities(
    features: Float[Array, "*b f"], kernel: Float[Array, "f p c"], form: SimilarityForm = "code"
) -> Float[Array, "*b c"]:
    """Return similarities with classes of several proxies each (Douillard et al. 2020, ECCV).

    A class's similarity is the mean of the nearness of its proxies, weighted by their softmax.

    Args:
      features: features, `[..., f]`.
      kernel: p proxies per class, `[f, p, c]`.
      form: nearness: 2 cos − 2 in the form "code", which is minus the squared distance of vectors
        of length 1, and cos in the form "paper". With p = 1 the result is the nearness itself.

    Raises:
      ValueError: `form` is unknown.
    """
    near = jnp.einsum("...f,fpc->...pc", unit_vectors(features, -1), unit_vectors(kernel, 0))
    near = 2 * near - 2 if form == "code" else near
    return jnp.sum(jax.nn.softmax(near, axis=-2) * near, axis=-2)


@checked
def make_head(kind: HeadKind, classes: PositiveInt) -> nn.Module:
    """Return the module "head", with parameters `kernel`, `[f, c]`, and `bias` or `scale`.

    The linear head's kernel is initialized truncated normal with variance 1/features, its bias at
    0. The local-similarity head has a kernel `[f, p, c]` of p = 10 proxies per class, and a scale.

    Args:
      kind: "linear", "cosine" or "local similarity".
      classes: number of outputs.

    Raises:
      ValueError: `kind` is none of these.
    """
    if kind == "linear":
        return nn.Dense(classes, kernel_init=nn.initializers.lecun_normal(), name="head")
    if kind == "cosine":
        return CosineHead(classes, name="head")
    return LocalSimilarityHead(classes, name="head")


@checked
def unit_vectors(vectors: Float[Array, "*shape"], axis: int) -> Float[Array, "*shape"]:
    """Normalize vectors along an axis to length 1; zero stays zero."""
    squares = jnp.sum(vectors**2, axis=axis, keepdims=True)
    return vectors * jax.lax.rsqrt(jnp.maximum(squares, MIN_SQUARE))


def head_layer(params: PyTree) -> PyTree:
    """Return the parameters of the layer named head.

    Raises:
      ValueError: there is no such layer, or its weights are not named kernel.
    """
    if "head" not in params or "kernel" not in params["head"]:
        raise ArgumentError(
            f"the parameters are {', '.join(params)}; name the network's last layer head, whose "
            "weights are kernel, [features, classes]"
        )
    return params["head"]


def head_kernel(params: PyTree) -> Float[Array, "f *p c"]:
    """Return the weights of the layer named head; those of several proxies are `[f, p, c]`."""
    return head_layer(params)["kernel"]


def with_head_kernel(params: PyTree, kernel: Float[Array, "f *p c"]) -> PyTree:
    """Return the parameters with other weights of the layer named head."""
    return {**params, "head": {**head_layer(params), "kernel": kernel}}


def uniform_weights(
    key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32
) -> Float[Array, "f ..."]:
    """Return weights uniform in ±1 / √f, the initial values of PyTorch's linear layers."""
    bound = shape[0] ** -0.5
    return jax.random.uniform(key, shape, dtype, minval=-bound, maxval=bound)
