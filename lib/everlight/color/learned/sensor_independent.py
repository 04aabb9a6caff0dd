"""SIIE: a small network that maps an image to a learned working space, in which it estimates.

Afifi and Brown 2019, "Sensor-independent illumination estimation for DNN models" (BMVC). One
network reads the image's log-chroma histogram and predicts a 3x3 matrix. A second network reads the
histogram of the image under that matrix and predicts the illuminant in the working space. The
inverse matrix maps it back to the camera's space. Both are trained together on the angular error.

The paper's network has `SENSOR_PAPER_SIZE`; `SENSOR_SMALL_FORM`, with 33 bins per side in place of
61 and 8, 16 and 32 channels in place of 128, 256 and 512, is trained in a minute on two CPU cores.
Differences from the paper:

- Training takes a number of steps at a rate that falls by a cosine, from 2e-3 for the small form
  and 1e-4 for the paper's size, instead of 30 epochs at 1e-5.
- The first network's output is added to the identity, so that training starts in the camera's
  space.

As in the paper, the kernel widths are learned; they start at one bin.
"""

import math
from functools import partial
from typing import Annotated, Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.checks import (
    FINITE,
    NOT_NEGATIVE,
    POSITIVE,
    NotEmpty,
    PositiveInt,
    Stacked,
    check_sizes,
    checked,
)
from everlight.color.illuminant_method import IlluminantMethod, LabelledImages, images_alone
from everlight.color.illuminants import Illuminant, keep_observed, unit_illuminant
from everlight.color.learned.parts.descent import descend
from everlight.color.learned.parts.observed_image import (
    ObservedImage,
    masked_thumbnail,
    observed,
    thumbnail,
)
from everlight.color.transforms import apply_color_transform
from everlight.metrics.angular import angular_error
from everlight.models.layers.convolution import NO_PADDING, Convolution
from everlight.precision import full_precision, matrix_product

SPAN = 3.2
"""Histograms reach from -3.2 to 3.2 in each logarithm."""
DARK_THRESHOLD = 1e-3
"""Fraction of the image's largest value; pixels with a darker channel are excluded."""
BATCH_SIZE = 16


class SensorSettings(NamedTuple):
    """Size of the networks and initial learning rate; the defaults are those of the small form.

    Attributes:
      bins: number of bins per side of a histogram.
      channels: channels of the three convolutions.
      learning_rate: initial learning rate.
    """

    bins: PositiveInt = 33
    channels: tuple[int, int, int] = (8, 16, 32)
    learning_rate: float = 2e-3


SENSOR_SMALL_FORM = SensorSettings()
SENSOR_PAPER_SIZE = SensorSettings(61, (128, 256, 512), 1e-4)


@struct.dataclass
class SensorIndependentModel:
    """Trained networks.

    Attributes:
      params: parameters of both networks.
      settings: their size.
    """

    params: PyTree
    settings: SensorSettings = struct.field(pytree_node=False, default=SENSOR_SMALL_FORM)


class MappedIlluminant(NamedTuple):
    """An illuminant, and the matrix to the working space of its estimation, `pixels @ mapping`."""

    illuminant: Float[Array, "*b 3"]
    mapping: Float[Array, "*b 3 3"]


@checked
def chroma_kernels(
    pixels: Float[Array, "n 3"],
    weights: Annotated[Float[Array, "n"], NOT_NEGATIVE],
    gain: Annotated[Float[Array, "3"], FINITE],
    width: Annotated[Float[Array, "3"], POSITIVE],
    bins: PositiveInt = SENSOR_SMALL_FORM.bins,
) -> Float[Array, "b b 3"]:
    """Compute the paper's differentiable RGB-uv histogram (its section 3.1).

    For each channel c, its log-ratios to the other two are spread over the bins by exp(-|d| /
    width) and weighted by the pixel's brightness. The histogram is the square root of the
    normalized sum, times the gain.

    Args:
      pixels: linear colours, `[n, 3]`; pixels with a channel of at most 0 are excluded.
      weights: weight of each pixel, `[n]`; 0 masks a pixel.
      gain: gain of each channel's histogram, `[3]`.
      width: width of each channel's kernel in log-chroma, `[3]`.
      bins: number of bins per side, static.

    Returns:
      The histograms, `[bins, bins, 3]`, 0 where no pixel is used. NaN pixels are excluded; an
        infinite one excludes all.
    """
    known = (weights > 0) & ~jnp.any(jnp.isnan(pixels), axis=1)
    peak = jnp.max(jnp.where(known[:, None], pixels, 0))
    floor = DARK_THRESHOLD * jnp.where(peak > 0, peak, 1)
    seen = (weights > 0) & jnp.all(pixels > floor, axis=1)
    # Excluded pixels are set to 1, where the logarithm has a finite gradient.
    usable = jnp.where(seen[:, None], pixels, 1)
    logs = jnp.log(usable)
    brightness = jnp.where(seen, weights * jnp.sqrt(jnp.sum(usable**2, axis=1)), 0)
    positions = jnp.linspace(-SPAN, SPAN, bins)
    histograms = []
    for channel, others in ((0, (1, 2)), (1, (0, 2)), (2, (0, 1))):
        away = [
            jnp.abs((logs[:, channel] - logs[:, other])[:, None] - positions) for other in others
        ]
        across, down = (jnp.exp(-distance / width[channel]) for distance in away)
        total = matrix_product((brightness[:, None] * across).T, down)
        mass = jnp.sum(total)
        share = total / jnp.where(mass > 0, mass, 1)
        root = jnp.sqrt(jnp.where(share > 0, share, 1))
        histograms.append(gain[channel] * jnp.where(share > 0, root, 0))
    return jnp.stack(histograms, axis=-1)


class HistogramNet(nn.Module):
    """Three convolutions and a dense layer on the histogram of pixels.

    Attributes:
      outputs: number of outputs.
      settings: its size.
    """

    outputs: int
    settings: SensorSettings = SENSOR_SMALL_FORM

    @nn.compact
    def __call__(
        self, pixels: Float[Array, "b n 3"], weights: Float[Array, "b n"]
    ) -> Float[Array, "b outputs"]:
        """Return the outputs for pixels and their weights."""
        bins = self.settings.bins
        gain = self.param("gain", nn.initializers.constant(bins), (3,))
        width = self.param("log_width", nn.initializers.constant(math.log(2 * SPAN / bins)), (3,))
        histograms = jax.vmap(chroma_kernels, (0, 0, None, None, None))(
            pixels, weights, gain, jnp.exp(width), bins
        )
        for number, (size, stride) in enumerate(((5, 2), (3, 2), (2, 1))):
            convolution = Convolution(
                self.settings.channels[number],
                size,
                stride,
                kernel_init=nn.initializers.lecun_normal(),
                padding=NO_PADDING,
                name=f"Conv_{number}",
            )
            histograms = nn.relu(convolution(histograms))
        return nn.Dense(self.outputs, kernel_init=nn.initializers.normal(1e-3))(
            histograms.reshape(len(pixels), -1)
        )


class SensorIndependentNet(nn.Module):
    """Both networks, as described in the module's docstring.

    Attributes:
      settings: their size.
    """

    settings: SensorSettings = SENSOR_SMALL_FORM

    @nn.compact
    def __call__(
        self, pixels: Float[Array, "b n 3"], weights: Float[Array, "b n"]
    ) -> MappedIlluminant:
        """Return illuminants of any scale in the cameras' own space, and the matrices."""
        raw = HistogramNet(9, self.settings, name="mapping")(pixels, weights).reshape(-1, 3, 3)
        raw = jnp.abs(raw + jnp.eye(3))
        # Divided by its 1-norm, the greatest sum of a column.
        norm = jnp.max(jnp.sum(raw, axis=1), axis=1)[:, None, None]
        mapping = raw / jnp.where(norm > 0, norm, 1)
        mapped = jax.vmap(apply_color_transform)(pixels, mapping)
        outputs = jnp.exp(HistogramNet(3, self.settings, name="illuminant")(mapped, weights))
        return MappedIlluminant(_apply_inverse(outputs, mapping), mapping)


@full_precision
def _apply_inverse(
    illuminant: Float[Array, "b 3"], mapping: Float[Array, "b 3 3"]
) -> Float[Array, "b 3"]:
    """Apply the inverse matrix up to a positive scale, by cofactors without a division."""
    first, second, third = (mapping[:, row] for row in range(3))
    cofactors = jnp.stack(
        [jnp.cross(second, third), jnp.cross(third, first), jnp.cross(first, second)], axis=1
    )
    determinant = jnp.sum(first * cofactors[:, 0], axis=1)
    sign = jnp.where(determinant < 0, -1.0, 1.0)[:, None]
    return sign * jnp.einsum("bj,bij->bi", illuminant, cofactors)


@checked
@partial(jax.jit, static_argnames=("steps", "settings"))
def fit_sensor_independent(
    observations: Annotated[ObservedImage, Stacked],
    illuminants: Annotated[Float[Array, "n 3"], POSITIVE, NotEmpty],
    *,
    key: PRNGKeyArray,
    steps: PositiveInt = 500,
    settings: SensorSettings = SENSOR_SMALL_FORM,
) -> SensorIndependentModel:
    """Train both networks with Adam on the angular error of batches of 16 images.

    Args:
      observations: images of any cameras and masks from `observe_image`, `[n, h, w, 3]` and
        `[n, h, w]`; 32 pixels per side suffice.
      illuminants: true illuminants, any scale, `[n, 3]`.
      key: key of initial parameters and batches.
      steps: number of optimizer steps, static; the last parameters are returned.
      settings: size of the networks, static.

    Raises:
      ValueError: the numbers of images and of illuminants differ.
    """
    check_sizes(observations=(observations.image, 0), illuminants=(illuminants, 0))
    images, masks = map(jnp.asarray, observations)
    illuminants = jnp.asarray(illuminants)
    pixels, weights = images.reshape(len(images), -1, 3), masks.reshape(len(masks), -1)
    unmasked = jnp.where(weights[..., None] > 0, pixels, 0)
    net, (initial, drawn) = SensorIndependentNet(settings), jax.random.split(key)
    params = net.init(initial, unmasked[:1], weights[:1])
    optimizer = optax.adam(optax.cosine_decay_schedule(settings.learning_rate, steps))

    def loss(params: PyTree, key: PRNGKeyArray) -> Float[Array, ""]:
        rows = jax.random.randint(key, (BATCH_SIZE,), 0, len(images))
        outputs = net.apply(params, unmasked[rows], weights[rows]).illuminant
        return jnp.mean(jax.vmap(angular_error)(outputs, illuminants[rows]))

    params = descend(loss, params, optimizer, drawn, steps)
    return SensorIndependentModel(params, settings)


@checked
def sensor_independent_estimate(
    model: SensorIndependentModel, observation: ObservedImage
) -> Illuminant:
    """Return the unit illuminant of an image; NaN without usable pixels or a positive channel.

    Args:
      model: model from `fit_sensor_independent`.
      observation: image and mask from `observe_image`, `[h, w, 3]` and `[h, w]`.
    """
    image = keep_observed(*observation)
    weights = (observation.mask > 0).astype(image.dtype)
    finite = jnp.all(jnp.isfinite(image))
    outputs = SensorIndependentNet(model.settings).apply(
        model.params, jnp.where(finite, image, 0).reshape(1, -1, 3), weights.reshape(1, -1)
    )
    illuminant = jnp.maximum(outputs.illuminant[0], 0)
    seen = jnp.any(jnp.all(image > 0, axis=-1) & (weights > 0))
    usable = finite & seen & (jnp.max(illuminant) > 0)
    return unit_illuminant(jnp.where(usable, illuminant, jnp.nan))


@images_alone
def _fit(images: LabelledImages, **training: Any) -> SensorIndependentModel:
    pixels, key = observed(images.features), jax.random.key(0)
    return fit_sensor_independent(pixels, images.illuminants, key=key, **training)


def _predict(model: SensorIndependentModel, thumbnail: Float[Array, "h w 4"]) -> Illuminant:
    return sensor_independent_estimate(model, observed(thumbnail))


# The steps at the paper's size have no measured number in this project.
METHODS = (
    IlluminantMethod("SIIE", partial(masked_thumbnail, side=32), _fit, _predict),
    IlluminantMethod(
        "SIIE at the paper's size",
        thumbnail,
        partial(_fit, steps=1_000, settings=SENSOR_PAPER_SIZE),
        _predict,
        costly=True,
    ),
)
