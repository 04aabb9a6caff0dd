"""Every method that sees one image, on images whose lights are known: one table of them for all."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.color.bias_correction import (
    correct_bias,
    correct_bias_locally,
    fit_bias_correction,
)
from everlight.color.estimators import ESTIMATORS
from everlight.color.fourier_constancy import (
    FOURIER_SETTINGS,
    ROUNDS,
    FourierSettings,
    fit_fourier_constancy,
    fourier_estimate,
    log_chroma_histograms,
)
from everlight.color.gamut import fit_gamut, gamut_estimate
from everlight.color.moments import (
    color_moments,
    edge_moments,
    extreme_chromaticities,
    relight_moments,
)
from everlight.color.reillumination import von_kries
from everlight.color.sensor_independent import (
    fit_sensor_independent,
    sensor_independent_estimate,
)
from everlight.models.illuminant_training import TrainingSettings
from experiments.common.checkpoint import Checkpoints
from experiments.two_camera.image_sets import ImageSet
from experiments.two_camera.pair_folds import (
    CameraPairs,
    Samples,
    cross_validate,
    repeat_samples,
)
from experiments.two_camera.tables import Comparison, estimate_all

MOMENTS = "moments"
EXTREMES = "bright, max, mean, dark"
"""DMCC's eight numbers; a net on them is DMCC-style: it has its inputs and, nearly, its size."""

COPIES = 99
"""Re-illuminations of each training image at most, the paper's number."""
SAMPLES = 19_500
"""Of a training at most, with its re-illuminations: as many as the paper's set of NUS has."""

FOURIER_ROUNDS = ROUNDS
"""Steps of FFCC's two rounds, its authors'."""

SENSOR_INDEPENDENT_STEPS = 500
SENSOR_INDEPENDENT_SIDE = 32

Look = Callable[[Array, Array], Array]


class Learner(NamedTuple):
    """A method that learns from what it keeps of images.

    Attributes:
      look: what it keeps of an image and its mask.
      estimate: from that of the training images, their lights, and that of the test images, the
        test images' lights.
    """

    look: Look
    estimate: Callable[[Array, Float[Array, "n 3"], Array], Float[Array, "k 3"]]


def _moments_of_image(
    image: Float[Array, "h w 3"], mask: Float[Array, "h w"], degree: int
) -> Array:
    return color_moments(image.reshape(-1, 3), mask.ravel(), degree)


@jax.jit
def _correct(seen: Array, lights: Array, asked: Array) -> Float[Array, "k 3"]:
    return jax.vmap(correct_bias, (None, 0))(fit_bias_correction(seen, lights), asked)


@jax.jit
def _correct_locally(seen: Array, lights: Array, asked: Array) -> Float[Array, "k 3"]:
    return jax.lax.map(lambda one: correct_bias_locally(seen, lights, one), asked, batch_size=32)


def _histograms(image: Float[Array, "h w 3"], mask: Float[Array, "h w"]) -> Array:
    """White is the image's own largest value, as in FFCC's thumbnails."""
    peak = jnp.max(jnp.where(mask[..., None] > 0, image, 0))
    return log_chroma_histograms(image / jnp.where(peak > 0, peak, 1), mask)


@jax.jit
def _fourier(
    settings: FourierSettings, seen: Array, lights: Array, asked: Array
) -> Float[Array, "k 3"]:
    model = fit_fourier_constancy(seen, lights, settings, *FOURIER_ROUNDS)
    return jax.vmap(fourier_estimate, (None, 0))(model, asked)


def _shrunk(image: Float[Array, "h w 3"], mask: Float[Array, "h w"]) -> Array:
    """Block means of what the mask leaves, and in the fourth channel which blocks have any."""
    factor = -(-max(mask.shape) // SENSOR_INDEPENDENT_SIDE)
    height, width = (side // factor for side in mask.shape)
    seen = (mask > 0)[: height * factor, : width * factor, None]
    kept = jnp.where(seen, image[: height * factor, : width * factor], 0)
    blocks = height, factor, width, factor, -1
    counted = jnp.sum(seen.reshape(blocks), axis=(1, 3))
    total = jnp.sum(kept.reshape(blocks), axis=(1, 3))
    return jnp.concatenate([total / jnp.maximum(counted, 1), counted > 0], axis=-1)


@partial(jax.jit, static_argnums=0)
def _sensor_independent(
    steps: int, seen: Array, lights: Array, asked: Array
) -> Float[Array, "k 3"]:
    key = jax.random.key(0)
    model = fit_sensor_independent(key, seen[..., :3], seen[..., 3], lights, steps)
    return jax.lax.map(
        lambda one: sensor_independent_estimate(model, one[..., :3], one[..., 3]),
        asked,
        batch_size=32,
    )


TUNED_HERE = "FFCC, its settings tuned by its authors on this camera's folds"


def learners(camera: str) -> dict[str, Learner]:
    """The methods whose fit is one function, by name; FFCC's settings are another camera's."""
    methods = {
        f"Corrected moments, {count} of {what}": Learner(look, _correct)
        for what, look_at in (("colours", _moments_of_image), ("edges", edge_moments))
        for count, look in ((9, partial(look_at, degree=2)), (19, partial(look_at, degree=3)))
    }
    for name in ("SoG", "PCA"):
        methods[f"Homography ({name})"] = Learner(ESTIMATORS[name], _correct)
    for name in ("GW", "SoG", "PCA"):
        methods[f"APAP ({name})"] = Learner(ESTIMATORS[name], _correct_locally)
    methods["SIIE"] = Learner(_shrunk, partial(_sensor_independent, SENSOR_INDEPENDENT_STEPS))
    others = FOURIER_SETTINGS["NikonD5200" if camera == "SonyA57" else "SonyA57"]
    methods["FFCC"] = Learner(_histograms, partial(_fourier, others))
    if camera in FOURIER_SETTINGS:
        own = partial(_fourier, FOURIER_SETTINGS[camera])
        methods[TUNED_HERE] = Learner(_histograms, own)
    return methods


def look_at_all(look: Look, data: ImageSet) -> Array:
    """What a method keeps of every image."""
    return estimate_all(look, jnp.asarray(data.images), jnp.asarray(data.masks))


def single_image_estimates(data: ImageSet) -> dict[str, Float[np.ndarray, "n 3"]]:
    """Lights by method, of every image or, where it learns, of the images in a fold.

    What learns does so from the images outside of the fold.
    """
    images, masks, lights = map(jnp.asarray, (data.images, data.masks, data.illuminants))
    estimates = {name: look_at_all(method, data) for name, method in ESTIMATORS.items()}

    def by_fold(estimate: Callable[[np.ndarray, np.ndarray], Array]) -> Float[np.ndarray, "n 3"]:
        pooled = np.full_like(data.illuminants, np.nan)
        for test in data.folds:
            pooled[test] = estimate(np.setdiff1d(np.arange(len(images)), test), test)
        return pooled

    def gamut(order: int, train: np.ndarray, test: np.ndarray) -> Array:
        fitted = fit_gamut(images[train], masks[train], lights[train], order)
        return estimate_all(gamut_estimate, images[test], masks[test], fitted)

    for order, name in enumerate(("Gamut Pixel", "Gamut Edge")):
        estimates[name] = by_fold(partial(gamut, order))
    seen: dict[Look, Array] = {method: estimates[name] for name, method in ESTIMATORS.items()}
    for name, learner in learners(data.camera).items():
        if learner.look not in seen:
            seen[learner.look] = look_at_all(learner.look, data)
        kept = seen[learner.look]
        estimates[name] = by_fold(
            lambda train, test, learner=learner, kept=kept: learner.estimate(
                kept[train], lights[train], kept[test]
            )
        )
    return {name: np.asarray(light) for name, light in estimates.items()}


def in_folds(
    data: ImageSet, estimates: Mapping[str, Float[np.ndarray, "n 3"]]
) -> dict[str, Float[np.ndarray, "1 folds k 3"]]:
    """Lights of every image laid out by fold."""
    folds = np.stack(data.folds)
    return {name: lights[folds][None] for name, lights in estimates.items()}


def compare_on_images(
    data: ImageSet, seeds: Sequence[int], training: TrainingSettings, checkpoints: Checkpoints
) -> Comparison:
    """Estimators, what learns, and nets and regressions on a few numbers of each image."""
    pairs = CameraPairs(
        {MOMENTS: moments_of(data), EXTREMES: extremes_of(data)},
        data.illuminants,
        data.illuminants,
        np.stack(data.folds),
        (data.camera, data.camera),
        data.note,
    )
    augmentations = {"none": repeated, "re-illuminated": partial(_relit_by_von_kries, data)}
    outcome = cross_validate(pairs, augmentations, "honest", seeds, training, checkpoints)
    estimates = in_folds(data, single_image_estimates(data)) | outcome.lights()
    return Comparison(estimates, data.illuminants[np.stack(data.folds)])


def moments_of(data: ImageSet) -> Float[np.ndarray, "n 9"]:
    """Nine colour moments of what each mask leaves."""
    return np.asarray(look_at_all(_NINE_MOMENTS, data))


def extremes_of(data: ImageSet) -> Float[np.ndarray, "n 8"]:
    """What DMCC's net is given."""
    return np.asarray(look_at_all(extreme_chromaticities, data))


_NINE_MOMENTS = partial(_moments_of_image, degree=2)


def copies_of(train: np.ndarray) -> int:
    """Re-illuminations of each training image, of which there are fewer others at times."""
    return min(COPIES, SAMPLES // len(train), len(train) - 1)


def repeated(data: CameraPairs, train: np.ndarray, _: Array) -> Samples:
    """No augmentation."""
    return repeat_samples(data, train, 1 + copies_of(train))


def _relit_by_von_kries(
    images: ImageSet, data: CameraPairs, train: np.ndarray, key: Array
) -> Samples:
    """Each image under its own light and under others of the training part."""
    count = copies_of(train)
    own = np.arange(len(train))[:, None]
    others = jax.vmap(lambda k: jax.random.permutation(k, len(train) - 1)[:count])
    shift = 1 + np.asarray(others(jax.random.split(key, len(train))))
    target = np.concatenate([own, (own + shift) % len(train)], axis=1)
    relights = np.asarray(von_kries(jnp.asarray(data.main[train])))[own, target]
    relights = relights.reshape(-1, 3, 3)
    source = np.repeat(train, target.shape[1])
    relit = {
        MOMENTS: jax.vmap(relight_moments)(jnp.asarray(data.inputs[MOMENTS][source]), relights),
        EXTREMES: _extremes_of_relit(
            jnp.asarray(images.images), jnp.asarray(images.masks), source, relights
        ),
    }
    return Samples(relit, data.targets(train)[target.ravel()])


@jax.jit
def _extremes_of_relit(
    images: Float[Array, "n h w 3"],
    masks: Float[Array, "n h w"],
    source: Array,
    relights: Float[Array, "m 3 3"],
) -> Float[Array, "m 8"]:
    """The brightest and the darkest pixel may be others under another light: asked anew."""
    gains = jnp.diagonal(relights, axis1=1, axis2=2)
    return jax.lax.map(
        lambda one: extreme_chromaticities(images[one[0]] * one[1], masks[one[0]]),
        (source, gains),
        batch_size=32,
    )
