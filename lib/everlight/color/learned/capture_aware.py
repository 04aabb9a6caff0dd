"""Illuminants from an image's histograms together with a vector of its capture.

Afifi, Zhao et al. 2025, "Time-aware auto white balance in mobile photography" (ICCV, arXiv
2504.05623). A network of about 5,000 parameters reads the image's histograms and a vector: how near
the time of day is to six events of the sun, whether it is before each, the logarithms of ISO and
exposure time, and the flash. Any other vector may stand in its place, such as the brightness of the
scene (`lux_feature`), which is not the paper's.

The layers equal those of the authors' inference code (SamsungLabs/modular_neural_isp at 725af74,
`awb_ccm/s24_model.py`), and the features the paper's formula. The paper's own repository
(SamsungLabs/time-aware-awb), with its training code, was not compared. Differs in:

- Histograms are those of C5 (`chroma_histogram`), in log-chroma, with a colour in up to four bins,
  in the window of C5's small form. The code has 48 bins of R/G and of B/G in the range of the
  training images, a pixel in one bin, and edges weighted by the pixels' brightness.
- Positions of bins run from 0 to 1, in the official code to 47/48.
- The optional statistics of noise are left out.
- Initial weights are the normal numbers of He et al. and LeCun. Biases start at 0, those of the
  output at 0.6, about a usual R/G and B/G. PyTorch's defaults are uniform numbers.
- Running variances of batch normalization divide by the number of images, in the official code by
  one less.
- Training has a number of steps, batches of 16 and a rate that falls by a cosine from 0.003. The
  configurations of the released models have 400 epochs, batches of 8 and a rate of 0.001.
"""

from functools import partial
from typing import Annotated, Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from everlight.checks import (
    FINITE,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    Between,
    NotEmpty,
    PositiveInt,
    check_sizes,
    checked,
)
from everlight.color.chroma_histogram import (
    CHROMA_WINDOW,
    chroma_histograms,
    has_pixels,
    without_spoilt,
)
from everlight.color.chromaticity import chromaticity_to_illuminant
from everlight.color.illuminant_method import (
    CapturedFeatures,
    IlluminantMethod,
    LabelledImages,
    images_alone,
)
from everlight.color.illuminants import Illuminant, Image, Mask, unit_illuminant
from everlight.color.learned.parts.descent import descend_with_stats
from everlight.color.learned.parts.generator_net import append_coordinates
from everlight.color.learned.parts.generator_training import BATCH_SIZE
from everlight.metrics.angular import angular_error
from everlight.models.layers.convolution import Convolution

DAY = 86_400.0
"""Seconds of a day."""
EVENTS = ("dawn", "sunrise", "noon", "sunset", "dusk", "midnight")
"""Events of the sun, in the order of the features."""
LEARNING_RATE = 3e-3
LATENT, HIDDEN = 16, 32


class CaptureModel(NamedTuple):
    """Trained network, and the range of the features in training."""

    variables: PyTree
    lowest: Float[Array, "f"]
    highest: Float[Array, "f"]


@checked
def capture_features(
    time: Annotated[Float[Array, ""], Between(0, DAY)],
    events: Annotated[Float[Array, "6"], Between(0, DAY)],
    iso: Annotated[Float[Array, ""], POSITIVE],
    exposure: Annotated[Float[Array, ""], POSITIVE],
    flash: Bool[Array, ""],
) -> Float[Array, "15"]:
    """Return the paper's features of a capture.

    They are 1 - |t - e| / day for each event e, whether t is before e, log ISO, log exposure time
    and the flash.

    Args:
      time: local time of the capture in seconds from midnight.
      events: local times of `EVENTS` on that day and place in seconds from midnight.
      iso: sensitivity.
      exposure: exposure time in seconds.
      flash: whether the flash fired.
    """
    near = 1 - jnp.abs(time - events) / DAY
    rest = jnp.stack([jnp.log(iso), jnp.log(exposure), jnp.asarray(flash, near.dtype)])
    return jnp.concatenate([near, (time < events).astype(near.dtype), rest])


@checked
def lux_feature(lux: Annotated[Float[Array, ""], NOT_NEGATIVE]) -> Float[Array, "1"]:
    """Return the logarithm of 1 + the scene's brightness, as a vector of the capture.

    A camera's own estimate of brightness can be 0.

    Args:
      lux: illuminance in lux.
    """
    return jnp.log1p(lux)[None]


class CaptureNet(nn.Module):
    """Three convolutions on the histograms, and four dense layers on their mean and the vector."""

    @nn.compact
    def __call__(
        self,
        histograms: Float[Array, "n b b 2"],
        features: Float[Array, "n f"],
        train: bool = False,
    ) -> Float[Array, "n 2"]:
        """Return R/G and B/G; with `train` the batch's statistics normalize, and are kept."""
        maps = append_coordinates(histograms)
        for width in (8, 8, LATENT):
            maps = nn.elu(Convolution(width)(maps))
        seen = nn.Dense(LATENT)(jnp.mean(maps, axis=(1, 2)))
        both = jnp.concatenate([seen, nn.Dense(LATENT)(features)], axis=-1)
        hidden = nn.BatchNorm(not train, momentum=0.9, epsilon=1e-5)(nn.Dense(HIDDEN)(both))
        hidden = nn.elu(hidden)
        for width in (HIDDEN // 2, HIDDEN):
            hidden = nn.elu(nn.Dense(width)(hidden))
        return nn.Dense(2, bias_init=nn.initializers.constant(0.6))(hidden)


@checked
@partial(jax.jit, static_argnames="steps")
def fit_capture_aware(
    histograms: Annotated[Float[Array, "n b b 2"], FRACTION],
    features: Annotated[Float[Array, "n f"], FINITE],
    illuminants: Annotated[Float[Array, "n 3"], POSITIVE, NotEmpty],
    *,
    key: PRNGKeyArray,
    steps: PositiveInt = 1_000,
) -> CaptureModel:
    """Train the network with Adam on the angular error of batches of 16 images.

    Args:
      histograms: histograms from `chroma_histograms`, `[n, b, b, 2]`; an image whose histograms are
        0 or NaN does not train.
      features: vector of each image, such as `capture_features`, `[n, f]`; equal columns give the
        estimator without a vector.
      illuminants: true illuminants, any scale, `[n, 3]`.
      key: key of initial parameters and batches.
      steps: number of optimizer steps, static; the last parameters are returned.

    Raises:
      ValueError: the numbers of images, of vectors and of illuminants differ.
    """
    check_sizes(histograms=(histograms, 0), features=(features, 0), illuminants=(illuminants, 0))
    first, drawn = jax.random.split(key)
    seen, histograms = has_pixels(histograms), without_spoilt(jnp.asarray(histograms))
    lowest, highest = jnp.min(features, axis=0), jnp.max(features, axis=0)
    scaled = _scale(jnp.asarray(features), lowest, highest)
    illuminants = jnp.asarray(illuminants)
    net = CaptureNet()
    variables = net.init(first, histograms[:1], scaled[:1])
    optimizer = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, steps))

    def loss(variables: PyTree, key: PRNGKeyArray) -> tuple[Array, PyTree]:
        rows = jax.random.randint(key, (BATCH_SIZE,), 0, len(histograms))
        outputs, changed = net.apply(
            variables, histograms[rows], scaled[rows], True, mutable=["batch_stats"]
        )
        errors = jax.vmap(angular_error)(chromaticity_to_illuminant(outputs), illuminants[rows])
        return jnp.mean(jnp.where(seen[rows], errors, 0)), changed["batch_stats"]

    return CaptureModel(
        descend_with_stats(loss, dict(variables), optimizer, drawn, steps), lowest, highest
    )


@checked
def capture_aware_estimate(
    model: CaptureModel,
    histograms: Annotated[Float[Array, "b b 2"], FRACTION],
    features: Annotated[Float[Array, "f"], FINITE],
) -> Illuminant:
    """Return the unit illuminant of an image; NaN where its histogram has no pixels.

    Args:
      model: model from `fit_capture_aware`.
      histograms: histograms of the image, as in training.
      features: vector of the image, as in training.

    Raises:
      ValueError: the vector has another length than in training.
    """
    check_sizes(lowest=(model.lowest, 0), features=(features, 0))
    scaled = _scale(features, model.lowest, model.highest)
    output = CaptureNet().apply(model.variables, without_spoilt(histograms)[None], scaled[None])
    illuminant = unit_illuminant(jnp.maximum(chromaticity_to_illuminant(output)[0], 0))
    return jnp.where(has_pixels(histograms), illuminant, jnp.nan)


def _scale(
    features: Float[Array, "*n f"], lowest: Float[Array, "f"], highest: Float[Array, "f"]
) -> Float[Array, "*n f"]:
    """Scale features to 0 to 1 over the training images; constant ones become 0."""
    span = highest - lowest
    return (features - lowest) / jnp.where(span > 0, span, 1)


CAPTURE_AWARE = "Capture-aware"
IMAGE_ALONE = "Capture-aware, without the capture"
WITHOUT_CAPTURES = (
    "it needs lux, or time, sun, ISO, exposure and flash, of each image, and none are given"
)


def _histograms(image: Image, mask: Mask) -> Float[Array, "b b 2"]:
    return chroma_histograms(image, mask, CHROMA_WINDOW)


@images_alone
def _fit(images: LabelledImages, **training: Any) -> CaptureModel:
    described: CapturedFeatures = images.features
    key = jax.random.key(0)
    return fit_capture_aware(*described, images.illuminants, key=key, **training)


@images_alone
def _fit_image_alone(images: LabelledImages, **training: Any) -> CaptureModel:
    # A column of equal numbers tells the network nothing.
    nothing = jnp.zeros((len(images.illuminants), 1))
    key = jax.random.key(0)
    return fit_capture_aware(images.features, nothing, images.illuminants, key=key, **training)


def _predict(model: CaptureModel, image: CapturedFeatures) -> Illuminant:
    return capture_aware_estimate(model, image.features, image.capture)


def _predict_image_alone(model: CaptureModel, histograms: Float[Array, "b b 2"]) -> Illuminant:
    return capture_aware_estimate(model, histograms, jnp.zeros(1))


METHODS = (
    IlluminantMethod(
        CAPTURE_AWARE,
        _histograms,
        _fit,
        _predict,
        reads_capture=True,
        incompatibility=lambda side: "" if side.captures is not None else WITHOUT_CAPTURES,
    ),
    IlluminantMethod(
        IMAGE_ALONE,
        _histograms,
        _fit_image_alone,
        _predict_image_alone,
        applies=lambda side: side.captures is not None,
    ),
)
