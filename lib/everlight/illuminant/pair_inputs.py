"""Vocabulary of pairs of cameras: the two views, and the inputs of estimators by name."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

View = Literal["main", "second"]
"""Camera of a pair; the transform maps main colours to second colours."""
VIEWS: tuple[View, ...] = ("main", "second")

TRANSFORM: Literal["T"] = "T"
MOMENTS: Literal["moments"] = "moments"
WHITE_BALANCE = "the phone's white balance"
TRANSFORM_AND_MOMENTS: Literal["T and moments"] = "T and moments"
TRANSFORM_AND_WHITE_BALANCE = f"{TRANSFORM} and {WHITE_BALANCE}"
InputNames = Literal["T", "moments", "T and moments"]
"""Inputs of an estimate; moments are those of the camera's own image."""
INPUTS: dict[InputNames, tuple[Literal["T", "moments"], ...]] = {
    TRANSFORM: (TRANSFORM,),
    MOMENTS: (MOMENTS,),
    TRANSFORM_AND_MOMENTS: (TRANSFORM, MOMENTS),
}
"""Features that each input consists of, nine numbers each."""
WIDTHS: dict[InputNames, int] = {name: 9 * len(parts) for name, parts in INPUTS.items()}


class PairInputs(NamedTuple):
    """Inputs of a pair's estimates.

    Attributes:
      transform: transform of main colours to second colours, in the model's scale.
      valid: whether the colours determine the transform.
      distance: distance of a most probable transform with its colours' misfit; otherwise NaN.
      moments: nine colour moments of each image.
    """

    transform: Float[Array, "3 3"]
    valid: Bool[Array, ""]
    distance: Float[Array, ""]
    moments: Mapping[View, Float[Array, "9"]]

    def features(self, inputs: InputNames, view: View) -> Float[Array, "f"]:
        """Return the features for one camera's illuminant."""
        by_name = {TRANSFORM: self.transform.reshape(9), MOMENTS: self.moments[view]}
        return jnp.concatenate([by_name[name] for name in INPUTS[inputs]])


def alone_and_joined(inputs: Mapping[str, Float[Array, "*n _"]]) -> dict[str, Float[Array, "*n _"]]:
    """Return inputs by name, and all of them joined as the input "FIRST and SECOND"."""
    joined = np.concatenate([*inputs.values()], axis=-1)
    return {**inputs, " and ".join(inputs): joined}
