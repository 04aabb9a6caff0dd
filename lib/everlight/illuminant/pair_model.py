"""Estimators for a pair of cameras: estimates with intervals and out-of-distribution scores.

An estimator states the inputs for each camera's illuminant: the transform between the cameras (T),
colour moments of the camera's own image, or both.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from everlight.color.chromaticity import chromaticity_to_illuminant
from everlight.color.feature_distribution import feature_distance
from everlight.color.learned.linear_regression import LinearRegression, linear_estimate
from everlight.color.moments import color_moments
from everlight.color.transform_prior import (
    ProbableTransform,
    TransformPrior,
    fit_probable_transform,
)
from everlight.color.transforms import Normalization, fit_color_transform, scale_free
from everlight.illuminant.illuminant_interval import (
    ChromaticityInterval,
    IntervalCoverage,
    IntervalScale,
    calibrate_interval,
    chromaticity_interval,
    ensemble_chromaticity,
    interval_coverage,
    uninformative_interval,
)
from everlight.illuminant.illuminant_net import IlluminantNet
from everlight.illuminant.illuminant_training import IlluminantModel, predict_chromaticity
from everlight.illuminant.out_of_distribution import (
    DistanceCalibration,
    OutOfDistributionScore,
    out_of_distribution_score,
)
from everlight.illuminant.pair_inputs import INPUTS, TRANSFORM, InputNames, PairInputs, View

Fit = Normalization | Literal["probable"]
"""Fit of transforms: least squares, normalized, or the most probable under a prior.

The most probable ones are `scale_free`.
"""


@struct.dataclass
class ViewModel:
    """Estimator of the illuminant in one camera.

    Attributes:
      inputs: inputs, a key of `INPUTS`.
      depth: hidden layers of the networks; None for linear regressions.
      members: networks or regressions, arrays with a leading axis over the ensemble.
      interval: scale from their disagreement to an interval, calibrated on pairs outside their
        training.
      distances: distribution of the training inputs, and distances of validation inputs from it.
      uninformative: radius in degrees of the interval of the training illuminants alone; infinite
        where they are too few for one.
    """

    inputs: InputNames = struct.field(pytree_node=False)
    depth: int | None = struct.field(pytree_node=False)
    members: IlluminantModel | LinearRegression
    interval: IntervalScale
    distances: DistanceCalibration
    uninformative: Float[Array, ""]

    def coverage(
        self, features: Float[Array, "n f"], truth: Float[Array, "n 2"]
    ) -> IntervalCoverage:
        """Measure the intervals of pairs outside the training, of these true chromaticities."""
        estimates = ensemble_estimates(self.depth, self.members, features)
        return interval_coverage(self.interval, estimates, truth, self.uninformative)


def calibrated_view(
    inputs: InputNames,
    depth: int | None,
    members: IlluminantModel | LinearRegression,
    held_out: Float[Array, "m n 2"],
    truth: Float[Array, "n 2"],
    distances: DistanceCalibration,
) -> ViewModel:
    """Return an estimator whose intervals are calibrated on pairs outside its training.

    Args:
      inputs: inputs of the estimator, a key of `INPUTS`.
      depth: hidden layers of the networks; None for linear regressions.
      members: networks or regressions.
      held_out: estimates of pairs by members that were trained without them.
      truth: true chromaticities of these pairs.
      distances: distribution of the training inputs, and distances from it.
    """
    scale, uninformative = (
        calibrate_interval(held_out, truth),
        uninformative_interval(truth).degrees,
    )
    return ViewModel(inputs, depth, members, scale, distances, uninformative)


class Estimate(NamedTuple):
    """An estimated illuminant (R/G, 1, B/G), the geometric mean of the members.

    Attributes:
      illuminant: the estimate.
      interval: interval of R/G and B/G.
      score: out-of-distribution score of the inputs.
      uninformative: whether the interval is no smaller than that of the training illuminants alone.
    """

    illuminant: Float[np.ndarray, "3"]
    interval: ChromaticityInterval
    score: OutOfDistributionScore
    uninformative: bool

    @classmethod
    def of(cls, parts: tuple, widest: ArrayLike) -> "Estimate":
        """Return the estimate of these fields, uninformative where its radius reaches `widest`."""
        illuminant, interval, score = jax.tree.map(np.asarray, parts)
        finite = np.isfinite(interval.degrees)
        return cls(illuminant, interval, score, bool(finite and interval.degrees >= widest))


class Estimates(NamedTuple):
    """Estimates for both cameras; the second is None without a model for it."""

    main: Estimate
    second: Estimate | None


@dataclass(frozen=True)
class PairModel:
    """Estimators for a pair of cameras, and the fit of their transforms.

    Attributes:
      main: estimator for the main camera.
      second: estimator for the second camera, or None.
      prior: prior of the most probable transforms, where the fit is "probable".
      fit: fit of the training transforms: "probable" (`fit_probable_transform`), or the
        `normalize` of `fit_color_transform`.
      cameras: names of the main and the second camera.
      trained_on: data set and selection rule in words.
    """

    main: ViewModel
    second: ViewModel | None
    prior: TransformPrior | None
    fit: Fit
    cameras: tuple[str, str]
    trained_on: str

    @property
    def needs_transform(self) -> bool:
        """True if an estimate depends on T."""
        views = (self.main, self.second)
        return any(view is not None and TRANSFORM in INPUTS[view.inputs] for view in views)

    def inputs(
        self, main: Float[Array, "n 3"], second: Float[Array, "n 3"], weights: Float[Array, "n"]
    ) -> PairInputs:
        """Return the inputs from both images' colours at the same places."""
        moments = {"main": nine_moments(main, weights), "second": nine_moments(second, weights)}
        if self.fit == "probable":
            fit = _fit_probable(main, second, self.prior, weights)
            return PairInputs(fit.transform, fit.valid, fit.distance, moments)
        fit = fit_color_transform(main, second, weights, self.fit)
        return PairInputs(fit.transform, fit.valid, jnp.array(jnp.nan), moments)

    def estimate(self, inputs: PairInputs) -> Estimates:
        """Return the estimates of a pair."""
        second = None if self.second is None else self._estimate("second", inputs)
        return Estimates(self._estimate("main", inputs), second)

    def _estimate(self, view: View, inputs: PairInputs) -> Estimate:
        model: ViewModel = getattr(self, view)
        from_prior = self.fit == "probable" and model.inputs == TRANSFORM
        distance = inputs.distance if from_prior else None
        parts = _estimate_view(model, inputs.features(model.inputs, view), distance)
        return Estimate.of(parts, model.uninformative)


nine_moments = jax.jit(partial(color_moments, degree=2))


@jax.jit
def _fit_probable(
    main: Float[Array, "n 3"],
    second: Float[Array, "n 3"],
    prior: TransformPrior,
    weights: Float[Array, "n"],
) -> ProbableTransform:
    """Fit the most probable transform, in the scale of the models on rendered scenes."""
    fit = fit_probable_transform(main, second, prior, weights)
    scaled = scale_free(fit.transform)
    valid = fit.valid & jnp.all(jnp.isfinite(scaled))
    return fit._replace(transform=jnp.where(valid, scaled, jnp.eye(3)), valid=valid)


@jax.jit
def _estimate_view(
    model: ViewModel, features: Float[Array, "f"], distance: Float[Array, ""] | None
) -> tuple[Float[Array, "3"], ChromaticityInterval, OutOfDistributionScore]:
    """Return an estimate, its interval and score; without a distance that of `features`."""
    estimates = members_estimates(model.depth, model.members, features)
    if distance is None:
        distance = feature_distance(model.distances.distribution, features)
    return (
        chromaticity_to_illuminant(ensemble_chromaticity(estimates)),
        chromaticity_interval(model.interval, estimates),
        out_of_distribution_score(model.distances, distance),
    )


def members_estimates(
    depth: int | None, members: IlluminantModel | LinearRegression, features: Float[Array, "*n f"]
) -> Float[Array, "m *n 2"]:
    """Return [R/G, B/G] of every network, or of every regression if there is no depth."""
    predict = (
        linear_estimate if depth is None else partial(predict_chromaticity, IlluminantNet(depth))
    )
    return jax.vmap(predict, (0, None))(members, features)


ensemble_estimates = jax.jit(members_estimates, static_argnums=0)
"""`members_estimates` in a program per depth."""
