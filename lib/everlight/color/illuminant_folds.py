"""Cross-validation of methods that estimate one illuminant per image."""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from everlight.color.illuminant_method import (
    ADDITIONAL_IMAGES,
    IlluminantMethod,
    LabelledImages,
    SideInformation,
)
from everlight.trees import rows_of


@partial(jax.jit, static_argnums=0)
def _predict_all(predict: Callable, parameters: PyTree, test: PyTree) -> Float[Array, "k 3"]:
    return jax.lax.map(partial(predict, parameters), test, batch_size=32)


@partial(jax.jit, static_argnums=0)
def _predict_with_others(
    predict: Callable,
    parameters: PyTree,
    images: LabelledImages,
    test: PyTree,
    camera: Int[Array, ""],
) -> Float[Array, "k 3"]:
    """Estimate with drawn training images of the camera, or test images if it has none."""
    _, drawn = jax.random.split(jax.random.key(0))
    same_camera = images.cameras == camera
    features = jax.tree.map(lambda *parts: jnp.concatenate(parts), images.features, test)
    count = len(jax.tree.leaves(test)[0])
    rows = len(same_camera) + jnp.arange(count)

    def estimate(row_and_key: tuple[Array, Array]) -> Float[Array, "3"]:
        row, key = row_and_key
        unlabelled = jnp.full(count, ~jnp.any(same_camera))
        usable = jnp.concatenate([same_camera, unlabelled]).at[row].set(False)
        chosen = jax.random.categorical(
            key, jnp.where(usable, 0.0, -jnp.inf), shape=(ADDITIONAL_IMAGES,)
        )
        return predict(parameters, rows_of(features, row), rows_of(features, chosen))

    return jax.lax.map(estimate, (rows, jax.random.split(drawn, count)), batch_size=32)


def estimate_fold(
    method: IlluminantMethod, images: LabelledImages, test: PyTree, side: SideInformation
) -> Float[Array, "k 3"]:
    """Return a method's estimates of images with these features, fitted to labelled images."""
    parameters = method.fit(images, side)
    if method.reads_others:
        return _predict_with_others(method.predict, parameters, images, test, side.camera_number)
    return _predict_all(method.predict, parameters, test)


def estimate_folds(
    method: IlluminantMethod,
    images: LabelledImages,
    folds: Sequence[Int[np.ndarray, "k"]],
    side: SideInformation,
) -> Float[np.ndarray, "folds k 3"]:
    """Return a method's estimates of each fold's images, trained on the images outside of it.

    Args:
      method: method to cross-validate.
      images: all images, with features from `IlluminantMethod.describe`.
      folds: rows of the test images of each fold.
      side: side information on the images.
    """
    estimates = []
    for test in folds:
        train = np.setdiff1d(np.arange(len(images.illuminants)), test)
        tested = rows_of(images.features, test)
        estimates.append(np.asarray(estimate_fold(method, rows_of(images, train), tested, side)))
    return np.stack(estimates)
