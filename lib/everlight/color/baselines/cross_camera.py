"""C5, reduced: a network infers a camera-specific FFCC model from unlabelled images.

Afifi et al. 2021, "Cross-camera convolutional color constancy" (ICCV). A network reads the
log-chroma histograms of an image and of additional unlabelled images by the same camera. It
generates the filters and the bias map with which FFCC (`fourier_constancy`) filters the image's
histogram. The camera may be absent from training.

Differences from the paper, for training in a minute on two CPU cores:

- Histograms have 32 bins of 1/16 per side (pairs of FFCC's bins) instead of 64 bins of 0.09;
  filters and bias map are enlarged to FFCC's 64.
- Histograms count pixels equally; the paper weights them by brightness.
- Three levels have one convolution each, of 8, 16 and 32 channels, instead of four levels with two.
- The additional images share one encoder, where each has its own in the paper. There are three
  instead of six to eight, drawn with replacement.
- There is no normalisation layer and no weight decay; training takes some hundred steps at 2e-3.
- The paper augments by mapping images to other cameras with matrices. Here histograms are shifted:
  the image alone to another illuminant of its camera, and the whole set as if by another camera.
"""

from typing import Annotated, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import FRACTION, POSITIVE, Between, NotEmpty, PositiveInt, checked
from everlight.color.baselines.descent import descend
from everlight.color.baselines.fourier_constancy import (
    BIN_WIDTH,
    BINS,
    FourierModel,
    Histograms,
    first_bin,
    fourier_estimate,
    illuminant_bins,
)
from everlight.color.estimators import Illuminant
from everlight.convolution import Convolution
from everlight.metrics.angular import angular_error

ADDITIONAL_IMAGES = 3
"""Number of additional images by the same camera."""
COARSE_BINS = 32
CHANNELS = (8, 16, 32)
BATCH_SIZE = 16
LEARNING_RATE = 2e-3
FILTER_SMOOTHNESS, BIAS_SMOOTHNESS = 0.15, 0.02
"""Weights of the mean squared differences of neighbours, relative to the error in degrees."""


class CrossCameraModel(NamedTuple):
    """Trained parameters of the network, and the first of the 64 bins on each axis."""

    params: PyTree
    origin: Float[Array, "2"]


class GeneratorNet(nn.Module):
    """Network from histograms of an image and of additional images to filters and a bias map.

    All have 32 bins per side. Histograms and bias map start at the bin `CrossCameraModel.origin`;
    filters have no position.
    """

    @nn.compact
    def __call__(
        self, own: Float[Array, "b 32 32 2"], others: Float[Array, "b k 32 32 2"]
    ) -> tuple[Float[Array, "b 32 32 2"], Float[Array, "b 32 32"]]:
        """Return filters and bias map, independent of the order of the additional images."""
        count = others.shape[1]
        own = _placed(own)
        others = _placed(others.reshape(-1, *others.shape[2:]))
        passed = []
        for level, width in enumerate(CHANNELS):
            own = nn.leaky_relu(Convolution(width, name=f"own{level}")(own))
            others = nn.leaky_relu(Convolution(width, name=f"others{level}")(others))
            passed.append(own)
            own, others = _halved(own), _halved(others)
            apart = others.reshape(-1, count, *others.shape[1:])
            pooled = jnp.maximum(own, jnp.max(apart, axis=1))
            if level + 1 < len(CHANNELS):
                additional = jnp.repeat(pooled, count, axis=0)
                own = _merge(width, f"own_merge{level}", own, pooled)
                others = _merge(width, f"others_merge{level}", others, additional)
        latent = nn.leaky_relu(Convolution(CHANNELS[-1], name="bottleneck")(pooled))
        filters = self._decode("filters", latent, passed, 2)
        return filters, self._decode("bias", latent, passed, 1)[..., 0]

    def _decode(
        self, name: str, latent: Array, passed: list[Array], outputs: int
    ) -> Float[Array, "b 32 32 outputs"]:
        for level in reversed(range(len(CHANNELS))):
            wider = jnp.repeat(jnp.repeat(latent, 2, axis=1), 2, axis=2)
            both = jnp.concatenate([passed[level], wider], axis=-1)
            width = CHANNELS[max(level - 1, 0)]
            latent = nn.leaky_relu(Convolution(width, name=f"{name}{level}")(both))
        return Convolution(outputs, name=f"{name}_last")(latent)


def _halved(maps: Float[Array, "b h w c"]) -> Float[Array, "b h2 w2 c"]:
    """Maximum of each 2x2 block."""
    batch, height, width, channels = maps.shape
    return jnp.max(maps.reshape(batch, height // 2, 2, width // 2, 2, channels), axis=(2, 4))


def _merge(width: int, name: str, own: Array, pooled: Array) -> Array:
    both = jnp.concatenate([own, pooled], axis=-1)
    return nn.leaky_relu(nn.Dense(width, kernel_init=nn.initializers.he_normal(), name=name)(both))


def _placed(histograms: Float[Array, "b 32 32 2"]) -> Float[Array, "b 32 32 4"]:
    """Concatenate the coordinates of each bin as channels."""
    line = jnp.linspace(-1, 1, COARSE_BINS)
    places = jnp.stack(jnp.meshgrid(line, line, indexing="ij"), axis=-1)
    return jnp.concatenate(
        [histograms, jnp.broadcast_to(places, (*histograms.shape[:-1], 2))], axis=-1
    )


def _coarse(
    histograms: Float[Array, "*s 2 64 64"], origin: Float[Array, "2"]
) -> Float[Array, "*s 32 32 2"]:
    """Square roots of 2x2 bins' shares from `origin` on, with a mean square of 1."""
    moved = jnp.roll(histograms, -origin.astype(int), axis=(-2, -1))
    shape = COARSE_BINS, BINS // COARSE_BINS, COARSE_BINS, BINS // COARSE_BINS
    shares = jnp.sum(moved.reshape(*histograms.shape[:-2], *shape), axis=(-3, -1))
    return jnp.moveaxis(COARSE_BINS * jnp.sqrt(shares), -3, -1)


def _enlarged(maps: Float[Array, "*s 32 32"]) -> Float[Array, "*s 64 64"]:
    """Upsample each bin to 2x2, smoothed between neighbours on the torus."""
    for axis in (-2, -1):
        maps = jnp.repeat(maps, BINS // COARSE_BINS, axis=axis)
        maps = (jnp.roll(maps, 1, axis) + 2 * maps + jnp.roll(maps, -1, axis)) / 4
    return maps


def _roughness(maps: Float[Array, "*s 32 32"]) -> Float[Array, ""]:
    """Mean squared difference of neighbours, summed over both axes."""
    return sum(jnp.mean((jnp.roll(maps, 1, axis) - maps) ** 2) for axis in (-2, -1))


def _predict(
    model: CrossCameraModel,
    histograms: Float[Array, "b 2 64 64"],
    others: Float[Array, "b k 2 64 64"],
) -> tuple[Float[Array, "b 3"], Float[Array, ""]]:
    """Illuminants by each image's FFCC model, and the smoothness penalty of these models."""
    filters, bias = GeneratorNet().apply(
        model.params, _coarse(histograms, model.origin), _coarse(others, model.origin)
    )
    filters = jnp.moveaxis(filters, -1, -3)
    rough = FILTER_SMOOTHNESS * 2 * _roughness(filters) + BIAS_SMOOTHNESS * _roughness(bias)
    bias = jnp.roll(_enlarged(bias), model.origin.astype(int), axis=(-2, -1))
    fitted = FourierModel(_enlarged(filters), bias, jnp.broadcast_to(model.origin, (len(bias), 2)))
    return jax.vmap(fourier_estimate)(fitted, jnp.sqrt(histograms)), rough


def _has_pixels(histograms: Float[Array, "*s 2 64 64"]) -> Bool[Array, "*s"]:
    """True where an image has usable pixels and no NaN."""
    return jnp.sum(histograms[..., 0, :, :], axis=(-2, -1)) > 0


@checked
def fit_cross_camera(
    key: PRNGKeyArray,
    histograms: Annotated[Float[Array, "n 2 64 64"], FRACTION, NotEmpty],
    illuminants: Annotated[Float[Array, "n 3"], POSITIVE],
    cameras: Annotated[Int[Array, "n"], Between(0)],
    steps: PositiveInt = 500,
) -> CrossCameraModel:
    """Train the network with Adam on batches of 16 images, each with three additional images.

    The loss is the angular error. Half of the images are shifted to the illuminant of another image
    of their camera. Each set is then shifted by a normal draw with the standard deviation of the
    cameras' mean illuminants, which is 0 for one camera.

    Args:
      key: key of initial parameters, batches and shifts.
      histograms: histograms from `log_chroma_histograms`, `[n, 2, 64, 64]`; an image whose
        histograms are 0 or NaN does not train.
      illuminants: true illuminants, any scale, `[n, 3]`.
      cameras: camera index of each image, from 0, `[n]`.
      steps: number of optimizer steps; the last parameters are returned.
    """
    cameras = jnp.asarray(cameras)
    places = illuminant_bins(illuminants)
    origin = first_bin(places)
    seen = _has_pixels(histograms)
    histograms = jnp.where(seen[:, None, None, None], histograms, 0)
    spread = _spread_of_cameras(places, cameras)
    first, drawn = jax.random.split(key)
    blank = jnp.zeros((1, COARSE_BINS, COARSE_BINS, 2))
    params = GeneratorNet().init(first, blank, blank[:, None])
    optimizer = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, steps))

    def draw(key: PRNGKeyArray) -> tuple[Array, Array, Array, Array]:
        chosen, which, target, whether, moved = jax.random.split(key, 5)
        row = jax.random.randint(chosen, (), 0, len(histograms))
        same = jnp.where(cameras == cameras[row], 0.0, -jnp.inf)
        # The image itself is drawn only where its camera has no other.
        others = jax.random.categorical(which, same.at[row].add(-50), shape=(ADDITIONAL_IMAGES,))
        reilluminated = places[jax.random.categorical(target, same)] - places[row]
        shift = jnp.round(jnp.where(jax.random.bernoulli(whether), reilluminated, 0)).astype(int)
        common = jnp.round(spread * jax.random.normal(moved, (2,))).astype(int)
        own = jnp.roll(histograms[row], shift + common, axis=(1, 2))
        additional = jnp.roll(histograms[others], common, axis=(2, 3))
        red, blue = -BIN_WIDTH * (places[row] + shift + common)
        truth = jnp.exp(jnp.stack([red, jnp.zeros_like(red), blue]))
        return own, additional, truth, seen[row]

    def loss(params: PyTree, key: PRNGKeyArray) -> Float[Array, ""]:
        own, additional, truth, has_pixels = jax.vmap(draw)(jax.random.split(key, BATCH_SIZE))
        # An empty histogram gives NaN, whose gradient would spread.
        own = jnp.where(has_pixels[:, None, None, None], own, 1 / BINS**2)
        estimates, rough = _predict(CrossCameraModel(params, origin), own, additional)
        errors = jax.vmap(angular_error)(estimates, truth)
        return jnp.mean(jnp.where(has_pixels, errors, 0)) + rough

    params = descend(loss, params, optimizer, drawn, steps)
    return CrossCameraModel(params, origin)


def _spread_of_cameras(places: Float[Array, "n 2"], cameras: Int[Array, "n"]) -> Float[Array, "2"]:
    """Standard deviation of the cameras' mean illuminants over images, in bins."""
    same = cameras[:, None] == cameras[None, :]
    means = (same @ places) / jnp.sum(same, axis=1, keepdims=True)
    return jnp.std(means, axis=0)


@checked
def cross_camera_estimate(
    model: CrossCameraModel,
    histograms: Annotated[Histograms, FRACTION],
    others: Annotated[Float[Array, "k 2 64 64"], FRACTION, NotEmpty],
) -> Illuminant:
    """Return the unit illuminant of an image; NaN where its histogram has no pixels.

    Args:
      model: model from `fit_cross_camera`.
      histograms: histograms of the image from `log_chroma_histograms`, `[2, 64, 64]`.
      others: histograms of additional images by the same camera, in any order, `[k, 2, 64, 64]`;
        images without pixels count as empty histograms.
    """
    kept, additional = (
        jnp.where(_has_pixels(each)[..., None, None, None], each, 0)
        for each in (histograms, others)
    )
    estimates, _ = _predict(model, kept[None], additional[None])
    return estimates[0]
