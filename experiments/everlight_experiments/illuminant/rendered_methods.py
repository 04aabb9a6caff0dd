"""All methods but networks on rendered scenes of a camera pair."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.color.baselines.chromagenic import chromagenic_estimate, fit_chromagenic
from everlight.color.baselines.fold_methods import estimate_images
from everlight.color.baselines.gamut import Gamut, fit_gamut, gamut_estimate
from everlight.color.baselines.linear_regression import fit_linear_regression, linear_estimate
from everlight.color.baselines.protocol import ObservedImage
from everlight.color.chromaticity import from_chromaticity
from everlight.color.estimators import ESTIMATORS
from everlight_data.color.rendered_pairs import Input, RenderedPair
from everlight_data.color.rendered_views import in_pieces
from everlight_experiments.illuminant.cross_validation import method_name


def estimate_rendered(
    estimator: Callable, images: Float[Array, "n h w 3"], *fitted: Any
) -> Float[Array, "n 3"]:
    """Return an estimator's illuminants of rendered images, in which no pixel is masked."""

    def of_rows(rows: slice) -> Float[Array, "k 3"]:
        piece = images[rows]
        return estimate_images(estimator, piece, jnp.ones(piece.shape[:3]), *fitted)

    return in_pieces(of_rows, len(images))


REGRESSED: tuple[Input, ...] = ("T", "moments", "T and moments")
"""Inputs of the linear regressions."""


def compare_methods(pair: RenderedPair, test: RenderedPair) -> dict[str, Float[np.ndarray, "n 3"]]:
    """Return all methods' estimates of the test scenes, networks excepted.

    Args:
      pair: pair whose training scenes train the methods.
      test: the same pair, perhaps under other conditions, whose test scenes are estimated.
    """
    train, rows = pair.scenes.train, test.scenes.test
    images = test.main.images(rows)
    estimates = {name: estimate_rendered(method, images) for name, method in ESTIMATORS.items()}
    # The corners of the gamut's hull are found among 26,000 colours of a tenth of the scenes.
    sample = slice(train.start, train.stop, 10)
    examples = pair.main.images(sample)
    for order, name in enumerate(("Gamut Pixel", "Gamut Edge")):
        seen = ObservedImage(examples, jnp.ones(examples.shape[:3]))
        gamut = fit_gamut(seen, pair.main.illuminants[sample], order=order)
        estimates[name] = estimate_rendered(_gamut_estimate, images, gamut)
    regressed = regress(pair, test)
    estimates |= {method_name(given, None): each for given, each in regressed.items()}
    estimates["Chromagenic"] = _chromagenic(pair, test, rows)
    return {name: np.asarray(value) for name, value in estimates.items()}


def regress(pair: RenderedPair, test: RenderedPair) -> dict[Input, Float[Array, "n 3"]]:
    """Return linear regressions' estimates by input; arguments as of `compare_methods`."""
    estimates = {}
    for given in REGRESSED:
        samples = pair.samples(given, pair.scenes.train)
        linear = fit_linear_regression(
            jnp.asarray(samples.inputs[given]), jnp.asarray(samples.targets)
        )
        chromaticities = linear_estimate(linear, test.inputs[given][test.scenes.test])
        estimates[given] = from_chromaticity(chromaticities)
    return estimates


def _gamut_estimate(gamut: Gamut, *seen: Array) -> Float[Array, "3"]:
    return gamut_estimate(gamut, ObservedImage(*seen))


def _chromagenic(pair: RenderedPair, test: RenderedPair, rows: slice) -> Float[Array, "n 3"]:
    train = pair.scenes.train
    _, first, labels = np.unique(
        pair.scenes.illuminant[train], return_index=True, return_inverse=True
    )
    candidates = pair.main.illuminants[train][first]

    def at_mean_one(seen: RenderedPair, rows: slice) -> list[Array]:
        colors = [view.colors[rows] for view in (seen.main, seen.second)]
        return [each / jnp.mean(each, axis=(1, 2), keepdims=True) for each in colors]

    model = _fit_transforms(*at_mean_one(pair, train), jnp.asarray(labels), candidates)
    return _choose_candidates(model, *at_mean_one(test, rows))


_fit_transforms = jax.jit(fit_chromagenic)
_choose_candidates = jax.jit(jax.vmap(chromagenic_estimate, (None, 0, 0)))
