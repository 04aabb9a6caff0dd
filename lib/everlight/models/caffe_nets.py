"""Mid-CaffeNet and Mid-VGG: CaffeNet and VGG-CNN-M for 128x128 images (CORe50's networks).

Lomonaco and Maltoni 2017, section 4; layers by the authors' published definitions. Inputs are NHWC
in the channel order BGR, 0 to 255 minus `BGR_MEAN`. Weights pretrained on ILSVRC-2012 are supplied
by the user, through `with_weights`. Other dense layers are initialized as in the authors'
definitions: fc6 and fc7 normally with standard deviation 0.005 and bias 1, the heads by
`CAFFE_HEAD` and `VGG_HEAD`. Convolutions are initialized truncated normal with variance 2 / inputs
and bias 0.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PyTree

from everlight.base import Outputs
from everlight.checks import checked
from everlight.errors import ArgumentError
from everlight.models.layers.caffe_layers import ceil_max_pool, local_response_normalization
from everlight.models.layers.convolution import NO_PADDING, Convolution

BGR_MEAN = (104.0, 117.0, 123.0)
"""Mean subtracted from the channels; there is no scale."""
HIDDEN_DEVIATION, HIDDEN_BIAS = 0.005, 1.0
"""Standard deviation of the initial weights of fc6 and fc7, and their initial bias."""
CAFFE_AXES = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}
"""Axes of this module's bias, dense kernel and convolution kernel in Caffe's order."""


class HeadInit(NamedTuple):
    """Initialization of a head."""

    deviation: float
    """Standard deviation of the weights, normal around 0."""
    bias: float


CAFFE_HEAD, VGG_HEAD = HeadInit(0.01, 0.0), HeadInit(0.005, 1.0)
"""Heads of Mid-CaffeNet and Mid-VGG, with or without hidden layers."""


class MidCaffeNet(nn.Module):
    """CaffeNet at 128x128: 2,304 features at pool5, as 3x3 of 256 channels.

    It has 11,353,522 parameters with the hidden layers and 50 classes, of which 2,334,080 up to
    pool5. Without hidden layers it has 2,449,330.

    Attributes:
      classes: outputs of the head.
      hidden: units of fc6 and fc7; an empty sequence connects pool5 to the head, as for CWR.
      dropout: dropout rate after each hidden layer.
      dtype: dtype of the computation below the head; parameters and outputs are float32.
    """

    classes: int
    hidden: Sequence[int] = (2048, 2048)
    dropout: float = 0.5
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: Float[Array, "b h w c"], train: bool) -> Outputs:
        """Return logits and the head's input: the last hidden layer or pool5; dropout is random."""
        convolution = partial(Convolution, dtype=self.dtype)
        maps = nn.relu(convolution(96, 11, stride=4, padding=NO_PADDING, name="conv1")(images))
        maps = local_response_normalization(ceil_max_pool(maps, 3, 2))
        maps = nn.relu(convolution(256, 5, groups=2, name="conv2")(maps))
        maps = local_response_normalization(ceil_max_pool(maps, 3, 2))
        maps = nn.relu(convolution(384, 3, name="conv3")(maps))
        maps = nn.relu(convolution(384, 3, groups=2, name="conv4")(maps))
        maps = nn.relu(convolution(256, 3, groups=2, name="conv5")(maps))
        return _fully_connected(ceil_max_pool(maps, 3, 2), self, train, CAFFE_HEAD)


class MidVGG(nn.Module):
    """VGG-CNN-M (Chatfield et al. 2014) at 128x128: 4,608 features at pool5, 3x3 of 512 channels.

    It has 20,266,674 parameters with the hidden layers and 50 classes, of which 6,528,640 up to
    pool5. Without hidden layers it has 6,759,090.

    Attributes:
      classes: outputs of the head.
      hidden: units of fc6 and fc7; an empty sequence connects pool5 to the head, as for CWR.
      dropout: dropout rate after each hidden layer.
      dtype: dtype of the computation below the head; parameters and outputs are float32.
    """

    classes: int
    hidden: Sequence[int] = (2048, 2048)
    dropout: float = 0.5
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: Float[Array, "b h w c"], train: bool) -> Outputs:
        """Return logits and the head's input: the last hidden layer or pool5; dropout is random."""
        convolution = partial(Convolution, dtype=self.dtype)
        maps = nn.relu(convolution(96, 7, stride=2, padding=NO_PADDING, name="conv1")(images))
        maps = ceil_max_pool(local_response_normalization(maps, alpha=5e-4, k=2.0), 3, 2)
        margin = ((1, 1), (1, 1))
        maps = nn.relu(convolution(256, 5, stride=2, padding=margin, name="conv2")(maps))
        maps = ceil_max_pool(local_response_normalization(maps, alpha=5e-4, k=2.0), 3, 2)
        for name in ("conv3", "conv4", "conv5"):
            maps = nn.relu(convolution(512, 3, name=name)(maps))
        return _fully_connected(ceil_max_pool(maps, 3, 2), self, train, VGG_HEAD)


class LinearClassifier(nn.Module):
    """The head alone, on precomputed features: the trainable part where pool5 is frozen.

    Its parameters are the `head` of the networks without hidden layers. Like every head it computes
    in float32.

    Attributes:
      classes: number of outputs.
      head_init: initialization; the default is Mid-CaffeNet's, also in CWR's paper (section 5.2).
    """

    classes: int
    head_init: HeadInit = CAFFE_HEAD

    @nn.compact
    def __call__(self, features: Float[Array, "b f"], train: bool) -> Outputs:
        """Return logits and the features."""
        return Outputs(_dense(self.classes, *self.head_init, "head")(features), features)


@checked
def with_weights(
    params: Mapping[str, Mapping[str, Array]], arrays: Mapping[str, np.ndarray]
) -> dict[str, Mapping[str, Array]]:
    """Replace weights and biases of some layers by those of a Caffe network.

    Args:
      params: parameters of one of the networks, by layer: conv1 to conv5, fc6 and fc7 if present,
        head.
      arrays: arrays named "conv1/weight", "conv1/bias" and so on, in Caffe's shapes: convolutions
        [out, in / groups, height, width], dense layers [out, in], biases [out]. Other layers are
        unchanged.

    Raises:
      ValueError: a name is unknown, a layer has only one of the two, or a shape differs; the
        message names the layer.
    """
    loaded = dict(params)
    for layer in sorted({name.rpartition("/")[0] for name in arrays}):
        if layer not in params:
            raise ArgumentError(
                f"the network has no layer {layer!r}; its layers are {', '.join(params)}"
            )
        loaded[layer] = {
            leaf: _convert_caffe(f"{layer}/{part}", arrays, params[layer][leaf])
            for leaf, part in (("kernel", "weight"), ("bias", "bias"))
        }
    extra = {name for name in arrays if not name.endswith(("/weight", "/bias"))}
    if extra:
        raise ArgumentError(
            f"{min(extra)!r} is neither the weight nor the bias of a layer; leave it out"
        )
    return loaded


def _convert_caffe(name: str, arrays: Mapping[str, np.ndarray], old: Array) -> Array:
    if name not in arrays:
        raise ArgumentError(f"{name} is missing; give both the weight and the bias of a layer")
    axes = CAFFE_AXES[old.ndim]
    shape = tuple(old.shape[axis] for axis in axes)
    if arrays[name].shape != shape:
        raise ArgumentError(
            f"{name} has the shape {arrays[name].shape}; give {shape}, the network's"
        )
    return jnp.asarray(arrays[name].transpose(np.argsort(axes)), old.dtype)


def _fully_connected(
    maps: Float[Array, "b h w c"], net: MidCaffeNet | MidVGG, train: bool, head: HeadInit
) -> Outputs:
    """Apply the layers after pool5; called within a network, to which it adds parameters."""
    if not maps.size:
        raise ArgumentError("images are empty at pool5; give 48 or more pixels per side")
    # Caffe's order (channel, row, column), so that its dense weights and cached features fit.
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


def scale_layers(dense_rate: float) -> optax.GradientTransformation:
    """Return updates times `dense_rate` in fully connected layers, and biases twice their layer's.

    Parameters are by layer, each of a `kernel`, `[in, out]` where it is fully connected, and a
    `bias`.
    """

    def scale(updates: PyTree, params: PyTree) -> PyTree:
        scaled = {}
        for name, layer in updates.items():
            factor = dense_rate if layer["kernel"].ndim == 2 else 1.0
            scaled[name] = {"kernel": factor * layer["kernel"], "bias": 2 * factor * layer["bias"]}
        return scaled

    return optax.stateless(scale)
