"""The common form of kept illuminant estimators: a checkpoint whose facts state kind and version.

A checkpoint is a folder of arrays and JSON: nothing in it is code. Every array has a checksum.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from everlight.color.feature_distribution import FeatureDistribution
from everlight.models.illuminant_interval import IntervalScale
from everlight.models.out_of_distribution import QUANTILES, DistanceCalibration
from everlight_data.checkpoints import Checkpoints, open_existing
from everlight_data.errors import DataError
from everlight_data.files import one_line

Kind = Literal["pair", "image"]
"""A model for pairs of two cameras' images, or for single images."""
VERSION = 1
"""Version of the files; a reader refuses any other."""


class StoredModel(NamedTuple):
    """A model's checkpoint before its arrays are read."""

    folder: Path
    checkpoints: Checkpoints
    number: int
    kind: Kind
    facts: dict[str, Any]

    def arrays(self, like: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arrays, which must have the structure, shapes and dtypes of `like`.

        Raises:
          DataError: they are damaged, or have another structure.
        """
        return self.checkpoints.restore(self.number, like).state


def save_model(
    folder: Path, kind: Kind, facts: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write a model in place of one in the folder, whole or not at all."""
    checkpoints = Checkpoints(folder, keep=1)
    stated = {"kind": kind, "version": VERSION, **facts}
    checkpoints.save((checkpoints.newest() or 0) + 1, dict(arrays), stated)


def open_model(folder: Path) -> StoredModel:
    """Open a kept model of either kind.

    Raises:
      MissingDataError: the folder is missing or holds no complete checkpoint.
      DataError: the folder holds something else, or a model of another version.
    """
    checkpoints = open_existing(folder)
    number = checkpoints.newest()
    facts = checkpoints.facts(number)
    kind, version = facts.pop("kind", None), facts.pop("version", None)
    if kind not in ("pair", "image"):
        raise DataError(
            f"{folder} holds a checkpoint, but not of a trained model; give a folder that a run "
            "wrote under models/ with this version"
        )
    if version != VERSION:
        raise DataError(
            f"{folder} holds a model of version {one_line(version)}, and this program reads "
            f"version {VERSION}; train it again"
        )
    return StoredModel(folder, checkpoints, number, kind, facts)


def refuse_kind(stored: StoredModel, kind: Kind, facts: set[str]) -> None:
    """Refuse a model of the other kind, and one without the facts of this kind.

    Raises:
      DataError: it is.
    """
    if stored.kind != kind:
        raise DataError(f"{stored.folder} is a model for {stored.kind}s; give one for {kind}s")
    if stored.facts.keys() != facts:
        raise DataError(f"{stored.folder} is damaged: it lacks a part of a model's description")


def array_like(*shape: int) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of an array to be read."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def errors_like(width: int) -> dict[str, Any]:
    """Return the shapes of an error calibration on `width` features."""
    known = FeatureDistribution(array_like(width), array_like(width, width))
    return {
        "interval": IntervalScale(array_like(2), array_like()),
        "distances": DistanceCalibration(known, array_like(QUANTILES + 1)),
        "uninformative": array_like(),
    }
