"""Multilayer perceptron on flat inputs."""

from collections.abc import Sequence
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from everlight.base import Outputs
from everlight.models.heads import HeadKind, make_head
from everlight.models.network import NamedNetwork, Network, NetworkRequest, Numbers


class MLP(nn.Module):
    """Dense layers with ReLU, named hidden1, hidden2 and so on, then the layer named head.

    Attributes:
      classes: outputs of the head.
      hidden: units of each hidden layer.
      head: kind of the head: "linear", LUCIR's "cosine" or PODNet's "local similarity".
      dtype: dtype of the computation below the head; parameters and outputs are float32.
      last_relu: true if a ReLU follows the last hidden layer; features before a head of cosines
        keep their sign.
      layer_norm: true if layer normalization (Ba et al. 2016, arXiv 1607.06450) with learned scale
        and offset, named norm1 and so on, stands between a dense layer and its ReLU.
      crelu: true if ReLUs are concatenated ReLUs (Shang et al. 2016, ICML), of x and of -x, with
        which no unit dies.
    """

    classes: int
    hidden: Sequence[int] = (128,)
    head: HeadKind = "linear"
    dtype: DTypeLike = jnp.float32
    last_relu: bool = True
    layer_norm: bool = False
    crelu: bool = False

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the layers that end its stages, which are the hidden layers."""
        name = "norm" if self.layer_norm else "hidden"
        return tuple(f"{name}{number + 1}" for number in range(len(self.hidden)))

    @nn.compact
    def __call__(self, inputs: Float[Array, "b *shape"], train: bool) -> Outputs:
        """Return logits and the last hidden layer, which is the head's input."""
        features, hidden = inputs.reshape(inputs.shape[0], -1), {}
        for number, width in enumerate(self.hidden, 1):
            dense = nn.Dense(width, dtype=self.dtype, name=f"hidden{number}")
            features = dense(features)
            if self.layer_norm:
                features = nn.LayerNorm(dtype=self.dtype, name=f"norm{number}")(features)
            if self.last_relu or number < len(self.hidden):
                features = concatenated_relu(features) if self.crelu else nn.relu(features)
            hidden[dense.name] = features.astype(jnp.float32)
        features = features.astype(jnp.float32)
        return Outputs(make_head(self.head, self.classes)(features), features, hidden)


def concatenated_relu(values: Float[Array, "*b u"]) -> Float[Array, "*b v"]:
    """Return the positive parts of the values and then those of their negatives; v is 2u."""
    return jax.nn.relu(jnp.concatenate([values, -values], axis=-1))


def _mlp(
    numbers: Numbers, request: NetworkRequest, layer_norm: bool = False, crelu: bool = False
) -> Network:
    units = ", ".join(map(str, numbers))
    note = f"MLP with hidden layers of {units} units" if numbers else "a linear head"
    note += " and layer normalisation" * layer_norm + " and concatenated ReLUs" * crelu
    # Normalization mixes the units of a layer, so none can be masked or replaced on its own.
    layers = () if layer_norm else tuple(f"hidden{n}" for n in range(1, len(numbers) + 1))
    form = {"dtype": request.dtype, "layer_norm": layer_norm, "crelu": crelu}
    return Network(MLP(request.classes, numbers, **form), note, layers)


_SIZES = {"example": (256, 256), "counts": (1, 2, 3, 4, 5, 6)}
NETWORKS = (
    NamedNetwork("mlp", _mlp, "units of every hidden layer", **_SIZES),
    NamedNetwork(
        "mlp-layer-norm", partial(_mlp, layer_norm=True), "mlp with layer normalization", **_SIZES
    ),
    NamedNetwork("mlp-crelu", partial(_mlp, crelu=True), "mlp with concatenated ReLUs", **_SIZES),
    NamedNetwork("linear", _mlp, "a linear head over the inputs"),
)
