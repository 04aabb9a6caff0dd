"""Interface of all methods that estimate one illuminant per image, with and without training.

A method is one file in `color.estimators` or `color.learned` whose `METHODS` holds its rows;
`color.illuminant_registry` collects them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PyTree

from everlight.color.camera_calibration import CameraCalibration
from everlight.color.illuminants import Illuminant, Image, Mask

ADDITIONAL_IMAGES = 6
"""Number of other images by the same camera that a method with `reads_others` reads."""


class LabelledImages(NamedTuple):
    """Images with known illuminants, as a method's features describe them.

    Attributes:
      features: features of the images, leading axis `n`.
      illuminants: true illuminants, any scale.
      cameras: number of the camera of each image.
    """

    features: PyTree
    illuminants: Float[Array, "n 3"]
    cameras: Int[Array, "n"]


class CapturedFeatures(NamedTuple):
    """Features of an image, and the vector of its capture.

    Attributes:
      features: features of the image.
      capture: vector such as `capture_features` or `lux_feature`.
    """

    features: PyTree
    capture: Float[Array, "*n f"]


class SideInformation(NamedTuple):
    """Information that methods read in addition to the pixels of a set of images.

    Attributes:
      cameras: names of the cameras, in the order of their numbers.
      camera: camera of the images to estimate.
      calibrations: calibration of each camera; None where one is unknown.
      uncalibrated: reason why there are no calibrations.
      captures: vectors of all images' captures, such as `capture_features` or `lux_feature`, in
        their order; None where they are unknown.
      trunk_views: function from all images and masks to `TrunkViews` of a frozen network.
      missing_trunk: function that returns why that network cannot run; empty if it can.
    """

    cameras: Sequence[str] = ("",)
    camera: str = ""
    calibrations: CameraCalibration | None = None
    uncalibrated: str = "it needs each camera's calibration matrices, and none were given"
    captures: Float[ArrayLike, "n f"] | None = None
    trunk_views: Callable[[ArrayLike, ArrayLike], PyTree] | None = None
    missing_trunk: Callable[[], str] = lambda: "it needs a frozen network, and none is given"

    @property
    def camera_number(self) -> Int[Array, ""]:
        """Number of the camera of the images to estimate."""
        return jnp.array(self.cameras.index(self.camera))


def no_parameters(images: LabelledImages, side: SideInformation) -> None:
    """Return the parameters of an estimator without training, which has none."""


def images_alone(fit: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Return the fit of a method that reads no side information, from a function without it."""
    return lambda images, side, **settings: fit(images, **settings)


def features_as_illuminant(parameters: None, illuminant: Illuminant) -> Illuminant:
    """Return the features of an estimator without training, which are its estimate."""
    return illuminant


@dataclass(frozen=True, eq=False)
class IlluminantMethod:
    """A method that estimates illuminants from features of images.

    Called with an image, its mask and fitted parameters, it returns the unit illuminant; those
    without training need no parameters.

    Attributes:
      name: name in reports and of `--methods`.
      features: features of an image and its mask, which depend on no other image; None for a method
        with `set_features`.
      fit: parameters from labelled images and side information.
      predict: unit illuminant from the parameters and one image's features, NaN where the image
        determines none; with `reads_others` its third argument is the features of other images by
        the same camera, leading axis `ADDITIONAL_IMAGES`.
      set_features: features of all images and masks, from side information too; for methods that
        read more than pixels.
      reads_capture: whether it reads the vector of an image's capture too; `fit` and `predict` then
        get `CapturedFeatures`.
      reads_others: whether it reads unlabelled images by the camera of the image.
      calibrate: function from parameters and a camera's calibration to the parameters for that
        camera; None for methods that read no calibration.
      is_camera_specific: whether one fit serves a single camera.
      always_runs: whether a comparison has it in any case, so that it cannot be chosen by name.
      costly: whether it runs only where it is named, since a fit takes many minutes.
      applies: whether it has a row for images with this side information.
      incompatibility: reason why it cannot run with this side information; empty if it can.
    """

    name: str
    features: Callable[[Image, Mask], PyTree] | None
    fit: Callable[[LabelledImages, SideInformation], PyTree] = no_parameters
    predict: Callable[..., Illuminant] = features_as_illuminant
    set_features: Callable[[ArrayLike, ArrayLike, SideInformation], PyTree] | None = None
    reads_capture: bool = False
    reads_others: bool = False
    calibrate: Callable[[PyTree, CameraCalibration], PyTree] | None = None
    is_camera_specific: bool = False
    always_runs: bool = False
    costly: bool = False
    applies: Callable[[SideInformation], bool] = lambda side: True
    incompatibility: Callable[[SideInformation], str] = lambda side: ""

    @property
    def is_trained(self) -> bool:
        """True if it has parameters."""
        return self.fit is not no_parameters

    @property
    def is_selectable(self) -> bool:
        """True if a comparison runs it by its name, and keeps its estimates."""
        return self.is_trained and not self.always_runs

    def __call__(self, image: Image, mask: Mask, parameters: PyTree = None) -> Illuminant:
        """Return the unit illuminant of an image, or NaN."""
        return self.predict(parameters, self.features(image, mask))

    def describe(
        self,
        images: Float[ArrayLike, "n h w 3"],
        masks: Float[ArrayLike, "n h w"],
        side: SideInformation,
    ) -> PyTree:
        """Return the features of all images, as `fit` and `predict` read them."""
        return self.with_capture(self.image_features(images, masks, side), side.captures)

    def image_features(
        self,
        images: Float[ArrayLike, "n h w 3"],
        masks: Float[ArrayLike, "n h w"],
        side: SideInformation,
    ) -> PyTree:
        """Return the features of all images, without the vectors of their captures."""
        if self.set_features is not None:
            return self.set_features(images, masks, side)
        return map_images(self.features, jnp.asarray(images), jnp.asarray(masks))

    def with_capture(self, features: PyTree, capture: Float[ArrayLike, "*n f"] | None) -> PyTree:
        """Return the features as `fit` and `predict` read them, with the capture if they do."""
        return CapturedFeatures(features, jnp.asarray(capture)) if self.reads_capture else features


@partial(jax.jit, static_argnums=0)
def map_images(
    function: Callable[[Image, Mask], PyTree],
    images: Float[Array, "n h w 3"],
    masks: Float[Array, "n h w"],
) -> PyTree:
    """Return a function's values for all images and masks, with a leading axis `n`.

    Batches of 40 bound the memory; many set sizes are multiples, so no remainder is compiled.

    Args:
      function: function of one image and its mask, such as an estimator or features.
      images: linear raw colours, `[n, h, w, 3]`.
      masks: 0 excludes a pixel, `[n, h, w]`.
    """
    return jax.lax.map(lambda seen: function(*seen), (images, masks), batch_size=40)
