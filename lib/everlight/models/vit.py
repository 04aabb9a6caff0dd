"""Vision transformer (ViT; Dosovitskiy et al. 2021, arXiv 2010.11929), with published weights.

The defaults are ViT-B/16: 85,798,656 parameters below the head at 224 pixels. Images are NHWC; the
published weights take RGB from -1 to 1, (value - 127.5) / 127.5. Layers are those of Google's
release (github.com/google-research/vision_transformer, `vit_jax/models_vit.py`): layer
normalization before attention and MLP (pre-norm, epsilon 1e-6), GELU by its tanh approximation, and
no dropout, as in its configuration of ViT-B/16. The head is drawn normally; in the release it is 0.
Linear maps of patches, queries, keys and values are dense layers, so that their kernels are
matrices. Prompts are tokens, or keys and values of blocks, that are given with the images
(`Prompts`). Functions such as adapters may stand beside the MLPs.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.core import FrozenDict
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PyTree

from everlight.base import Outputs
from everlight.checks import FINITE, NotEmpty, PositiveInt, checked
from everlight.errors import ArgumentError
from everlight.models.heads import HeadKind, make_head
from everlight.models.network import NamedNetwork, Network, NetworkRequest, Numbers
from everlight.models.published_weights import variables_of_arrays

EPSILON = 1e-6
"""Epsilon of layer normalization."""
_XAVIER, _SMALL = nn.initializers.xavier_uniform(), nn.initializers.normal(1e-6)


TokenFunction = Callable[[Float[Array, "b t w"]], Float[Array, "b t w"]]
"""Function of a block's tokens."""


class Prompts(NamedTuple):
    """Prompts of a batch, which a transformer reads in addition to the images."""

    tokens: Float[Array, "b p w"] | None = None
    """Tokens before those of the images at the first block, without position embeddings."""
    prefixes: Mapping[str, Float[Array, "b 2 p w"]] = {}
    """Keys and values, in this order, that a block attends to as well, by the block's name."""


class VisionTransformer(nn.Module):
    """Vision transformer: patches, blocks named block0 and so on, and the layer named head.

    Attributes:
      classes: outputs of the head.
      patch: side of a patch in pixels; it divides the sides of the images.
      width: features of each token.
      depth: number of blocks.
      heads: attention heads of each block; they divide `width`.
      mlp_width: hidden units of each block's MLP.
      class_token: true if the features are those of a learned class token, false if they are the
        mean over the patches.
      head: kind of the head, "linear" or "cosine".
      dtype: dtype of the computation below the head; parameters and outputs are float32.
    """

    classes: int
    patch: int = 16
    width: int = 768
    depth: int = 12
    heads: int = 12
    mlp_width: int = 3072
    class_token: bool = True
    head: HeadKind = "linear"
    dtype: DTypeLike = jnp.float32

    @property
    def _blocks(self) -> tuple[str, ...]:
        """Names of the blocks, from the first to the last."""
        return tuple(f"block{number}" for number in range(self.depth))

    @nn.compact
    def __call__(
        self,
        images: Float[Array, "b h w c"],
        train: bool,
        prompts: Prompts | None = None,
        parallel: Mapping[str, TokenFunction] = FrozenDict(),
    ) -> Outputs:
        """Return logits and the head's input; training and evaluation are the same.

        Args:
          images: images.
          train: has no effect.
          prompts: prompts of each image. With tokens among them, the features are the mean of
            these tokens' outputs (L2P; Wang et al. 2022).
          parallel: functions whose outputs are added to those of a block's MLP, by the block's
            name. Their inputs are the tokens before its normalization.

        Raises:
          ValueError: the patches do not divide the images, or the heads the width; or there are
            prompts or functions of blocks that the transformer does not have.
        """
        prompts = Prompts() if prompts is None else prompts
        for argument, by_block in (("prompts", prompts.prefixes), ("parallel", parallel)):
            unknown = [name for name in by_block if name not in self._blocks]
            if unknown:
                raise ArgumentError(
                    f"{argument} holds {', '.join(unknown)}, and the transformer has "
                    f"{', '.join(self._blocks)}; give these names"
                )
        tokens = nn.Dense(self.width, dtype=self.dtype, name="embedding")(
            _patches(images, self.patch)
        )
        if self.width % self.heads:
            raise ArgumentError(
                f"{self.heads} heads do not divide the width {self.width}; give a divisor"
            )
        if self.class_token:
            cls = self.param("cls", nn.initializers.zeros, (self.width,)).astype(self.dtype)
            first = jnp.broadcast_to(cls, (tokens.shape[0], 1, self.width))
            tokens = jnp.concatenate([first, tokens], axis=1)
        position = self.param("position", nn.initializers.normal(0.02), tokens.shape[1:])
        tokens = tokens + position.astype(self.dtype)
        if prompts.tokens is not None:
            tokens = jnp.concatenate([prompts.tokens.astype(self.dtype), tokens], axis=1)
        for name in self._blocks:
            block = _Block(self.heads, self.mlp_width, self.dtype, name=name)
            tokens = block(tokens, prompts.prefixes.get(name), parallel.get(name))
        tokens = nn.LayerNorm(EPSILON, dtype=self.dtype, name="norm")(tokens)
        tokens = tokens.astype(jnp.float32)
        if prompts.tokens is not None:
            features = jnp.mean(tokens[:, : prompts.tokens.shape[1]], axis=1)
        else:
            features = tokens[:, 0] if self.class_token else jnp.mean(tokens, axis=1)
        return Outputs(make_head(self.head, self.classes)(features), features)


class _Block(nn.Module):
    """Self-attention and MLP, each after a layer normalization and with a shortcut."""

    heads: int
    mlp_width: int
    dtype: DTypeLike

    @nn.compact
    def __call__(
        self,
        tokens: Float[Array, "b t w"],
        prefix: Float[Array, "b 2 p w"] | None = None,
        parallel: TokenFunction | None = None,
    ) -> Float[Array, "b t w"]:
        width = tokens.shape[-1]

        def dense(units: int, name: str) -> nn.Dense:
            return nn.Dense(units, dtype=self.dtype, kernel_init=_XAVIER, name=name)

        def mlp(units: int, name: str) -> nn.Dense:
            init = {"kernel_init": _XAVIER, "bias_init": _SMALL}
            return nn.Dense(units, dtype=self.dtype, **init, name=name)

        normed = nn.LayerNorm(EPSILON, dtype=self.dtype, name="norm1")(tokens)
        parts = [dense(width, name)(normed) for name in ("query", "key", "value")]
        if prefix is not None:
            query, key, value = parts
            more_keys, more_values = jnp.moveaxis(prefix.astype(self.dtype), 1, 0)
            key = jnp.concatenate([more_keys, key], axis=1)
            parts = [query, key, jnp.concatenate([more_values, value], axis=1)]
        by_head = [part.reshape(*part.shape[:2], self.heads, -1) for part in parts]
        attended = jax.vmap(attention)(*by_head).reshape(tokens.shape)
        tokens = tokens + dense(width, "out")(attended)
        normed = nn.LayerNorm(EPSILON, dtype=self.dtype, name="norm2")(tokens)
        hidden = nn.gelu(mlp(self.mlp_width, "mlp1")(normed))
        after = tokens + mlp(width, "mlp2")(hidden)
        return after if parallel is None else after + parallel(tokens)


@checked
def attention(
    query: Float[Array, "t h d"], key: Float[Array, "s h d"], value: Float[Array, "s h d"]
) -> Float[Array, "t h d"]:
    """Return scaled dot-product attention of one sample (Vaswani et al. 2017, eq. 1).

    Args:
      query: of t tokens, for h heads of d features each.
      key: of the s tokens that are attended to.
      value: of the same tokens. Weights are computed in float32.
    """
    scaled = query * query.shape[-1] ** -0.5
    scores = jnp.einsum("thd,shd->hts", scaled, key, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
    return jnp.einsum("hts,shd->thd", weights, value)


@checked
def vit_layers(
    net: VisionTransformer, arrays: Mapping[str, np.ndarray], side: PositiveInt
) -> dict[str, PyTree]:
    """Convert the arrays of a checkpoint of Google's release to all layers below the head.

    `with_layers` begins with them. Where the network has another grid of patches than the
    checkpoint, position embeddings are interpolated (`interpolate_positions`). The checkpoint's own
    `head` and `pre_logits` are left out, as when the release fine-tunes.

    Args:
      net: network of the checkpoint's sizes, with any classes.
      arrays: arrays by name, "embedding/kernel", "Transformer/encoderblock_0/LayerNorm_0/scale" and
        so on, in Flax's shapes.
      side: side of the images in pixels.

    Raises:
      ValueError: an array is missing, unknown or of another shape; the message names it.
    """
    shapes = jax.eval_shape(
        lambda: net.init(jax.random.key(0), jnp.zeros((1, side, side, _channels(arrays))), False)
    )["params"]
    del shapes["head"]
    left_out = ("head", "pre_logits")
    stored = {name: arrays[name] for name in arrays if name.split("/")[0] not in left_out}

    def convert(name: str, leaf: jax.ShapeDtypeStruct) -> Array:
        array, shape = np.asarray(stored[name], np.float32), _released_shape(net, name, leaf.shape)
        is_position = name == _POSITION and array.ndim == 3
        if array.shape != shape and not (is_position and array.shape[::2] == shape[::2]):
            raise ArgumentError(
                f"{name} has the shape {array.shape}, not {shape}; give a checkpoint of the "
                "network's sizes"
            )
        if array.shape != shape:
            array = interpolate_positions(array[0], side // net.patch, net.class_token)
        return jnp.asarray(array.reshape(leaf.shape))

    complete_set = "a ViT's of this depth, and no other's"
    return variables_of_arrays(shapes, stored, _released_name, convert, complete_set)


@checked
def interpolate_positions(
    embeddings: Annotated[Float[np.ndarray, "t w"], FINITE, NotEmpty],
    side: PositiveInt,
    class_token: bool = True,
) -> Float[np.ndarray, "t2 w"]:
    """Return position embeddings of a square grid of patches, interpolated bilinearly to another.

    The corners of both grids have the same embeddings, as in `vit_jax/checkpoint.py` of the
    release, where `scipy.ndimage.zoom` of order 1 does it.

    Args:
      embeddings: of the grid's patches in rows, after that of a class token.
      side: patches along a side of the new grid.
      class_token: true if the first embedding is that of a class token, which stays.

    Raises:
      ValueError: the patches do not form a square grid, or embeddings are not finite.
    """
    first, patches = np.split(embeddings, [int(class_token)])
    old = round(len(patches) ** 0.5)
    if old**2 != len(patches) or not old:
        raise ArgumentError(
            f"{len(patches)} position embeddings do not form a square grid of patches; "
            "give all of one"
        )
    positions = np.linspace(0, old - 1, side)[:, None]
    weights = np.maximum(0, 1 - np.abs(positions - np.arange(old)))
    grid = patches.reshape(old, old, -1)
    between = np.einsum("ai,bj,ijw->abw", weights, weights, grid, optimize=True)
    return np.concatenate([first, between.reshape(side**2, -1)]).astype(np.float32)


def _patches(images: Float[Array, "b h w c"], side: int) -> Float[Array, "b t p"]:
    """Return the values of each patch, row by row, patches in rows."""
    batch, height, width, channels = images.shape
    if height % side or width % side:
        raise ArgumentError(
            f"patches of {side} pixels do not divide images of {height} x {width}; give images of "
            "a multiple, or another patch"
        )
    cut = images.reshape(batch, height // side, side, width // side, side, channels)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(batch, -1, side * side * channels)


def _channels(arrays: Mapping[str, np.ndarray]) -> int:
    kernel = arrays.get("embedding/kernel")
    return kernel.shape[2] if kernel is not None and kernel.ndim == 4 else 3


def _released_shape(net: VisionTransformer, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a parameter's shape in the release: heads, and rows and columns of a patch, have
    axes."""
    layer, leaf = ("", *name.split("/"))[-2:]
    if name == "embedding/kernel":
        return (net.patch, net.patch, shape[0] // net.patch**2, net.width)
    if name in ("cls", _POSITION):
        return (1,) * (3 - len(shape)) + shape
    by_head = net.heads, net.width // net.heads
    if layer in ("query", "key", "value"):
        return (*shape[:-1], *by_head)
    return (*by_head, shape[-1]) if (layer, leaf) == ("out", "kernel") else shape


_POSITION = "Transformer/posembed_input/pos_embedding"
_IN_BLOCK = {
    "norm1": "LayerNorm_0",
    "norm2": "LayerNorm_2",
    "mlp1": "MlpBlock_3/Dense_0",
    "mlp2": "MlpBlock_3/Dense_1",
}
"""Names of a block's layers in the release; the others are parts of its attention."""


def _released_name(path: tuple) -> str:
    """Return the name that a parameter has in a checkpoint of the release."""
    first, *others = (key.key for key in path)
    if first == "position":
        return _POSITION
    if first == "norm":
        return f"Transformer/encoder_norm/{others[0]}"
    if not first.startswith("block"):
        return "/".join([first, *others])
    layer, leaf = others
    inner = _IN_BLOCK.get(layer, f"MultiHeadDotProductAttention_1/{layer}")
    return f"Transformer/encoderblock_{first.removeprefix('block')}/{inner}/{leaf}"


def _vision_transformer(numbers: Numbers, request: NetworkRequest) -> Network:
    patch, width, depth, heads, *mlp = numbers or (16, 768, 12, 12)
    if request.side % patch:
        raise ArgumentError(
            f"patches of {patch} pixels do not divide images of {request.side}; give a divisor"
        )
    if width % heads:
        raise ArgumentError(f"{heads} heads do not divide the width {width}; give a divisor")
    sizes = patch, width, depth, heads, *(mlp or [4 * width])
    shape = VisionTransformer(request.classes, *sizes, dtype=request.dtype)
    note = f"vision transformer, patches of {patch} pixels, width {width}, {depth} blocks"
    return Network(shape, f"{note} of {heads} heads")


_MEANING = (
    "a patch's side, width, blocks, heads, and hidden units of the MLP, 4 times the width if left "
    "out; without numbers ViT-B/16"
)
NETWORKS = (NamedNetwork("vit", _vision_transformer, _MEANING, (4, 64, 2, 4), (0, 4, 5)),)
