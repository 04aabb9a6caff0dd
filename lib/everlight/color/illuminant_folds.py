"""Interface of methods that estimate one illuminant per image, fitted to the images of a fold."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PyTree

from everlight.color.camera_calibration import CameraCalibration
from everlight.color.learned.cross_camera import ADDITIONAL_IMAGES


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
      fit: model from a fold's training images; it does not read the test images.
      predict: illuminant from the model and one image's features; with `reads_others` its third
        argument is the features of other images by the same camera, leading axis
        `ADDITIONAL_IMAGES`.
      learns: whether it is fitted to training images and can be chosen by name.
      at_once: whether `features` takes all images and masks instead of one.
      reads_others: whether it reads unlabelled images by the camera of the image.
      for_camera: function from a model and a camera's calibration to the model for that camera;
        None for methods that read no calibration.
      costly: whether it runs only where it is named, since a fit takes many minutes.
      incompatibility: reason why it cannot run; empty if it can.
    """

    features: Features
    fit: Callable[[Fold], PyTree]
    predict: Callable[..., Float[Array, "3"]]
    learns: bool = True
    at_once: bool = False
    reads_others: bool = False
    for_camera: Callable[[PyTree, CameraCalibration], PyTree] | None = None
    costly: bool = False
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


@partial(jax.jit, static_argnums=0)
def _predict_all(predict: Callable, model: PyTree, test: PyTree) -> Float[Array, "k 3"]:
    return jax.lax.map(partial(predict, model), test, batch_size=32)


@partial(jax.jit, static_argnums=0)
def _predict_with_others(predict: Callable, model: PyTree, fold: Fold) -> Float[Array, "k 3"]:
    """Estimate with drawn training images of the camera, or test images if it has none."""
    _, drawn = jax.random.split(jax.random.key(0))
    taught = fold.cameras == fold.camera
    everything = jax.tree.map(lambda *parts: jnp.concatenate(parts), fold.train, fold.test)
    count = len(jax.tree.leaves(fold.test)[0])
    places = len(taught) + jnp.arange(count)

    def estimate(one: tuple[Array, Array]) -> Float[Array, "3"]:
        place, key = one
        unlabelled = jnp.full(count, ~jnp.any(taught))
        usable = jnp.concatenate([taught, unlabelled]).at[place].set(False)
        chosen = jax.random.categorical(
            key, jnp.where(usable, 0.0, -jnp.inf), shape=(ADDITIONAL_IMAGES,)
        )
        own, others = (
            jax.tree.map(lambda leaf, r=rows: leaf[r], everything) for rows in (place, chosen)
        )
        return predict(model, own, others)

    return jax.lax.map(estimate, (places, jax.random.split(drawn, count)), batch_size=32)


def estimate_fold(method: FoldMethod, fold: Fold) -> Float[Array, "k 3"]:
    """Return a method's estimates of the test images, fitted to the training images."""
    model = method.fit(fold)
    if method.reads_others:
        return _predict_with_others(method.predict, model, fold)
    return _predict_all(method.predict, model, fold.test)


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
        estimates.append(np.asarray(estimate_fold(method, fold)))
    return np.stack(estimates)
