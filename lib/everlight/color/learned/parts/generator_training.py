"""Training images, loss, fit and estimate that C5 and CCMNet share.

The loss has the terms and weights of the authors' code (`train.py` of mahmoudnafifi/C5 at dca9236,
`scripts/train.py` of DY112/CCMNet at 298275b). The angle differs: it is exact in everlight. The
official code has 22/7 for pi, which makes it 0.04% smaller, and the arccosine of 0.9999999 times
the cosine.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.color.chroma_histogram import (
    ChromaWindow,
    chroma_histograms,
    has_pixels,
    without_spoilt,
)
from everlight.color.illuminants import Illuminant
from everlight.color.learned.parts.camera_mapping import MappedView, TakenImages
from everlight.color.learned.parts.descent import descend_with_stats
from everlight.color.learned.parts.generator_net import (
    GeneratorNet,
    GeneratorSettings,
    filtered_illuminant,
    roughness,
)
from everlight.color.learned.parts.observed_image import ObservedImage
from everlight.metrics.angular import angular_error
from everlight.precision import matrix_product

BATCH_SIZE = 16
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 5e-4
"""Multiple of the parameters that is added to their gradient before Adam, as in PyTorch's Adam."""
FILTER_SMOOTHNESS, BIAS_SMOOTHNESS = 0.15, 0.02
"""Weights of the roughness of a filter and of the bias map, relative to the error in degrees."""


@struct.dataclass
class GeneratorModel:
    """Trained network of C5 or CCMNet.

    Attributes:
      variables: parameters, and statistics of batch normalization.
      settings: size of the network.
    """

    variables: PyTree
    settings: GeneratorSettings = struct.field(pytree_node=False)


class Sample(NamedTuple):
    """Histograms of an image, its illuminant, and whether it has usable pixels."""

    histograms: Float[Array, "*n b b 2"]
    illuminant: Float[Array, "*n 3"]
    has_pixels: Bool[Array, "*n"]


class Pool(NamedTuple):
    """Training images, first those that were taken and then their views by other cameras.

    Attributes:
      histograms: histograms, 0 for an image without usable pixels.
      illuminants: illuminants of any scale.
      cameras: camera of each image; of an imaginary camera, the other one of its mixture.
      has_pixels: whether the image has usable pixels.
      source_cameras: camera that took the image.
      shares: share of that camera in the one of the view.
    """

    histograms: Float[Array, "p b b 2"]
    illuminants: Float[Array, "p 3"]
    cameras: Int[Array, "p"]
    has_pixels: Bool[Array, "p"]
    source_cameras: Int[Array, "p"]
    shares: Float[Array, "p"]

    def sample(self, row: Int[Array, ""]) -> Sample:
        """Return one image."""
        return Sample(self.histograms[row], self.illuminants[row], self.has_pixels[row])


def training_pool(
    key: PRNGKeyArray,
    observations: ObservedImage,
    taken: TakenImages,
    calibrations: PyTree,
    draw: Callable[..., MappedView],
    views: int,
    window: ChromaWindow,
) -> Pool:
    """Return the histograms of all images, and of views of each image by other cameras.

    Args:
      key: key of the views.
      observations: images and masks, `[n, h, w, 3]` and `[n, h, w]`.
      taken: illuminants and cameras of the images.
      calibrations: each camera's matrix for `draw_view`, or calibration for `draw_imaginary_view`.
      draw: `draw_view` or `draw_imaginary_view`.
      views: number of views of each image.
      window: range and number of bins of the histograms.
    """
    images, masks = map(jnp.asarray, observations)
    count = len(images)
    rows = jnp.tile(jnp.arange(count), views)
    keys = jax.random.split(key, len(rows))

    def draw_mapped(one: tuple[Array, Array]) -> MappedView:
        return draw(*one, taken, calibrations)

    seen = jax.lax.map(draw_mapped, (keys, rows), batch_size=64)
    itself = MappedView(
        jnp.broadcast_to(jnp.eye(3), (count, 3, 3)),
        taken.illuminants,
        taken.cameras,
        jnp.ones(count),
    )
    pooled = jax.tree.map(lambda *parts: jnp.concatenate(parts), itself, seen)
    rows = jnp.concatenate([jnp.arange(count), rows])

    def histograms(one: tuple[Array, Array]) -> Float[Array, "b b 2"]:
        row, transform = one
        mapped = matrix_product(images[row], transform)
        return chroma_histograms(jnp.maximum(mapped, 0), masks[row], window)

    binned = jax.lax.map(histograms, (rows, pooled.transform), batch_size=32)
    usable = jax.vmap(has_pixels)(binned)
    clean = jnp.where(usable[:, None, None, None], binned, 0)
    source_cameras = taken.cameras[rows]
    return Pool(clean, pooled.illuminant, pooled.camera, usable, source_cameras, pooled.share)


def initial_variables(
    key: PRNGKeyArray, net: GeneratorNet, *inputs: Array | jax.ShapeDtypeStruct | None
) -> PyTree:
    """Return the network's initial variables for a batch of inputs.

    All kernels are slices of one vector of normal numbers, which compiles in a tenth of the time.

    Args:
      key: key of the numbers.
      net: the network, whose initializers are those of He et al. and zeros.
      inputs: arguments of the network, or their shapes.
    """
    shapes = jax.eval_shape(net.init, key, *inputs)
    flat, form = jax.tree_util.tree_flatten_with_path(shapes)
    names = [path[-1].key for path, _ in flat]
    sizes = [leaf.size for name, (_, leaf) in zip(names, flat, strict=True) if name == "kernel"]
    parts = iter(jnp.split(jax.random.normal(key, (sum(sizes),)), np.cumsum(sizes)[:-1]))

    def initial_leaf(name: str, leaf: jax.ShapeDtypeStruct) -> Array:
        if name == "kernel":
            inputs = math.prod(leaf.shape[:-1])
            return next(parts).reshape(leaf.shape) * math.sqrt(2 / inputs)
        return jnp.full(leaf.shape, float(name in ("scale", "var")))

    leaves = [initial_leaf(name, leaf) for name, (_, leaf) in zip(names, flat, strict=True)]
    return jax.tree_util.tree_unflatten(form, leaves)


def fit_generator(
    key: PRNGKeyArray,
    draw_mapped: PRNGKeyArray,
    settings: GeneratorSettings,
    draw: Callable[[PRNGKeyArray], tuple[Sample, Array | None, Array | None]],
    steps: int,
) -> GeneratorModel:
    """Return the network after a number of optimizer steps on batches of 16 samples.

    Args:
      key: key of the initial parameters.
      draw_mapped: key of the batches.
      settings: size of the network.
      draw: function from a key to a sample, its additional images and its camera's fingerprint, as
        `generator_loss` has them.
      steps: number of steps.
    """
    net = GeneratorNet(settings)

    def batch(key: PRNGKeyArray) -> tuple[Sample, Array | None, Array | None]:
        return jax.vmap(draw)(jax.random.split(key, BATCH_SIZE))

    def loss(variables: PyTree, key: PRNGKeyArray) -> tuple[Array, PyTree]:
        return generator_loss(net, variables, *batch(key))

    samples, *inputs = jax.eval_shape(batch, draw_mapped)
    variables = initial_variables(key, net, samples.histograms, *inputs)
    trained = descend_with_stats(loss, variables, generator_optimizer(steps), draw_mapped, steps)
    return GeneratorModel(trained, settings)


def generator_optimizer(steps: int) -> optax.GradientTransformation:
    """Return Adam with a rate that falls by a cosine, and with decay in the gradient."""
    schedule = optax.cosine_decay_schedule(LEARNING_RATE, steps)
    return optax.chain(optax.add_decayed_weights(WEIGHT_DECAY), optax.adam(schedule))


def generator_loss(
    net: GeneratorNet,
    variables: PyTree,
    samples: Sample,
    others: Float[Array, "n k b b 2"] | None = None,
    fingerprint: Float[Array, "n f f 2"] | None = None,
) -> tuple[Float[Array, ""], PyTree]:
    """Return the mean angular error in degrees plus the roughness, and the new batch statistics.

    Samples without usable pixels add no error.

    Args:
      net: the network.
      variables: parameters, and statistics of batch normalization.
      samples: batch of samples.
      others: histograms of additional images; None for none.
      fingerprint: fingerprints of the cameras; None for none.
    """
    generated, changed = net.apply(
        variables, samples.histograms, others, fingerprint, True, mutable=["batch_stats"]
    )
    window = net.settings.window
    estimates = jax.vmap(filtered_illuminant, (0, 0, None))(generated, samples.histograms, window)
    errors = jax.vmap(angular_error)(estimates, samples.illuminant)
    filters = sum(roughness(generated.filters[..., position]) for position in range(2))
    rough = FILTER_SMOOTHNESS * filters + BIAS_SMOOTHNESS * roughness(generated.bias)
    error = jnp.mean(jnp.where(samples.has_pixels, errors, 0))
    return error + rough, changed["batch_stats"]


def generated_illuminant(
    model: GeneratorModel,
    histograms: Float[Array, "b b 2"],
    others: Float[Array, "1 k b b 2"] | None = None,
    fingerprint: Float[Array, "1 f f 2"] | None = None,
) -> Illuminant:
    """Return the unit illuminant of one image; NaN where its histogram has no pixels.

    Args:
      model: trained network.
      histograms: histograms of the image.
      others: histograms of additional images; None for none.
      fingerprint: fingerprint of the camera; None for none.
    """
    clean = without_spoilt(histograms)
    net = GeneratorNet(model.settings)
    generated = net.apply(model.variables, clean[None], others, fingerprint)
    generated = jax.tree.map(lambda leaf: leaf[0], generated)
    illuminant = filtered_illuminant(generated, clean, model.settings.window)
    return jnp.where(has_pixels(histograms), illuminant, jnp.nan)
