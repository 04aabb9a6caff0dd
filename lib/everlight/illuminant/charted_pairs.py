"""Records of pairs of photographs by two cameras that show colour charts."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


class PairedView(NamedTuple):
    """One camera's part of image pairs."""

    illuminants: Float[np.ndarray, "n 3"]
    charts: Float[np.ndarray, "n 24 3"]
    """The chart's 24 colours in each image."""
    means: Float[np.ndarray, "n 3"]
    """Mean colour of each image, in the scale of the pair's transform."""


class ChartedPairs(NamedTuple):
    """Image pairs of a main and a second camera; colours are rows, `second ≈ main @ transform`."""

    names: tuple[tuple[str, str], ...]
    transforms: Float[np.ndarray, "n 3 3"]
    main: PairedView
    second: PairedView
    usable: Bool[np.ndarray, "n 24"]
    """Patches that both cameras measured below saturation."""
    folds: tuple[Int[np.ndarray, "k"], ...]
    """Test indices of each fold, of which `build_quasi_real` makes three."""
