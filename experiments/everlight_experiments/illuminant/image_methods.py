"""Every method that sees one image, on images whose lights are known: one table of them for all."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from everlight.color.bias_correction import (
    correct_bias,
    correct_bias_locally,
    fit_bias_correction,
)
from everlight.color.confidence_pooling import (
    confidence_pooled_estimate,
    fit_confidence_pooling,
)
from everlight.color.cross_camera import ADDITIONAL_IMAGES, cross_camera_estimate, fit_cross_camera
from everlight.color.dual_mapping import dual_mapping_estimate, fit_dual_mapping, four_colors
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
from everlight.color.moments import color_moments, edge_moments, reilluminate_moments
from everlight.color.reillumination import von_kries
from everlight.color.sensor_independent import (
    fit_sensor_independent,
    sensor_independent_estimate,
)
from everlight.models.illuminant_training import TrainingSettings
from everlight_data.errors import MissingDataError
from everlight_data.images.efficientnet import check_efficientnet_lite0
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.common.progress import progress
from everlight_experiments.common.settings import check_methods
from everlight_experiments.illuminant.image_sets import ImageSet
from everlight_experiments.illuminant.pair_folds import (
    CameraPairs,
    Samples,
    cross_validate,
    repeat_samples,
)
from everlight_experiments.illuminant.tables import Comparison, estimate_all
from everlight_experiments.illuminant.trunk_views import TrunkViews, trunk_views

MOMENTS = "moments"

COPIES = 99
"""Re-illuminations of each training image at most, the paper's number."""
SAMPLES = 19_500
"""Of a training at most, with its re-illuminations: as many as the paper's set of NUS has."""

FOURIER_ROUNDS = ROUNDS
"""Steps of FFCC's two rounds, its authors'."""

SENSOR_INDEPENDENT_STEPS = 500
SENSOR_INDEPENDENT_SIDE = 32
DUAL_MAPPING_STEPS = 5_000
DUAL_MAPPING_SIDE = 64
"""Of the thumbnails of DMCC's authors."""
CROSS_CAMERA_STEPS = 400
CONFIDENCE_POOLING_STEPS = 500

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
"""White under daylight of 6500 K in each camera's colours, in shares: what DMCC's authors measured,
from the matrices and the white of the Sony IMX135 in their repository."""


class Lesson(NamedTuple):
    """What a method that learns is given; images are as its `look` keeps them.

    Attributes:
      seen: images that teach, leading axis `n`.
      lights: theirs.
      asked: images whose lights are to be told, leading axis `k`.
      cameras: which took those that teach, by number.
      camera: which took those that are asked.
    """

    seen: PyTree
    lights: Float[Array, "n 3"]
    asked: PyTree
    cameras: Int[Array, "n"]
    camera: Int[Array, ""]


Look = Callable[[Array, Array], PyTree]


class Learner(NamedTuple):
    """A method that learns from what it keeps of images.

    Attributes:
      look: what it keeps of an image and its mask.
      estimate: the asked images' lights.
      at_once: whether `look` is given all images and masks instead of one.
    """

    look: Look
    estimate: Callable[[Lesson], Float[Array, "k 3"]]
    at_once: bool = False


def _moments_of_image(
    image: Float[Array, "h w 3"], mask: Float[Array, "h w"], degree: int
) -> Array:
    return color_moments(image.reshape(-1, 3), mask.ravel(), degree)


@jax.jit
def _correct(lesson: Lesson) -> Float[Array, "k 3"]:
    fitted = fit_bias_correction(lesson.seen, lesson.lights)
    return jax.vmap(correct_bias, (None, 0))(fitted, lesson.asked)


@jax.jit
def _correct_locally(lesson: Lesson) -> Float[Array, "k 3"]:
    return jax.lax.map(
        lambda one: correct_bias_locally(lesson.seen, lesson.lights, one),
        lesson.asked,
        batch_size=32,
    )


def _histograms(image: Float[Array, "h w 3"], mask: Float[Array, "h w"]) -> Array:
    """White is the image's own largest value, as in FFCC's thumbnails."""
    peak = jnp.max(jnp.where(mask[..., None] > 0, image, 0))
    return log_chroma_histograms(image / jnp.where(peak > 0, peak, 1), mask)


@jax.jit
def _fourier(settings: FourierSettings, lesson: Lesson) -> Float[Array, "k 3"]:
    model = fit_fourier_constancy(lesson.seen, lesson.lights, settings, *FOURIER_ROUNDS)
    return jax.vmap(fourier_estimate, (None, 0))(model, lesson.asked)


def _shrunk(image: Float[Array, "h w 3"], mask: Float[Array, "h w"], side: int) -> Array:
    """Block means of what the mask leaves, and in the fourth channel which blocks have any."""
    factor = -(-max(mask.shape) // side)
    height, width = (side // factor for side in mask.shape)
    seen = (mask > 0)[: height * factor, : width * factor, None]
    kept = jnp.where(seen, image[: height * factor, : width * factor], 0)
    blocks = height, factor, width, factor, -1
    counted = jnp.sum(seen.reshape(blocks), axis=(1, 3))
    total = jnp.sum(kept.reshape(blocks), axis=(1, 3))
    return jnp.concatenate([total / jnp.maximum(counted, 1), counted > 0], axis=-1)


@partial(jax.jit, static_argnums=0)
def _sensor_independent(steps: int, lesson: Lesson) -> Float[Array, "k 3"]:
    key, seen = jax.random.key(0), lesson.seen
    model = fit_sensor_independent(key, seen[..., :3], seen[..., 3], lesson.lights, steps)
    return jax.lax.map(
        lambda one: sensor_independent_estimate(model, one[..., :3], one[..., 3]),
        lesson.asked,
        batch_size=32,
    )


@partial(jax.jit, static_argnums=0)
def _dual_mapping(
    steps: int, whites: Float[Array, "cameras 3"], lesson: Lesson
) -> Float[Array, "k 3"]:
    mapped = lesson.lights * whites[lesson.camera] / whites[lesson.cameras]
    seen = lesson.seen
    model = fit_dual_mapping(
        jax.random.key(0), seen[..., :3], seen[..., 3], lesson.lights, mapped, steps
    )

    def told(one: Float[Array, "h w 4"]) -> Float[Array, "3"]:
        return dual_mapping_estimate(model, four_colors(one[..., :3], one[..., 3]))

    return jax.lax.map(told, lesson.asked, batch_size=32)


@partial(jax.jit, static_argnums=0)
def _cross_camera(steps: int, lesson: Lesson) -> Float[Array, "k 3"]:
    """The others are images that teach, or where the camera took none of them, that are asked."""
    own, drawn = jax.random.split(jax.random.key(0))
    model = fit_cross_camera(own, lesson.seen, lesson.lights, lesson.cameras, steps)
    taught = lesson.cameras == lesson.camera
    everything = jnp.concatenate([lesson.seen, lesson.asked])
    places = len(lesson.seen) + jnp.arange(len(lesson.asked))

    def told(one: tuple[Array, Array]) -> Float[Array, "3"]:
        place, key = one
        unlabelled = jnp.full(len(lesson.asked), ~jnp.any(taught))
        usable = jnp.concatenate([taught, unlabelled]).at[place].set(False)
        chosen = jax.random.categorical(
            key, jnp.where(usable, 0.0, -jnp.inf), shape=(ADDITIONAL_IMAGES,)
        )
        return cross_camera_estimate(model, everything[place], everything[chosen])

    keys = jax.random.split(drawn, len(places))
    return jax.lax.map(told, (places, keys), batch_size=32)


@partial(jax.jit, static_argnums=0)
def _confidence_pooling(steps: int, lesson: Lesson) -> Float[Array, "k 3"]:
    seen: TrunkViews = lesson.seen
    lights = lesson.lights[:, None] * seen.factors
    model = fit_confidence_pooling(jax.random.key(0), seen.maps, seen.colors, lights, steps)
    return jax.vmap(confidence_pooled_estimate, (None, 0, 0))(
        model, lesson.asked.maps[:, 0], lesson.asked.colors[:, 0]
    )


TUNED_HERE = "FFCC, its settings tuned by its authors on this camera's folds"


DUAL_MAPPING = "DMCC"
POOLED = "FC4-style"


def numbers_of_cameras(data: ImageSet) -> tuple[list[str], Int[np.ndarray, "n"]]:
    """The cameras' names, and by image which of them took it."""
    names = sorted({*data.cameras(), data.camera})
    return names, np.array([names.index(camera) for camera in data.cameras()])


def left_out(data: ImageSet) -> dict[str, str]:
    """Methods that cannot be had for these images here, and why."""
    reasons = {}
    names, _ = numbers_of_cameras(data)
    unknown = [name for name in names if name not in DAYLIGHT]
    if len(names) > 1 and unknown:
        reasons[DUAL_MAPPING] = (
            "across cameras it needs each one's white under daylight of 6500 K, and none is known "
            f"of {', '.join(unknown)}"
        )
    try:
        check_efficientnet_lite0()
    except MissingDataError as error:
        reasons[POOLED] = str(error)
    return reasons


def every_learner(data: ImageSet) -> dict[str, Learner]:
    """The methods whose fit is one function, by name, those too that cannot be had here.

    FFCC's settings are another camera's.
    """
    methods = {
        f"Corrected moments, {count} of {what}": Learner(look, _correct)
        for what, look_at in (("colours", _moments_of_image), ("edges", edge_moments))
        for count, look in ((9, partial(look_at, degree=2)), (19, partial(look_at, degree=3)))
    }
    for name in ("SoG", "PCA"):
        methods[f"Homography ({name})"] = Learner(ESTIMATORS[name], _correct)
    for name in ("GW", "SoG", "PCA"):
        methods[f"APAP ({name})"] = Learner(ESTIMATORS[name], _correct_locally)
    names, _ = numbers_of_cameras(data)
    # Of one camera they divide out.
    whites = jnp.array([DAYLIGHT.get(name, (1.0, 1.0, 1.0)) for name in names])
    methods[DUAL_MAPPING] = Learner(
        partial(_shrunk, side=DUAL_MAPPING_SIDE),
        partial(_dual_mapping, DUAL_MAPPING_STEPS, whites),
    )
    methods["SIIE"] = Learner(
        partial(_shrunk, side=SENSOR_INDEPENDENT_SIDE),
        partial(_sensor_independent, SENSOR_INDEPENDENT_STEPS),
    )
    methods["C5, small form"] = Learner(_histograms, partial(_cross_camera, CROSS_CAMERA_STEPS))
    methods[POOLED] = Learner(
        trunk_views, partial(_confidence_pooling, CONFIDENCE_POOLING_STEPS), at_once=True
    )
    others = FOURIER_SETTINGS["NikonD5200" if data.camera == "SonyA57" else "SonyA57"]
    methods["FFCC"] = Learner(_histograms, partial(_fourier, others))
    if data.camera in FOURIER_SETTINGS:
        own = partial(_fourier, FOURIER_SETTINGS[data.camera])
        methods[TUNED_HERE] = Learner(_histograms, own)
    return methods


def learners(data: ImageSet) -> dict[str, Learner]:
    """Those of them that can be had."""
    missing = left_out(data)
    return {name: each for name, each in every_learner(data).items() if name not in missing}


def check_learners(data: ImageSet, methods: Sequence[str] | None) -> None:
    """Refuses methods that do not learn by a function of their own.

    Raises:
      DataError: which, and those that there are.
    """
    check_methods(methods, every_learner(data))


def look_at_all(look: Look, data: ImageSet) -> Array:
    """What a method keeps of every image."""
    return estimate_all(look, jnp.asarray(data.images), jnp.asarray(data.masks))


Lights = Float[np.ndarray, "n 3"]
Keep = Callable[[str, Callable[[], Lights]], Lights]
"""From a method's name and how its lights are computed to these, computed or read."""


def compute(name: str, lights: Callable[[], Lights]) -> Lights:
    """Keeps nothing."""
    return lights()


def single_image_estimates(
    data: ImageSet, keep: Keep = compute, methods: Sequence[str] | None = None
) -> dict[str, Lights]:
    """Lights by method, of every image or, where it learns, of the images in a fold.

    What learns does so from the images outside of the fold.

    Args:
      data: images and folds.
      keep: what is done with the lights of those that learn.
      methods: of those that learn by one function, by name; None is all.

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
    seen: dict[Look, PyTree] = {method: estimates[name] for name, method in ESTIMATORS.items()}
    names, cameras = numbers_of_cameras(data)

    def lesson(kept: PyTree, train: np.ndarray, test: np.ndarray) -> Lesson:
        taught, asked = (jax.tree.map(lambda leaf, r=rows: leaf[r], kept) for rows in (train, test))
        camera = jnp.array(names.index(data.camera))
        return Lesson(taught, lights[train], asked, jnp.asarray(cameras[train]), camera)

    def learnt(learner: Learner) -> Lights:
        if learner.look not in seen:
            seen[learner.look] = (
                learner.look(data.images, data.masks)
                if learner.at_once
                else look_at_all(learner.look, data)
            )
        kept = seen[learner.look]
        return by_fold(lambda train, test: learner.estimate(lesson(kept, train, test)))

    every = learners(data)
    every = {name: own for name, own in every.items() if methods is None or name in methods}
    bar = progress(data.camera, len(every), unit="method")
    for name, learner in every.items():
        bar.set_postfix_str(name)
        estimates[name] = keep(name, partial(learnt, learner))
        bar.update()
    bar.close()
    return {name: np.asarray(light) for name, light in estimates.items()}


def in_folds(
    data: ImageSet, estimates: Mapping[str, Float[np.ndarray, "n 3"]]
) -> dict[str, Float[np.ndarray, "1 folds k 3"]]:
    """Lights of every image laid out by fold."""
    folds = np.stack(data.folds)
    return {name: lights[folds][None] for name, lights in estimates.items()}


def compare_on_images(
    data: ImageSet,
    seeds: Sequence[int],
    training: TrainingSettings,
    checkpoints: Checkpoints,
    keep: Keep = compute,
    methods: Sequence[str] | None = None,
) -> Comparison:
    """Estimators, what learns, and nets and regressions on a few numbers of each image."""
    pairs = CameraPairs(
        {MOMENTS: moments_of(data)},
        data.illuminants,
        data.illuminants,
        np.stack(data.folds),
        (data.camera, data.camera),
        data.note,
    )
    augmentations = {"none": repeated, "re-illuminated": _relit_by_von_kries}
    outcome = cross_validate(pairs, augmentations, "honest", seeds, training, checkpoints)
    estimates = in_folds(data, single_image_estimates(data, keep, methods)) | outcome.lights()
    return Comparison(estimates, data.illuminants[np.stack(data.folds)])


def moments_of(data: ImageSet) -> Float[np.ndarray, "n 9"]:
    """Nine colour moments of what each mask leaves."""
    return np.asarray(look_at_all(_NINE_MOMENTS, data))


_NINE_MOMENTS = partial(_moments_of_image, degree=2)


def copies_of(train: np.ndarray) -> int:
    """Re-illuminations of each training image, of which there are fewer others at times."""
    return min(COPIES, SAMPLES // len(train), len(train) - 1)


def repeated(data: CameraPairs, train: np.ndarray, _: Array) -> Samples:
    """No augmentation."""
    return repeat_samples(data, train, 1 + copies_of(train))


def _relit_by_von_kries(data: CameraPairs, train: np.ndarray, key: Array) -> Samples:
    """Each image under its own light and under others of the training part."""
    count = copies_of(train)
    own = np.arange(len(train))[:, None]
    others = jax.vmap(lambda k: jax.random.permutation(k, len(train) - 1)[:count])
    shift = 1 + np.asarray(others(jax.random.split(key, len(train))))
    target = np.concatenate([own, (own + shift) % len(train)], axis=1)
    relights = np.asarray(von_kries(jnp.asarray(data.main[train])))[own, target]
    relights = relights.reshape(-1, 3, 3)
    source = np.repeat(train, target.shape[1])
    moments = jnp.asarray(data.inputs[MOMENTS][source])
    relit = {MOMENTS: jax.vmap(reilluminate_moments)(moments, relights)}
    return Samples(relit, data.targets(train)[target.ravel()])
