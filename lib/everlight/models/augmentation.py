"""Random changes of training images, made inside the step."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, Shaped

from everlight.checks import NonNegativeInt, checked


@checked
def crop_and_flip(
    image: Shaped[Array, "h w c"], key: PRNGKeyArray, padding: NonNegativeInt = 4
) -> Shaped[Array, "h w c"]:
    """A window of the same size, shifted by up to `padding` over zeros, and half the time mirrored.

    The usual augmentation of CIFAR (He et al. 2016, section 4.2).

    Args:
      image: as stored.
      key: of shift and mirror.
      padding: greatest shift in pixels, both ways.
    """
    key_shift, key_flip = jax.random.split(key)
    padded = jnp.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    row, column = jax.random.randint(key_shift, (2,), 0, 2 * padding + 1)
    window = jax.lax.dynamic_slice(padded, (row, column, 0), image.shape)
    return jnp.where(jax.random.bernoulli(key_flip), window[:, ::-1], window)
