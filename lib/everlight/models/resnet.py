"""Residual networks: reduced for 32x32 images, and ResNet-50 for 224x224 (He et al. 2016)."""

from functools import partial

import flax.linen as nn
import jax.numpy as jnp
from jax.nn.initializers import Initializer
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from everlight.base import Outputs
from everlight.models.heads import HeadKind, make_head
from everlight.models.layers.convolution import HE_NORMAL, Convolution
from everlight.models.layers.normalization import BatchNorm, relu
from everlight.models.layers.pooling import max_pool
from everlight.models.network import NamedNetwork, Network, NetworkRequest, Numbers

HE_NORMAL_OUT = nn.initializers.variance_scaling(2.0, "fan_out", "normal")
"""Variance 2 / (size² · output channels): He et al. 2015, equation 14."""


class ReducedResNet(nn.Module):
    """Three stages of 16, 32 and 64 channels, `6 * blocks + 2` layers deep (IIRC's CIFAR network).

    Features keep their sign: no ReLU follows the last block, as LUCIR's cosine head requires. Where
    the channels change, the shortcut is a 1x1 convolution with batch norm (option B). The outputs
    have the maps of the three stages.

    Attributes:
      classes: outputs of the head.
      blocks: blocks per stage; 5 is ResNet-32, 3 is ResNet-20.
      head: kind of the head: "linear", LUCIR's "cosine" or PODNet's "local similarity".
      dtype: dtype of the computation below the head; parameters, statistics and outputs are
        float32.
    """

    classes: int
    blocks: int = 5
    head: HeadKind = "linear"
    dtype: DTypeLike = jnp.float32

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the last blocks of its stages."""
        return tuple(f"BasicBlock_{stage * self.blocks - 1}" for stage in (1, 2, 3))

    @nn.compact
    def __call__(self, images: Float[Array, "b h w c"], train: bool) -> Outputs:
        """Return logits and the 64 features; training normalizes by batch statistics."""
        hidden = NormalizedConvolution(16, dtype=self.dtype)(images, train)
        maps = {}
        for stage, width in enumerate((16, 32, 64), 1):
            for block in range(self.blocks):
                stride = 2 if width > 16 and block == 0 else 1
                hidden = BasicBlock(width, stride, self.dtype)(relu(hidden), train)
            # Only the head reads the last maps, and with their sign.
            read = hidden if stage == 3 else relu(hidden)
            maps[f"stage{stage}"] = read.astype(jnp.float32)
        features = jnp.mean(hidden, axis=(1, 2), dtype=jnp.float32)
        return Outputs(make_head(self.head, self.classes)(features), features, maps)


class ResNet50(nn.Module):
    """Bottleneck blocks, 3, 4, 6 and 3 of them, with the stride in the 3x3 convolution.

    The 2,048 features are non-negative with `last_relu`, and kernels are initialized by
    `HE_NORMAL_OUT`, as in torchvision. It has 25,557,032 parameters with 1,000 classes and a linear
    head. The outputs have the maps of the four stages.

    Attributes:
      classes: outputs of the head.
      head: kind of the head: "linear", LUCIR's "cosine" or PODNet's "local similarity".
      dtype: dtype of the computation below the head; parameters, statistics and outputs are
        float32.
      remat: true recomputes a block's activations in the backward pass: a third more operations for
        a fifth of the memory. XLA for CPU undoes it.
      last_relu: true if a ReLU follows the last block; features before a head of cosines keep
        their sign.
    """

    classes: int
    head: HeadKind = "linear"
    dtype: DTypeLike = jnp.float32
    remat: bool = False
    last_relu: bool = True

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the last blocks of its stages."""
        return tuple(f"BottleneckBlock_{block}" for block in (2, 6, 12, 15))

    @nn.compact
    def __call__(self, images: Float[Array, "b h w c"], train: bool) -> Outputs:
        """Return logits and features; training normalizes by batch statistics."""

        def summed(layer: nn.Module, inputs: Array) -> Array:
            return layer(inputs, train)

        def rectified(layer: nn.Module, inputs: Array) -> Array:
            return relu(layer(inputs, train))

        forward = nn.remat(rectified) if self.remat else rectified
        last = nn.remat(summed) if self.remat else summed
        hidden = forward(NormalizedConvolution(64, 7, 2, HE_NORMAL_OUT, self.dtype), images)
        hidden = max_pool(hidden, 3, 2, ((1, 1), (1, 1)))
        maps = {}
        for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
            for block in range(blocks):
                stride = 2 if width > 64 and block == 0 else 1
                ends = width == 512 and block == blocks - 1 and not self.last_relu
                through = last if ends else forward
                hidden = through(BottleneckBlock(width, stride, self.dtype), hidden)
            maps[f"stage{stage}"] = hidden.astype(jnp.float32)
        features = jnp.mean(hidden, axis=(1, 2), dtype=jnp.float32)
        return Outputs(make_head(self.head, self.classes)(features), features, maps)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut; the sum is returned before its ReLU.

    The shortcut is a 1x1 convolution with batch norm where the channels or the size change.

    Attributes:
      width: output channels.
      stride: stride of the first convolution.
      dtype: dtype of the computation and the sum; parameters and statistics are float32.
      kernel_init: initializer of the kernels.
    """

    width: int
    stride: int = 1
    dtype: DTypeLike = jnp.float32
    kernel_init: Initializer = HE_NORMAL

    @nn.compact
    def __call__(self, inputs: Float[Array, "b h w c"], train: bool) -> Float[Array, "b h2 w2 f"]:
        """Return the sum, `[b, ceil(h / stride), ceil(w / stride), width]`."""
        normalized = partial(NormalizedConvolution, kernel_init=self.kernel_init, dtype=self.dtype)
        hidden = relu(normalized(self.width, 3, self.stride)(inputs, train))
        hidden = normalized(self.width)(hidden, train)
        if self.stride != 1 or inputs.shape[-1] != self.width:
            inputs = normalized(self.width, 1, self.stride, name="shortcut")(inputs, train)
        return hidden + inputs


class BottleneckBlock(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut; the sum is returned before its ReLU.

    The shortcut is a 1x1 convolution with batch norm where the channels or the size change.

    Attributes:
      width: channels of the 3x3 convolution; the output has four times as many.
      stride: stride of the 3x3 convolution.
      dtype: dtype of the computation and the sum; parameters and statistics are float32.
    """

    width: int
    stride: int = 1
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "b h w c"], train: bool) -> Float[Array, "b h2 w2 f"]:
        """Return the sum, `[b, ceil(h / stride), ceil(w / stride), 4 * width]`."""
        normalized = partial(NormalizedConvolution, kernel_init=HE_NORMAL_OUT, dtype=self.dtype)
        hidden = relu(normalized(self.width, 1)(inputs, train))
        hidden = relu(normalized(self.width, 3, self.stride)(hidden, train))
        hidden = normalized(4 * self.width, 1)(hidden, train)
        if self.stride != 1 or inputs.shape[-1] != 4 * self.width:
            inputs = normalized(4 * self.width, 1, self.stride, name="shortcut")(inputs, train)
        return hidden + inputs


class NormalizedConvolution(nn.Module):
    """Convolution without bias, followed by batch norm.

    Attributes:
      features: output channels.
      size: side of the kernel, odd.
      stride: stride in both directions.
      kernel_init: initializer of the kernel.
      dtype: dtype of the computation and output; parameters and statistics are float32.
    """

    features: int
    size: int = 3
    stride: int = 1
    kernel_init: Initializer = HE_NORMAL
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "b h w c"], train: bool) -> Float[Array, "b h2 w2 f"]:
        """Return the normalized images, `[b, ceil(h / stride), ceil(w / stride), features]`."""
        convolution = Convolution(
            self.features,
            self.size,
            self.stride,
            use_bias=False,
            kernel_init=self.kernel_init,
            dtype=self.dtype,
        )
        return BatchNorm()(convolution(inputs), train)


def _reduced_resnet(numbers: Numbers, request: NetworkRequest) -> Network:
    (blocks,) = numbers or (5,)
    shape = ReducedResNet(request.classes, blocks, dtype=request.dtype)
    return Network(shape, f"reduced ResNet of {6 * blocks + 2} layers")


def _resnet50(numbers: Numbers, request: NetworkRequest) -> Network:
    shape = ResNet50(request.classes, dtype=request.dtype, remat=request.remat)
    return Network(shape, "ResNet-50")


_MEANING = "blocks in each of three stages; without a number 5, ResNet-32"
NETWORKS = (
    NamedNetwork("resnet", _reduced_resnet, _MEANING, (1,), (0, 1)),
    NamedNetwork("resnet50", _resnet50, "ResNet-50", options=("remat",)),
)
