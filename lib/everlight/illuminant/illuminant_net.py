"""The two-camera paper's small network: from features of a colour transform to an illuminant."""

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from everlight.precision import full_precision


class IlluminantNet(nn.Module):
    """Dense layers of `width` units with ReLU, and two outputs through exp (paper, section 3.3).

    With width 9 and a transform's nine entries, depths 2, 5 and 16 have 200, 470 and 1,460
    parameters.

    Attributes:
      depth: number of hidden layers.
      width: units per hidden layer.
      dtype: dtype of the dense layers; parameters and the outputs' exp are float32.
    """

    depth: int = 2
    width: int = 9
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, features: Float[Array, "*batch f"]) -> Float[Array, "*batch 2"]:
        """Predict [R/G, B/G] from the flattened transform or other features."""
        # The batch is the last axis, since rows of nine units would not fill vector units. On two
        # CPU cores, 48 vmapped networks train three times as fast as with nn.Dense.
        hidden = jnp.moveaxis(features, -1, 0)
        for layer in range(self.depth):
            hidden = nn.relu(self._dense(f"hidden_{layer}", hidden, self.width))
        outputs = self._dense("chromaticity", hidden, 2).astype(jnp.float32)
        return jnp.exp(jnp.moveaxis(outputs, 0, -1))

    @full_precision
    def _dense(self, name: str, inputs: Float[Array, "i *batch"], units: int) -> Array:
        kernel = self.param(f"{name}_kernel", nn.initializers.he_normal(), (inputs.shape[0], units))
        bias = self.param(f"{name}_bias", nn.initializers.zeros, (units,))
        inputs, kernel, bias = (array.astype(self.dtype) for array in (inputs, kernel, bias))
        product = jnp.einsum("io,i...->o...", kernel, inputs)
        return product + bias.reshape(units, *[1] * (inputs.ndim - 1))
