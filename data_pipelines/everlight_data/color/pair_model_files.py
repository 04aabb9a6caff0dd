"""Files of trained illuminant networks and regressions for pairs of cameras."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from everlight.color.baselines.linear_regression import LinearRegression
from everlight.color.feature_distribution import FeatureDistribution
from everlight.color.transform_prior import TransformPrior
from everlight.models.illuminant_interval import IntervalScale
from everlight.models.illuminant_net import IlluminantNet
from everlight.models.illuminant_training import IlluminantModel
from everlight.models.out_of_distribution import QUANTILES, DistanceCalibration
from everlight.models.pair_model import VIEWS, WIDTHS, PairModel, ViewModel
from everlight_data.checkpoints import Checkpoints, open_existing
from everlight_data.errors import DataError
from everlight_data.files import one_line

DESCRIBED = ("fit", "cameras", "trained_on")
"""Description of a model in its checkpoint, beside its two estimators."""
ARRAYS = ("members", "interval", "distances", "uninformative")


def save_pair_model(folder: Path, model: PairModel) -> None:
    """Write a model in place of one in the folder; its checkpoint's facts describe it."""
    facts: dict[str, Any] = {name: getattr(model, name) for name in DESCRIBED}
    arrays: dict[str, Any] = {"prior": model.prior}
    for view in VIEWS:
        own: ViewModel | None = getattr(model, view)
        facts[view] = arrays[view] = None
        if own is not None:
            size = len(jax.tree.leaves(own.members)[0])
            facts[view] = {"given": own.given, "depth": own.depth, "size": size}
            arrays[view] = {name: getattr(own, name) for name in ARRAYS}
    checkpoints = Checkpoints(folder, keep=1)
    checkpoints.save((checkpoints.newest() or 0) + 1, arrays, facts)


def load_pair_model(folder: Path) -> PairModel:
    """Read a model.

    Raises:
      MissingDataError: the folder is missing or holds no complete checkpoint.
      DataError: the folder holds something else, or the inputs are unknown to this version.
    """
    checkpoints = open_existing(folder)
    newest = checkpoints.newest()
    facts = checkpoints.facts(newest)
    if facts.keys() != {*DESCRIBED, *VIEWS} or facts["main"] is None:
        raise DataError(
            f"{folder} holds a checkpoint, but not of a trained model; give a folder that a run "
            "wrote under models/ with this version"
        )
    described = {view: facts.pop(view) for view in VIEWS}
    like: dict[str, Any] = {"prior": None}
    for view, own in described.items():
        like[view] = None if own is None else _arrays_of(own, folder)
    if facts["fit"] == "probable":
        like["prior"] = TransformPrior(_array(9), _array(9, 9), _array())
    arrays = checkpoints.restore(newest, like).state
    views = {
        view: None if own is None else ViewModel(own["given"], own["depth"], **arrays[view])
        for view, own in described.items()
    }
    facts["cameras"] = tuple(facts["cameras"])
    return PairModel(**views, prior=arrays["prior"], **facts)


def _array(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _arrays_of(described: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the shapes of one estimator's arrays.

    Raises:
      DataError: its inputs are unknown to this version.
    """
    given, depth, size = (described[name] for name in ("given", "depth", "size"))
    if given not in WIDTHS:
        raise DataError(
            f"{folder} needs the input {one_line(given)}, which estimate does not compute; it "
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
        "distances": DistanceCalibration(known, _array(QUANTILES + 1)),
        "uninformative": _array(),
    }
