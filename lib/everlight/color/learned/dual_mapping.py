"""DMCC: a network of 783 parameters on four colours of an image, for another camera.

Yue and Wei 2024, "Effective cross-sensor color constancy using a dual-mapping strategy" (JOSA A 41,
2), and its authors' code. One mapping transfers the training cameras' illuminants to the target
camera, by the ratio of both cameras' white under daylight of 6500 K. The other re-illuminates each
training image by an illuminant drawn near one of those. Within one camera, the first mapping is the
identity.

The four colours, the network (six layers of eleven units), the loss and the learning rate are those
of the code. Differences:

- Images are re-illuminated a fixed number of times each; the code does so in each of up to ten
  thousand epochs.
- The learning rate decays to 0 over a fixed number of steps, and the last parameters are returned.
  The code selects the best on held-out images.
- The white of a re-illuminated image is its largest unmasked value.
- A drawn illuminant without red, green or blue is replaced by the one it was drawn around.
"""

import math
from functools import partial
from typing import Annotated, Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import POSITIVE, NotEmpty, PositiveInt, Stacked, check_sizes, checked
from everlight.color.illuminant_method import IlluminantMethod, LabelledImages, SideInformation
from everlight.color.illuminants import Illuminant, Image, Mask, keep_observed, unit_illuminant
from everlight.color.learned.parts.descent import descend
from everlight.color.learned.parts.observed_image import ObservedImage, observed, thumbnail
from everlight.color.moments import extreme_chromaticities
from everlight.metrics.angular import angular_error

SATURATION_LEVEL = 0.98
"""Fraction of an image's largest value from which a pixel is excluded."""
RADIUS = 0.05
"""Largest distance of a drawn illuminant from the camera's, in shares of red and green."""
HIDDEN_UNITS, HIDDEN_LAYERS = 11, 6
BATCH_SIZE = 32
LEARNING_RATE = 7e-3
SPARSITY = 1e-5
"""Weight of the L1 norm of all kernels, relative to the error in degrees."""
TRAINING_IMAGES = 20_000
"""Approximate number of re-illuminated images in training."""
DAYLIGHT_WHITES = {
    "Canon1DsMkIII": (0.19, 0.45, 0.36),
    "Canon550D": (0.204, 0.471, 0.325),
    "Canon600D": (0.20, 0.46, 0.34),
    "FujifilmXM1": (0.22, 0.46, 0.32),
    "NikonD5200": (0.17, 0.48, 0.35),
    "OlympusEPL6": (0.22, 0.48, 0.30),
    "PanasonicGX1": (0.17, 0.48, 0.35),
    "SamsungNX2000": (0.19, 0.49, 0.32),
    "SonyA57": (0.16, 0.49, 0.35),
}
"""White under daylight of 6500 K in each camera's colours, in shares, measured by DMCC's authors.

The values follow from the matrices and the white of the Sony IMX135 in their repository.
"""


class DualMappingModel(NamedTuple):
    """Trained parameters of the network."""

    params: PyTree


class DualMappingNet(nn.Module):
    """Network from four colours' shares of red and green to the illuminant's."""

    @nn.compact
    def __call__(self, shares: Float[Array, "*n 8"]) -> Float[Array, "*n 2"]:
        """Return unconstrained shares, which need not be those of an illuminant."""
        hidden = shares
        for _ in range(HIDDEN_LAYERS):
            hidden = nn.relu(
                nn.Dense(HIDDEN_UNITS, kernel_init=nn.initializers.he_uniform())(hidden)
            )
        return nn.Dense(2, kernel_init=nn.initializers.he_uniform())(hidden)


@checked
def four_colors(image: Image, mask: Mask) -> Float[Array, "8"]:
    """Return `extreme_chromaticities` without pixels that have a channel near the largest value.

    Args:
      image: linear raw colours, `[h, w, 3]`.
      mask: validity mask, `[h, w]`, 0 excludes a pixel; or None.

    Returns:
      The shares colour by colour, `[8]`; NaN where no pixel remains or one is not finite.
    """
    observed = keep_observed(image, mask)
    usable = jnp.max(observed, axis=-1) < SATURATION_LEVEL * jnp.max(observed)
    four = extreme_chromaticities(observed, usable if mask is None else usable & (mask > 0))
    # Infinite values would pass for saturated.
    return jnp.where(jnp.all(jnp.isfinite(observed)), four, jnp.nan)


def _append_blue(shares: Float[Array, "*n 2"]) -> Float[Array, "*n 3"]:
    """Append the share of blue."""
    return jnp.concatenate([shares, 1 - jnp.sum(shares, axis=-1, keepdims=True)], axis=-1)


@checked
def draw_illuminants(
    key: PRNGKeyArray,
    illuminants: Annotated[Float[Array, "m 3"], POSITIVE, NotEmpty],
    count: PositiveInt,
) -> Float[Array, "count 3"]:
    """Draw illuminants near those of a camera, in disks of radius 0.05 in red and green shares.

    Args:
      key: key of the draw.
      illuminants: illuminants of the camera, any scale, `[m, 3]`.
      count: number of illuminants to draw.

    Returns:
      Illuminants with sum 1, `[count, 3]`.
    """
    chosen, far, turned = jax.random.split(key, 3)
    centers = illuminants / jnp.sum(illuminants, axis=1, keepdims=True)
    center = centers[jax.random.randint(chosen, (count,), 0, len(illuminants))]
    # The square root of a uniform number is the distance of a uniform point of the disk.
    distance = RADIUS * jnp.sqrt(jax.random.uniform(far, (count, 1)))
    angle = 2 * math.pi * jax.random.uniform(turned, (count, 1))
    away = distance * jnp.concatenate([jnp.cos(angle), jnp.sin(angle)], axis=1)
    drawn = _append_blue(center[:, :2] + away)
    return jnp.where(jnp.all(drawn > 1e-4, axis=1, keepdims=True), drawn, center)


@checked
@partial(jax.jit, static_argnames="steps")
def fit_dual_mapping(
    observations: Annotated[ObservedImage, Stacked],
    illuminants: Annotated[Float[Array, "n 3"], POSITIVE, NotEmpty],
    target_illuminants: Annotated[Float[Array, "m 3"], POSITIVE, NotEmpty] | None = None,
    *,
    key: PRNGKeyArray,
    steps: PositiveInt = 5_000,
) -> DualMappingModel:
    """Train the network with Adam on the angular error of batches of 32 re-illuminated images.

    Args:
      observations: images of any cameras and masks from `observe_image`, `[n, h, w, 3]` and
        `[n, h, w]`; 64 pixels per side in the paper.
      illuminants: true illuminants in each image's own camera, any scale, `[n, 3]`.
      target_illuminants: illuminants mapped to the target camera, any scale, `[m, 3]`; None is
        `illuminants`, for the camera that took the images.
      key: key of re-illumination, initial parameters and batches.
      steps: number of optimizer steps, static; the last parameters are returned.

    Raises:
      ValueError: the numbers of images and of illuminants differ.
    """
    check_sizes(observations=(observations.image, 0), illuminants=(illuminants, 0))
    images, masks = map(jnp.asarray, observations)
    illuminants = jnp.asarray(illuminants)
    if target_illuminants is None:
        target_illuminants = illuminants
    drawn, initial, batches = jax.random.split(key, 3)
    times = max(1, TRAINING_IMAGES // len(images))
    targets = draw_illuminants(drawn, target_illuminants, times * len(images))
    source = jnp.tile(jnp.arange(len(images)), times)

    def reilluminate(one: tuple[Int[Array, ""], Float[Array, "3"]]) -> Float[Array, "8"]:
        row, illuminant = one
        return four_colors(images[row] * (illuminant / illuminants[row]), masks[row])

    shares = jax.lax.map(reilluminate, (source, targets), batch_size=64)
    # Images without usable pixels do not train.
    usable = jnp.all(jnp.isfinite(shares), axis=1)
    shares = jnp.where(usable[:, None], shares, 0)
    net = DualMappingNet()
    params = net.init(initial, shares[0])
    optimizer = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, steps))

    def loss(params: PyTree, key: PRNGKeyArray) -> Float[Array, ""]:
        rows = jax.random.randint(key, (BATCH_SIZE,), 0, len(shares))
        outputs = _append_blue(net.apply(params, shares[rows]))
        errors = jax.vmap(angular_error)(outputs, targets[rows])
        weights = jax.tree.leaves(jax.tree.map_with_path(_kernel, params))
        return jnp.mean(usable[rows] * errors) + SPARSITY * sum(weights)

    params = descend(loss, params, optimizer, batches, steps)
    return DualMappingModel(params)


def _kernel(path: tuple, leaf: Array) -> Float[Array, ""]:
    return jnp.sum(jnp.abs(leaf)) if path[-1].key == "kernel" else jnp.zeros(())


@checked
def dual_mapping_estimate(model: DualMappingModel, observation: ObservedImage) -> Illuminant:
    """Return the unit illuminant of an image; NaN where it is not positive.

    Args:
      model: model from `fit_dual_mapping`.
      observation: image and mask from `observe_image`, `[h, w, 3]` and `[h, w]`.
    """
    illuminant = _append_blue(DualMappingNet().apply(model.params, four_colors(*observation)))
    return unit_illuminant(jnp.where(jnp.all(illuminant > 0), illuminant, jnp.nan))


def _fit(images: LabelledImages, side: SideInformation, **training: Any) -> DualMappingModel:
    # Within one camera the whites cancel.
    whites = jnp.array([DAYLIGHT_WHITES.get(name, (1.0, 1.0, 1.0)) for name in side.cameras])
    mapped = images.illuminants * whites[side.camera_number] / whites[images.cameras]
    pixels, key = observed(images.features), jax.random.key(0)
    return fit_dual_mapping(pixels, images.illuminants, mapped, key=key, **training)


def _predict(model: DualMappingModel, thumbnail: Float[Array, "h w 4"]) -> Illuminant:
    return dual_mapping_estimate(model, observed(thumbnail))


def _without_daylight(side: SideInformation) -> str:
    unknown = [name for name in side.cameras if name not in DAYLIGHT_WHITES]
    if len(side.cameras) < 2 or not unknown:
        return ""
    return (
        "across cameras it needs each one's white under daylight of 6500 K, and none is known "
        f"of {', '.join(unknown)}"
    )


METHODS = (
    IlluminantMethod(
        "DMCC",
        thumbnail,
        _fit,
        _predict,
        is_camera_specific=True,
        incompatibility=_without_daylight,
    ),
)
