"""DMCC: a net of 783 parameters on four colours of an image, taught lights of the asked camera.

Yue and Wei 2024, "Effective cross-sensor color constancy using a dual-mapping strategy" (JOSA A 41,
2), and the code of its authors. One mapping brings the teaching cameras' lights to the asked
camera, by the ratio of both cameras' white under daylight of 6500 K; the other re-lights each
teaching image to a light drawn near one of those. On one camera the first is the identity.

The four colours, the net (six layers of eleven units), the loss and the rate are the code's. What
differs: images are re-lit a fixed number of times each, where the code does so anew in every epoch
of ten thousand at most; the rate falls to 0 over a fixed number of steps, and the last net counts,
where the code keeps the one that is best on images left out; a re-lit image's white is the largest
value that the mask leaves; where a drawn light would have no red, green or blue it is the light
that it was drawn around.
"""

import math
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import PositiveInt, checked
from everlight.color.descent import descend
from everlight.color.estimators import Illuminant, Image, Mask, keep_observed, unit_illuminant
from everlight.color.moments import extreme_chromaticities
from everlight.metrics.angular import angular_error

SATURATED = 0.98
"""Share of an image's largest value from which a pixel has no part."""
RADIUS = 0.05
"""How far from a camera's light one is drawn, in shares of red and green."""
UNITS, HIDDEN = 11, 6
BATCH = 32
RATE = 7e-3
SPARSITY = 1e-5
"""Weight of the sum of all weights' absolute values beside the error in degrees."""
RELIT = 20_000
"""Re-lit images of a training, about."""


class DualMappingModel(NamedTuple):
    """The trained parameters of the net."""

    params: PyTree


class DualMappingNet(nn.Module):
    """From four colours' shares of red and green to the light's."""

    @nn.compact
    def __call__(self, shares: Float[Array, "*n 8"]) -> Float[Array, "*n 2"]:
        """Any numbers: nothing keeps them from being no light's."""
        hidden = shares
        for _ in range(HIDDEN):
            hidden = nn.relu(nn.Dense(UNITS, kernel_init=nn.initializers.he_uniform())(hidden))
        return nn.Dense(2, kernel_init=nn.initializers.he_uniform())(hidden)


@checked
def four_colors(image: Image, mask: Mask) -> Float[Array, "8"]:
    """`extreme_chromaticities` without the pixels that have a channel near the largest value.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: `[h, w]`, 0 leaves a pixel out; or None.

    Returns:
      The shares colour by colour, `[8]`; NaN where no pixel is left, or one is not finite.
    """
    observed = keep_observed(image, mask)
    usable = jnp.max(observed, axis=-1) < SATURATED * jnp.max(observed)
    four = extreme_chromaticities(observed, usable if mask is None else usable & (mask > 0))
    # What is infinite would pass for saturated.
    return jnp.where(jnp.all(jnp.isfinite(observed)), four, jnp.nan)


def _whole(shares: Float[Array, "*n 2"]) -> Float[Array, "*n 3"]:
    """With the share of blue."""
    return jnp.concatenate([shares, 1 - jnp.sum(shares, axis=-1, keepdims=True)], axis=-1)


@checked
def draw_lights(
    key: PRNGKeyArray, lights: Float[Array, "m 3"], count: PositiveInt
) -> Float[Array, "count 3"]:
    """Lights near those of a camera, each in a disk of radius .05 in shares of red and green.

    Args:
      key: of the draw.
      lights: any scale, `[m, 3]`.
      count: of lights.

    Returns:
      Lights of sum 1, `[count, 3]`.
    """
    chosen, far, turned = jax.random.split(key, 3)
    centres = lights / jnp.sum(lights, axis=1, keepdims=True)
    centre = centres[jax.random.randint(chosen, (count,), 0, len(lights))]
    # Of a disk's points, the root of the distance is what is uniform.
    distance = RADIUS * jnp.sqrt(jax.random.uniform(far, (count, 1)))
    angle = 2 * math.pi * jax.random.uniform(turned, (count, 1))
    away = distance * jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=1)
    drawn = _whole(centre[:, :2] + away)
    return jnp.where(jnp.all(drawn > 1e-4, axis=1, keepdims=True), drawn, centre)


@checked
def fit_dual_mapping(
    key: PRNGKeyArray,
    images: Float[Array, "n h w 3"],
    masks: Float[Array, "n h w"],
    illuminants: Float[Array, "n 3"],
    mapped: Float[Array, "m 3"],
    steps: PositiveInt = 20_000,
) -> DualMappingModel:
    """Trains the net by Adam on the angular error of batches of 32 re-lit images.

    Args:
      key: of re-lit images, initial parameters and batches.
      images: linear colours, `[n, h, w, 3]`, of any cameras; 64 pixels a side in the paper.
      masks: 0 where a pixel has no part, `[n, h, w]`.
      illuminants: the true lights in each image's own camera, any scale, `[n, 3]`.
      mapped: lights of the camera that is asked, any scale, `[m, 3]`; where it also took the
        images, `illuminants`.
      steps: of the optimizer; nothing is chosen among them.
    """
    drawn, own, batches = jax.random.split(key, 3)
    times = max(1, RELIT // len(images))
    targets = draw_lights(drawn, mapped, times * len(images))
    source = jnp.tile(jnp.arange(len(images)), times)

    def relit(one: tuple[Int[Array, ""], Float[Array, "3"]]) -> Float[Array, "8"]:
        row, light = one
        return four_colors(images[row] * (light / illuminants[row]), masks[row])

    shares = jax.lax.map(relit, (source, targets), batch_size=64)
    # An image that has no pixel left teaches nothing.
    taught = jnp.all(jnp.isfinite(shares), axis=1)
    shares = jnp.where(taught[:, None], shares, 0)
    net = DualMappingNet()
    params = net.init(own, shares[0])
    optimizer = optax.adam(optax.cosine_decay_schedule(RATE, steps))

    def loss(params: PyTree, key: PRNGKeyArray) -> Float[Array, ""]:
        rows = jax.random.randint(key, (BATCH,), 0, len(shares))
        told = _whole(net.apply(params, shares[rows]))
        errors = jax.vmap(angular_error)(told, targets[rows])
        weights = jax.tree.leaves(jax.tree.map_with_path(_kernel, params))
        return jnp.mean(taught[rows] * errors) + SPARSITY * sum(weights)

    params = descend(loss, params, optimizer, batches, steps)
    return DualMappingModel(params)


def _kernel(path: tuple, leaf: Array) -> Float[Array, ""]:
    return jnp.sum(jnp.abs(leaf)) if path[-1].key == "kernel" else jnp.zeros(())


@checked
def dual_mapping_estimate(model: DualMappingModel, shares: Float[Array, "8"]) -> Illuminant:
    """The unit light of an image with these colours; NaN where they are, or it is none.

    Args:
      model: from `fit_dual_mapping`.
      shares: from `four_colors`, `[8]`.
    """
    light = _whole(DualMappingNet().apply(model.params, shares))
    return unit_illuminant(jnp.where(jnp.all(light > 0), light, jnp.nan))
