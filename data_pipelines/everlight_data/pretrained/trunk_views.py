"""Maps of a frozen EfficientNet-Lite0 for several views of each photograph."""

import zlib

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.learned.confidence_pooling import TrunkViews
from everlight.illuminant.trunk_views import VIEWS_PER_IMAGE, draw_views, view_maps
from everlight.models import efficientnet_variables
from everlight_data.errors import MissingDataError
from everlight_data.padded_blocks import padded_blocks
from everlight_data.pretrained.efficientnet_weights import (
    efficientnet_lite0_folder,
    load_efficientnet_lite0,
)
from everlight_data.progress import progress

BLOCK = 16
"""Number of images in one pass through the frozen network."""
_last: dict[int, TrunkViews] = {}
"""The last views; across cameras the same images are needed once per camera."""


def trunk_views(
    images: Float[np.ndarray, "n h w 3"], masks: Float[np.ndarray, "n h w"]
) -> TrunkViews:
    """Return the maps of all views by the frozen network; those of the last images are kept.

    Raises:
      MissingDataError: the network's weights are not installed.
    """
    checksum = zlib.crc32(np.ascontiguousarray(masks), zlib.crc32(np.ascontiguousarray(images)))
    if checksum not in _last:
        views = _compute(images, masks)
        _last.clear()
        _last[checksum] = views
    return _last[checksum]


def missing_trunk() -> str:
    """Return how to install the network's weights, or nothing where they are installed."""
    try:
        efficientnet_lite0_folder()
    except MissingDataError as error:
        return str(error)
    return ""


def _compute(images: Float[np.ndarray, "n h w 3"], masks: Float[np.ndarray, "n h w"]) -> TrunkViews:
    weights = efficientnet_variables(load_efficientnet_lite0())
    drawn = draw_views(len(images))
    blocks = []
    for rows, count in progress("trunk", values=padded_blocks(len(images), BLOCK)):
        views = []
        for view in range(VIEWS_PER_IMAGE):
            chosen = jax.tree.map(lambda leaf, v=view, r=rows: leaf[r, v], drawn)
            seen = view_maps(weights, jnp.asarray(images[rows]), jnp.asarray(masks[rows]), chosen)
            views.append([np.asarray(part)[:count] for part in seen])
        blocks.append([np.stack(part, axis=1) for part in zip(*views, strict=True)])
    maps, colors = (np.concatenate(part) for part in zip(*blocks, strict=True))
    return TrunkViews(maps, colors, drawn.factors)
