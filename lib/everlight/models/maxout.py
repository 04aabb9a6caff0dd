"""Maxout network on flat inputs (Goodfellow et al. 2013, ICML)."""

from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from everlight.base import Outputs
from everlight.models.heads import HeadKind, make_head
from everlight.models.network import NamedNetwork, Network, NetworkRequest, Numbers


class Maxout(nn.Module):
    """Dense layers of which each unit is the maximum of two linear pieces, then the head.

    Attributes:
      classes: outputs of the head.
      hidden: units of each hidden layer.
      head: kind of the head: "linear", LUCIR's "cosine" or PODNet's "local similarity".
      dtype: dtype of the computation below the head; parameters and outputs are float32.
    """

    classes: int
    hidden: Sequence[int] = (128,)
    head: HeadKind = "linear"
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "b *shape"], train: bool) -> Outputs:
        """Return logits and the last hidden layer, which is the head's input."""
        features = inputs.reshape(inputs.shape[0], -1)
        for number, width in enumerate(self.hidden, 1):
            pieces = nn.Dense(2 * width, dtype=self.dtype, name=f"hidden{number}")(features)
            features = jnp.maximum(*jnp.split(pieces, 2, axis=-1))
        features = features.astype(jnp.float32)
        return Outputs(make_head(self.head, self.classes)(features), features)


def _maxout(numbers: Numbers, request: NetworkRequest) -> Network:
    note = f"maxout network with hidden layers of {', '.join(map(str, numbers))} units"
    return Network(Maxout(request.classes, numbers, dtype=request.dtype), note)


NETWORKS = (NamedNetwork("maxout", _maxout, "units of every hidden layer", (64, 64), (1, 2, 3)),)
