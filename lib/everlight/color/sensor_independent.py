"""SIIE: a small net that maps an image to a working space of its own, and tells the light there.

Afifi and Brown 2019, "Sensor-independent illumination estimation for DNN models" (BMVC). One net
sees the image's histogram of log-chroma and gives a 3x3 matrix; another sees the histogram of the
image under that matrix and gives the light in the space that the matrix leads to; the matrix's
inverse brings it back to the camera's own. Both are trained together by the angular error.

What differs from the paper, to be trained on two CPU cores in a minute: histograms of 33 bins a
side instead of 61; three convolutions of 8, 16 and 32 channels instead of 128, 256 and 512; some
hundred steps at a falling rate of at most 2e-3 instead of 30 epochs at 1e-5; and the first net's
answer is added to the identity, so that training begins at the camera's own space. The kernels'
widths are learnt as in the paper, from one bin on.
"""

import math
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.checks import PositiveInt, checked
from everlight.color.descent import descend
from everlight.color.estimators import Illuminant, Image, Mask, keep_observed, unit_illuminant
from everlight.metrics.angular import angular_error

BINS = 33
SPAN = 3.2
"""Histograms reach from -3.2 to 3.2 in each logarithm."""
DARKEST = 1e-3
"""Of the image's largest value: below it a channel's logarithm is not taken."""
CHANNELS = (8, 16, 32)
BATCH = 16
RATE = 2e-3


class SensorIndependentModel(NamedTuple):
    """The trained parameters of both nets."""

    params: PyTree


class MappedLight(NamedTuple):
    """A light, and the matrix to the working space in which it was told, `pixels @ mapping`."""

    illuminant: Float[Array, "*b 3"]
    mapping: Float[Array, "*b 3 3"]


@checked
def chroma_kernels(
    pixels: Float[Array, "n 3"],
    weights: Float[Array, "n"],
    gain: Float[Array, "3"],
    width: Float[Array, "3"],
) -> Float[Array, "33 33 3"]:
    """The paper's RGB-uv histogram, differentiable in all it is given (its section 3.1).

    For each channel c its log-ratios to the other two are spread over the bins by exp(-|d| / width)
    of each, weighted by the pixel's brightness; of the sum's shares the root, times the gain.

    Args:
      pixels: linear colours, `[n, 3]`; those that are not above 0 have no part.
      weights: 0 where a pixel has no part, `[n]`.
      gain: of each channel's histogram, `[3]`.
      width: of each channel's kernel, in log-chroma, `[3]`.

    Returns:
      The histograms, `[33, 33, 3]`, 0 where no pixel has a part.
    """
    peak = jnp.max(jnp.where(weights[:, None] > 0, pixels, 0))
    floor = DARKEST * jnp.where(peak > 0, peak, 1)
    seen = (weights > 0) & jnp.all(pixels > floor, axis=1)
    # 1 in the place of what is not seen: its logarithm has a gradient.
    kept = jnp.where(seen[:, None], pixels, 1)
    logs = jnp.log(kept)
    brightness = jnp.where(seen, weights * jnp.sqrt(jnp.sum(kept**2, axis=1)), 0)
    places = jnp.linspace(-SPAN, SPAN, BINS)
    histograms = []
    for channel, others in ((0, (1, 2)), (1, (0, 2)), (2, (0, 1))):
        away = [jnp.abs((logs[:, channel] - logs[:, other])[:, None] - places) for other in others]
        across, down = (jnp.exp(-each / width[channel]) for each in away)
        total = jnp.matmul((brightness[:, None] * across).T, down, precision="highest")
        whole = jnp.sum(total)
        share = total / jnp.where(whole > 0, whole, 1)
        root = jnp.sqrt(jnp.where(share > 0, share, 1))
        histograms.append(gain[channel] * jnp.where(share > 0, root, 0))
    return jnp.stack(histograms, axis=-1)


class HistogramNet(nn.Module):
    """Three convolutions and a dense layer on the histogram of some pixels.

    Attributes:
      outputs: numbers that it gives.
    """

    outputs: int

    @nn.compact
    def __call__(
        self, pixels: Float[Array, "b n 3"], weights: Float[Array, "b n"]
    ) -> Float[Array, "b outputs"]:
        """From pixels and their weights."""
        gain = self.param("gain", nn.initializers.constant(BINS), (3,))
        width = self.param("log_width", nn.initializers.constant(math.log(2 * SPAN / BINS)), (3,))
        histograms = jax.vmap(chroma_kernels, (0, 0, None, None))(
            pixels, weights, gain, jnp.exp(width)
        )
        for number, (size, stride) in enumerate(((5, 2), (3, 2), (2, 1))):
            convolution = nn.Conv(CHANNELS[number], (size, size), stride, padding="VALID")
            histograms = nn.relu(convolution(histograms))
        return nn.Dense(self.outputs, kernel_init=nn.initializers.normal(1e-3))(
            histograms.reshape(len(pixels), -1)
        )


class SensorIndependentNet(nn.Module):
    """Both nets, as the module's docstring says."""

    @nn.compact
    def __call__(self, pixels: Float[Array, "b n 3"], weights: Float[Array, "b n"]) -> MappedLight:
        """Lights of any scale in the cameras' own colours, and the matrices."""
        raw = HistogramNet(9, name="mapping")(pixels, weights).reshape(-1, 3, 3)
        raw = jnp.abs(raw + jnp.eye(3))
        # Divided by its 1-norm, the greatest sum of a column.
        norm = jnp.max(jnp.sum(raw, axis=1), axis=1)[:, None, None]
        mapping = raw / jnp.where(norm > 0, norm, 1)
        mapped = jnp.einsum("bni,bij->bnj", pixels, mapping, precision="highest")
        told = jnp.exp(HistogramNet(3, name="illuminant")(mapped, weights))
        return MappedLight(_unmapped(told, mapping), mapping)


def _unmapped(light: Float[Array, "b 3"], mapping: Float[Array, "b 3 3"]) -> Float[Array, "b 3"]:
    """What the matrix maps to the light, up to a positive scale: by cofactors, not divided."""
    first, second, third = (mapping[:, row] for row in range(3))
    cofactors = jnp.stack(
        [jnp.cross(second, third), jnp.cross(third, first), jnp.cross(first, second)], axis=1
    )
    determinant = jnp.sum(first * cofactors[:, 0], axis=1)
    sign = jnp.where(determinant < 0, -1.0, 1.0)[:, None]
    return sign * jnp.einsum("bj,bij->bi", light, cofactors, precision="highest")


@checked
def fit_sensor_independent(
    key: PRNGKeyArray,
    images: Float[Array, "n h w 3"],
    masks: Float[Array, "n h w"],
    illuminants: Float[Array, "n 3"],
    steps: PositiveInt = 500,
) -> SensorIndependentModel:
    """Trains both nets by Adam on the angular error of batches of 16 images.

    Args:
      key: of initial parameters and batches.
      images: linear colours, `[n, h, w, 3]`; 32 pixels a side are enough, of any cameras.
      masks: 0 where a pixel has no part, `[n, h, w]`.
      illuminants: the true lights, any scale, `[n, 3]`.
      steps: of the optimizer; nothing is chosen among them.
    """
    pixels, weights = images.reshape(len(images), -1, 3), masks.reshape(len(masks), -1)
    kept = jnp.where(weights[..., None] > 0, pixels, 0)
    net, (own, drawn) = SensorIndependentNet(), jax.random.split(key)
    params = net.init(own, kept[:1], weights[:1])
    optimizer = optax.adam(optax.cosine_decay_schedule(RATE, steps))

    def loss(params: PyTree, key: PRNGKeyArray) -> Float[Array, ""]:
        rows = jax.random.randint(key, (BATCH,), 0, len(images))
        told = net.apply(params, kept[rows], weights[rows]).illuminant
        return jnp.mean(jax.vmap(angular_error)(told, illuminants[rows]))

    params = descend(loss, params, optimizer, drawn, steps)
    return SensorIndependentModel(params)


@checked
def sensor_independent_estimate(
    model: SensorIndependentModel, image: Image, mask: Mask = None
) -> Illuminant:
    """The unit light of an image; NaN where no pixel has a part, or it is none.

    Args:
      model: from `fit_sensor_independent`.
      image: linear colours, `[h, w, 3]`.
      mask: 0 where a pixel has no part, `[h, w]`.
    """
    observed = keep_observed(image, mask)
    weights = jnp.ones(image.shape[:2]) if mask is None else (mask > 0).astype(image.dtype)
    finite = jnp.all(jnp.isfinite(observed))
    told = SensorIndependentNet().apply(
        model.params,
        jnp.where(finite, observed, 0).reshape(1, -1, 3),
        weights.reshape(1, -1),
    )
    light = jnp.maximum(told.illuminant[0], 0)
    seen = jnp.any(jnp.all(observed > 0, axis=-1) & (weights > 0))
    usable = finite & seen & (jnp.max(light) > 0)
    return unit_illuminant(jnp.where(usable, light, jnp.nan))
