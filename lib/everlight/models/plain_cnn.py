"""A sequential network of convolutions and dense layers, for images of any size."""

from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from everlight.base import Outputs
from everlight.errors import ArgumentError
from everlight.models.heads import HeadKind, make_head
from everlight.models.layers.convolution import Convolution
from everlight.models.layers.pooling import max_pool_even
from everlight.models.network import NamedNetwork, Network, NetworkRequest, Numbers


class PlainCNN(nn.Module):
    """Blocks of a 3x3 convolution, ReLU and 2x2 pooling, a dense layer with ReLU, then the head.

    `layers` names the layers below the head in order, for HAT's gates and PackNet's pruning.

    Attributes:
      classes: outputs of the head.
      channels: channels of each block's convolution; a block halves both sides, rounded down.
      hidden: units of the dense layer.
      head: kind of the head: "linear", LUCIR's "cosine" or PODNet's "local similarity".
      dtype: dtype of the computation below the head; parameters and outputs are float32.
      last_relu: true if a ReLU follows the dense layer; features before a head of cosines keep
        their sign.
    """

    classes: int
    channels: Sequence[int] = (16, 32, 64)
    hidden: int = 128
    head: HeadKind = "linear"
    dtype: DTypeLike = jnp.float32
    last_relu: bool = True

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the parameters below the head, starting at the input."""
        return (*(f"convolution{number + 1}" for number in range(len(self.channels))), "hidden")

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the layers that end its stages: every layer below the head."""
        return self.layers

    @nn.compact
    def __call__(self, images: Float[Array, "b h w c"], train: bool) -> Outputs:
        """Return logits and the dense layer, which is the head's input.

        Raises:
          ValueError: the images are too small for the blocks.
        """
        height, width = images.shape[1:3]
        if min(height, width) < 2 ** len(self.channels):
            raise ArgumentError(
                f"images of {height}x{width} are too small for {len(self.channels)} blocks, each "
                "of which halves both sides; give fewer"
            )
        maps, hidden = images, {}
        for name, width in zip(self.layers, self.channels, strict=False):
            maps = _pool(nn.relu(Convolution(width, dtype=self.dtype, name=name)(maps)))
            hidden[name] = maps.astype(jnp.float32)
        dense = nn.Dense(self.hidden, dtype=self.dtype, name="hidden")
        features = dense(maps.reshape(maps.shape[0], -1)).astype(jnp.float32)
        features = nn.relu(features) if self.last_relu else features
        logits = make_head(self.head, self.classes)(features)
        return Outputs(logits, features, hidden | {"hidden": features})


def _pool(maps: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 c"]:
    """Return the maximum of each 2x2 block; an odd last row or column is dropped."""
    height, width = maps.shape[1:3]
    return max_pool_even(maps[:, : height // 2 * 2, : width // 2 * 2])


def _plain_cnn(numbers: Numbers, request: NetworkRequest) -> Network:
    # Without numbers, one that fits the images' side.
    small = (16, 32, 64) if request.side < 32 else (16, 32, 64, 128)
    *channels, hidden = numbers or small
    shape = PlainCNN(request.classes, tuple(channels), hidden, dtype=request.dtype)
    widths = ", ".join(map(str, channels))
    note = f"convolutions of {widths} channels and {hidden} hidden units"
    return Network(shape, note, shape.layers)


_MEANING = "channels of every block, then hidden units; without numbers as the images' side allows"
NETWORKS = (NamedNetwork("cnn", _plain_cnn, _MEANING, (16, 32, 64), (0, 2, 3, 4, 5, 6)),)
