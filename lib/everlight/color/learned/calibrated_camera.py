"""CCMNet: C5's network with a camera's calibration in place of additional images.

Kim, Afifi, Brown 2025, "CCMNet: Leveraging calibrated color correction matrices for cross-camera
color constancy" (arXiv 2504.07959). An encoder reads the histogram of Planckian illuminants in the
camera's colours (`camera_calibration.camera_fingerprint`), and its eight features are channels
in addition to the image's histograms. Training has views by imaginary cameras, whose matrices lie
between those of two cameras. A new camera needs its matrices and no image. The authors' network has
`CALIBRATED_AUTHORS_SIZE`; `CALIBRATED_SMALL_FORM` has the sizes of C5's small form.

Equal to the authors' code (DY112/CCMNet at 298275b, `scripts/train.py`) except for what
`camera_calibration`, `camera_mapping`, `chroma_histogram`, `generator_net` and `generator_training`
state, and for:

- Training images are thumbnails, in the official code images of 384x256 pixels. Each has two views,
  in the official code one by default.
- Illuminants of views are those of the camera's images, without sampled ones.
- Training has a number of steps in place of 50 epochs, and C5's optimizer. Gradients are not
  clipped; the official code clips them to a norm of 0.5. The rate starts at 0.002 and falls by a
  cosine; in the official code it starts at 0.0005 and is halved after 25 epochs.
- Batches are drawn with replacement.
- There is no validation, and the last parameters are returned.
"""

from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.checks import (
    FRACTION,
    POSITIVE,
    Between,
    NotEmpty,
    PositiveInt,
    Stacked,
    check_range,
    checked,
)
from everlight.color.camera_calibration import (
    CameraCalibration,
    camera_fingerprint,
    imaginary_camera,
)
from everlight.color.chroma_histogram import CHROMA_WINDOW, ChromaWindow, chroma_histograms
from everlight.color.illuminant_method import IlluminantMethod, LabelledImages, SideInformation
from everlight.color.illuminants import Illuminant
from everlight.color.learned.parts.camera_mapping import TakenImages, draw_imaginary_view
from everlight.color.learned.parts.generator_net import GeneratorSettings
from everlight.color.learned.parts.generator_training import (
    GeneratorModel,
    Sample,
    fit_generator,
    generated_illuminant,
    training_pool,
)
from everlight.color.learned.parts.observed_image import ObservedImage, observed, thumbnail
from everlight.trees import rows_of

CALIBRATED_AUTHORS_SIZE = GeneratorSettings(channels=(24, 32, 32, 32), fingerprint=(16, 32, 64, 64))
CALIBRATED_SMALL_FORM = GeneratorSettings(
    CHROMA_WINDOW,
    (8, 16, 32),
    fingerprint=(8, 16, 32),
    fingerprint_window=ChromaWindow(32, -0.5, 1.5),
)
VIEWS = 2
"""Number of views by imaginary cameras of each training image."""


@checked
def fit_calibrated_camera(
    observations: Annotated[ObservedImage, Stacked],
    illuminants: Annotated[Float[Array, "n 3"], POSITIVE, NotEmpty],
    cameras: Annotated[Int[Array, "n"], Between(0)],
    calibrations: Annotated[CameraCalibration, Stacked],
    *,
    key: PRNGKeyArray,
    steps: PositiveInt = 600,
    settings: GeneratorSettings = CALIBRATED_SMALL_FORM,
) -> GeneratorModel:
    """Train the network with Adam on batches of 16 images and their cameras' fingerprints.

    The loss is the angular error, plus the roughness of the filters and the bias map. Training
    images are the given ones and two views of each by imaginary cameras.

    Args:
      observations: images and masks from `observe_image`, `[n, h, w, 3]` and `[n, h, w]`; an image
        without usable pixels, or with one that is not finite, does not train.
      illuminants: true illuminants, any scale, `[n, 3]`.
      cameras: camera index of each image, from 0, `[n]`.
      calibrations: calibration of each camera; its matrices map images, by temperature.
      key: key of initial parameters, views and batches.
      steps: number of optimizer steps, static; the last parameters are returned.
      settings: size of the network, static.

    Raises:
      ValueError: a camera index is beyond the calibrations.
    """
    check_range("cameras", cameras, 0, len(calibrations.matrices) - 1)
    return _train(
        observations, illuminants, cameras, calibrations, key=key, steps=steps, settings=settings
    )


@partial(jax.jit, static_argnames=("steps", "settings"))
def _train(
    observations: ObservedImage,
    illuminants: Float[Array, "n 3"],
    cameras: Int[Array, "n"],
    calibrations: CameraCalibration,
    *,
    key: PRNGKeyArray,
    steps: int,
    settings: GeneratorSettings,
) -> GeneratorModel:
    first, viewed, drawn = jax.random.split(key, 3)
    calibrations = jax.tree.map(jnp.asarray, calibrations)
    taken = TakenImages(jnp.asarray(illuminants), jnp.asarray(cameras))
    pool = training_pool(
        viewed,
        observations,
        taken,
        calibrations,
        draw_imaginary_view,
        VIEWS,
        settings.window,
    )

    def fingerprint(one: tuple[Array, Array, Array]) -> Float[Array, "f f 2"]:
        camera, source, share = one
        ends = (jax.tree.map(lambda leaf, i=i: leaf[i], calibrations) for i in (camera, source))
        return camera_fingerprint(imaginary_camera(*ends, share), settings.fingerprint_window)

    camera_pairs = pool.cameras, pool.source_cameras, pool.shares
    fingerprints = jax.lax.map(fingerprint, camera_pairs, batch_size=64)

    def draw(key: PRNGKeyArray) -> tuple[Sample, None, Float[Array, "f f 2"]]:
        row = jax.random.randint(key, (), 0, len(pool.histograms))
        return pool.sample(row), None, fingerprints[row]

    return fit_generator(first, drawn, settings, draw, steps)


@checked
def calibrated_estimate(
    model: GeneratorModel,
    histograms: Annotated[Float[Array, "b b 2"], FRACTION],
    fingerprint: Annotated[Float[Array, "f f 2"], Between(0, 1)],
) -> Illuminant:
    """Return the unit illuminant of an image; NaN where its histogram has no pixels.

    Args:
      model: model from `fit_calibrated_camera`.
      histograms: histograms of the image from `chroma_histograms` in the model's window.
      fingerprint: fingerprint of the image's camera from `camera_fingerprint` in the model's window
        for fingerprints. The camera may be absent from training.
    """
    return generated_illuminant(model, histograms, None, fingerprint[None])


class CalibratedFit(NamedTuple):
    """CCMNet's model and the camera that it is applied to.

    Attributes:
      model: trained network.
      fingerprint: fingerprint of the camera.
      by_temperature: whether a training camera had two matrices. Otherwise fingerprints are made of
        the matrix of daylight alone, as in training.
    """

    model: GeneratorModel
    fingerprint: Float[Array, "f f 2"]
    by_temperature: Bool[Array, ""]


def _fit(images: LabelledImages, side: SideInformation, **training: Any) -> CalibratedFit:
    taken = observed(images.features), images.illuminants, images.cameras
    calibrations = jax.tree.map(jnp.asarray, side.calibrations)
    model = fit_calibrated_camera(*taken, calibrations, key=jax.random.key(0), **training)
    by_temperature = jnp.any(calibrations.matrices[:, 0] != calibrations.matrices[:, -1])
    return _apply_calibration(model, by_temperature, rows_of(calibrations, side.camera_number))


@jax.jit
def _apply_calibration(
    model: GeneratorModel, by_temperature: Bool[Array, ""], calibration: CameraCalibration
) -> CalibratedFit:
    """Return the model with the fingerprint of a camera."""
    both = jnp.asarray(calibration.matrices)
    read = calibration._replace(matrices=jnp.where(by_temperature, both, both[-1]))
    fingerprint = camera_fingerprint(read, model.settings.fingerprint_window)
    return CalibratedFit(model, fingerprint, by_temperature)


def _calibrate(fitted: CalibratedFit, calibration: CameraCalibration) -> CalibratedFit:
    return _apply_calibration(fitted.model, fitted.by_temperature, calibration)


def _predict(fitted: CalibratedFit, thumbnail: Float[Array, "h w 4"]) -> Illuminant:
    histograms = chroma_histograms(*observed(thumbnail), fitted.model.settings.window)
    return calibrated_estimate(fitted.model, histograms, fitted.fingerprint)


def _missing_calibration(side: SideInformation) -> str:
    return side.uncalibrated if side.calibrations is None else ""


# At the authors' size it trains for half an hour on one core.
METHODS = (
    IlluminantMethod(
        "CCMNet, small form",
        thumbnail,
        _fit,
        _predict,
        calibrate=_calibrate,
        incompatibility=_missing_calibration,
    ),
    IlluminantMethod(
        "CCMNet at the authors' size",
        thumbnail,
        partial(_fit, steps=3_000, settings=CALIBRATED_AUTHORS_SIZE),
        _predict,
        calibrate=_calibrate,
        costly=True,
        incompatibility=_missing_calibration,
    ),
)
