"""Files of trained illuminant networks and regressions for pairs of cameras."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from everlight.checks import Between, check_fields
from everlight.color.learned.linear_regression import LinearRegression
from everlight.color.transform_prior import TransformPrior
from everlight.illuminant.illuminant_net import IlluminantNet
from everlight.illuminant.illuminant_training import IlluminantModel
from everlight.illuminant.pair_inputs import VIEWS, WIDTHS
from everlight.illuminant.pair_model import Fit, PairModel, ViewModel
from everlight_data.color.models.model_files import (
    StoredModel,
    array_like,
    errors_like,
    open_model,
    read_description,
    save_model,
)
from everlight_data.errors import DataError
from everlight_data.texts import one_line

DESCRIBED = ("fit", "cameras", "trained_on")
"""Description of a model in its checkpoint, beside its two estimators."""
ARRAYS = ("members", "interval", "distances", "uninformative")
MAX_DEPTH, MAX_MEMBERS = 20, 10_000
"""Limits on the hidden layers and the members of an estimator that a file may state."""


@dataclass(frozen=True)
class ViewDescription:
    """Description that a file has of the estimator of one camera's illuminant."""

    inputs: str
    depth: Annotated[int, Between(1, MAX_DEPTH)] | None
    """Hidden layers; None for a linear regression."""
    size: Annotated[int, Between(1, MAX_MEMBERS)]
    """Members of the ensemble."""

    def __post_init__(self):
        check_fields(self)


@dataclass(frozen=True)
class PairDescription:
    """Description that a file has of a model beside its arrays."""

    fit: Fit
    cameras: Sequence[str]
    trained_on: str
    main: Mapping[str, Any]
    second: Mapping[str, Any] | None

    def __post_init__(self):
        check_fields(self)
        if len(self.cameras) != 2:
            raise ValueError(f"{len(self.cameras)} cameras are named; name main and second")
        self.views()

    def views(self) -> dict[str, ViewDescription | None]:
        """Return the descriptions of the estimators by view."""
        return {
            view: None if stated is None else ViewDescription(**stated)
            for view, stated in (("main", self.main), ("second", self.second))
        }


def save_pair_model(folder: Path, model: PairModel) -> None:
    """Write a model in place of one in the folder; its checkpoint's fingerprint describes it."""
    fingerprint: dict[str, Any] = {name: getattr(model, name) for name in DESCRIBED}
    arrays: dict[str, Any] = {"prior": model.prior}
    for view in VIEWS:
        estimator: ViewModel | None = getattr(model, view)
        fingerprint[view] = arrays[view] = None
        if estimator is not None:
            size = len(jax.tree.leaves(estimator.members)[0])
            fingerprint[view] = {"inputs": estimator.inputs, "depth": estimator.depth, "size": size}
            arrays[view] = {name: getattr(estimator, name) for name in ARRAYS}
    save_model(folder, "pair", fingerprint, arrays)


def load_pair_model(folder: Path) -> PairModel:
    """Read a kept model for pairs, which `everlight.illuminant.pair_estimate` applies.

    Raises:
      MissingDataError, DataError: as for `open_model` and `read_pair_model`.
    """
    return read_pair_model(open_model(folder))


def read_pair_model(stored: StoredModel) -> PairModel:
    """Read the arrays of an opened model.

    Raises:
      DataError: the model is of another kind or damaged, or its inputs are unknown to this version.
    """
    described = read_description(stored, "pair", PairDescription)
    estimators = described.views()
    like: dict[str, Any] = {"prior": None}
    for view, view_description in estimators.items():
        like[view] = (
            None if view_description is None else _view_shapes(view_description, stored.folder)
        )
    if described.fit == "probable":
        like["prior"] = TransformPrior(array_like(9), array_like(9, 9), array_like())
    arrays = stored.arrays(like)
    views = {
        view: None
        if view_description is None
        else ViewModel(view_description.inputs, view_description.depth, **arrays[view])
        for view, view_description in estimators.items()
    }
    main, second = described.cameras
    return PairModel(
        **views,
        prior=arrays["prior"],
        fit=described.fit,
        cameras=(main, second),
        trained_on=described.trained_on,
    )


def _view_shapes(described: ViewDescription, folder: Path) -> dict[str, Any]:
    """Return the shapes of one estimator's arrays."""
    inputs, depth, size = described.inputs, described.depth, described.size
    if inputs not in WIDTHS:
        raise DataError(
            f"{folder} needs the input {one_line(inputs)}, which estimate does not compute; it "
            f"knows {', '.join(WIDTHS)}. Give a model of this version"
        )
    width = WIDTHS[inputs]
    if depth is None:
        members = LinearRegression(array_like(size, width, 2), array_like(size, 2))
    else:
        params = jax.eval_shape(IlluminantNet(depth).init, jax.random.key(0), jnp.zeros(width))
        params = jax.tree.map(lambda leaf: array_like(size, *leaf.shape), params)
        members = IlluminantModel(params, array_like(size, width), array_like(size, width))
    return {"members": members, **errors_like(width)}
