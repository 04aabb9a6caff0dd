"""The joint embedding of images and facts (Elhoseiny et al. 2017, AAAI: Sherlock, model 2).

After shared early layers, one branch predicts the subject and another the predicate and object.
"""

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from everlight.base import Outputs
from everlight.models.layers.convolution import Convolution
from everlight.models.layers.pooling import max_pool_even


class JointEmbedding(nn.Module):
    """Network from small images to vectors for subject, predicate and object.

    Every block is a 3x3 convolution, ReLU and a maximum over 2x2 pixels. Sides must be divisible by
    2 to the number of blocks: those of the trunk and one in either branch. Inputs of shape `[b, f]`
    are image features, which the branches' dense layers read directly.

    Attributes:
      size: length of a piece's vector; 300 for word2vec.
      trunk: channels of the shared blocks.
      branch: channels of each branch's own block.
      hidden: units of each branch's dense layer.
      dtype: dtype of the computation below S, P and O; parameters and outputs are float32.
    """

    size: int = 300
    trunk: tuple[int, ...] = (32, 64)
    branch: int = 64
    hidden: int = 256
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, images: Float[Array, "b *shape"], train: bool) -> Outputs:
        """Return [S, P, O] concatenated as logits, `[b, 3 size]`, and both dense layers."""
        shared = images
        for number, channels in enumerate(self.trunk if images.ndim == 4 else ()):
            shared = _block(shared, channels, self.dtype, f"trunk_{number}")
        subject, relation = (self._branch(shared, name) for name in ("subject", "relation"))
        # Larger initial outputs are ten times as long as unit word vectors. The steps that shrink
        # them leave the preceding ReLUs dead, and every image gets the mean embedding.
        small = nn.initializers.variance_scaling(1e-4, "fan_in", "truncated_normal")
        pieces = [
            nn.Dense(self.size, kernel_init=small, name=name)(branch)
            for name, branch in (("S", subject), ("P", relation), ("O", relation))
        ]
        return Outputs(
            jnp.concatenate(pieces, axis=1), jnp.concatenate([subject, relation], axis=1)
        )

    def _branch(self, shared: Float[Array, "b *shape"], name: str) -> Float[Array, "b f"]:
        features = shared
        if features.ndim == 4:
            features = _block(features, self.branch, self.dtype, f"{name}_convolution")
        dense = nn.Dense(self.hidden, dtype=self.dtype, name=f"{name}_dense")
        return nn.relu(dense(features.reshape(features.shape[0], -1))).astype(jnp.float32)


def _block(images: Float[Array, "b h w c"], channels: int, dtype: DTypeLike, name: str) -> Array:
    return max_pool_even(nn.relu(Convolution(channels, dtype=dtype, name=name)(images)))
