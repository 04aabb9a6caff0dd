"""C5, small form: unlabelled images of the asked camera tell a net how its lights are to be found.

Afifi et al. 2021, "Cross-camera convolutional color constancy" (ICCV). A net sees the log-chroma
histograms of an image and of some others by the same camera, whose lights nobody knows, and gives
the filters and the map of likely lights with which the image's own histogram is filtered, as in
FFCC (`everlight.color.fourier_constancy`). So a camera that took none of the teaching images may be
asked.

What differs from the paper, to be trained on two CPU cores in a minute: the net sees histograms of
32 bins of 1/16 a side, each FFCC's bins by twos, instead of 64 bins of .09, and its filters and map
are enlarged to FFCC's 64; histograms count pixels alike, where the paper weighs them by brightness;
three levels of one convolution each, of 8, 16 and 32 channels, instead of four of two; the other
images share one encoder, where each has its own in the paper, and there are three of them instead
of six to eight; no normalisation layers and no decay of the weights; some hundred steps at 2e-3.
The paper's augmentation, images mapped to other cameras by matrices, is replaced by what histograms
admit in closed form: the image alone is shifted as if under another light of its camera, and all of
a set together as if by another camera. One of the other images may come twice.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import PositiveInt, checked
from everlight.color.descent import descend
from everlight.color.estimators import Illuminant
from everlight.color.fourier_constancy import (
    BIN,
    BINS,
    FourierModel,
    Histograms,
    first_bin,
    fourier_estimate,
    light_places,
)
from everlight.metrics.angular import angular_error
from everlight.models.convolution import Convolution

OTHERS = 3
"""Images by the same camera beside the one that is asked."""
COARSE = 32
CHANNELS = (8, 16, 32)
BATCH = 16
RATE = 2e-3
FILTER_SMOOTHNESS, BIAS_SMOOTHNESS = 0.15, 0.02
"""Weights of the mean squared differences of neighbours, beside the error in degrees."""


class CrossCameraModel(NamedTuple):
    """The trained parameters of the net, and each axis's first of the 64 bins."""

    params: PyTree
    origin: Float[Array, "2"]


class GeneratorNet(nn.Module):
    """From histograms of an image and of others to filters and a map of lights of 32 bins a side.

    All are in a frame whose first bin is that of `CrossCameraModel.origin`, but the filters, which
    have no place.
    """

    @nn.compact
    def __call__(
        self, own: Float[Array, "b 32 32 2"], others: Float[Array, "b k 32 32 2"]
    ) -> tuple[Float[Array, "b 32 32 2"], Float[Array, "b 32 32"]]:
        """The order of the other images has no part."""
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
                beside = jnp.repeat(pooled, count, axis=0)
                own = _merge(width, f"own_merge{level}", own, pooled)
                others = _merge(width, f"others_merge{level}", others, beside)
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
    """The largest of each four neighbours."""
    batch, height, width, channels = maps.shape
    return jnp.max(maps.reshape(batch, height // 2, 2, width // 2, 2, channels), axis=(2, 4))


def _merge(width: int, name: str, own: Array, pooled: Array) -> Array:
    both = jnp.concatenate([own, pooled], axis=-1)
    return nn.leaky_relu(nn.Dense(width, kernel_init=nn.initializers.he_normal(), name=name)(both))


def _placed(histograms: Float[Array, "b 32 32 2"]) -> Float[Array, "b 32 32 4"]:
    """With each bin's place beside what it holds."""
    line = jnp.linspace(-1, 1, COARSE)
    places = jnp.stack(jnp.meshgrid(line, line, indexing="ij"), axis=-1)
    return jnp.concatenate(
        [histograms, jnp.broadcast_to(places, (*histograms.shape[:-1], 2))], axis=-1
    )


def _coarse(
    histograms: Float[Array, "*s 2 64 64"], origin: Float[Array, "2"]
) -> Float[Array, "*s 32 32 2"]:
    """Roots of shares, whose mean square is 1, from `origin` on."""
    moved = jnp.roll(histograms, -origin.astype(int), axis=(-2, -1))
    shape = COARSE, BINS // COARSE, COARSE, BINS // COARSE
    shares = jnp.sum(moved.reshape(*histograms.shape[:-2], *shape), axis=(-3, -1))
    return jnp.moveaxis(COARSE * jnp.sqrt(shares), -3, -1)


def _enlarged(maps: Float[Array, "*s 32 32"]) -> Float[Array, "*s 64 64"]:
    """Each bin as four, and evened out between neighbours round the torus."""
    for axis in (-2, -1):
        maps = jnp.repeat(maps, BINS // COARSE, axis=axis)
        maps = (jnp.roll(maps, 1, axis) + 2 * maps + jnp.roll(maps, -1, axis)) / 4
    return maps


def _roughness(maps: Float[Array, "*s 32 32"]) -> Float[Array, ""]:
    """Mean squared difference of neighbours, of both axes together."""
    return sum(jnp.mean((jnp.roll(maps, 1, axis) - maps) ** 2) for axis in (-2, -1))


def _tell(
    model: CrossCameraModel,
    histograms: Float[Array, "b 2 64 64"],
    others: Float[Array, "b k 2 64 64"],
) -> tuple[Float[Array, "b 3"], Float[Array, ""]]:
    """Lights by a model of FFCC's kind for each image, and how rough these models are."""
    filters, bias = GeneratorNet().apply(
        model.params, _coarse(histograms, model.origin), _coarse(others, model.origin)
    )
    filters = jnp.moveaxis(filters, -1, -3)
    rough = FILTER_SMOOTHNESS * 2 * _roughness(filters) + BIAS_SMOOTHNESS * _roughness(bias)
    bias = jnp.roll(_enlarged(bias), model.origin.astype(int), axis=(-2, -1))
    fitted = FourierModel(_enlarged(filters), bias, jnp.broadcast_to(model.origin, (len(bias), 2)))
    return jax.vmap(fourier_estimate)(fitted, jnp.sqrt(histograms)), rough


def _told(histograms: Float[Array, "*s 2 64 64"]) -> Bool[Array, "*s"]:
    """Whether an image says anything: neither all masked nor spoilt."""
    return jnp.sum(histograms[..., 0, :, :], axis=(-2, -1)) > 0


@checked
def fit_cross_camera(
    key: PRNGKeyArray,
    histograms: Float[Array, "n 2 64 64"],
    illuminants: Float[Array, "n 3"],
    cameras: Int[Array, "n"],
    steps: PositiveInt = 500,
) -> CrossCameraModel:
    """Trains the net by Adam on the angular error of batches of 16 images, each with three others.

    Half of the images are shifted to the light of another image by their camera. Each set is
    shifted as a whole by what the lights' mean differs from camera to camera, drawn normally: with
    one camera that is nothing.

    Args:
      key: of initial parameters, batches and shifts.
      histograms: from `log_chroma_histograms`, `[n, 2, 64, 64]`.
      illuminants: the true lights, any scale, `[n, 3]`.
      cameras: which took each image, numbered from 0 on, `[n]`.
      steps: of the optimizer; nothing is chosen among them.
    """
    places = light_places(illuminants)
    origin = first_bin(places)
    seen = _told(histograms)
    histograms = jnp.where(seen[:, None, None, None], histograms, 0)
    spread = _spread_of_cameras(places, cameras)
    first, drawn = jax.random.split(key)
    blank = jnp.zeros((1, COARSE, COARSE, 2))
    params = GeneratorNet().init(first, blank, blank[:, None])
    optimizer = optax.adam(optax.cosine_decay_schedule(RATE, steps))

    def draw(key: PRNGKeyArray) -> tuple[Array, Array, Array, Array]:
        chosen, which, light, whether, moved = jax.random.split(key, 5)
        row = jax.random.randint(chosen, (), 0, len(histograms))
        same = jnp.where(cameras == cameras[row], 0.0, -jnp.inf)
        # Itself only where the camera has no other.
        others = jax.random.categorical(which, same.at[row].add(-50), shape=(OTHERS,))
        relit = places[jax.random.categorical(light, same)] - places[row]
        shift = jnp.round(jnp.where(jax.random.bernoulli(whether), relit, 0)).astype(int)
        common = jnp.round(spread * jax.random.normal(moved, (2,))).astype(int)
        own = jnp.roll(histograms[row], shift + common, axis=(1, 2))
        beside = jnp.roll(histograms[others], common, axis=(2, 3))
        red, blue = -BIN * (places[row] + shift + common)
        truth = jnp.exp(jnp.stack([red, jnp.zeros_like(red), blue]))
        return own, beside, truth, seen[row]

    def loss(params: PyTree, key: PRNGKeyArray) -> Float[Array, ""]:
        own, beside, truth, told = jax.vmap(draw)(jax.random.split(key, BATCH))
        # An empty histogram gives NaN, whose gradient would spread.
        own = jnp.where(told[:, None, None, None], own, 1 / BINS**2)
        lights, rough = _tell(CrossCameraModel(params, origin), own, beside)
        errors = jax.vmap(angular_error)(lights, truth)
        return jnp.mean(jnp.where(told, errors, 0)) + rough

    params = descend(loss, params, optimizer, drawn, steps)
    return CrossCameraModel(params, origin)


def _spread_of_cameras(places: Float[Array, "n 2"], cameras: Int[Array, "n"]) -> Float[Array, "2"]:
    """The deviation of the cameras' mean lights, in bins, each image counting its camera once."""
    same = cameras[:, None] == cameras[None, :]
    means = (same @ places) / jnp.sum(same, axis=1, keepdims=True)
    return jnp.std(means, axis=0)


@checked
def cross_camera_estimate(
    model: CrossCameraModel, histograms: Histograms, others: Float[Array, "k 2 64 64"]
) -> Illuminant:
    """The unit light of an image; NaN where no pixel was left in its histogram.

    Args:
      model: from `fit_cross_camera`.
      histograms: of the image, from `log_chroma_histograms`, `[2, 64, 64]`.
      others: of other images by the same camera, in any order, `[k, 2, 64, 64]`; those without
        pixels have no part but that of an empty histogram.
    """
    kept, beside = (
        jnp.where(_told(each)[..., None, None, None], each, 0) for each in (histograms, others)
    )
    lights, _ = _tell(model, kept[None], beside[None])
    return lights[0]
