"""Time-aware white balance as methods that are fitted and applied fold by fold."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from everlight.color.illuminant_folds import Fold, FoldMethod, estimate_images
from everlight.color.learned.capture_aware import (
    CaptureModel,
    capture_aware_estimate,
    fit_capture_aware,
)
from everlight.color.learned.chroma_histogram import chroma_histograms
from everlight.color.learned.cross_camera import CHROMA_WINDOW

CAPTURE_STEPS = 1_000
TIME_AWARE = "Time-aware"
IMAGE_ALONE = "Time-aware, without the capture"
WITHOUT_CAPTURES = "it needs time, sun, ISO, exposure and flash of each image, and none are given"


class CapturedImage(NamedTuple):
    """Histograms of an image, and the vector of its capture."""

    histograms: Float[Array, "*n b b 2"]
    capture: Float[Array, "*n f"]


def capture_methods(captures: Float[np.ndarray, "n f"] | None) -> dict[str, FoldMethod]:
    """Return time-aware white balance, and the same network without the capture.

    Without captures the first cannot run, and the second is left out.

    Args:
      captures: `capture_features` of all images, in their order; None where they are unknown.
    """
    if captures is None:
        return {TIME_AWARE: _method(np.zeros((0, 1), np.float32), WITHOUT_CAPTURES)}
    # A column of equal numbers tells the network nothing.
    alone = np.zeros_like(captures[:, :1])
    return {TIME_AWARE: _method(captures), IMAGE_ALONE: _method(alone)}


def _method(captures: Float[np.ndarray, "n f"], incompatibility: str = "") -> FoldMethod:
    return FoldMethod(
        partial(_described, captures),
        partial(_fit, CAPTURE_STEPS),
        _predict,
        at_once=True,
        incompatibility=lambda: incompatibility,
    )


def _histograms(image: Float[Array, "h w 3"], mask: Float[Array, "h w"]) -> Float[Array, "b b 2"]:
    return chroma_histograms(image, mask, CHROMA_WINDOW)


def _described(
    captures: Float[np.ndarray, "n f"], images: ArrayLike, masks: ArrayLike
) -> CapturedImage:
    histograms = estimate_images(_histograms, jnp.asarray(images), jnp.asarray(masks))
    return CapturedImage(histograms, jnp.asarray(captures))


@partial(jax.jit, static_argnums=0)
def _fit(steps: int, fold: Fold) -> CaptureModel:
    train: CapturedImage = fold.train
    given = train.histograms, train.capture, fold.illuminants
    return fit_capture_aware(jax.random.key(0), *given, steps)


def _predict(model: CaptureModel, image: CapturedImage) -> Float[Array, "3"]:
    return capture_aware_estimate(model, image.histograms, image.capture)
