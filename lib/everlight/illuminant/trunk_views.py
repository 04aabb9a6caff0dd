"""Features of a frozen network for several views of each image, for confidence pooling.

The features are maps of EfficientNet-Lite0 at 128x128 pixels; thumbnails are enlarged and larger
images averaged. They are those of its third and fifth stage (40 channels, averaged by twos, and
112) at 8x8 places. The first view of an image is the image itself. The others are crops of half to
all of a side, half of them mirrored, re-lit by factors of 0.6 to 1.4 per channel, as in FC4 (Hu et
al. 2017, CVPR).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from everlight.models.efficientnet import DEVIATION, MEAN, EfficientNetLite0

SIDE = 128
GRID_SIDE = 8
VIEWS_PER_IMAGE = 6
MIN_CROP = 0.5
FACTORS = 0.6, 1.4
GAMMA = 2.2
STAGES = ("block4", "block10")


class CroppedView(NamedTuple):
    """A view of an image: a window in shares of its sides, mirrored or not, under an illuminant."""

    corner: Float[np.ndarray, "*n 2"]
    size: Float[np.ndarray, "*n"]
    mirrored: np.ndarray
    factors: Float[np.ndarray, "*n 3"]


def draw_views(count: int) -> CroppedView:
    """Return `VIEWS_PER_IMAGE` views of each of a number of images, the same ones every time."""
    generator = np.random.default_rng(0)
    shape = count, VIEWS_PER_IMAGE
    size = MIN_CROP ** generator.uniform(size=shape)
    corner = generator.uniform(size=(*shape, 2)) * (1 - size)[..., None]
    mirrored = generator.uniform(size=shape) < 0.5
    factors = generator.uniform(*FACTORS, (*shape, 3))
    size[:, 0], corner[:, 0], mirrored[:, 0], factors[:, 0] = 1, 0, False, 1
    return CroppedView(
        *(leaf.astype(np.float32) for leaf in (corner, size)), mirrored, np.float32(factors)
    )


@jax.jit
def view_maps(
    weights: PyTree,
    images: Float[Array, "b h w 3"],
    masks: Float[Array, "b h w"],
    views: CroppedView,
) -> tuple[Float[Array, "b 8 8 c"], Float[Array, "b 8 8 3"]]:
    """Return the maps and the mean colours of one view of each image.

    Args:
      weights: variables of EfficientNet-Lite0.
      images: linear raw colours, `[b, h, w, 3]`.
      masks: 0 excludes a pixel, `[b, h, w]`.
      views: view of each image.
    """
    seen = jax.vmap(_view_pixels)(images, masks, views)
    colors, observed = seen[..., :3], seen[..., 3:]
    peak = jnp.max(colors, axis=(1, 2, 3), keepdims=True)
    encoded = (colors / jnp.where(peak > 0, peak, 1)) ** (1 / GAMMA)
    _, state = EfficientNetLite0().apply(
        weights,
        (255 * encoded - MEAN) / DEVIATION,
        False,
        capture_intermediates=lambda module, _: module.name in STAGES,
        mutable=["intermediates"],
    )
    stages = [state["intermediates"][stage]["__call__"][0] for stage in STAGES]
    maps = jnp.concatenate([_average_blocks(stage) for stage in stages], axis=-1)
    counted = _average_blocks(observed)
    means = _average_blocks(colors) / jnp.where(counted > 0, counted, 1)
    return maps, means


def _view_pixels(
    image: Float[Array, "h w 3"], mask: Float[Array, "h w"], view: CroppedView
) -> Float[Array, "128 128 4"]:
    """Return the view's pixels, 0 where masked, and the unmasked share of each."""
    observed = (mask > 0)[..., None]
    pixels = jnp.where(observed, image, 0) * view.factors
    both = jnp.concatenate([pixels, observed.astype(image.dtype)], axis=-1)
    sides = jnp.array(mask.shape, jnp.float32)
    scale = SIDE / (view.size * sides)
    window = jax.image.scale_and_translate(
        both, (SIDE, SIDE, 4), (0, 1), scale, -view.corner * sides * scale, "linear"
    )
    window = jnp.maximum(window, 0)
    return jnp.where(view.mirrored, window[:, ::-1], window)


def _average_blocks(maps: Float[Array, "b h w c"]) -> Float[Array, "b 8 8 c"]:
    batch, height, width, channels = maps.shape
    blocks = batch, GRID_SIDE, height // GRID_SIDE, GRID_SIDE, width // GRID_SIDE, channels
    return jnp.mean(maps.reshape(blocks), axis=(2, 4))
