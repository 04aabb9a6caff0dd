"""FC4-style confidence pooling: local illuminant estimates weighted by a confidence.

Hu, Wang and Lin 2017, "FC4: Fully convolutional color constancy with confidence-weighted pooling"
(CVPR). Each location of a convolutional network's feature maps gives a unit illuminant and a
confidence. The image's illuminant is the confidence-weighted sum.

Differences from the paper:

- The backbone that computes the maps is frozen and supplied by the caller; the paper trains
  SqueezeNet end to end.
- A local illuminant is predicted relative to the mean colour of the pixels at that location, since
  frozen classification features carry little of the illuminant. Without this the mean error on 268
  thumbnails of a Sony A57 was 4.1 degrees instead of 3.0.
- The head sees one location of the maps; the paper's first convolution is six wide.
- Confidence is a softplus instead of a ReLU, so that no location's gradient vanishes for good.
"""

from functools import partial
from typing import Annotated, Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.checks import FINITE, POSITIVE, NotEmpty, PositiveInt, checked
from everlight.color.illuminant_method import IlluminantMethod, LabelledImages, images_alone
from everlight.color.illuminants import Illuminant, unit_illuminant
from everlight.color.learned.parts.descent import descend
from everlight.metrics.angular import angular_error

HIDDEN_UNITS = 64
DROPOUT_RATE = 0.5
"""Fraction of units dropped in a training step, as in the paper."""
BATCH_SIZE = 16
LEARNING_RATE = 1e-3
WEIGHT_DECAY = 1e-3
"""Decay of the weights, relative to the learning rate."""


class ConfidencePoolingModel(NamedTuple):
    """Parameters of the head, with the mean and scale that standardize its input maps."""

    params: PyTree
    mean: Float[Array, "c"]
    scale: Float[Array, "c"]


class PooledIlluminant(NamedTuple):
    """Illuminant of an image, of any scale, with the local estimates and confidences it sums."""

    illuminant: Float[Array, "*b 3"]
    local_illuminants: Float[Array, "*b h w 3"]
    confidence: Float[Array, "*b h w"]


class ConfidencePoolingHead(nn.Module):
    """Two dense layers at every location, followed by confidence-weighted pooling."""

    @nn.compact
    def __call__(
        self, maps: Float[Array, "*b h w c"], colors: Float[Array, "*b h w 3"], train: bool = False
    ) -> PooledIlluminant:
        """Pool the local estimates, ignoring locations without a colour; training has dropout."""
        hidden = nn.relu(nn.Dense(HIDDEN_UNITS)(maps))
        hidden = nn.Dropout(DROPOUT_RATE, deterministic=not train)(hidden)
        outputs = nn.Dense(4, kernel_init=nn.initializers.normal(1e-2))(hidden)
        seen = jnp.all(colors > 0, axis=-1)
        logs = outputs[..., :3] + jnp.log(jnp.where(seen[..., None], colors, 1))
        local_illuminants = jnp.exp(logs - jnp.max(logs, axis=-1, keepdims=True))
        local_illuminants = local_illuminants / jnp.sqrt(
            jnp.sum(local_illuminants**2, axis=-1, keepdims=True)
        )
        local_illuminants = jnp.where(seen[..., None], local_illuminants, 0)
        confidence = jnp.where(seen, nn.softplus(outputs[..., 3]), 0)
        pooled = jnp.sum(confidence[..., None] * local_illuminants, axis=(-3, -2))
        return PooledIlluminant(pooled, local_illuminants, confidence)


@checked
@partial(jax.jit, static_argnames="steps")
def fit_confidence_pooling(
    maps: Annotated[Float[Array, "n k h w c"], FINITE, NotEmpty],
    colors: Annotated[Float[Array, "n k h w 3"], FINITE],
    illuminants: Annotated[Float[Array, "n k 3"], POSITIVE],
    *,
    key: PRNGKeyArray,
    steps: PositiveInt = 500,
) -> ConfidencePoolingModel:
    """Train the head with Adam on the angular error of batches of 16 views.

    Args:
      maps: feature maps of each image in `k` views (original, cropped, mirrored or re-illuminated),
        `[n, k, h, w, c]`.
      colors: mean linear colours of the pixels at each location, 0 where all are masked.
      illuminants: true illuminants of the views, any scale, `[n, k, 3]`.
      key: key of initial parameters, batches and dropout.
      steps: number of optimizer steps, static; the last parameters are returned.
    """
    maps, colors, illuminants = map(jnp.asarray, (maps, colors, illuminants))
    initial, drawn = jax.random.split(key)
    mean, scale = jnp.mean(maps, axis=(0, 1, 2, 3)), jnp.std(maps, axis=(0, 1, 2, 3))
    scale = jnp.where(scale > 0, scale, 1)
    head = ConfidencePoolingHead()
    params = head.init(initial, maps[0, 0], colors[0, 0])
    optimizer = optax.adamw(
        optax.cosine_decay_schedule(LEARNING_RATE, steps), weight_decay=WEIGHT_DECAY
    )

    def loss(params: PyTree, key: PRNGKeyArray) -> Float[Array, ""]:
        which, view, dropped = jax.random.split(key, 3)
        rows = jax.random.randint(which, (BATCH_SIZE,), 0, maps.shape[0])
        views = jax.random.randint(view, (BATCH_SIZE,), 0, maps.shape[1])
        standard = (maps[rows, views] - mean) / scale
        rngs = {"dropout": dropped}
        outputs = head.apply(params, standard, colors[rows, views], True, rngs=rngs)
        # A crop that is all masked has no estimate, and its gradient would be NaN.
        seen = jnp.any(outputs.confidence > 0, axis=(1, 2))
        estimates = jnp.where(seen[:, None], outputs.illuminant, 1)
        errors = jax.vmap(angular_error)(estimates, illuminants[rows, views])
        return jnp.mean(jnp.where(seen, errors, 0))

    params = descend(loss, params, optimizer, drawn, steps)
    return ConfidencePoolingModel(params, mean, scale)


@checked
def confidence_pooled_estimate(
    model: ConfidencePoolingModel, maps: Float[Array, "h w c"], colors: Float[Array, "h w 3"]
) -> Illuminant:
    """Return the unit illuminant of an image; NaN without colours or with infinite or NaN ones.

    Args:
      model: model from `fit_confidence_pooling`.
      maps: feature maps of the image, `[h, w, c]`.
      colors: mean linear colours of the pixels at each location, 0 where all are masked, `[h, w,
        3]`.
    """
    standard = (maps - model.mean) / model.scale
    outputs = ConfidencePoolingHead().apply(model.params, standard, colors)
    finite = jnp.all(jnp.isfinite(colors)) & jnp.any(outputs.confidence > 0)
    return unit_illuminant(jnp.where(finite, outputs.illuminant, jnp.nan))


class TrunkViews(NamedTuple):
    """Maps of a frozen network, mean linear colours and illuminant factors by image and view.

    The first view is the unchanged image.
    """

    maps: Float[np.ndarray, "n k 8 8 c"]
    colors: Float[np.ndarray, "n k 8 8 3"]
    factors: Float[np.ndarray, "n k 3"]


@images_alone
def _fit(images: LabelledImages, **training: Any) -> ConfidencePoolingModel:
    views: TrunkViews = images.features
    illuminants, key = images.illuminants[:, None] * views.factors, jax.random.key(0)
    return fit_confidence_pooling(views.maps, views.colors, illuminants, key=key, **training)


def _predict(model: ConfidencePoolingModel, views: TrunkViews) -> Illuminant:
    return confidence_pooled_estimate(model, views.maps[0], views.colors[0])


METHODS = (
    IlluminantMethod(
        "FC4-style",
        None,
        _fit,
        _predict,
        set_features=lambda images, masks, side: side.trunk_views(images, masks),
        incompatibility=lambda side: side.missing_trunk(),
    ),
)
