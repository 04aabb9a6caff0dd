"""Estimates of the main camera's illuminant from one camera and from two, on the same pairs."""

from functools import partial

import jax.numpy as jnp
import numpy as np

from everlight.color.chromaticity import chromaticity_to_illuminant, illuminant_to_chromaticity
from everlight.illuminant.camera_pairs import CameraPairs
from everlight.illuminant.illuminant_interval import ensemble_chromaticity
from everlight.illuminant.pair_augmentations import resampled
from everlight.illuminant.pair_inputs import MOMENTS, TRANSFORM, TRANSFORM_AND_MOMENTS, VIEWS, View
from everlight.illuminant.registered_pairs import (
    MOMENTS_AND_EDGES,
    WHITES,
    registered_augmentations,
)
from everlight.trees import checksums_of
from everlight_experiments.illuminant.config import SAMPLES
from everlight_experiments.illuminant.core.camera_means import (
    Estimates,
    camera_mean,
    camera_mean_name,
)
from everlight_experiments.illuminant.core.cross_validation import (
    Estimator,
    cross_validate,
    method_name,
    pooled_rows,
)
from everlight_experiments.illuminant.core.experiment import Comparison, ResamplingUnits
from everlight_experiments.illuminant.core.image_methods import cross_validate_methods
from everlight_experiments.illuminant.core.method_inputs import images_fingerprint
from everlight_experiments.illuminant.core.networks import DEPTH, NetworkTraining
from everlight_experiments.illuminant.pairs.sources import PairSet
from everlight_experiments.run_folder.folder import RunFolder

FFCC = "FFCC"
ONE_CAMERA = method_name(MOMENTS_AND_EDGES, DEPTH)
"""Network of the size of `TWO_CAMERAS` that reads one camera."""
TWO_CAMERAS = method_name(TRANSFORM_AND_MOMENTS, DEPTH)
TRANSFORM_ALONE = f"Net on {TRANSFORM}"
MOMENTS_ALONE = method_name(MOMENTS, DEPTH)
ORACLE = method_name(WHITES, DEPTH)
TWO_TRAININGS = f"{ONE_CAMERA}, mean of two trainings"
"""One camera's counterpart of the mean of both cameras, which has two trainings too.

One seed has no second training and no such row.
"""
AVERAGED = (FFCC, ONE_CAMERA)
"""Methods of one camera whose estimates of both cameras are averaged too."""


def compare_methods(folder: RunFolder, usable: PairSet, training: NetworkTraining) -> Comparison:
    """Return every method's estimates, each by trainings without the pair's fold, in one fold."""
    views: dict[View, dict[str, Estimates]] = {
        view: _estimate_view(folder, usable, view, training.below(view)) for view in VIEWS
    }
    estimates = dict(views["main"])
    if len(training.seeds) > 1:
        estimates[TWO_TRAININGS] = _mean_of_two(estimates[ONE_CAMERA])
    for method in AVERAGED:
        by_camera = {view: views[view][method] for view in VIEWS}
        estimates[camera_mean_name(method)] = camera_mean(
            by_camera, usable.pairs.illuminants, usable.folds
        )
    count = len(usable.names)
    pooled = {
        name: pooled_rows(values, usable.folds, count)[:, None]
        for name, values in estimates.items()
    }
    groups = len(np.unique(usable.groups))
    return Comparison(
        pooled,
        usable.pairs.illuminants["main"][None],
        "main camera",
        f"Illuminant of {usable.images['main'].camera} for {count} pairs in {groups} groups, each "
        "by trainings without the pair's fold.",
        units=ResamplingUnits("groups", usable.groups[None]),
        names=np.array(usable.names)[None],
    )


def _mean_of_two(estimates: Estimates) -> Estimates:
    """Return the mean of each run's estimates and the next run's."""
    single = illuminant_to_chromaticity(jnp.asarray(estimates))
    twice = ensemble_chromaticity(jnp.stack([single, jnp.roll(single, 1, axis=0)]))
    return np.asarray(chromaticity_to_illuminant(twice))


def _estimate_view(
    folder: RunFolder, usable: PairSet, view: View, training: NetworkTraining
) -> dict[str, Estimates]:
    """Return the estimates of one camera's illuminant; the second camera's are of it alone."""
    pairs, images = usable.pairs, usable.images[view]
    data = CameraPairs(
        inputs=pairs.inputs(view),
        main=pairs.illuminants["main"],
        second=pairs.illuminants["second"],
        folds=usable.folds,
        cameras=(usable.images["main"].camera, usable.images["second"].camera),
        note=images.note,
        view=view,
    )
    augmentations = {
        name: resampled(augment, SAMPLES)
        for name, augment in registered_augmentations(pairs).items()
    }
    outcome = cross_validate(data, augmentations, "held-out", training, {TRANSFORM: (DEPTH,)})
    # The folds of all pairs are one array.
    fingerprint = images_fingerprint(images, folds=()) | {
        "folds": checksums_of(usable.folds),
        "view": view,
    }
    keep = partial(folder.computed, fingerprint=fingerprint)
    estimates = cross_validate_methods(images, keep, (FFCC,))
    for name in data.inputs:
        for depth in (None, DEPTH):
            method = method_name(name, depth)
            chromaticities = jnp.asarray(outcome.estimates[Estimator(method)])
            kind = "Linear regression" if depth is None else "Net"
            estimates[f"{kind} on {name}"] = np.asarray(chromaticity_to_illuminant(chromaticities))
    return estimates
