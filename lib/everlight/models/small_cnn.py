"""The four-convolution network of Zenke et al. 2017 (their CIFAR experiments)."""

from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from everlight.base import Outputs
from everlight.errors import ArgumentError
from everlight.models.layers.convolution import Convolution
from everlight.models.layers.pooling import max_pool_even
from everlight.models.network import NamedNetwork, Network, NetworkRequest, Numbers


class SmallCNN(nn.Module):
    """Two blocks of two 3x3 convolutions, pooling and dropout, then a dense layer and the head.

    Attributes:
      classes: outputs of the head.
      channels: channels of the convolutions in each of the two blocks.
      hidden: units of the dense layer; None connects the last block to the head.
      dropout: dropout rates after the two blocks and the dense layer.
      head_deviation: standard deviation of the head's initial weights; None is one over the square
        root of its inputs.
      dtype: dtype of the computation below the head; parameters and outputs are float32.
      head_name: name of the head's parameters; None is Dense_1, or Dense_0 without a dense layer.
    """

    classes: int
    channels: tuple[int, int] = (32, 64)
    hidden: int | None = 512
    dropout: Sequence[float] = (0.25, 0.25, 0.5)
    head_deviation: float | None = None
    dtype: DTypeLike = jnp.float32
    head_name: str | None = None

    @nn.compact
    def __call__(self, images: Float[Array, "b h w c"], train: bool) -> Outputs:
        """Return logits and the head's input; dropout uses the rng "dropout"."""
        hidden = images
        for width, rate in zip(self.channels, self.dropout[:2], strict=True):
            for _ in range(2):
                hidden = nn.relu(Convolution(width, dtype=self.dtype)(hidden))
            hidden = nn.Dropout(rate, deterministic=not train)(max_pool_even(hidden))
        features = hidden.reshape(hidden.shape[0], -1)
        if self.hidden is not None:
            features = nn.relu(nn.Dense(self.hidden, dtype=self.dtype)(features))
            features = nn.Dropout(self.dropout[2], deterministic=not train)(features)
        features = features.astype(jnp.float32)
        head_init = (
            nn.initializers.lecun_normal()
            if self.head_deviation is None
            else nn.initializers.normal(self.head_deviation)
        )
        head = nn.Dense(self.classes, kernel_init=head_init, name=self.head_name)
        return Outputs(head(features), features)


def _small_cnn(numbers: Numbers, request: NetworkRequest) -> Network:
    first, second, hidden = numbers or (32, 64, 512)
    dropout = request.dropout or (0.25, 0.25, 0.5)
    if len(dropout) != 3:
        rates = " ".join(map(str, dropout))
        raise ArgumentError(
            f"dropout {rates}; give 3 values, after both blocks and the dense layer"
        )
    shape = SmallCNN(request.classes, (first, second), hidden, dropout, dtype=request.dtype)
    note = f"small CNN, channels {(first, second)}, {hidden} hidden units, dropout {dropout}"
    return Network(shape, note, named=False)


_MEANING = "channels of both blocks, then hidden units; without numbers 32,64,512"
NETWORKS = (
    NamedNetwork("small-cnn", _small_cnn, _MEANING, (16, 32, 64), (0, 3), options=("dropout",)),
)
