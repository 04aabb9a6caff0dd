"""EfficientNet-Lite0 (Tan and Le 2019; lite variant by Google, 2020), with published weights.

It is EfficientNet-B0 with ReLU6 instead of swish and without squeeze and excitation. It has
4,652,008 parameters with 1,000 classes, of which 3,371,008 up to its 1,280 features. Inputs are
NHWC in RGB, 0 to 255, standardized by `MEAN` and `DEVIATION`. The published size is 224x224 (top-1
of 75.1% on ImageNet's validation images); any other size works. Convolutions of stride 2 pad as
TensorFlow does, with the odd row at the bottom and right, as for the published weights. Kernels of
convolutions are initialized with variance 2 / (size² · output channels), where a depthwise one has
1 output channel. The head's kernel is truncated normal with variance 1 / inputs; Google's code
draws it uniformly in ±1 / √outputs. There is neither dropout nor stochastic depth.
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PyTree

from everlight.base import Outputs
from everlight.checks import checked
from everlight.errors import ArgumentError
from everlight.models.heads import make_head
from everlight.models.layers.convolution import Convolution, Padding, convolve
from everlight.models.published_weights import variables_of_arrays
from everlight.models.resnet import HE_NORMAL_OUT

MEAN, DEVIATION = 127.0, 128.0
"""Mean and scale of the inputs, equal for all channels."""
EPSILON, MOMENTUM = 1e-3, 0.99
"""Epsilon and momentum of batch norm."""


class Stage(NamedTuple):
    """Blocks of one width; the first one has the stride."""

    blocks: int
    side: int
    """Side of the depthwise kernels."""
    stride: int
    expansion: int
    width: int


STEM, TOP = 32, 1280
STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 with a head over any classes.

    Attributes:
      classes: outputs of the head.
      dtype: dtype of the computation below the head; parameters, statistics and outputs are
        float32.
    """

    classes: int = 1000
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: Float[Array, "b h w 3"], train: bool) -> Outputs:
        """Return logits and the 1,280 features; training normalizes by batch statistics."""
        norm, pointwise = partial(_norm, train, self.dtype), partial(_pointwise, self.dtype)
        stem = Convolution(
            STEM,
            size=3,
            stride=2,
            use_bias=False,
            kernel_init=HE_NORMAL_OUT,
            dtype=self.dtype,
            padding=_same_padding(images, 3, 2),
            name="stem",
        )
        maps = nn.relu6(norm("stem_norm")(stem(images)))
        number = 0
        for stage in STAGES:
            for position in range(stage.blocks):
                stride = stage.stride if position == 0 else 1
                block = InvertedResidual(stage, stride, self.dtype, name=f"block{number}")
                maps = block(maps, train)
                number += 1
        maps = nn.relu6(norm("top_norm")(pointwise(TOP, "top")(maps)))
        features = jnp.mean(maps, axis=(1, 2), dtype=jnp.float32)
        return Outputs(make_head("linear", self.classes)(features), features)


class InvertedResidual(nn.Module):
    """Inverted residual block: 1x1 expansion, depthwise convolution, 1x1 projection, shortcut."""

    stage: Stage
    stride: int
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "b h w c"], train: bool) -> Float[Array, "b h2 w2 f"]:
        """Return the block's maps."""
        norm, pointwise = partial(_norm, train, self.dtype), partial(_pointwise, self.dtype)
        maps = inputs
        if self.stage.expansion > 1:
            wide = pointwise(inputs.shape[-1] * self.stage.expansion, "expand")
            maps = nn.relu6(norm("expand_norm")(wide(maps)))
        maps = _Depthwise(self.stage.side, self.stride, self.dtype, name="depthwise")(maps)
        maps = nn.relu6(norm("depthwise_norm")(maps))
        maps = norm("project_norm")(pointwise(self.stage.width, "project")(maps))
        return maps + inputs if maps.shape == inputs.shape else maps


class _Depthwise(nn.Module):
    """Depthwise convolution: one kernel per channel."""

    side: int
    stride: int
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 c"]:
        channels = inputs.shape[-1]
        init = nn.initializers.normal(2**0.5 / self.side)
        kernel = self.param("kernel", init, (self.side, self.side, channels)).astype(self.dtype)
        padding = _same_padding(inputs, self.side, self.stride)
        inputs = inputs.astype(self.dtype)
        return convolve(inputs, kernel[:, :, None], self.stride, padding, channels)


def _same_padding(images: Float[Array, "b h w c"], side: int, stride: int) -> Padding:
    """Return TensorFlow's "same" padding, with an odd zero at the end."""

    def zeros(length: int) -> tuple[int, int]:
        missing = max((-(-length // stride) - 1) * stride + side - length, 0)
        return missing // 2, missing - missing // 2

    height, width = images.shape[1:3]
    return zeros(height), zeros(width)


def _pointwise(dtype: DTypeLike, width: int, name: str) -> nn.Dense:
    """Return a 1x1 convolution as a matrix product."""
    return nn.Dense(width, use_bias=False, dtype=dtype, kernel_init=HE_NORMAL_OUT, name=name)


def _norm(train: bool, dtype: DTypeLike, name: str) -> nn.BatchNorm:
    return nn.BatchNorm(not train, momentum=MOMENTUM, epsilon=EPSILON, dtype=dtype, name=name)


@checked
def efficientnet_variables(arrays: Mapping[str, np.ndarray]) -> dict[str, PyTree]:
    """Convert the arrays of the PyTorch port to parameters and batch statistics.

    Args:
      arrays: arrays by name, "_conv_stem.weight", "_blocks.0._bn1.running_mean" and so on, in
        PyTorch's shapes: convolutions [out, in / groups, height, width]. Batch counters are
        ignored.

    Returns:
      Variables for `EfficientNetLite0(classes).apply`, with the classes of `_fc`.

    Raises:
      ValueError: an array is missing, unknown or of another shape; the message names it.
    """
    known = {name: array for name, array in arrays.items() if not name.endswith("_tracked")}
    shapes = _shapes(known["_fc.bias"].shape[0] if "_fc.bias" in known else 1000)

    def convert(name: str, leaf: jax.ShapeDtypeStruct) -> Array:
        array = _transpose_kernel(known[name], leaf.shape)
        if array.shape != leaf.shape:
            raise ArgumentError(
                f"{name} has the shape {known[name].shape}, which is not the network's; give the "
                "weights of EfficientNet-Lite0"
            )
        return jnp.asarray(array, leaf.dtype)

    port = "EfficientNet-Lite0's PyTorch port"
    return variables_of_arrays(shapes, known, _port_name, convert, port)


@cache
def _shapes(classes: int) -> dict[str, PyTree]:
    net = EfficientNetLite0(classes)
    return jax.eval_shape(
        lambda: net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)), train=False)
    )


_LAYERS = {
    "stem": "_conv_stem",
    "stem_norm": "_bn0",
    "top": "_conv_head",
    "top_norm": "_bn1",
    "head": "_fc",
    "expand": "_expand_conv",
    "expand_norm": "_bn0",
    "depthwise": "_depthwise_conv",
    "depthwise_norm": "_bn1",
    "project": "_project_conv",
    "project_norm": "_bn2",
}
_LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}


def _port_name(path: tuple) -> str:
    """Return the name in the PyTorch port of a leaf of the variables."""
    _, *layers, leaf = (key.key for key in path)
    names = [
        f"_blocks.{layer.removeprefix('block')}" if layer.startswith("block") else _LAYERS[layer]
        for layer in layers
    ]
    return ".".join([*names, _LEAVES[leaf]])


def _transpose_kernel(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Transpose a kernel to this module's axes; 1x1 kernels become matrices."""
    if array.ndim == 4:
        array = array.transpose(2, 3, 1, 0)
        array = array.reshape(*array.shape[:2], -1) if array.shape[2] == 1 else array
        return array[0, 0] if len(shape) == 2 and array.shape[:2] == (1, 1) else array
    return array.T if array.ndim == 2 else array
