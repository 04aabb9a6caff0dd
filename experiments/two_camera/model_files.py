"""Trained illuminant nets as files: what `estimate` loads."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from data_pipelines.errors import DataError
from everlight.color.chromaticity import from_chromaticity
from everlight.color.transform_prior import (
    ProbableTransform,
    TransformPrior,
    fit_probable_transform,
    transform_distance,
)
from everlight.color.transforms import Normalization, fit_color_transform
from everlight.models.illuminant_interval import (
    Interval,
    IntervalScale,
    chromaticity_interval,
    ensemble_chromaticity,
)
from everlight.models.illuminant_net import IlluminantNet
from everlight.models.illuminant_novelty import QUANTILES, Familiarity
from everlight.models.illuminant_training import IlluminantModel, predict_chromaticity
from experiments.common.checkpoint import Checkpoints, open_existing

# How transforms are fitted: least squares, normalised, or the most probable given a prior.
Fit = Normalization | Literal["probable"]


class LightNets(NamedTuple):
    """Trained nets that tell one camera's light.

    Attributes:
      members: parameters with a leading axis over the ensemble.
      interval: from their disagreement to an interval, calibrated on pairs they were not trained
        on.
    """

    members: IlluminantModel
    interval: IntervalScale


class ToldLight(NamedTuple):
    """A light (R/G, 1, B/G), the members' geometric mean, and where R/G and B/G lie."""

    illuminant: Float[np.ndarray, "3"]
    interval: Interval


class ToldLights(NamedTuple):
    """What a pair tells of both cameras' lights; of the second where there are nets for it."""

    main: ToldLight
    second: ToldLight | None


@dataclass(frozen=True)
class LoadedModel:
    """Ensembles of trained nets and how their transforms are to be fitted.

    Attributes:
      main: nets for the main camera's light.
      second: nets for the second camera's, as many, or None.
      familiar: the transforms it was trained on, and how far others of their kind are from them.
      depth: hidden layers.
      fit: of the transforms it was trained on: "probable" (`fit_probable_transform`), or the
        `normalize` of `fit_color_transform`.
      cameras: names of the main and the second camera.
      trained_on: the data set and the selection rule, in words.
    """

    main: LightNets
    second: LightNets | None
    familiar: Familiarity
    depth: int
    fit: Fit
    cameras: tuple[str, str]
    trained_on: str

    def fit_transform(
        self,
        main: Float[Array, "n 3"],
        second: Float[Array, "n 3"],
        weights: Float[Array, "n"],
    ) -> ProbableTransform:
        """The transform as the net knows it, and its distance from those of the training."""
        prior = self.familiar.prior
        if self.fit == "probable":
            return fit_probable_transform(main, second, prior, weights)
        fit = fit_color_transform(main, second, weights, self.fit)
        return ProbableTransform(fit.transform, transform_distance(prior, fit.transform), fit.valid)

    def predict(self, transform: Float[Array, "3 3"]) -> ToldLights:
        """The lights of a pair with this transform."""
        second = None if self.second is None else self._tell(self.second, transform)
        return ToldLights(self._tell(self.main, transform), second)

    def _tell(self, nets: LightNets, transform: Float[Array, "3 3"]) -> ToldLight:
        features = jnp.asarray(transform, jnp.float32).reshape(9)
        estimates = jax.vmap(predict_chromaticity, (None, 0, None))(
            IlluminantNet(self.depth), nets.members, features
        )
        interval = jax.tree.map(np.asarray, chromaticity_interval(nets.interval, estimates))
        return ToldLight(np.asarray(from_chromaticity(ensemble_chromaticity(estimates))), interval)


ARRAYS = ("main", "second", "familiar")
DESCRIPTION = [field.name for field in dataclasses.fields(LoadedModel) if field.name not in ARRAYS]
COUNTS = {"size", "lights"}
"""Of an ensemble's members, and of the cameras whose light is told."""


def save_model(folder: Path, model: LoadedModel) -> None:
    """Writes a model, in place of one the folder may hold; its checkpoint's facts describe it."""
    facts = {name: getattr(model, name) for name in DESCRIPTION}
    facts |= {"size": len(model.main.members.mean), "lights": 1 if model.second is None else 2}
    checkpoints = Checkpoints(folder, keep=1)
    arrays = {name: getattr(model, name) for name in ARRAYS}
    checkpoints.save((checkpoints.newest() or 0) + 1, arrays, facts)


def load_model(folder: Path) -> LoadedModel:
    """Reads a model.

    Raises:
      MissingDataError: the folder is missing or holds no whole checkpoint.
      DataError: it holds something else.
    """
    checkpoints = open_existing(folder)
    newest = checkpoints.newest()
    facts = checkpoints.facts(newest)
    if facts.keys() != {*DESCRIPTION, *COUNTS}:
        raise DataError(
            f"{folder} holds a checkpoint, but not of a trained model; give a folder that a run "
            "wrote under models/ with this version"
        )
    size, lights = facts.pop("size"), facts.pop("lights")
    net = IlluminantNet(facts["depth"])
    params = jax.eval_shape(net.init, jax.random.key(0), jnp.zeros(9))
    one = IlluminantModel(params, *[jax.ShapeDtypeStruct((9,), jnp.float32)] * 2)
    members = jax.tree.map(lambda a: jax.ShapeDtypeStruct((size, *a.shape), a.dtype), one)
    shapes = (9,), (9, 9), (), (QUANTILES + 1,)
    *prior, distances = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    scale = IntervalScale(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((2,), ())))
    nets = LightNets(members, scale)
    familiar = Familiarity(TransformPrior(*prior), distances)
    like = {"main": nets, "second": nets if lights == 2 else None, "familiar": familiar}
    arrays = checkpoints.restore(newest, like).state
    return LoadedModel(**arrays, **(facts | {"cameras": tuple(facts["cameras"])}))
