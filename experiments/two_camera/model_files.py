"""Trained illuminant nets as files: what `estimate` loads."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from data_pipelines.errors import DataError
from everlight.color.chromaticity import from_chromaticity
from everlight.color.transforms import Normalization
from everlight.models.illuminant_net import IlluminantNet
from everlight.models.illuminant_training import IlluminantModel, predict_chromaticity
from experiments.common.checkpoint import Checkpoints, open_existing


@dataclass(frozen=True)
class LoadedModel:
    """An ensemble of trained nets (often of one) and how its transforms are to be fitted.

    Attributes:
      members: parameters with a leading axis over the ensemble.
      depth: hidden layers.
      normalize: of `fit_color_transform` for the transforms it was trained on.
      cameras: names of the main and the second camera.
      trained_on: the data set and the selection rule, in words.
    """

    members: IlluminantModel
    depth: int
    normalize: Normalization
    cameras: tuple[str, str]
    trained_on: str

    def predict(self, transform: Float[Array, "3 3"]) -> Float[np.ndarray, "3"]:
        """The main camera's light (R/G, 1, B/G); members are averaged geometrically."""
        net = IlluminantNet(self.depth)
        features = jnp.asarray(transform, jnp.float32).reshape(9)
        estimates = jax.vmap(predict_chromaticity, (None, 0, None))(net, self.members, features)
        return np.asarray(from_chromaticity(ensemble_chromaticity(estimates)))


DESCRIPTION = [field.name for field in dataclasses.fields(LoadedModel) if field.name != "members"]


def ensemble_chromaticity(estimates: Float[Array, "m *n 2"]) -> Float[Array, "*n 2"]:
    """The geometric mean over members, which does not favour R/G over its inverse."""
    return jnp.exp(jnp.mean(jnp.log(estimates), axis=0))


def save_model(folder: Path, model: LoadedModel) -> None:
    """Writes a model, in place of one the folder may hold; its checkpoint's facts describe it."""
    facts = {name: getattr(model, name) for name in DESCRIPTION}
    facts["size"] = model.members.mean.shape[0]
    checkpoints = Checkpoints(folder, keep=1)
    checkpoints.save((checkpoints.newest() or 0) + 1, model.members, facts)


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
    like = jax.tree.map(lambda a: jax.ShapeDtypeStruct((size, *a.shape), a.dtype), one)
    members = checkpoints.restore(newest, like).state
    return LoadedModel(members=members, **(facts | {"cameras": tuple(facts["cameras"])}))
