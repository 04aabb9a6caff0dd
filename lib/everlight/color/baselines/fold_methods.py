"""Estimators of one illuminant per image in one table, fitted and applied fold by fold.

Statistics and the learned methods of `everlight.color.baselines` share the interface `FoldMethod`,
also those that read other images by their camera. Sizes and numbers of steps suit thumbnails.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PyTree

from everlight.color.baselines.bias_correction import (
    TrainingEstimates,
    correct_bias,
    correct_bias_locally,
    fit_bias_correction,
)
from everlight.color.baselines.confidence_pooling import (
    confidence_pooled_estimate,
    fit_confidence_pooling,
)
from everlight.color.baselines.cross_camera import (
    ADDITIONAL_IMAGES,
    cross_camera_estimate,
    fit_cross_camera,
)
from everlight.color.baselines.dual_mapping import dual_mapping_estimate, fit_dual_mapping
from everlight.color.baselines.fourier_constancy import (
    FOURIER_SETTINGS,
    ROUNDS,
    FourierSettings,
    fit_fourier_constancy,
    fourier_estimate,
    log_chroma_histograms,
)
from everlight.color.baselines.gamut import Gamut, fit_gamut, gamut_estimate
from everlight.color.baselines.protocol import ObservedImage
from everlight.color.baselines.sensor_independent import (
    fit_sensor_independent,
    sensor_independent_estimate,
)
from everlight.color.estimators import ESTIMATORS
from everlight.color.moments import color_moments, edge_moments

FOURIER_ROUNDS = ROUNDS
"""Steps of FFCC's two rounds, as its authors set them."""
SENSOR_INDEPENDENT_STEPS = 500
SENSOR_INDEPENDENT_SIDE = 32
DUAL_MAPPING_STEPS = 5_000
DUAL_MAPPING_SIDE = 64
"""Side of the thumbnails that DMCC's authors use."""
CROSS_CAMERA_STEPS = 400
CONFIDENCE_POOLING_STEPS = 500

TUNED_HERE = "FFCC, its settings tuned by its authors on this camera's folds"
DUAL_MAPPING = "DMCC"
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


class Fold(NamedTuple):
    """Training and test images of one fold, as the method's `features` describe them.

    Attributes:
      train: features of the training images, leading axis `n`.
      illuminants: illuminants of the training images.
      test: features of the test images, leading axis `k`.
      cameras: number of the camera of each training image.
      camera: number of the test images' camera.
    """

    train: PyTree
    illuminants: Float[Array, "n 3"]
    test: PyTree
    cameras: Int[Array, "n"]
    camera: Int[Array, ""]


Features = Callable[[ArrayLike, ArrayLike], PyTree]


class FoldMethod(NamedTuple):
    """A method that estimates illuminants from features of images.

    Attributes:
      features: features of an image and its mask.
      estimate: illuminants of a fold's test images.
      learns: whether it is fitted to training images and can be chosen by name.
      at_once: whether `features` takes all images and masks instead of one.
      incompatibility: reason why it cannot run; empty if it can.
    """

    features: Features
    estimate: Callable[[Fold], Float[Array, "k 3"]]
    learns: bool = True
    at_once: bool = False
    incompatibility: Callable[[], str] = str

    def describe(
        self, images: Float[ArrayLike, "n h w 3"], masks: Float[ArrayLike, "n h w"]
    ) -> PyTree:
        """Return the features of all images."""
        if self.at_once:
            return self.features(images, masks)
        return estimate_images(self.features, jnp.asarray(images), jnp.asarray(masks))


@partial(jax.jit, static_argnums=0)
def estimate_images(
    estimator: Callable, images: Float[Array, "n h w 3"], masks: Float[Array, "n h w"], *fitted: Any
) -> Any:
    """Return `estimator(*fitted, image, mask)` of every image.

    Batches of 40 bound the memory; many set sizes are multiples, so no remainder is compiled.

    Args:
      estimator: function of one image and its mask, after what was fitted.
      images: linear raw colours, `[n, h, w, 3]`.
      masks: 0 excludes a pixel, `[n, h, w]`.
      fitted: first arguments of the estimator.
    """
    return jax.lax.map(lambda one: estimator(*fitted, *one), (images, masks), batch_size=40)


def _predict(fold: Fold) -> Float[Array, "k 3"]:
    """Return the test features of a statistic, which are its estimates."""
    return fold.test


def _gamut(order: int, fold: Fold) -> Float[Array, "k 3"]:
    fitted = fit_gamut(ObservedImage(*fold.train), fold.illuminants, order=order)
    return estimate_images(_map_gamut, *fold.test, fitted)


def _map_gamut(fitted: Gamut, image: Float[Array, "h w 3"], mask: Float[Array, "h w"]) -> Array:
    return gamut_estimate(fitted, ObservedImage(image, mask))


def _moments_of_image(
    image: Float[Array, "h w 3"], mask: Float[Array, "h w"], degree: int
) -> Array:
    return color_moments(image.reshape(-1, 3), mask.ravel(), degree)


@jax.jit
def _correct(fold: Fold) -> Float[Array, "k 3"]:
    fitted = fit_bias_correction(fold.train, fold.illuminants)
    return jax.vmap(correct_bias, (None, 0))(fitted, fold.test)


@jax.jit
def _correct_locally(fold: Fold) -> Float[Array, "k 3"]:
    model = TrainingEstimates(fold.train, fold.illuminants)
    return jax.lax.map(partial(correct_bias_locally, model), fold.test, batch_size=32)


def _histograms(image: Float[Array, "h w 3"], mask: Float[Array, "h w"]) -> Array:
    """Return histograms of an image scaled to its maximum, as FFCC's thumbnails are."""
    peak = jnp.max(jnp.where(mask[..., None] > 0, image, 0))
    return log_chroma_histograms(image / jnp.where(peak > 0, peak, 1), mask)


@jax.jit
def _fourier(settings: FourierSettings, fold: Fold) -> Float[Array, "k 3"]:
    model = fit_fourier_constancy(fold.train, fold.illuminants, None, settings, *FOURIER_ROUNDS)
    return jax.vmap(fourier_estimate, (None, 0))(model, fold.test)


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


def _observed(shrunk: Float[Array, "n h w 4"]) -> ObservedImage:
    return ObservedImage(shrunk[..., :3], shrunk[..., 3])


@partial(jax.jit, static_argnums=0)
def _sensor_independent(steps: int, fold: Fold) -> Float[Array, "k 3"]:
    train = _observed(fold.train)
    model = fit_sensor_independent(train, fold.illuminants, jax.random.key(0), steps)
    return jax.lax.map(
        partial(sensor_independent_estimate, model), _observed(fold.test), batch_size=32
    )


@partial(jax.jit, static_argnums=0)
def _dual_mapping(steps: int, whites: Float[Array, "cameras 3"], fold: Fold) -> Float[Array, "k 3"]:
    mapped = fold.illuminants * whites[fold.camera] / whites[fold.cameras]
    train = _observed(fold.train)
    model = fit_dual_mapping(train, fold.illuminants, jax.random.key(0), mapped, steps)
    return jax.lax.map(partial(dual_mapping_estimate, model), _observed(fold.test), batch_size=32)


@partial(jax.jit, static_argnums=0)
def _cross_camera(steps: int, fold: Fold) -> Float[Array, "k 3"]:
    """Estimate with additional training images of the camera, or test images if it has none."""
    own, drawn = jax.random.split(jax.random.key(0))
    model = fit_cross_camera(own, fold.train, fold.illuminants, fold.cameras, steps)
    taught = fold.cameras == fold.camera
    everything = jnp.concatenate([fold.train, fold.test])
    places = len(fold.train) + jnp.arange(len(fold.test))

    def estimate(one: tuple[Array, Array]) -> Float[Array, "3"]:
        place, key = one
        unlabelled = jnp.full(len(fold.test), ~jnp.any(taught))
        usable = jnp.concatenate([taught, unlabelled]).at[place].set(False)
        chosen = jax.random.categorical(
            key, jnp.where(usable, 0.0, -jnp.inf), shape=(ADDITIONAL_IMAGES,)
        )
        return cross_camera_estimate(model, everything[place], everything[chosen])

    keys = jax.random.split(drawn, len(places))
    return jax.lax.map(estimate, (places, keys), batch_size=32)


@partial(jax.jit, static_argnums=0)
def _confidence_pooling(steps: int, fold: Fold) -> Float[Array, "k 3"]:
    train: TrunkViews = fold.train
    illuminants = fold.illuminants[:, None] * train.factors
    model = fit_confidence_pooling(jax.random.key(0), train.maps, train.colors, illuminants, steps)
    return jax.vmap(confidence_pooled_estimate, (None, 0, 0))(
        model, fold.test.maps[:, 0], fold.test.colors[:, 0]
    )


def _without_daylight(names: Sequence[str]) -> str:
    unknown = [name for name in names if name not in DAYLIGHT]
    if len(names) < 2 or not unknown:
        return ""
    return (
        "across cameras it needs each one's white under daylight of 6500 K, and none is known "
        f"of {', '.join(unknown)}"
    )


def fold_methods(names: Sequence[str], camera: str) -> dict[str, FoldMethod]:
    """Return the table of methods by name, including those that cannot run on these cameras.

    FC4-style pooling, which reads feature maps of a network, is `confidence_pooling_method`.

    Args:
      names: cameras of the images, in the order of their numbers.
      camera: camera of the test images.
    """
    table = {name: FoldMethod(each, _predict, learns=False) for name, each in ESTIMATORS.items()}
    for order, name in enumerate(("Gamut Pixel", "Gamut Edge")):
        table[name] = FoldMethod(_pixels, partial(_gamut, order), learns=False, at_once=True)
    for kind, moments in (("colours", _moments_of_image), ("edges", edge_moments)):
        for count, degree in ((9, 2), (19, 3)):
            features = partial(moments, degree=degree)
            table[f"Corrected moments, {count} of {kind}"] = FoldMethod(features, _correct)
    for name in ("SoG", "PCA"):
        table[f"Homography ({name})"] = FoldMethod(ESTIMATORS[name], _correct)
    for name in ("GW", "SoG", "PCA"):
        table[f"APAP ({name})"] = FoldMethod(ESTIMATORS[name], _correct_locally)
    # Within one camera the whites cancel.
    whites = jnp.array([DAYLIGHT.get(name, (1.0, 1.0, 1.0)) for name in names])
    table[DUAL_MAPPING] = FoldMethod(
        partial(_shrunk, side=DUAL_MAPPING_SIDE),
        partial(_dual_mapping, DUAL_MAPPING_STEPS, whites),
        incompatibility=partial(_without_daylight, names),
    )
    table["SIIE"] = FoldMethod(
        partial(_shrunk, side=SENSOR_INDEPENDENT_SIDE),
        partial(_sensor_independent, SENSOR_INDEPENDENT_STEPS),
    )
    table["C5, small form"] = FoldMethod(_histograms, partial(_cross_camera, CROSS_CAMERA_STEPS))
    others = FOURIER_SETTINGS["NikonD5200" if camera == "SonyA57" else "SonyA57"]
    table["FFCC"] = FoldMethod(_histograms, partial(_fourier, others))
    if camera in FOURIER_SETTINGS:
        own = partial(_fourier, FOURIER_SETTINGS[camera])
        table[TUNED_HERE] = FoldMethod(_histograms, own)
    return table


def estimate_folds(
    method: FoldMethod,
    features: PyTree,
    illuminants: Float[Array, "n 3"],
    folds: Sequence[Int[np.ndarray, "k"]],
    cameras: Int[Array, "n"],
    camera: Int[Array, ""],
) -> Float[np.ndarray, "folds k 3"]:
    """Return a method's estimates of each fold's images, trained on the images outside of it.

    Args:
      method: method to cross-validate.
      features: features of all images (`FoldMethod.describe`), leading axis `n`.
      illuminants: illuminants of all images.
      folds: test images of each fold.
      cameras: number of the camera of each image.
      camera: number of the test images' camera.
    """
    estimates = []
    for test in folds:
        train = np.setdiff1d(np.arange(len(illuminants)), test)
        taught, tested = (
            jax.tree.map(lambda leaf, r=rows: leaf[r], features) for rows in (train, test)
        )
        fold = Fold(taught, illuminants[train], tested, cameras[train], camera)
        estimates.append(np.asarray(method.estimate(fold)))
    return np.stack(estimates)


def confidence_pooling_method(
    features: Features, incompatibility: Callable[[], str] = str
) -> FoldMethod:
    """Return FC4-style pooling over the `TrunkViews` that a function computes from all images."""
    estimate = partial(_confidence_pooling, CONFIDENCE_POOLING_STEPS)
    return FoldMethod(features, estimate, at_once=True, incompatibility=incompatibility)


def _pixels(images: ArrayLike, masks: ArrayLike) -> tuple[Array, Array]:
    return jnp.asarray(images), jnp.asarray(masks)


NINE_MOMENTS = partial(_moments_of_image, degree=2)
