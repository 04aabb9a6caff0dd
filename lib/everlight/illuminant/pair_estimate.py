"""The estimate for one pair of images, with the reasons to distrust or refuse it."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from everlight.errors import ArgumentError
from everlight.illuminant.illuminant_interval import COVERAGE
from everlight.illuminant.pair_inputs import VIEWS
from everlight.illuminant.pair_model import Estimate, Estimates, PairModel

MAX_CONDITION = 300
"""Maximum condition number of colours that determine a transform.

The 1,853 photos of NUS-8 stay below 147; a grey wall with 0.2% noise has 900.
"""
SINGULAR = 100_000
"""Condition number from which colours have a rank below 3 in single precision."""
MAX_SCORE = 3.0
"""Maximum out-of-distribution score; above 1 a warning is given.

The unit is the 99th percentile of validation pairs.
"""
PLAUSIBLE = 20
"""Bound of R/G and B/G and their inverses; no camera exceeds it under any illuminant."""


UNDEFINED_SCALE = (
    "the model divides transforms by their mean row sum, which is not positive for this pair; make "
    "a model by calibrate, whose transforms have a scale for every pair"
)
"""Reason to refuse a pair whose transform exists, but not in the scale of the model."""
FEW_CHROMATICITIES = (
    "the colours divided by their own sums hold fewer than three independent ones; photograph a "
    "more colourful scene"
)
"""Reason to refuse a pair for a model of sum-normalized pixels."""


class UnsuitablePairError(ArgumentError):
    """Raised for a pair of images from which a model estimates no illuminant."""


class PairEstimate(NamedTuple):
    """Estimates of a pair.

    Attributes:
      estimates: illuminants of the main camera and, if the model has it and the pair is not too far
        from its training pairs, of the second.
      transform: transform of main to second colours in the model's scale; None if the model needs
        none and the colours determine none.
      condition: condition number of the main colours; NaN if there are none, or one is not finite.
      warnings: reasons to distrust the estimates, each with its camera.
    """

    estimates: Estimates
    transform: Float[np.ndarray, "3 3"] | None
    condition: float
    warnings: tuple[str, ...]


def estimate_pair(
    model: PairModel,
    main: Float[np.ndarray, "*shape 3"],
    second: Float[np.ndarray, "*shape 3"],
    usable: Bool[np.ndarray, "*shape"],
) -> PairEstimate:
    """Return a model's estimates from both images' colours at the same places.

    Args:
      model: estimators for the two cameras.
      main: linear colours of the main camera, averaged over blocks of pixels.
      second: linear colours of the second camera at the same places.
      usable: places that both cameras see below saturation.

    Raises:
      UnsuitablePairError: the colours determine no transform, the main camera's inputs are too far
        from the training pairs, or an estimate is not an illuminant.
    """
    colors = (jnp.asarray(image.reshape(-1, 3)) for image in (main, second))
    inputs = model.inputs(*colors, jnp.asarray(usable.ravel(), jnp.float32))
    seen = main[usable]
    reason = transform_obstacle(seen, second[usable])
    condition = float(np.linalg.cond(seen)) if seen.size and np.isfinite(seen).all() else np.nan
    if not reason and not inputs.valid:
        reason = FEW_CHROMATICITIES if model.fit == "sum" else UNDEFINED_SCALE
    if model.needs_transform and reason:
        raise UnsuitablePairError(reason)
    estimates, warnings = model.estimate(inputs), []
    for view, estimate in estimates._asdict().items():
        if estimate is None:
            continue
        if not estimate.score.distance <= MAX_SCORE:
            worthless = f"{view} illuminant: {describe_score(estimate)}; the estimate is worthless"
            if view == "main":
                raise UnsuitablePairError(
                    f"{worthless}. Give images of the cameras that the model was trained for, "
                    f"{' and '.join(model.cameras)}, main one first, well aligned, or another model"
                )
            estimates = estimates._replace(second=None)
            warnings.append(f"{worthless} and is left out.")
            continue
        if not is_plausible(estimate.illuminant):
            raise UnsuitablePairError(
                f"the model's estimate {estimate.illuminant} is not an illuminant; use one for "
                f"these two cameras (this one is for {' and '.join(model.cameras)})"
            )
        warnings += [f"{view} illuminant: {reason}" for reason in reasons_to_distrust(estimate)]
    transform = None if reason else np.asarray(inputs.transform)
    return PairEstimate(estimates, transform, condition, tuple(warnings))


def transform_obstacle(
    main: Float[np.ndarray, "n 3"],
    second: Float[np.ndarray, "n 3"],
    max_condition: float = MAX_CONDITION,
) -> str:
    """Return why both cameras' colours at the same places determine no transform, or "".

    The transform is that of `fit_color_transform` with the normalization "mean". A comparison of
    methods takes every pair that has one, with the limit `SINGULAR`; an estimate does not.
    """
    if not len(main):
        return "no place is seen by both cameras below saturation; give images that overlap"
    for view, colors in zip(VIEWS, (main, second), strict=True):
        if not np.isfinite(colors).all():
            return f"a colour of the {view} camera is NaN or infinite; give another file"
        if not np.mean(colors) > 0:
            return (
                f"the colours of the {view} camera have a mean of 0 or less, so that its exposure "
                "is unknown; give another file, or its true black level"
            )
    condition = np.linalg.cond(main)
    if condition <= max_condition:
        return ""
    return (
        f"the {len(main)} colours seen by both cameras hold fewer than three independent colours, "
        f"too few for a transform (condition number {condition:.0f}, more than {max_condition}); "
        "photograph a more colourful scene"
    )


def is_plausible(illuminant: Float[np.ndarray, "3"]) -> bool:
    """Return True if an estimate (R/G, 1, B/G) can be an illuminant; NaN cannot."""
    return bool(np.all((illuminant > 1 / PLAUSIBLE) & (illuminant < PLAUSIBLE)))


def reasons_to_distrust(estimate: Estimate, validated: str = "pairs") -> list[str]:
    """Return a warning for inputs unlike the training data, and for an uninformative interval."""
    reasons = []
    if estimate.score.distance > 1:
        reasons.append(
            f"{describe_score(estimate, validated)}. The estimate and its interval may be far from "
            "the truth."
        )
    if estimate.uninformative:
        reasons.append(
            f"its interval has a radius of {estimate.interval.degrees:.1f} degrees, no less than "
            "that of the training illuminants without a model: THE ESTIMATE IS UNINFORMATIVE."
        )
    return reasons


def describe_score(estimate: Estimate, validated: str = "pairs") -> str:
    """Return an estimate's out-of-distribution score in words, for validated pairs or images."""
    distance, farther = estimate.score
    return (
        f"out-of-distribution score {distance:.2f}, where 1 is the 99th percentile of validation "
        f"{validated}; {farther:.0%} of them are as far"
    )


def describe_estimate(estimate: Estimate, validated: str = "pairs") -> str:
    """Return an estimate and its interval in words, for validated pairs or images, or neither."""
    red, green, blue = estimate.illuminant
    ratios = f"r {red:.4f}  g {green:.4f}  b {blue:.4f}  (r/g {red:.4f}, b/g {blue:.4f})"
    if not validated:
        return f"{ratios}; no interval: this method was not compared with known illuminants"
    if not np.isfinite(estimate.interval.degrees):
        return f"{ratios}; no interval, as the model was validated on too few {validated}"
    low, high = estimate.interval.low, estimate.interval.high
    return (
        f"{ratios}; {COVERAGE:.0%} interval: r/g {low[0]:.4f} to {high[0]:.4f}, b/g {low[1]:.4f} "
        f"to {high[1]:.4f}, its farthest corner {estimate.interval.degrees:.1f} degrees from it; "
        "it assumes one illuminant, and photographs like those of the training"
    )
