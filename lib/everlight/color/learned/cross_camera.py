"""C5: a network infers a camera-specific FFCC model from unlabelled images.

Afifi et al. 2021, "Cross-camera convolutional color constancy" (ICCV). A network (`generator_net`)
reads the log-chroma histograms of an image and of additional unlabelled images by the same camera.
It generates the filters and the bias map with which the image's histogram is filtered. The camera
may be absent from training. The models that the authors released have `AUTHORS_SIZE`; `SMALL_FORM`
is trained in a minute or two on one CPU core.

Equal to the authors' code (mahmoudnafifi/C5 at dca9236, `train.py` and `src/dataset.py`) except for
what `chroma_histogram`, `generator_net`, `generator_training` and `camera_mapping` state, and for:

- Training images are thumbnails, in the official code images of 384x256 pixels, mapped to other
  cameras in advance. Each has two views; the code makes 5,000 in all by default.
- Batches, and the additional images, are drawn with replacement.
- Training has a number of steps in place of 60 epochs, with batches of 16 throughout, where the
  authors' grow to 64. The rate starts at 0.002 and falls by a cosine at every step; in the official
  code it starts at 0.0005 and falls after every epoch.
- `SMALL_FORM` has one encoder for all additional images, and fewer bins and levels.
- There is no validation, and the last parameters are returned. The gain map, an option of the
  authors' without which they report their main results, is left out.
"""

from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

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
from everlight.color.chroma_histogram import CHROMA_WINDOW, chroma_histograms, without_spoilt
from everlight.color.illuminant_method import (
    ADDITIONAL_IMAGES,
    IlluminantMethod,
    LabelledImages,
    SideInformation,
)
from everlight.color.illuminants import Illuminant
from everlight.color.learned.parts.camera_mapping import TakenImages, draw_view
from everlight.color.learned.parts.generator_net import GeneratorSettings
from everlight.color.learned.parts.generator_training import (
    GeneratorModel,
    Sample,
    fit_generator,
    generated_illuminant,
    training_pool,
)
from everlight.color.learned.parts.observed_image import ObservedImage, observed, thumbnail

AUTHORS_SIZE = GeneratorSettings()
SMALL_FORM = GeneratorSettings(CHROMA_WINDOW, (8, 16, 32), separate=False)
VIEWS = 2
"""Number of views by other cameras of each training image."""


@checked
def fit_cross_camera(
    observations: Annotated[ObservedImage, Stacked],
    illuminants: Annotated[Float[Array, "n 3"], POSITIVE, NotEmpty],
    cameras: Annotated[Int[Array, "n"], Between(0)],
    matrices: Annotated[Float[Array, "cameras 3 3"], NotEmpty] | None = None,
    *,
    key: PRNGKeyArray,
    steps: PositiveInt = 600,
    settings: GeneratorSettings = SMALL_FORM,
) -> GeneratorModel:
    """Train the network with Adam on batches of 16 images, each with six additional images.

    The loss is the angular error, plus the roughness of the filters and the bias map. Training
    images are the given ones and two views of each by other cameras.

    Args:
      observations: images and masks from `observe_image`, `[n, h, w, 3]` and `[n, h, w]`; an image
        without usable pixels, or with one that is not finite, does not train.
      illuminants: true illuminants, any scale, `[n, 3]`.
      cameras: camera index of each image, from 0, `[n]`.
      matrices: each camera's matrix from XYZ under daylight to its colours, `[cameras, 3, 3]`. A
        single one serves all cameras. With it, or None, views by other cameras differ only by von
        Kries factors.
      key: key of initial parameters, views and batches.
      steps: number of optimizer steps, static; the last parameters are returned.
      settings: size of the network, static.

    Raises:
      ValueError: a camera index is beyond the matrices, of which there are several.
    """
    if matrices is not None and len(matrices) > 1:
        check_range("cameras", cameras, 0, len(matrices) - 1)
    return _train(
        observations, illuminants, cameras, matrices, key=key, steps=steps, settings=settings
    )


@partial(jax.jit, static_argnames=("steps", "settings"))
def _train(
    observations: ObservedImage,
    illuminants: Float[Array, "n 3"],
    cameras: Int[Array, "n"],
    matrices: Float[Array, "cameras 3 3"] | None,
    *,
    key: PRNGKeyArray,
    steps: int,
    settings: GeneratorSettings,
) -> GeneratorModel:
    first, viewed, drawn = jax.random.split(key, 3)
    matrices = jnp.eye(3)[None] if matrices is None else matrices
    taken = TakenImages(jnp.asarray(illuminants), jnp.asarray(cameras))
    pool = training_pool(viewed, observations, taken, matrices, draw_view, VIEWS, settings.window)

    def draw(key: PRNGKeyArray) -> tuple[Sample, Float[Array, "k b b 2"], None]:
        chosen, which = jax.random.split(key)
        row = jax.random.randint(chosen, (), 0, len(pool.histograms))
        same = jnp.where(pool.cameras == pool.cameras[row], 0.0, -jnp.inf)
        # The image itself is drawn only where its camera has no other.
        others = jax.random.categorical(which, same.at[row].add(-50), shape=(ADDITIONAL_IMAGES,))
        return pool.sample(row), pool.histograms[others], None

    return fit_generator(first, drawn, settings, draw, steps)


@checked
def cross_camera_estimate(
    model: GeneratorModel,
    histograms: Annotated[Float[Array, "b b 2"], FRACTION],
    others: Annotated[Float[Array, "k b b 2"], FRACTION, NotEmpty],
) -> Illuminant:
    """Return the unit illuminant of an image; NaN where its histogram has no pixels.

    Args:
      model: model from `fit_cross_camera`.
      histograms: histograms of the image from `chroma_histograms` in the model's window.
      others: histograms of additional images by the same camera, six for a network with separate
        encoders. Images without pixels count as empty histograms.
    """
    return generated_illuminant(model, histograms, without_spoilt(others)[None])


def _fit(images: LabelledImages, side: SideInformation, **training: Any) -> GeneratorModel:
    matrices = None if side.calibrations is None else side.calibrations.matrices[:, 1]
    taken = observed(images.features), images.illuminants, images.cameras
    key, _ = jax.random.split(jax.random.key(0))
    return fit_cross_camera(*taken, matrices, key=key, **training)


def _predict(
    model: GeneratorModel, thumbnail: Float[Array, "h w 4"], others: Float[Array, "k h w 4"]
) -> Illuminant:
    def histograms(pixels: Float[Array, "h w 4"]) -> Float[Array, "b b 2"]:
        return chroma_histograms(*observed(pixels), model.settings.window)

    first, *rest = jax.vmap(histograms)(jnp.concatenate([thumbnail[None], others]))
    return cross_camera_estimate(model, first, jnp.stack(rest))


# At the authors' size it trains for half an hour on one core.
METHODS = (
    IlluminantMethod("C5, small form", thumbnail, _fit, _predict, reads_others=True),
    IlluminantMethod(
        "C5 at the authors' size",
        thumbnail,
        partial(_fit, steps=3_000, settings=AUTHORS_SIZE),
        _predict,
        reads_others=True,
        costly=True,
    ),
)
