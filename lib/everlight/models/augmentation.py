"""Random augmentation of training images, inside the training step."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, Shaped

from everlight.checks import NonNegativeInt, checked


@checked
def crop_and_flip(
    image: Shaped[Array, "h w c"], key: PRNGKeyArray, padding: NonNegativeInt = 4
) -> Shaped[Array, "h w c"]:
    """Crop a window of the same size, shifted by up to `padding` over zeros, and flip at random.

    Flips have probability 0.5. The usual augmentation of CIFAR (He et al. 2016, section 4.2).

    Args:
      image: image, `[h, w, c]`, of any dtype.
      key: key of shift and flip.
      padding: largest shift in pixels, in both directions.
    """
    key_shift, key_flip = jax.random.split(key)
    padded = jnp.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    row, column = jax.random.randint(key_shift, (2,), 0, 2 * padding + 1)
    window = jax.lax.dynamic_slice(padded, (row, column, 0), image.shape)
    return jnp.where(jax.random.bernoulli(key_flip), window[:, ::-1], window)
