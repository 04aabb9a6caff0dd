"""Trained illuminant nets as files: what `estimate` loads."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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
from everlight.models.illuminant_net import IlluminantNet
from everlight.models.illuminant_novelty import QUANTILES, Familiarity
from everlight.models.illuminant_training import IlluminantModel, predict_chromaticity
from experiments.common.checkpoint import Checkpoints, open_existing

# How transforms are fitted: least squares, normalised, or the most probable given a prior.
Fit = Normalization | Literal["probable"]


@dataclass(frozen=True)
class LoadedModel:
    """An ensemble of trained nets (often of one) and how its transforms are to be fitted.

    Attributes:
      members: parameters with a leading axis over the ensemble.
      familiar: the transforms it was trained on, and how far others of their kind are from them.
      depth: hidden layers.
      fit: of the transforms it was trained on: "probable" (`fit_probable_transform`), or the
        `normalize` of `fit_color_transform`.
      cameras: names of the main and the second camera.
      trained_on: the data set and the selection rule, in words.
    """

    members: IlluminantModel
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

    def predict(self, transform: Float[Array, "3 3"]) -> Float[np.ndarray, "3"]:
        """The main camera's light (R/G, 1, B/G); members are averaged geometrically."""
        net = IlluminantNet(self.depth)
        features = jnp.asarray(transform, jnp.float32).reshape(9)
        estimates = jax.vmap(predict_chromaticity, (None, 0, None))(net, self.members, features)
        return np.asarray(from_chromaticity(ensemble_chromaticity(estimates)))


ARRAYS = ("members", "familiar")
DESCRIPTION = [field.name for field in dataclasses.fields(LoadedModel) if field.name not in ARRAYS]


def ensemble_chromaticity(estimates: Float[Array, "m *n 2"]) -> Float[Array, "*n 2"]:
    """The geometric mean over members, which does not favour R/G over its inverse."""
    return jnp.exp(jnp.mean(jnp.log(estimates), axis=0))


def save_model(folder: Path, model: LoadedModel) -> None:
    """Writes a model, in place of one the folder may hold; its checkpoint's facts describe it."""
    facts = {name: getattr(model, name) for name in DESCRIPTION}
    facts["size"] = model.members.mean.shape[0]
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
    if facts.keys() != {*DESCRIPTION, "size"}:
        raise DataError(
            f"{folder} holds a checkpoint, but not of a trained model; give a folder that a run "
            "wrote under models/"
        )
    size = facts.pop("size")
    net = IlluminantNet(facts["depth"])
    params = jax.eval_shape(net.init, jax.random.key(0), jnp.zeros(9))
    one = IlluminantModel(params, *[jax.ShapeDtypeStruct((9,), jnp.float32)] * 2)
    members = jax.tree.map(lambda a: jax.ShapeDtypeStruct((size, *a.shape), a.dtype), one)
    shapes = (9,), (9, 9), (), (QUANTILES + 1,)
    *prior, distances = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    like = {"members": members, "familiar": Familiarity(TransformPrior(*prior), distances)}
    arrays = checkpoints.restore(newest, like).state
    return LoadedModel(**arrays, **(facts | {"cameras": tuple(facts["cameras"])}))
