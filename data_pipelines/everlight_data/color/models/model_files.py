"""Common format of saved illuminant estimators: a checkpoint with kind and version.

A checkpoint is a folder of arrays and JSON: nothing in it is code. Every array has a checksum.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from everlight.color.feature_distribution import FeatureDistribution
from everlight.illuminant.illuminant_interval import IntervalScale
from everlight.illuminant.out_of_distribution import QUANTILES, DistanceCalibration
from everlight_data.errors import DataError
from everlight_data.runs.checkpoints import Checkpoints, open_existing
from everlight_data.texts import one_line

Kind = Literal["pair", "image"]
"""A model for pairs of two cameras' images, or for single images."""
Form = TypeVar("Form")
VERSION = 2
"""Version of the files; a reader refuses any other."""

_MODEL_NAME = re.compile(r"\d+(\.damaged|\.orbax-checkpoint-tmp.*)?")
"""Names of models, and of incomplete ones that a killed process leaves."""


class StoredModel(NamedTuple):
    """A model's checkpoint before its arrays are read."""

    folder: Path
    checkpoints: Checkpoints
    number: int
    kind: Kind
    fingerprint: dict[str, Any]

    def arrays(self, like: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arrays, which must have the structure, shapes and dtypes of `like`.

        Raises:
          DataError: the files are damaged, or have another structure.
        """
        return self.checkpoints.restore(self.number, like).state


def save_model(
    folder: Path, kind: Kind, fingerprint: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write a model in place of one in the folder, completely or not at all.

    Raises:
      DataError: the folder is a file or holds anything but a model, or cannot be written.
    """
    refuse_other_contents(folder)
    checkpoints = Checkpoints(folder, keep=1)
    stated = {"kind": kind, "version": VERSION, **fingerprint}
    checkpoints.save((checkpoints.newest() or 0) + 1, dict(arrays), stated)


def refuse_other_contents(folder: Path) -> None:
    """Refuse to write a model over other files, which it would replace.

    Raises:
      DataError: the folder is a file or holds anything but models of this version.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise DataError(f"{folder} is a file; give a folder for the model")
    names = sorted(path.name for path in folder.iterdir())
    other = [name for name in names if not _MODEL_NAME.fullmatch(name)]
    versions = [name for name in names if name.isdecimal()]
    strange = [name for name in versions if not (folder / name / "facts").is_dir()]
    if foreign := (*other, *strange):
        raise DataError(
            f"{folder} holds {one_line(foreign[0])}, which is not a model; give a new or empty "
            "folder for the model"
        )
    if versions:
        open_model(folder)


def open_model(folder: Path) -> StoredModel:
    """Open a saved model of either kind.

    Raises:
      MissingDataError: the folder is missing or holds no complete checkpoint.
      DataError: the folder holds something else, or a model of another version.
    """
    checkpoints = open_existing(folder)
    number = checkpoints.newest()
    fingerprint = checkpoints.fingerprint(number)
    kind, version = fingerprint.pop("kind", None), fingerprint.pop("version", None)
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
    return StoredModel(folder, checkpoints, number, kind, fingerprint)


def read_description(stored: StoredModel, kind: Kind, form: type[Form]) -> Form:
    """Return the fingerprint of an opened model as a data class, whose types they must have.

    Raises:
      DataError: the folder has a model of the other kind, or its fingerprint does not fit `form`.
    """
    if stored.kind != kind:
        raise DataError(f"{stored.folder} is a model for {stored.kind}s; give one for {kind}s")
    try:
        return form(**stored.fingerprint)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{stored.folder} is damaged: its description does not match the expected format "
            f"({one_line(error)})"
        ) from error


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
