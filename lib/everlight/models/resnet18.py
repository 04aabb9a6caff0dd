"""ResNet-18 for small images, as the continual-learning literature has it (He et al. 2016, CVPR).

The first convolution is 3x3 with stride 1 and no max-pooling follows. With 64 filters it is the
network of Buzzega et al. 2020 (NeurIPS) and its successors. With 20 filters it is the slim one of
Lopez-Paz and Ranzato 2017 (NeurIPS) and of the online literature. Features are averaged over all
positions, so that images of 32 and 64 pixels have the same number of them.

Equal to `ResNetBlock.py` of Mammoth (commit 08912051): layers, strides, the last ReLU, batch norm,
and the distributions of kernels and head; differs in: nothing.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from everlight.base import Outputs
from everlight.models.heads import HeadKind, make_head
from everlight.models.layers.normalization import relu
from everlight.models.network import NamedNetwork, Network, NetworkRequest, Numbers
from everlight.models.resnet import BasicBlock, NormalizedConvolution

PYTORCH_UNIFORM = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
"""Uniform in ±1 / √n for n inputs of an output, PyTorch's default."""
SLIM_FILTERS = 20


class ResNet18(nn.Module):
    """Four stages of two basic blocks, with 1, 2, 4 and 8 times the filters of the first stage.

    It has 11,173,962 parameters with 64 filters and 10 classes, and 1,094,750 with 20 filters. The
    features, 8 per filter, are non-negative with `last_relu`. The outputs have the maps of the four
    stages.

    Attributes:
      classes: outputs of the head.
      filters: channels of the first stage.
      head: kind of the head: "linear", LUCIR's "cosine" or PODNet's "local similarity".
      dtype: dtype of the computation below the head; parameters, statistics and outputs are
        float32.
      last_relu: true if a ReLU follows the last block; features before a head of cosines keep
        their sign.
    """

    classes: int
    filters: int = 64
    head: HeadKind = "linear"
    dtype: DTypeLike = jnp.float32
    last_relu: bool = True

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the last blocks of its stages."""
        return tuple(f"BasicBlock_{block}" for block in (1, 3, 5, 7))

    @nn.compact
    def __call__(self, images: Float[Array, "b h w c"], train: bool) -> Outputs:
        """Return logits and features; training normalizes by batch statistics."""
        stem = NormalizedConvolution(self.filters, kernel_init=PYTORCH_UNIFORM, dtype=self.dtype)
        hidden = relu(stem(images, train))
        maps = {}
        for stage in range(1, 5):
            width = self.filters * 2 ** (stage - 1)
            for block in range(2):
                stride = 2 if stage > 1 and block == 0 else 1
                layer = BasicBlock(width, stride, self.dtype, PYTORCH_UNIFORM)
                last = stage == 4 and block == 1
                total = layer(hidden, train)
                hidden = total if last and not self.last_relu else relu(total)
            maps[f"stage{stage}"] = hidden.astype(jnp.float32)
        features = jnp.mean(hidden, axis=(1, 2), dtype=jnp.float32)
        return Outputs(self._head(features.shape[-1])(features), features, maps)

    def _head(self, width: int) -> nn.Module:
        if self.head != "linear":
            return make_head(self.head, self.classes)

        def draw_bias(key: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
            return jax.random.uniform(key, shape, dtype, -1, 1) / math.sqrt(width)

        return nn.Dense(self.classes, kernel_init=PYTORCH_UNIFORM, bias_init=draw_bias, name="head")


def _resnet18(numbers: Numbers, request: NetworkRequest) -> Network:
    (filters,) = numbers or (64,)
    shape = ResNet18(request.classes, filters, dtype=request.dtype)
    return Network(shape, f"ResNet-18 of {filters} filters for small images")


def _slim_resnet18(numbers: Numbers, request: NetworkRequest) -> Network:
    return _resnet18((SLIM_FILTERS,), request)


NETWORKS = (
    NamedNetwork(
        "resnet18",
        _resnet18,
        "filters of the first stage; without a number 64, as in Mammoth",
        (4,),
        (0, 1),
    ),
    NamedNetwork("slim-resnet18", _slim_resnet18, "ResNet-18 of 20 filters, of GEM and online CL"),
)
