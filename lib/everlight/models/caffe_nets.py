"""Mid-CaffeNet and Mid-VGG: CaffeNet and VGG-CNN-M for 128x128 images (CORe50's nets).

Lomonaco and Maltoni 2017, section 4; layers by the authors' published definitions. Inputs are NHWC
in the channel order BGR, 0 to 255 less `BGR_MEAN`. Weights learnt on ILSVRC-2012 are the user's to
give, by `with_weights`. What is not given begins as in the authors' definitions where it is fully
connected: fc6 and fc7 normal with standard deviation .005, their biases at 1, and the heads by
`CAFFE_HEAD` and `VGG_HEAD`. Convolutions begin normal with variance 2 / inputs, their biases at 0.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from everlight.checks import checked
from everlight.continual.base import Outputs
from everlight.models.caffe_layers import (
    CaffeConvolution,
    ceil_max_pool,
    local_response_normalization,
)

BGR_MEAN = (104.0, 117.0, 123.0)
"""Subtracted from the channels; nothing divides them."""
HIDDEN_DEVIATION, HIDDEN_BIAS = 0.005, 1.0
"""Of the first weights of fc6 and fc7, and what their biases begin at."""
CAFFE_AXES = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}
"""Axes of our bias, dense and convolution kernel in the order of Caffe's."""


class HeadStart(NamedTuple):
    """How a head begins."""

    deviation: float
    """Of its weights, normal around 0."""
    bias: float


CAFFE_HEAD, VGG_HEAD = HeadStart(0.01, 0.0), HeadStart(0.005, 1.0)
"""The heads of Mid-CaffeNet and Mid-VGG, with hidden layers or without."""


class MidCaffeNet(nn.Module):
    """CaffeNet at 128x128: 2,304 features at pool5, as 3x3 of 256 channels.

    With the hidden layers and 50 classes 11,353,522 parameters, of which 2,334,080 up to pool5;
    without them 2,449,330.

    Attributes:
      classes: outputs of the head.
      hidden: units of fc6 and fc7; none connects pool5 to the head, as for CWR.
      dropout: rate after each of them.
      dtype: of the computation below the head; parameters and outputs are float32.
    """

    classes: int
    hidden: Sequence[int] = (2048, 2048)
    dropout: float = 0.5
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: Float[Array, "b h w c"], train: bool) -> Outputs:
        """Logits and what the head reads: the last hidden layer, or pool5; dropout draws."""
        convolution = partial(CaffeConvolution, dtype=self.dtype)
        maps = nn.relu(convolution(96, 11, stride=4, name="conv1")(images))
        maps = local_response_normalization(ceil_max_pool(maps, 3, 2))
        maps = nn.relu(convolution(256, 5, padding=2, groups=2, name="conv2")(maps))
        maps = local_response_normalization(ceil_max_pool(maps, 3, 2))
        maps = nn.relu(convolution(384, 3, padding=1, name="conv3")(maps))
        maps = nn.relu(convolution(384, 3, padding=1, groups=2, name="conv4")(maps))
        maps = nn.relu(convolution(256, 3, padding=1, groups=2, name="conv5")(maps))
        return _fully_connected(ceil_max_pool(maps, 3, 2), self, train, CAFFE_HEAD)


class MidVGG(nn.Module):
    """VGG-CNN-M (Chatfield et al. 2014) at 128x128: 4,608 features at pool5, 3x3 of 512 channels.

    With the hidden layers and 50 classes 20,266,674 parameters, of which 6,528,640 up to pool5;
    without them 6,759,090.

    Attributes:
      classes: outputs of the head.
      hidden: units of fc6 and fc7; none connects pool5 to the head, as for CWR.
      dropout: rate after each of them.
      dtype: of the computation below the head; parameters and outputs are float32.
    """

    classes: int
    hidden: Sequence[int] = (2048, 2048)
    dropout: float = 0.5
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: Float[Array, "b h w c"], train: bool) -> Outputs:
        """Logits and what the head reads: the last hidden layer, or pool5; dropout draws."""
        convolution = partial(CaffeConvolution, dtype=self.dtype)
        maps = nn.relu(convolution(96, 7, stride=2, name="conv1")(images))
        maps = ceil_max_pool(local_response_normalization(maps, alpha=5e-4, k=2.0), 3, 2)
        maps = nn.relu(convolution(256, 5, stride=2, padding=1, name="conv2")(maps))
        maps = ceil_max_pool(local_response_normalization(maps, alpha=5e-4, k=2.0), 3, 2)
        for name in ("conv3", "conv4", "conv5"):
            maps = nn.relu(convolution(512, 3, padding=1, name=name)(maps))
        return _fully_connected(ceil_max_pool(maps, 3, 2), self, train, VGG_HEAD)


class LinearClassifier(nn.Module):
    """The head alone, over features computed once: what is left to train where pool5 is frozen.

    Its parameters are the `head` of the nets without hidden layers. Like every head it computes in
    float32.

    Attributes:
      classes: outputs.
      start: how it begins; as in Mid-CaffeNet, where CWR's paper has it too (section 5.2).
    """

    classes: int
    start: HeadStart = CAFFE_HEAD

    @nn.compact
    def __call__(self, features: Float[Array, "b f"], train: bool) -> Outputs:
        """Logits, and the features themselves."""
        return Outputs(_dense(self.classes, *self.start, "head")(features), features)


@checked
def with_weights(
    params: Mapping[str, Mapping[str, Array]], arrays: Mapping[str, np.ndarray]
) -> dict[str, Mapping[str, Array]]:
    """The parameters with some layers' weights and biases replaced by those of a Caffe net.

    Args:
      params: of one of the nets, by layer: conv1 to conv5, fc6 and fc7 where there are, head.
      arrays: "conv1/weight", "conv1/bias" and so on, as Caffe shapes them: convolutions [out, in /
        groups, height, width], dense layers [out, in], biases [out]. Layers not named stay.

    Raises:
      ValueError: a name that is not the net's, a layer with only one of the two, another shape;
        the layer is named.
    """
    loaded = dict(params)
    for layer in sorted({name.rpartition("/")[0] for name in arrays}):
        if layer not in params:
            raise ValueError(f"the net has no layer {layer!r}; its layers are {', '.join(params)}")
        loaded[layer] = {
            leaf: _from_caffe(f"{layer}/{part}", arrays, params[layer][leaf])
            for leaf, part in (("kernel", "weight"), ("bias", "bias"))
        }
    extra = {name for name in arrays if not name.endswith(("/weight", "/bias"))}
    if extra:
        raise ValueError(f"{min(extra)!r} is neither a layer's weight nor its bias")
    return loaded


def _from_caffe(name: str, arrays: Mapping[str, np.ndarray], old: Array) -> Array:
    if name not in arrays:
        raise ValueError(f"{name} is missing; give a layer's weight and its bias")
    axes = CAFFE_AXES[old.ndim]
    wanted = tuple(old.shape[axis] for axis in axes)
    if arrays[name].shape != wanted:
        raise ValueError(f"{name} has the shape {arrays[name].shape}; the net's is {wanted}")
    return jnp.asarray(arrays[name].transpose(np.argsort(axes)), old.dtype)


def _fully_connected(
    maps: Float[Array, "b h w c"], net: MidCaffeNet | MidVGG, train: bool, head: HeadStart
) -> Outputs:
    """What follows pool5; called within a net, whose parameters it adds."""
    if not maps.size:
        raise ValueError("nothing is left of the images at pool5; give 48 pixels a side or more")
    # Caffe's order, so that its dense weights and cached features fit: channel, row, column.
    features = maps.transpose(0, 3, 1, 2).reshape(maps.shape[0], -1)
    for number, width in enumerate(net.hidden, 6):
        dense = _dense(width, HIDDEN_DEVIATION, HIDDEN_BIAS, f"fc{number}", net.dtype)
        features = nn.Dropout(net.dropout, deterministic=not train)(nn.relu(dense(features)))
    features = features.astype(jnp.float32)
    return Outputs(_dense(net.classes, *head, "head")(features), features)


def _dense(
    units: int, deviation: float, bias: float, name: str, dtype: DTypeLike = jnp.float32
) -> nn.Dense:
    weights, biases = nn.initializers.normal(deviation), nn.initializers.constant(bias)
    return nn.Dense(units, dtype=dtype, kernel_init=weights, bias_init=biases, name=name)
