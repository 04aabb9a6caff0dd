"""Trained illuminant nets and regressions as files: what `estimate` loads.

A file says of each camera's light what it is told from: the transform between the two cameras (T),
colour moments of the camera's own image, or both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from everlight.color.chromagenic import LinearRegression, linear_estimate
from everlight.color.chromaticity import from_chromaticity
from everlight.color.feature_distribution import FeatureDistribution, feature_distance
from everlight.color.moments import color_moments
from everlight.color.transform_prior import TransformPrior, fit_probable_transform
from everlight.color.transforms import Normalization, fit_color_transform
from everlight.models.illuminant_interval import (
    Interval,
    IntervalScale,
    chromaticity_interval,
    ensemble_chromaticity,
)
from everlight.models.illuminant_net import IlluminantNet
from everlight.models.illuminant_training import IlluminantModel, predict_chromaticity
from everlight.models.out_of_distribution import (
    QUANTILES,
    DistanceCalibration,
    OutOfDistributionScore,
    out_of_distribution_score,
)
from everlight_data.errors import DataError
from everlight_data.files import one_line
from everlight_experiments.common.checkpoint import Checkpoints, open_existing
from everlight_experiments.illuminant.radiometric_methods import LIGHTS, Light

# How transforms are fitted: least squares, normalised, or the most probable given a prior.
Fit = Normalization | Literal["probable"]

Given = Literal["T", "moments", "T and moments"]
"""What a light is told from; moments are those of the image whose light it is."""
WIDTHS: dict[Given, int] = {"T": 9, "moments": 9, "T and moments": 18}


@dataclass(frozen=True)
class LightModel:
    """What tells one camera's light.

    Attributes:
      given: its inputs.
      depth: hidden layers of its nets; None for linear regressions.
      members: nets or regressions, arrays with a leading axis over the ensemble.
      interval: from their disagreement to an interval, calibrated on pairs they were not trained
        on.
      familiar: the inputs it was trained on, and how far others of their kind are from them.
      uninformed: how far the interval reaches that the training lights alone give, in degrees;
        infinite where they are too few for one.
    """

    given: Given
    depth: int | None
    members: IlluminantModel | LinearRegression
    interval: IntervalScale
    familiar: DistanceCalibration
    uninformed: Float[Array, ""]


class PairInputs(NamedTuple):
    """What lights can be told from; `told` is false where the pair has no transform.

    Attributes:
      transform: of main colours to second's, in the scale that the model knows.
      told: whether the colours determine it.
      distance: of a most probable transform, its colours' misfit included; else NaN.
      moments: nine colour moments of each image.
    """

    transform: Float[Array, "3 3"]
    told: Bool[Array, ""]
    distance: Float[Array, ""]
    moments: Mapping[Light, Float[Array, "9"]]

    def features(self, given: Given, light: Light) -> Float[Array, "f"]:
        """The inputs of one camera's light."""
        by_name = {"T": self.transform.reshape(9), "moments": self.moments[light]}
        return jnp.concatenate([by_name[name] for name in given.split(" and ")])


class ToldLight(NamedTuple):
    """A light (R/G, 1, B/G), the members' geometric mean, and what is known of it.

    Attributes:
      illuminant: the light.
      interval: where R/G and B/G lie.
      novelty: how far its inputs are from those of the training.
      says_nothing: the interval reaches at least as far as that of the training lights alone.
    """

    illuminant: Float[np.ndarray, "3"]
    interval: Interval
    novelty: OutOfDistributionScore
    says_nothing: bool


class ToldLights(NamedTuple):
    """What a pair tells of both cameras' lights; None where nothing was asked or told."""

    main: ToldLight
    second: ToldLight | None


@dataclass(frozen=True)
class LoadedModel:
    """What tells the lights of a pair of cameras, and how their transforms are to be fitted.

    Attributes:
      main: for the main camera's light.
      second: for the second camera's, or None.
      prior: of the most probable transforms, where these are what it was trained on.
      fit: of the transforms it was trained on: "probable" (`fit_probable_transform`), or the
        `normalize` of `fit_color_transform`.
      cameras: names of the main and the second camera.
      trained_on: the data set and the selection rule, in words.
    """

    main: LightModel
    second: LightModel | None
    prior: TransformPrior | None
    fit: Fit
    cameras: tuple[str, str]
    trained_on: str

    @property
    def needs_transform(self) -> bool:
        """Whether any light is told from T."""
        told = (self.main, self.second)
        return any(light is not None and light.given != "moments" for light in told)

    def look(
        self,
        main: Float[Array, "n 3"],
        second: Float[Array, "n 3"],
        weights: Float[Array, "n"],
    ) -> PairInputs:
        """What the colours of both images at the same places give, as the model knows it."""
        moments = {"main": nine_moments(main, weights), "second": nine_moments(second, weights)}
        if self.fit == "probable":
            fit = _fit_probable(main, second, self.prior, weights)
            return PairInputs(fit.transform, fit.valid, fit.distance, moments)
        fit = fit_color_transform(main, second, weights, self.fit)
        return PairInputs(fit.transform, fit.valid, jnp.array(jnp.nan), moments)

    def tell(self, inputs: PairInputs) -> ToldLights:
        """The lights of a pair with these inputs."""
        second = None if self.second is None else self._tell("second", inputs)
        return ToldLights(self._tell("main", inputs), second)

    def _tell(self, light: Light, inputs: PairInputs) -> ToldLight:
        model: LightModel = getattr(self, light)
        from_prior = self.fit == "probable" and model.given == "T"
        distance = inputs.distance if from_prior else None
        features = inputs.features(model.given, light)
        parts = model.members, model.interval, model.familiar, features, distance
        illuminant, interval, found = jax.tree.map(np.asarray, _told(model.depth, *parts))
        says_nothing = bool(np.isfinite(interval.degrees) and interval.degrees >= model.uninformed)
        return ToldLight(illuminant, interval, found, says_nothing)


nine_moments = jax.jit(partial(color_moments, degree=2))
_fit_probable = jax.jit(fit_probable_transform)


@partial(jax.jit, static_argnums=0)
def _told(
    depth: int | None,
    members: IlluminantModel | LinearRegression,
    scale: IntervalScale,
    familiar: DistanceCalibration,
    features: Float[Array, "f"],
    distance: Float[Array, ""] | None,
) -> tuple[Float[Array, "3"], Interval, OutOfDistributionScore]:
    """A light, its interval, and how new its inputs are; without a distance that of `features`."""
    estimates = members_estimates(depth, members, features)
    if distance is None:
        distance = feature_distance(familiar.distribution, features)
    return (
        from_chromaticity(ensemble_chromaticity(estimates)),
        chromaticity_interval(scale, estimates),
        out_of_distribution_score(familiar, distance),
    )


def members_estimates(
    depth: int | None,
    members: IlluminantModel | LinearRegression,
    features: Float[Array, "*n f"],
) -> Float[Array, "m *n 2"]:
    """[R/G, B/G] by every net, or every regression where there is no depth."""
    tell = linear_estimate if depth is None else partial(predict_chromaticity, IlluminantNet(depth))
    return jax.vmap(tell, (0, None))(members, features)


DESCRIBED = ("fit", "cameras", "trained_on")
"""What the facts of a model's checkpoint say of it beside its two lights."""
ARRAYS = ("members", "interval", "familiar", "uninformed")


def save_model(folder: Path, model: LoadedModel) -> None:
    """Writes a model, in place of one the folder may hold; its checkpoint's facts describe it."""
    facts: dict[str, Any] = {name: getattr(model, name) for name in DESCRIBED}
    arrays: dict[str, Any] = {"prior": model.prior}
    for light in LIGHTS:
        own: LightModel | None = getattr(model, light)
        facts[light] = arrays[light] = None
        if own is not None:
            size = len(jax.tree.leaves(own.members)[0])
            facts[light] = {"given": own.given, "depth": own.depth, "size": size}
            arrays[light] = {name: getattr(own, name) for name in ARRAYS}
    checkpoints = Checkpoints(folder, keep=1)
    checkpoints.save((checkpoints.newest() or 0) + 1, arrays, facts)


def load_model(folder: Path) -> LoadedModel:
    """Reads a model.

    Raises:
      MissingDataError: the folder is missing or holds no whole checkpoint.
      DataError: it holds something else, or tells a light from what this version does not know.
    """
    checkpoints = open_existing(folder)
    newest = checkpoints.newest()
    facts = checkpoints.facts(newest)
    if facts.keys() != {*DESCRIBED, *LIGHTS} or facts["main"] is None:
        raise DataError(
            f"{folder} holds a checkpoint, but not of a trained model; give a folder that a run "
            "wrote under models/ with this version"
        )
    described = {light: facts.pop(light) for light in LIGHTS}
    like: dict[str, Any] = {"prior": None}
    for light, own in described.items():
        like[light] = None if own is None else _arrays_of(own, folder)
    if facts["fit"] == "probable":
        like["prior"] = TransformPrior(_array(9), _array(9, 9), _array())
    arrays = checkpoints.restore(newest, like).state
    lights = {
        light: None if own is None else LightModel(own["given"], own["depth"], **arrays[light])
        for light, own in described.items()
    }
    facts["cameras"] = tuple(facts["cameras"])
    return LoadedModel(**lights, prior=arrays["prior"], **facts)


def _array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _arrays_of(described: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Shapes of the arrays of one camera's light.

    Raises:
      DataError: it is told from something else than T and moments.
    """
    given, depth, size = (described[name] for name in ("given", "depth", "size"))
    if given not in WIDTHS:
        raise DataError(
            f"{folder} tells a light from {one_line(given)}, which estimate does not compute; it "
            f"knows {', '.join(WIDTHS)}. Give a model of this version"
        )
    width = WIDTHS[given]
    if depth is None:
        members = LinearRegression(_array(size, width, 2), _array(size, 2))
    else:
        params = jax.eval_shape(IlluminantNet(depth).init, jax.random.key(0), jnp.zeros(width))
        params = jax.tree.map(lambda leaf: _array(size, *leaf.shape), params)
        members = IlluminantModel(params, _array(size, width), _array(size, width))
    known = FeatureDistribution(_array(width), _array(width, width))
    return {
        "members": members,
        "interval": IntervalScale(_array(2), _array()),
        "familiar": DistanceCalibration(known, _array(QUANTILES + 1)),
        "uninformed": _array(),
    }
