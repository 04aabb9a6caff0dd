"""Scenes among raw pairs, by their illuminants."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int
from scipy.sparse.csgraph import connected_components

from everlight.illuminant.charted_pairs import ChartedPairs
from everlight.metrics.angular import angular_error
from everlight_data.color.charts.pair_files import MIN_PAIRS
from everlight_data.errors import DataError

SAME_SCENE = 0.5
"""Maximum angle in degrees between the illuminants of two pairs of one scene, in both cameras."""


def group_scenes(charted: ChartedPairs) -> Int[np.ndarray, "n"]:
    """Return a scene number for each pair; chains of similar illuminants are one scene.

    Raises:
      DataError: there are too few scenes.
    """
    alike = np.ones((len(charted.names),) * 2, bool)
    for view in (charted.main, charted.second):
        colors = jnp.asarray(view.illuminants)
        alike &= np.asarray(_angles(colors, colors)) < SAME_SCENE
    scenes = connected_components(alike)[1]
    if (count := int(scenes.max()) + 1) < MIN_PAIRS:
        raise DataError(
            f"{len(scenes)} pairs show {count} illuminant{'s' * (count != 1)} that differ by "
            f"{SAME_SCENE} degrees; {MIN_PAIRS} are the minimum. Add pairs under others."
        )
    return scenes


def renumbered_scenes(groups: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
    """Return given groups of usable pairs as scene numbers from 0.

    Raises:
      DataError: there are too few groups.
    """
    scenes = np.unique(groups, return_inverse=True)[1]
    if (count := int(scenes.max()) + 1) < MIN_PAIRS:
        raise DataError(
            f"--groups puts {len(groups)} usable pairs into {count} group{'s' * (count != 1)}; "
            f"{MIN_PAIRS} are the minimum. Add pairs of other scenes."
        )
    return scenes


_angles = jax.jit(jax.vmap(jax.vmap(angular_error, (None, 0)), (0, None)))
