"""Pairs of two cameras without charts as inputs of estimators, and their re-illumination.

Inputs of equal size compare one camera with two: T and nine colour moments of the main image, or
nine colour moments and nine edge moments of the main image alone, eighteen numbers each.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from everlight.color.chromaticity import illuminant_to_chromaticity
from everlight.color.moments import reilluminate_moments
from everlight.color.transforms import mean_normalized, reilluminate_transform
from everlight.illuminant.camera_pairs import Augment, CameraPairs, Samples
from everlight.illuminant.pair_augmentations import copy_count, draw_targets, repeat_samples
from everlight.illuminant.pair_inputs import MOMENTS, TRANSFORM, VIEWS, View, alone_and_joined

MOMENTS_AND_EDGES = "moments and edge moments"
WHITES = "the true whites' ratios"
"""R/G and B/G of the main camera's illuminant, divided by those of the second camera's.

No photograph shows them without error: an estimator on them is the pair's oracle, which knows what
the sensors differ by under this illuminant and nothing of the scene.
"""


class RegisteredPairs(NamedTuple):
    """Measurements of pairs without charts.

    Attributes:
      transforms: T between images divided by their means.
      means: mean colour of each camera's image at the places of T.
      moments: nine colour moments of each camera's image, then nine edge moments.
      illuminants: ground truth of each camera.
    """

    transforms: Float[np.ndarray, "n 3 3"]
    means: Mapping[View, Float[np.ndarray, "n 3"]]
    moments: Mapping[View, Float[np.ndarray, "n 18"]]
    illuminants: Mapping[View, Float[np.ndarray, "n 3"]]

    def inputs(self, view: View) -> dict[str, Float[np.ndarray, "n f"]]:
        """Return inputs by name: all for the main camera, moments alone for the second one."""
        single = {MOMENTS_AND_EDGES: self.moments[view]}
        if view == "second":
            return single
        flat = self.transforms.reshape(-1, 9)
        joined = alone_and_joined({TRANSFORM: flat, MOMENTS: self.moments[view][:, :9]})
        main, second = (
            np.asarray(illuminant_to_chromaticity(jnp.asarray(self.illuminants[view])))
            for view in VIEWS
        )
        return {**joined, **single, WHITES: main / second}


def registered_augmentations(pairs: RegisteredPairs) -> dict[str, Augment]:
    """Return the training pairs as they are, and re-illuminated by von Kries factors."""
    return {
        "none": lambda data, train, _: repeat_samples(data, train, 1 + copy_count(train)),
        "von Kries": partial(_relit, pairs),
    }


def _relit(
    pairs: RegisteredPairs, data: CameraPairs, train: Int[np.ndarray, "k"], key: PRNGKeyArray
) -> Samples:
    """Return each pair under its own and other training illuminants.

    Diagonal factors also scale the gradients of their channels, so that edge moments follow
    `reilluminate_moments` exactly.
    """
    target = draw_targets(key, len(train), copy_count(train))
    factors = {
        view: jnp.asarray(illuminants[train][target] / illuminants[train][:, None])
        for view, illuminants in pairs.illuminants.items()
    }
    relit = _relit_moments(jnp.asarray(pairs.moments[data.view][train]), factors[data.view])
    inputs = {MOMENTS_AND_EDGES: relit.reshape(-1, 18)}
    if TRANSFORM in data.inputs:
        means = {view: jnp.asarray(colors[train]) for view, colors in pairs.means.items()}
        transforms = _relit_transforms(jnp.asarray(pairs.transforms[train]), means, factors)
        parts = {TRANSFORM: transforms.reshape(-1, 9), MOMENTS: relit[..., :9].reshape(-1, 9)}
        inputs |= alone_and_joined(parts)
        inputs[WHITES] = data.inputs[WHITES][train][target].reshape(-1, 2)
    return Samples(inputs, data.targets(train)[target.ravel()])


@jax.jit
def _relit_moments(
    moments: Float[Array, "k 18"], factors: Float[Array, "k t 3"]
) -> Float[Array, "k t 18"]:
    relit = jax.vmap(jax.vmap(reilluminate_moments, (None, 0)))
    diagonal = jax.vmap(jax.vmap(jnp.diag))(factors)
    parts = [relit(part, diagonal) for part in jnp.split(moments, 2, axis=1)]
    return jnp.concatenate(parts, axis=-1)


@jax.jit
def _relit_transforms(
    transforms: Float[Array, "k 3 3"],
    means: Mapping[View, Float[Array, "k 3"]],
    factors: Mapping[View, Float[Array, "k t 3"]],
) -> Float[Array, "k t 3 3"]:
    """Return transforms between re-illuminated images divided by their new means."""
    diagonal = {view: jax.vmap(jax.vmap(jnp.diag))(values) for view, values in factors.items()}
    relit = jax.vmap(jax.vmap(reilluminate_transform, (None, 0, 0)))
    moved = (means[view][:, None] * factors[view] for view in VIEWS)
    return mean_normalized(relit(transforms, *(diagonal[view] for view in VIEWS)), *moved)
