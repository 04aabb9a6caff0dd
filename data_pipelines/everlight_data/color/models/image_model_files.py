"""Files of fitted single-image illuminant estimators, and the loader of a model of either kind.

estimator = load_estimator(Path("model"))
red_by_green, _, blue_by_green = estimator(image)   # linear raw colours, [h, w, 3]

CCMNet trained on several cameras takes the camera's calibration too:

calibration = read_dng_calibration(Path("photo.dng")).calibration
estimator(image, calibration=calibration)
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from everlight.checks import Between, check_fields
from everlight.color import IlluminantMethod, LabelledImages, SideInformation, methods_for
from everlight.color.illuminant_method import ADDITIONAL_IMAGES, CapturedFeatures
from everlight.illuminant.image_model import ErrorCalibration, ImageModel, described_features
from everlight.illuminant.pair_model import PairModel
from everlight_data.color.models.model_files import (
    StoredModel,
    array_like,
    errors_like,
    open_model,
    read_description,
    save_model,
)
from everlight_data.color.models.pair_model_files import read_pair_model
from everlight_data.color.photographs.thumbnails import LUX
from everlight_data.color.raw_files.calibrations import single_matrix, stack_calibrations
from everlight_data.errors import DataError
from everlight_data.texts import one_line

MOMENT_COUNT = 9
"""Number of colour moments whose distribution a model keeps."""
MAX_IMAGES, MAX_SIDE = 1_000_000, 2_000
"""Limits on the training images and the thumbnail's side that a file may state."""


@dataclass(frozen=True)
class ImageDescription:
    """Description that a file has of a model beside its arrays."""

    name: str
    side: Annotated[int, Between(1, MAX_SIDE)]
    cameras: Sequence[str]
    trained_on: str
    images: Annotated[int, Between(1, MAX_IMAGES)]
    """Number of its training images."""
    holds_others: bool
    """True if it keeps training images to stand for other photos by the camera."""
    captures: Sequence[str] = ()
    """Names of what it reads of an image's capture; empty if it reads none."""

    def __post_init__(self):
        check_fields(self)
        if not self.cameras:
            raise ValueError("no camera is named")
        if not {*self.captures} <= {LUX}:
            raise ValueError(f"it reads {one_line(self.captures)} of captures")


def save_image_model(folder: Path, model: ImageModel, images: int) -> None:
    """Write a model in place of one in the folder, completely or not at all.

    Args:
      folder: folder of the model alone.
      model: fitted estimator; its method is one of `ILLUMINANT_METHODS`.
      images: number of its training images, on which the size of some methods' models depends.
    """
    described = ImageDescription(
        model.name,
        model.side,
        model.cameras,
        model.trained_on,
        images,
        model.others is not None,
        model.captures,
    )
    fingerprint = dataclasses.asdict(described)
    arrays = {"fitted": model.fitted, "others": model.others, **model.errors._asdict()}
    save_model(folder, "image", fingerprint, arrays)


def load_estimator(folder: str | Path) -> ImageModel:
    """Read a saved single-image estimator; call it with an image to get the illuminant.

    Raises:
      MissingDataError: the folder is missing or holds no complete model.
      DataError: the folder holds something else, or the model is damaged, of another version, or of
        a method unknown to this version.
    """
    return read_image_model(open_model(Path(folder)))


def load_any_model(folder: Path) -> ImageModel | PairModel:
    """Read a saved model for single images or for pairs; raises as `load_estimator` does."""
    stored = open_model(folder)
    return (read_image_model if stored.kind == "image" else read_pair_model)(stored)


def read_image_model(stored: StoredModel) -> ImageModel:
    """Read the arrays of an opened model; raises as `load_estimator` does."""
    described = read_description(stored, "image", ImageDescription)
    cameras = tuple(described.cameras)
    side = _side_like(cameras)
    method = methods_for(side).get(described.name)
    if method is None or method.features is None:
        raise DataError(
            f"{stored.folder} is of the method {one_line(described.name)}, which this version does "
            "not have; train it again"
        )
    image = array_like(described.side, described.side, 3)
    mask = jax.ShapeDtypeStruct((described.side, described.side), jnp.bool_)
    features = jax.eval_shape(partial(described_features, method.features), image, mask)
    if method.reads_capture:
        features = CapturedFeatures(features, array_like(len(described.captures)))
    like = {
        "fitted": _fitted_like(method, features, described.images, side),
        "others": _leading(ADDITIONAL_IMAGES, features) if described.holds_others else None,
        **errors_like(MOMENT_COUNT),
    }
    arrays = stored.arrays(like)
    return ImageModel(
        name=described.name,
        side=described.side,
        cameras=cameras,
        trained_on=described.trained_on,
        captures=tuple(described.captures),
        method=method,
        fitted=arrays.pop("fitted"),
        others=arrays.pop("others"),
        errors=ErrorCalibration(**arrays),
    )


def _leading(count: int, like: PyTree) -> PyTree:
    """Return the shapes with a leading axis."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype), like)


def _side_like(cameras: Sequence[str]) -> SideInformation:
    """Return side information from which shapes follow, without a file of matrices."""
    blank = stack_calibrations([single_matrix(np.eye(3))] * len(cameras))
    return SideInformation(sorted(cameras), cameras[0], blank, captures=np.zeros((1, 1)))


def _fitted_like(
    method: IlluminantMethod, described: PyTree, images: int, side: SideInformation
) -> PyTree:
    """Return the shapes of a fitted model without fitting one."""
    numbers = jax.ShapeDtypeStruct((images,), jnp.int32)
    labelled = LabelledImages(_leading(images, described), array_like(images, 3), numbers)
    return jax.eval_shape(lambda known: method.fit(known, side), labelled)
