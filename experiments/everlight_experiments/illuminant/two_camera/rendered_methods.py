"""All methods but networks on rendered scenes of a camera pair."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.color import (
    ESTIMATORS,
    ILLUMINANT_METHODS,
    LabelledImages,
    SideInformation,
    estimate_fold,
    map_images,
)
from everlight.color.chromaticity import chromaticity_to_illuminant
from everlight.color.learned.chromagenic import chromagenic_estimate, fit_chromagenic
from everlight.color.learned.linear_regression import fit_linear_regression, linear_estimate
from everlight.color.learned.parts.observed_image import ObservedImage
from everlight.illuminant.pair_inputs import VIEWS, View
from everlight_data.color.rendered.rendered_pairs import InputName, RenderedPair
from everlight_experiments.illuminant.core.camera_means import average_views, camera_mean_name
from everlight_experiments.illuminant.core.cross_validation import method_name

REGRESSED: tuple[InputName, ...] = (
    "T",
    "moments",
    "T and moments",
    "exposures",
    "ambient sensor",
    "ambient sensor and moments",
)
"""Inputs of the linear regressions; exact responses have the first three."""


AVERAGED = "FFCC"
"""Method of one camera's photographs whose estimates of both cameras are averaged too."""


def compare_methods(
    pair: RenderedPair, test: RenderedPair, image_methods: Sequence[str]
) -> dict[str, Float[np.ndarray, "n 3"]]:
    """Return estimates of the test scenes of `test` by all methods but networks.

    The training scenes of `pair` train them; `test` is it, perhaps under other conditions. FFCC and
    C5, if they are among `image_methods`, train on a tenth of the scenes, as gamuts do.
    """
    photographs = photographs_of(pair, test, "main")
    estimates = {
        name: map_images(method, *photographs.tested) for name, method in ESTIMATORS.items()
    }
    for name in ("Gamut Pixel", "Gamut Edge", *image_methods):
        estimates[name] = estimate_photographs(name, photographs)
    if AVERAGED in image_methods:
        second = estimate_photographs(AVERAGED, photographs_of(pair, test, "second"))
        both = {"main": estimates[AVERAGED], "second": second}
        estimates[camera_mean_name(AVERAGED)] = mean_of_cameras(pair, both)
    for source, regressed in regress(pair, test).items():
        estimates[method_name(source, None)] = regressed
    estimates["Chromagenic"] = _chromagenic(pair, test)
    return {name: np.asarray(value) for name, value in estimates.items()}


class Photographs(NamedTuple):
    """One camera's photographs: a tenth of the training scenes, and the test scenes."""

    trained: ObservedImage
    illuminants: Float[Array, "m 3"]
    """Illuminants of the training photographs."""
    tested: ObservedImage


def photographs_of(pair: RenderedPair, test: RenderedPair, view: View) -> Photographs:
    """Render one camera's training photographs of `pair` and its test photographs of `test`."""
    # The corners of the gamut's hull are found among 26,000 colours of a tenth of the scenes.
    sample = slice(pair.scenes.train.start, pair.scenes.train.stop, 10)
    trained, tested = getattr(pair, view), getattr(test, view)
    return Photographs(
        _observed(trained.images(sample)),
        trained.illuminants[sample],
        _observed(tested.images(test.scenes.test)),
    )


def estimate_photographs(name: str, photographs: Photographs) -> Float[Array, "n 3"]:
    """Return a trained method's estimates of one camera's test photographs."""
    method, side = ILLUMINANT_METHODS[name], SideInformation()
    examples, tested = (
        method.describe(*images, side) for images in (photographs.trained, photographs.tested)
    )
    illuminants = photographs.illuminants
    train = LabelledImages(examples, illuminants, jnp.zeros(len(illuminants), int))
    return estimate_fold(method, train, tested, side)


def mean_of_cameras(
    pair: RenderedPair, estimates: Mapping[View, Float[Array, "n 3"]]
) -> Float[np.ndarray, "n 3"]:
    """Return the mean of both cameras' estimates, mapped by the training scenes of `pair`."""
    train = {view: getattr(pair, view).illuminants[pair.scenes.train] for view in VIEWS}
    runs = {view: np.asarray(values)[None] for view, values in estimates.items()}
    return average_views(runs, jax.tree.map(np.asarray, train))[0]


def _observed(images: Float[Array, "n h w 3"]) -> ObservedImage:
    return ObservedImage(images, jnp.ones(images.shape[:3]))


def regress(pair: RenderedPair, test: RenderedPair) -> dict[InputName, Float[Array, "n 3"]]:
    """Return linear regressions' estimates by input; arguments as of `compare_methods`."""
    estimates = {}
    for source in (name for name in REGRESSED if name in test.inputs):
        samples = pair.finite_samples(source, pair.scenes.train)
        linear = fit_linear_regression(
            jnp.asarray(samples.inputs[source]), jnp.asarray(samples.targets)
        )
        chromaticities = linear_estimate(linear, test.inputs[source][test.scenes.test])
        estimates[source] = chromaticity_to_illuminant(chromaticities)
    return estimates


def _chromagenic(pair: RenderedPair, test: RenderedPair) -> Float[Array, "n 3"]:
    train = pair.scenes.train
    _, first, labels = np.unique(
        pair.scenes.illuminant[train], return_index=True, return_inverse=True
    )
    candidates = pair.main.illuminants[train][first]

    def colors(seen: RenderedPair, rows: slice) -> list[Array]:
        return [view.colors[rows] for view in (seen.main, seen.second)]

    model = _fit_transforms(*colors(pair, train), jnp.asarray(labels), candidates)
    return _choose_candidates(model, *colors(test, test.scenes.test))


_fit_transforms = jax.jit(partial(fit_chromagenic, normalize="mean"))
_choose_candidates = jax.jit(
    jax.vmap(partial(chromagenic_estimate, normalize="mean"), (None, 0, 0))
)
