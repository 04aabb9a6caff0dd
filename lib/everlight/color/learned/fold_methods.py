"""Estimators of one illuminant per image in one table, fitted and applied fold by fold.

Statistics and the learned methods of `everlight.color.learned` share the interface `FoldMethod`
(`folds.py`), also those that read other images by their camera. Sizes and numbers of steps suit
thumbnails.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from everlight.color.camera_calibration import CameraCalibration, camera_fingerprint
from everlight.color.derivatives import ESTIMATORS
from everlight.color.illuminant_folds import Features, Fold, FoldMethod
from everlight.color.learned.bias_correction import (
    TrainingEstimates,
    correct_bias,
    correct_bias_locally,
    fit_bias_correction,
)
from everlight.color.learned.calibrated_camera import (
    CALIBRATED_AUTHORS_SIZE,
    CALIBRATED_SMALL_FORM,
    calibrated_estimate,
    fit_calibrated_camera,
)
from everlight.color.learned.chroma_histogram import chroma_histograms
from everlight.color.learned.confidence_pooling import (
    ConfidencePoolingModel,
    confidence_pooled_estimate,
    fit_confidence_pooling,
)
from everlight.color.learned.cross_camera import (
    AUTHORS_SIZE,
    SMALL_FORM,
    cross_camera_estimate,
    fit_cross_camera,
)
from everlight.color.learned.dual_mapping import (
    DualMappingModel,
    dual_mapping_estimate,
    fit_dual_mapping,
)
from everlight.color.learned.fourier_constancy import (
    FOURIER_SETTINGS,
    ROUNDS,
    FourierModel,
    FourierSettings,
    fit_fourier_constancy,
    fourier_estimate,
    log_chroma_histograms,
)
from everlight.color.learned.gamut import Gamut, fit_gamut, gamut_estimate
from everlight.color.learned.generator_net import GeneratorSettings
from everlight.color.learned.generator_training import GeneratorModel
from everlight.color.learned.observed_image import ObservedImage
from everlight.color.learned.sensor_independent import (
    SENSOR_PAPER_SIZE,
    SENSOR_SMALL_FORM,
    SensorIndependentModel,
    SensorSettings,
    fit_sensor_independent,
    sensor_independent_estimate,
)
from everlight.color.moments import color_moments, edge_moments

FOURIER_ROUNDS = ROUNDS
"""Steps of FFCC's two rounds, as its authors set them."""
SENSOR_INDEPENDENT_STEPS = 500
SENSOR_INDEPENDENT_SIDE = 32
SENSOR_PAPER_STEPS = 1_000
"""Steps of SIIE at its paper's size, which has no measured number here."""
DUAL_MAPPING_STEPS = 5_000
DUAL_MAPPING_SIDE = 64
"""Side of the thumbnails that DMCC's authors use."""
CROSS_CAMERA_STEPS = 600
AUTHORS_STEPS = 3_000
"""Steps of C5 and CCMNet at the authors' size, which train for half an hour on one core."""
CONFIDENCE_POOLING_STEPS = 500

TUNED_HERE = "FFCC, its settings tuned by its authors on this camera's folds"
DUAL_MAPPING = "DMCC"
CALIBRATED = "CCMNet, small form"
POOLED = "FC4-style"

DAYLIGHT = {
    "Canon1DsMkIII": (0.19, 0.45, 0.36),
    "Canon550D": (0.204, 0.471, 0.325),
    "Canon600D": (0.20, 0.46, 0.34),
    "FujifilmXM1": (0.22, 0.46, 0.32),
    "NikonD5200": (0.17, 0.48, 0.35),
    "OlympusEPL6": (0.22, 0.48, 0.30),
    "PanasonicGX1": (0.17, 0.48, 0.35),
    "SamsungNX2000": (0.19, 0.49, 0.32),
    "SonyA57": (0.16, 0.49, 0.35),
}
"""White under daylight of 6500 K in each camera's colours, in shares, measured by DMCC's authors.

The values follow from the matrices and the white of the Sony IMX135 in their repository.
"""


class TrunkViews(NamedTuple):
    """Maps of a frozen network, mean linear colours and illuminant factors by image and view.

    The first view is the unchanged image.
    """

    maps: Float[np.ndarray, "n k 8 8 c"]
    colors: Float[np.ndarray, "n k 8 8 3"]
    factors: Float[np.ndarray, "n k 3"]


def _fit_nothing(fold: Fold) -> None:
    """Return the model of a statistic, which has none."""


def _given(model: None, estimate: Float[Array, "3"]) -> Float[Array, "3"]:
    """Return the features of a statistic, which are its estimate."""
    return estimate


def _fit_gamut(order: int, fold: Fold) -> Gamut:
    return fit_gamut(ObservedImage(*fold.train), fold.illuminants, order=order)


def _map_gamut(model: Gamut, observed: tuple[Array, Array]) -> Float[Array, "3"]:
    return gamut_estimate(model, ObservedImage(*observed))


def _moments_of_image(
    image: Float[Array, "h w 3"], mask: Float[Array, "h w"], degree: int
) -> Array:
    return color_moments(image.reshape(-1, 3), mask.ravel(), degree)


@jax.jit
def _fit_correction(fold: Fold) -> Float[Array, "f 3"]:
    return fit_bias_correction(fold.train, fold.illuminants)


def _keep_estimates(fold: Fold) -> TrainingEstimates:
    return TrainingEstimates(fold.train, fold.illuminants)


def _histograms(image: Float[Array, "h w 3"], mask: Float[Array, "h w"]) -> Array:
    """Return histograms of an image scaled to its maximum, as FFCC's thumbnails are."""
    peak = jnp.max(jnp.where(mask[..., None] > 0, image, 0))
    return log_chroma_histograms(image / jnp.where(peak > 0, peak, 1), mask)


@jax.jit
def _fit_fourier(settings: FourierSettings, fold: Fold) -> FourierModel:
    return fit_fourier_constancy(fold.train, fold.illuminants, None, settings, *FOURIER_ROUNDS)


def _shrunk(image: Float[Array, "h w 3"], mask: Float[Array, "h w"], side: int) -> Array:
    """Return block means of unmasked pixels, and in channel four which blocks have any."""
    factor = -(-max(mask.shape) // side)
    height, width = (side // factor for side in mask.shape)
    seen = (mask > 0)[: height * factor, : width * factor, None]
    kept = jnp.where(seen, image[: height * factor, : width * factor], 0)
    blocks = height, factor, width, factor, -1
    counted = jnp.sum(seen.reshape(blocks), axis=(1, 3))
    total = jnp.sum(kept.reshape(blocks), axis=(1, 3))
    return jnp.concatenate([total / jnp.maximum(counted, 1), counted > 0], axis=-1)


_thumbnail = partial(_shrunk, side=DUAL_MAPPING_SIDE)


def _observed(shrunk: Float[Array, "*n h w 4"]) -> ObservedImage:
    return ObservedImage(shrunk[..., :3], shrunk[..., 3])


@partial(jax.jit, static_argnums=(0, 1))
def _fit_sensor_independent(
    settings: SensorSettings, steps: int, fold: Fold
) -> SensorIndependentModel:
    given = _observed(fold.train), fold.illuminants, jax.random.key(0)
    return fit_sensor_independent(*given, steps, settings)


def _predict_sensor_independent(model: SensorIndependentModel, shrunk: Array) -> Array:
    return sensor_independent_estimate(model, _observed(shrunk))


@partial(jax.jit, static_argnums=0)
def _fit_dual_mapping(
    steps: int, whites: Float[Array, "cameras 3"], fold: Fold
) -> DualMappingModel:
    mapped = fold.illuminants * whites[fold.camera] / whites[fold.cameras]
    train = _observed(fold.train)
    return fit_dual_mapping(train, fold.illuminants, jax.random.key(0), mapped, steps)


def _predict_dual_mapping(model: DualMappingModel, shrunk: Array) -> Array:
    return dual_mapping_estimate(model, _observed(shrunk))


@partial(jax.jit, static_argnums=(0, 1))
def _fit_cross_camera(
    settings: GeneratorSettings,
    steps: int,
    matrices: Float[Array, "cameras 3 3"] | None,
    fold: Fold,
) -> GeneratorModel:
    own, _ = jax.random.split(jax.random.key(0))
    images = _observed(fold.train)
    given = images, fold.illuminants, fold.cameras, matrices
    return fit_cross_camera(own, *given, settings, steps)


def _predict_cross_camera(model: GeneratorModel, shrunk: Array, others: Array) -> Array:
    def histograms(each: Array) -> Float[Array, "b b 2"]:
        return chroma_histograms(*_observed(each), model.settings.window)

    own, *rest = jax.vmap(histograms)(jnp.concatenate([shrunk[None], others]))
    return cross_camera_estimate(model, own, jnp.stack(rest))


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


@partial(jax.jit, static_argnums=(0, 1))
def _fit_calibrated(
    settings: GeneratorSettings, steps: int, calibrations: CameraCalibration, fold: Fold
) -> CalibratedFit:
    images = _observed(fold.train)
    given = images, fold.illuminants, fold.cameras, calibrations
    model = fit_calibrated_camera(jax.random.key(0), *given, settings, steps)
    own = jax.tree.map(lambda leaf: leaf[fold.camera], calibrations)
    by_temperature = jnp.any(calibrations.matrices[:, 0] != calibrations.matrices[:, 1])
    return CalibratedFit(
        model, camera_fingerprint(own, settings.fingerprint_window), by_temperature
    )


@jax.jit
def _for_camera(fitted: CalibratedFit, calibration: CameraCalibration) -> CalibratedFit:
    both = jnp.asarray(calibration.matrices)
    own = calibration._replace(matrices=jnp.where(fitted.by_temperature, both, both[1]))
    window = fitted.model.settings.fingerprint_window
    return fitted._replace(fingerprint=camera_fingerprint(own, window))


def _predict_calibrated(fitted: CalibratedFit, shrunk: Array) -> Array:
    histograms = chroma_histograms(*_observed(shrunk), fitted.model.settings.window)
    return calibrated_estimate(fitted.model, histograms, fitted.fingerprint)


@partial(jax.jit, static_argnums=0)
def _fit_confidence_pooling(steps: int, fold: Fold) -> ConfidencePoolingModel:
    train: TrunkViews = fold.train
    illuminants = fold.illuminants[:, None] * train.factors
    return fit_confidence_pooling(jax.random.key(0), train.maps, train.colors, illuminants, steps)


def _predict_confidence_pooling(model: ConfidencePoolingModel, views: TrunkViews) -> Array:
    return confidence_pooled_estimate(model, views.maps[0], views.colors[0])


def _without_daylight(names: Sequence[str]) -> str:
    unknown = [name for name in names if name not in DAYLIGHT]
    if len(names) < 2 or not unknown:
        return ""
    return (
        "across cameras it needs each one's white under daylight of 6500 K, and none is known "
        f"of {', '.join(unknown)}"
    )


def estimator_methods() -> dict[str, FoldMethod]:
    """Return the estimators that need no training, as methods of which nothing is fitted."""
    return {
        name: FoldMethod(each, _fit_nothing, _given, learns=False)
        for name, each in ESTIMATORS.items()
    }


def fold_methods(
    names: Sequence[str],
    camera: str,
    calibrations: CameraCalibration | None = None,
    uncalibrated: str = "it needs each camera's calibration matrices, and none were given",
) -> dict[str, FoldMethod]:
    """Return the table of methods by name, including those that cannot run on these cameras.

    FC4-style pooling, which reads feature maps of a network, is `confidence_pooling_method`.

    Args:
      names: cameras of the images, in the order of their numbers.
      camera: camera of the test images.
      calibrations: calibration of each camera, which CCMNet reads and by which C5's training
        images are mapped to other cameras; None where one is unknown.
      uncalibrated: reason why CCMNet cannot run without.
    """
    table = estimator_methods()
    for order, name in enumerate(("Gamut Pixel", "Gamut Edge")):
        fit = partial(_fit_gamut, order)
        table[name] = FoldMethod(_pixels, fit, _map_gamut, learns=False, at_once=True)
    for kind, moments in (("colours", _moments_of_image), ("edges", edge_moments)):
        for count, degree in ((9, 2), (19, 3)):
            features = partial(moments, degree=degree)
            name = f"Corrected moments, {count} of {kind}"
            table[name] = FoldMethod(features, _fit_correction, correct_bias)
    for name in ("SoG", "PCA"):
        table[f"Homography ({name})"] = FoldMethod(ESTIMATORS[name], _fit_correction, correct_bias)
    for name in ("GW", "SoG", "PCA"):
        table[f"APAP ({name})"] = FoldMethod(
            ESTIMATORS[name], _keep_estimates, correct_bias_locally
        )
    # Within one camera the whites cancel.
    whites = jnp.array([DAYLIGHT.get(name, (1.0, 1.0, 1.0)) for name in names])
    table[DUAL_MAPPING] = FoldMethod(
        _thumbnail,
        partial(_fit_dual_mapping, DUAL_MAPPING_STEPS, whites),
        _predict_dual_mapping,
        incompatibility=partial(_without_daylight, names),
    )
    for name, settings, side, steps in (
        ("SIIE", SENSOR_SMALL_FORM, SENSOR_INDEPENDENT_SIDE, SENSOR_INDEPENDENT_STEPS),
        ("SIIE at the paper's size", SENSOR_PAPER_SIZE, DUAL_MAPPING_SIDE, SENSOR_PAPER_STEPS),
    ):
        table[name] = FoldMethod(
            partial(_shrunk, side=side),
            partial(_fit_sensor_independent, settings, steps),
            _predict_sensor_independent,
            costly=settings is SENSOR_PAPER_SIZE,
        )
    matrices = None if calibrations is None else calibrations.matrices[:, 1]
    for name, settings, steps in (
        ("C5, small form", SMALL_FORM, CROSS_CAMERA_STEPS),
        ("C5 at the authors' size", AUTHORS_SIZE, AUTHORS_STEPS),
    ):
        table[name] = FoldMethod(
            _thumbnail,
            partial(_fit_cross_camera, settings, steps, matrices),
            _predict_cross_camera,
            reads_others=True,
            costly=settings is AUTHORS_SIZE,
        )
    for name, settings, steps in (
        (CALIBRATED, CALIBRATED_SMALL_FORM, CROSS_CAMERA_STEPS),
        ("CCMNet at the authors' size", CALIBRATED_AUTHORS_SIZE, AUTHORS_STEPS),
    ):
        table[name] = FoldMethod(
            _thumbnail,
            partial(_fit_calibrated, settings, steps, calibrations),
            _predict_calibrated,
            for_camera=_for_camera,
            costly=settings is CALIBRATED_AUTHORS_SIZE,
            incompatibility=lambda: "" if calibrations is not None else uncalibrated,
        )
    others = FOURIER_SETTINGS["NikonD5200" if camera == "SonyA57" else "SonyA57"]
    table["FFCC"] = FoldMethod(_histograms, partial(_fit_fourier, others), fourier_estimate)
    if camera in FOURIER_SETTINGS:
        own = partial(_fit_fourier, FOURIER_SETTINGS[camera])
        table[TUNED_HERE] = FoldMethod(_histograms, own, fourier_estimate)
    return table


def confidence_pooling_method(
    features: Features, incompatibility: Callable[[], str] = str
) -> FoldMethod:
    """Return FC4-style pooling over the `TrunkViews` that a function computes from all images."""
    fit = partial(_fit_confidence_pooling, CONFIDENCE_POOLING_STEPS)
    predict = _predict_confidence_pooling
    return FoldMethod(features, fit, predict, at_once=True, incompatibility=incompatibility)


def _pixels(images: ArrayLike, masks: ArrayLike) -> tuple[Array, Array]:
    return jnp.asarray(images), jnp.asarray(masks)


NINE_MOMENTS = partial(_moments_of_image, degree=2)
