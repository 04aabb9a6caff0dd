"""A fitted single-image illuminant estimator, with intervals and an out-of-distribution score."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, PyTree

from everlight.color.alignment import MaskedImage
from everlight.color.camera_calibration import CameraCalibration
from everlight.color.chromaticity import chromaticity_to_illuminant, illuminant_to_chromaticity
from everlight.color.feature_distribution import feature_distance
from everlight.color.illuminant_method import ADDITIONAL_IMAGES, IlluminantMethod
from everlight.color.illuminant_registry import ESTIMATORS
from everlight.color.moments import pixel_moments
from everlight.color.thumbnails import below_saturation, place_on_canvas, shrink_image
from everlight.errors import ArgumentError
from everlight.extrema import largest_value
from everlight.illuminant.illuminant_interval import (
    ChromaticityInterval,
    IntervalScale,
    calibrate_interval,
    chromaticity_interval,
    uninformative_interval,
)
from everlight.illuminant.out_of_distribution import (
    DistanceCalibration,
    OutOfDistributionScore,
    cross_calibrate_distances,
    out_of_distribution_score,
)
from everlight.illuminant.pair_estimate import MAX_SCORE, describe_score, is_plausible
from everlight.illuminant.pair_model import Estimate
from everlight.trees import stacked


class UnsuitableImageError(ArgumentError):
    """Raised for an image from which a model estimates no illuminant."""


class DescribedImage(NamedTuple):
    """The features of one image that the method reads, and its nine colour moments."""

    features: PyTree
    moments: Float[Array, "9"]


class ErrorCalibration(NamedTuple):
    """Scale of the intervals, inputs of the training, and the interval without an image.

    Attributes:
      interval: scale of the intervals, calibrated on images outside the training.
      distances: distribution of colour moments, and distances of images outside the training.
      uninformative: radius in degrees of the interval of the training illuminants alone.
    """

    interval: IntervalScale
    distances: DistanceCalibration
    uninformative: Float[Array, ""]


def calibrate_errors(
    held_out: Float[np.ndarray, "n 3"],
    illuminants: Float[np.ndarray, "n 3"],
    moments: Float[np.ndarray, "n 9"],
    folds: Sequence[Int[np.ndarray, "_"]],
) -> ErrorCalibration:
    """Calibrate intervals and distances on images outside the training.

    Args:
      held_out: estimate of each image by a model that was fitted without its fold.
      illuminants: true illuminants, of any scale.
      moments: nine colour moments of each image.
      folds: rows of each fold.

    Raises:
      ValueError: a moment is not finite.
    """
    truth = illuminant_to_chromaticity(jnp.asarray(illuminants))
    estimates = illuminant_to_chromaticity(jnp.asarray(held_out))[None]
    return ErrorCalibration(
        calibrate_interval(estimates, truth),
        cross_calibrate_distances(jnp.asarray(moments), folds),
        uninformative_interval(truth).degrees,
    )


@dataclass(frozen=True)
class ImageModel:
    """A fitted single-image estimator.

    Attributes:
      name: name of the method.
      method: method's functions.
      fitted: result of the method's training.
      others: features of additional images by the camera, for a method that reads some; None where
        it reads none, and where the user gives them.
      side: side in pixels of the thumbnails that it reads.
      errors: calibration of intervals and of the out-of-distribution score; None for a method that
        learns nothing and was not compared with known illuminants.
      cameras: cameras of the training images.
      trained_on: training data in words.
      captures: what it reads of an image's capture, such as `lux`; empty if it reads none.
    """

    name: str
    method: IlluminantMethod
    fitted: PyTree
    others: PyTree | None
    side: int
    errors: ErrorCalibration | None
    cameras: tuple[str, ...]
    trained_on: str
    captures: tuple[str, ...] = ()

    @property
    def needs_others(self) -> bool:
        """True if other images by the camera must be given with every image."""
        return self.method.reads_others and self.others is None

    @property
    def needs_calibration(self) -> bool:
        """True if the calibration of its camera must be given with every image."""
        return self.method.calibrate is not None and len(self.cameras) > 1

    def __call__(
        self,
        image: Float[ArrayLike, "h w 3"],
        mask: Bool[ArrayLike, "h w"] | None = None,
        others: Sequence[DescribedImage] = (),
        calibration: CameraCalibration | None = None,
        capture: Float[ArrayLike, "f"] | None = None,
    ) -> Float[np.ndarray, "3"]:
        """Return the illuminant (R/G, 1, B/G) of an image; arguments as of its methods.

        Raises:
          UnsuitableImageError: the image determines none.
        """
        return self.estimate(self.describe(image, mask, capture), others, calibration).illuminant

    def describe(
        self,
        image: Float[ArrayLike, "h w 3"],
        mask: Bool[ArrayLike, "h w"] | None = None,
        capture: Float[ArrayLike, "f"] | None = None,
    ) -> DescribedImage:
        """Return what the model reads of an image.

        Args:
          image: linear raw colours of any size, 0 at the black level, without white balance.
          mask: mask of valid pixels; by default pixels are valid whose channels are all
            below 95% of the image's maximum and none is NaN.
          capture: vector of the image's capture, such as `everlight.color.lux_feature`, for a model
            with `captures`.

        Raises:
          UnsuitableImageError: all pixels are masked or black; without a mask one is infinite; or
            a vector is missing or not read.
        """
        if self.captures and capture is None:
            raise UnsuitableImageError(
                f"{self.name} reads {', '.join(self.captures)} of an image's capture; give it too"
            )
        if not self.captures and capture is not None:
            raise UnsuitableImageError(f"{self.name} reads no capture; leave it out")
        seen = self.thumbnail(image, mask)
        if not bool(jnp.any(seen.mask)):
            raise UnsuitableImageError(
                f"no block of the image, averaged down to {self.side} pixels, is free of saturated "
                "and masked pixels and not black; give an image with such pixels"
            )
        features = described_features(self.method.features, *seen)
        features = self.method.with_capture(features, capture)
        return DescribedImage(features, described_features(pixel_moments, *seen))

    def thumbnail(
        self, image: Float[ArrayLike, "h w 3"], mask: Bool[ArrayLike, "h w"] | None = None
    ) -> MaskedImage:
        """Return the image as the model reads it; arguments as of `describe`."""
        image = jnp.asarray(image, jnp.float32)
        if mask is None:
            peak = float(jnp.nanmax(image))
            if not np.isfinite(peak):
                fault = "a pixel is infinite" if np.isinf(peak) else "no pixel is finite"
                raise UnsuitableImageError(f"{fault}; give an image of finite numbers, or a mask")
            mask = below_saturation(image, max(peak, 1e-30))
        small = shrink_image(image, jnp.asarray(mask, bool), self.side)
        # NaN is not black: it stays, and the image has no estimate.
        lit = small.mask & ~(largest_value(small.image, axis=-1) <= 0)
        return place_on_canvas(MaskedImage(small.image, lit), self.side)

    def estimate(
        self,
        described: DescribedImage,
        others: Sequence[DescribedImage] = (),
        calibration: CameraCalibration | None = None,
    ) -> Estimate:
        """Return the estimate of an image with its interval and score, NaN without `errors`.

        Args:
          described: image from `describe`.
          others: other images by the same camera, if `needs_others`; fewer than the method reads
            are repeated.
          calibration: calibration of the image's camera, if `needs_calibration`. A model whose
            training cameras had one matrix each reads only the last matrix.

        Raises:
          UnsuitableImageError: other images or a calibration are needed, or a calibration is given
            to a method that reads none. Or the image is too far from the training images, or the
            estimate is not an illuminant.
        """
        if self.needs_others and not others:
            raise UnsuitableImageError(
                f"{self.name} was trained on several cameras and reads {ADDITIONAL_IMAGES} other "
                "images by the camera of an image; give them too"
            )
        seen = self.others if self.others is not None else _stack_features(others)
        extra = (seen,) if self.method.reads_others else ()
        fitted = self._fit_for_camera(calibration)
        errors = self.errors
        parts = _estimate_with_interval(self.method.predict, fitted, errors, described, extra)
        estimate = Estimate.of(parts, jnp.inf if errors is None else errors.uninformative)
        if errors is not None and not estimate.score.distance <= MAX_SCORE:
            raise UnsuitableImageError(
                f"{describe_score(estimate, 'images')}; the estimate is worthless. Give linear "
                f"images like those of the training, by {' or '.join(self.cameras)}, or another "
                "model"
            )
        if np.isnan(estimate.illuminant).any():
            raise UnsuitableImageError(
                f"{self.name} determines no illuminant of the image: too many of its pixels are "
                "masked, it has no edges, or an unmasked pixel is not finite; give another image"
            )
        if not is_plausible(estimate.illuminant):
            trained = f" (this one is for {' and '.join(self.cameras)})" if self.cameras else ""
            raise UnsuitableImageError(
                f"the model's estimate {estimate.illuminant} is not an illuminant; use one for "
                f"this camera{trained}"
            )
        return estimate

    def _fit_for_camera(self, calibration: CameraCalibration | None) -> PyTree:
        if calibration is None:
            if self.needs_calibration:
                raise UnsuitableImageError(
                    f"{self.name} was trained on several cameras and reads the calibration "
                    "matrices of an image's camera; give them too"
                )
            return self.fitted
        if self.method.calibrate is None:
            raise UnsuitableImageError(f"{self.name} reads no calibration; leave it out")
        return self.method.calibrate(self.fitted, calibration)


def untrained_model(name: str) -> ImageModel:
    """Return an estimator without training (`everlight.color.ESTIMATORS`), without an interval.

    Args:
      name: name of the estimator.

    Raises:
      ValueError: there is no such estimator.
    """
    if name not in ESTIMATORS:
        raise ArgumentError(f"no estimator {name!a}; there are {', '.join(ESTIMATORS)}")
    return ImageModel(
        name=name,
        method=ESTIMATORS[name],
        fitted=None,
        others=None,
        side=64,
        errors=None,
        cameras=(),
        trained_on="",
    )


def _stack_features(others: Sequence[DescribedImage]) -> PyTree:
    if not others:
        return None
    return stacked([others[index % len(others)].features for index in range(ADDITIONAL_IMAGES)])


@partial(jax.jit, static_argnums=0)
def described_features(
    features: Callable, image: Float[Array, "h w 3"], mask: Bool[Array, "h w"]
) -> PyTree:
    """Return the features of one image by a function of it and its mask of floats."""
    return features(image, mask.astype(image.dtype))


@partial(jax.jit, static_argnums=0)
def _estimate_with_interval(
    predict: Callable,
    fitted: PyTree,
    errors: ErrorCalibration | None,
    described: DescribedImage,
    extra: tuple[Any, ...],
) -> tuple:
    """Return the illuminant (R/G, 1, B/G), its interval and the out-of-distribution score."""
    chromaticity = illuminant_to_chromaticity(predict(fitted, described.features, *extra))
    if errors is None:
        none = jnp.array(jnp.nan)
        unknown = (
            ChromaticityInterval(*[jnp.full(2, jnp.nan)] * 2, none),
            OutOfDistributionScore(none, none),
        )
        return chromaticity_to_illuminant(chromaticity), *unknown
    distance = feature_distance(errors.distances.distribution, described.moments)
    return (
        chromaticity_to_illuminant(chromaticity),
        chromaticity_interval(errors.interval, chromaticity[None]),
        out_of_distribution_score(errors.distances, distance),
    )
