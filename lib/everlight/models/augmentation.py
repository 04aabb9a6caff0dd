"""Random augmentation of training images, inside the training step."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from everlight.checks import NonNegativeInt, UnitInterval, checked


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
    shift = jax.random.randint(key_shift, (2,), 0, 2 * padding + 1)
    # Without the barrier XLA for GPU draws the shift again for every value of the image.
    shift, flip = jax.lax.optimization_barrier((shift, jax.random.bernoulli(key_flip)))
    padded = jnp.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    window = jax.lax.dynamic_slice(padded, (*shift, 0), image.shape)
    return jnp.where(flip, window[:, ::-1], window)


@checked
def resized_crop_and_flip(
    image: Float[Array, "h w c"], key: PRNGKeyArray, least_area: UnitInterval = 0.2
) -> Float[Array, "h w c"]:
    """Crop a random part of the image, enlarge it to the image's size, and flip it at random.

    The part's area is uniform, the logarithm of its aspect ratio uniform between 3:4 and 4:3 up to
    the image's sides, and its position uniform (Szegedy et al. 2015, CVPR). Interpolation is
    bilinear. Flips have probability 0.5.

    Args:
      image: image, `[h, w, c]`.
      key: key of area, ratio, position and flip.
      least_area: smallest area of the part, as a fraction of the image's.
    """
    key_area, key_ratio, key_place, key_flip = jax.random.split(key, 4)
    sides = jnp.array(image.shape[:2], jnp.float32)
    area = jax.random.uniform(key_area, minval=least_area, maxval=1.0) * jnp.prod(sides)
    bound = jnp.log(4 / 3)
    ratio = jnp.exp(jax.random.uniform(key_ratio, minval=-bound, maxval=bound))
    part = jnp.minimum(jnp.sqrt(area * jnp.stack([1 / ratio, ratio])), sides)
    scale = sides / part
    first = jax.random.uniform(key_place, (2,)) * (sides - part)
    window = jax.image.scale_and_translate(
        image, image.shape, (0, 1), scale, -first * scale, "linear", antialias=False
    )
    return jnp.where(jax.random.bernoulli(key_flip), window[:, ::-1], window)
