"""Images, and pairs of two cameras, as inputs of estimators: features, illuminants and folds."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from everlight.color.chromaticity import illuminant_to_chromaticity
from everlight.color.transforms import mean_normalized
from everlight.illuminant.charted_pairs import ChartedPairs
from everlight.illuminant.illuminant_training import Problem
from everlight.illuminant.pair_inputs import MOMENTS, TRANSFORM, View, alone_and_joined


class CameraPairs(NamedTuple):
    """Inputs and illuminants of image pairs, one scene each."""

    inputs: Mapping[str, Float[np.ndarray, "n f"]]
    """Features by name: `TRANSFORM` row by row, numbers of one image alone, or both."""
    main: Float[np.ndarray, "n 3"]
    """Illuminants in the main camera."""
    second: Float[np.ndarray, "n 3"]
    """Illuminants in the second camera."""
    folds: Int[np.ndarray, "folds k"]
    """Test rows of each fold."""
    cameras: tuple[str, str]
    """Names of the two cameras."""
    note: str
    """Description of the data for reports."""
    view: View = "main"
    """Camera whose illuminant is estimated."""

    @property
    def illuminants(self) -> Float[np.ndarray, "n 3"]:
        """Illuminants to be estimated."""
        return self.main if self.view == "main" else self.second

    def targets(self, rows: np.ndarray) -> Float[np.ndarray, "*k 2"]:
        """Return the chromaticities of the illuminants."""
        return _chromaticities(self.illuminants[rows])

    def samples(self, rows: np.ndarray) -> "Samples":
        """Return the inputs and chromaticities of some pairs."""
        return Samples(_select_rows(self.inputs, rows), self.targets(rows))


class Samples(NamedTuple):
    """Inputs by name, and chromaticities, of training or validation."""

    inputs: Mapping[str, Float[Array, "n f"]]
    targets: Float[Array, "n 2"]


class ImageInputs(NamedTuple):
    """Inputs and illuminants of single images."""

    inputs: Mapping[str, Float[np.ndarray, "n f"]]
    """Features by name."""
    illuminants: Float[np.ndarray, "n 3"]
    folds: Int[np.ndarray, "folds k"]
    """Test rows of each fold."""

    def targets(self, rows: np.ndarray) -> Float[np.ndarray, "*k 2"]:
        """Return the chromaticities of the illuminants."""
        return _chromaticities(self.illuminants[rows])

    def samples(self, rows: np.ndarray) -> Samples:
        """Return the inputs and chromaticities of some images."""
        return Samples(_select_rows(self.inputs, rows), self.targets(rows))


def _chromaticities(illuminants: np.ndarray | Array) -> Float[np.ndarray, "*k 2"]:
    return np.asarray(illuminant_to_chromaticity(jnp.asarray(illuminants)))


def _select_rows(
    inputs: Mapping[str, np.ndarray | Array], rows: np.ndarray
) -> dict[str, np.ndarray | Array]:
    return {name: values[rows] for name, values in inputs.items()}


FoldedInputs = CameraPairs | ImageInputs
"""Data that networks and regressions are cross-validated on."""
Augment = Callable[[FoldedInputs, Int[np.ndarray, "k"], PRNGKeyArray], Samples]
"""Makes training samples of training rows.

All augmentations of one table give equally many, so that their trainings share a program.
"""


def problem_of(input_name: str, train: Samples, valid: Samples) -> Problem:
    """Return the problem of a network with one input, by the name of the input."""
    return Problem(train.inputs[input_name], train.targets, valid.inputs[input_name], valid.targets)


def finite_rows(inputs: Float[np.ndarray, "n f"]) -> Int[np.ndarray, "n"]:
    """Return rows with finite inputs, repeated in place of the others, so that sizes agree.

    Without any finite row there are none.
    """
    finite = np.flatnonzero(np.isfinite(inputs).all(axis=1))
    return np.resize(finite, len(inputs)) if len(finite) else finite


def charted_camera_pairs(
    charted: ChartedPairs,
    moments: Float[np.ndarray, "n 9"],
    cameras: tuple[str, str],
    note: str,
    view: View = "main",
) -> CameraPairs:
    """Return pairs with a chart as inputs for one camera's illuminant.

    Args:
      charted: transforms, illuminants and folds.
      moments: nine colour moments of the images of `view`.
      cameras: names of the two cameras.
      note: description of the data for reports.
      view: camera whose illuminant is estimated.
    """
    transforms = mean_normalized(charted.transforms, charted.main.means, charted.second.means)
    flat = np.asarray(transforms).reshape(-1, 9)
    return CameraPairs(
        inputs=alone_and_joined({TRANSFORM: flat, MOMENTS: moments}),
        main=charted.main.illuminants,
        second=charted.second.illuminants,
        folds=np.stack(charted.folds),
        cameras=cameras,
        note=note,
        view=view,
    )
