"""Input sources of a setup: stored on the device, streamed from the host, or computed."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped, UInt8

from everlight.base import Objective, Outputs, Setup
from everlight.checks import FINITE, POSITIVE, checked
from everlight.errors import ArgumentError
from everlight.models.layers.traced_convolutions import fast_in_both_modes

# The second last axis of a TPU's tiles. With rows in one piece, long ones are sliced apart before.
_PIECES = 8


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class StoredImages:
    """Images or precomputed features, stored once on the device, with their normalization.

    Create them with `StoredImages.of`. Each image is stored in pieces: a TPU lays small images out
    with their number as the last axis, and would copy all of them to take a few.
    """

    pieces: Shaped[Array, "n p q"]
    """All images, each in p = 8 pieces, or in fewer if 8 does not divide its size."""
    mean: Float[Array, "*c"]
    """Mean of each channel, 0 to 255, or one mean for all."""
    deviation: Float[Array, "*c"]
    """Standard deviation of each channel, or one for all."""
    shape: tuple[int, ...]
    """Shape of one image."""
    copies: int = 1
    """Number of indices of each image: index i is image i modulo the number of images, as in a
    stream that transforms images by task (`scenarios.transform_inputs`)."""
    offset: tuple[float, ...] = ()
    """Number for each channel that was subtracted in float64 before storing; () is none."""

    @classmethod
    @checked
    def of(
        cls,
        images: Shaped[Array | np.ndarray, "n *shape"],
        mean: Annotated[Float[Array, "*c"] | float, FINITE],
        deviation: Annotated[Float[Array, "*c"] | float, POSITIVE],
    ) -> "StoredImages":
        """Store images on the device; JAX arrays are copied.

        Args:
          images: all images, uint8 or floats, `[n, *shape]`.
          mean: mean of each channel, 0 to 255, or one mean for all.
          deviation: standard deviation of each channel, or one for all, above 0.

        Raises:
          ValueError: the mean or the deviation has another number of channels than the images.
        """
        shape = tuple(images.shape[1:])
        # Python's numbers are arrays of shape ().
        mean, deviation = (
            jnp.float32(value) if isinstance(value, int | float) else value
            for value in (mean, deviation)
        )
        for name, statistic in (("mean", mean), ("deviation", deviation)):
            if statistic.shape not in ((), (1,), shape[-1:], shape):
                raise ArgumentError(
                    f"StoredImages.of: {name} has shape {statistic.shape}; images of shape {shape} "
                    f"need () or {shape[-1:]}"
                )
        size = math.prod(shape)
        parts = math.gcd(size, _PIECES)
        pieces = images.reshape(images.shape[0], parts, size // parts)
        return cls(jnp.asarray(pieces), mean, deviation, shape)

    @property
    def images(self) -> Shaped[Array, "n *shape"]:
        """Copy of all images, `[n, *shape]`."""
        return self._shaped(self.pieces)

    def take(
        self, index: Int[Array, "b"], keys: Shaped[PRNGKeyArray, "b"] | None
    ) -> Shaped[Array, "b *shape"]:
        """Return stored images; `keys` have no effect."""
        return self._shaped(self.pieces[index % len(self.pieces) if self.copies > 1 else index])

    def with_images(self, images: Shaped[Array | np.ndarray, "k *shape"]) -> "StoredImages":
        """Return other images with the same normalization, of which the offset is subtracted."""
        stored = StoredImages.of(images, self.mean, self.deviation)
        return dataclasses.replace(stored, offset=self.offset)

    def tree_flatten(self) -> tuple[tuple, tuple]:
        """Return the pytree leaves (pieces, mean, deviation) and the static other fields."""
        return (self.pieces, self.mean, self.deviation), (self.shape, self.copies, self.offset)

    @classmethod
    def tree_unflatten(cls, static: tuple, leaves: tuple) -> "StoredImages":
        """Return the images of a flattened pytree; leaves may be placeholders."""
        stored = object.__new__(cls)
        for field, value in zip(dataclasses.fields(cls), (*leaves, *static), strict=True):
            object.__setattr__(stored, field.name, value)
        return stored

    def _shaped(self, pieces: Shaped[Array, "k p q"]) -> Shaped[Array, "k *shape"]:
        return pieces.reshape(pieces.shape[0], *self.shape)


def are_images(part: Any) -> bool:
    """Return True for `StoredImages`, which then count as one leaf of a run's data."""
    return isinstance(part, StoredImages)


def stored_images(data: Any) -> Iterator[StoredImages]:
    """Yield the stored images, or features, among a run's data."""
    return filter(are_images, jax.tree.leaves(data, is_leaf=are_images))


def less_offset(
    images: Shaped[np.ndarray, "n *shape"], offset: tuple[float, ...], dtype: np.dtype
) -> Shaped[np.ndarray, "n *shape"]:
    """Return images as `StoredImages` stores them: less the offset of each channel, as `dtype`.

    The difference is taken in float64, since float32 has no digits left for what varies around a
    large number.
    """
    return (images - np.array(offset) if offset else images).astype(dtype)


class StreamedImages(NamedTuple):
    """Images that a host function reads when a step needs them.

    Several devices call it at the same time, each in its own process and for its own runs. Devices
    that share the batches of a run cannot stream images. The function is not an array, so the
    `Build` must close over it instead of receiving it as data.
    """

    read: Callable[..., UInt8[np.ndarray, "*b h w c"]]
    """Function `read(index)` in evaluation and `read(index, keys)` in training. Its arguments are
    NumPy arrays, `[*b]` of sample indices and `[*b, words]` of each sample's random key. Random
    results may depend on that key alone. It must not use JAX arrays, which can deadlock with the
    calling program."""
    shape: tuple[int, int, int]
    """Height, width and channels of an image."""
    mean: Float[Array, "c"]
    """Mean of each channel, 0 to 255."""
    deviation: Float[Array, "c"]
    """Standard deviation of each channel."""

    def take(
        self, index: Int[Array, "b"], keys: Shaped[PRNGKeyArray, "b"] | None
    ) -> UInt8[Array, "b h w c"]:
        """Return images that the host reads, with one call for all vmapped runs."""
        read = self.read

        def read_on_host(*indices_and_keys: Array) -> UInt8[np.ndarray, "*b h w c"]:
            # JAX passes JAX arrays, which are small and already on the host.
            return read(*map(np.asarray, indices_and_keys))

        words = [] if keys is None else [jax.random.key_data(keys)]
        result_shape = jax.ShapeDtypeStruct((*index.shape, *self.shape), jnp.uint8)
        return jax.pure_callback(
            read_on_host, result_shape, index, *words, vmap_method="broadcast_all"
        )


class ComputedInputs(NamedTuple):
    """Inputs that a function computes from a sample's index, instead of stored ones."""

    compute: Callable[[Int[Array, "b"]], Float[Array, "b *shape"]]
    """Pure function of the indices."""
    shape: tuple[int, ...]
    """Shape of one input."""
    mean: float = 0.0
    """Value that is subtracted from all inputs."""
    deviation: float = 1.0
    """Value by which all inputs are divided then."""

    def take(
        self, index: Int[Array, "b"], keys: Shaped[PRNGKeyArray, "b"] | None
    ) -> Float[Array, "b *shape"]:
        """Return the inputs of these indices; `keys` have no effect."""
        return self.compute(index)


InputSource = StoredImages | StreamedImages | ComputedInputs
"""Source from which a setup takes its inputs."""
Augment = Callable[[UInt8[Array, "h w c"], PRNGKeyArray], UInt8[Array, "h w c"]]
"""Random function of one training image."""


def setup_from(
    init: Callable[[PRNGKeyArray], tuple[PyTree, PyTree]],
    apply: Callable[..., tuple[Outputs, PyTree]],
    source: InputSource,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    augment: Augment | None,
) -> Setup:
    """Return the setup of a network that is given as `Setup.init` and `Setup.apply`.

    The setups of linen, NNX and Equinox are made by it. The other arguments are those of
    `flax_setup`. Convolutions of a network that are not everlight's become so
    (`fast_in_both_modes`).
    """

    def gather(index: Int[Array, "b"], key: PRNGKeyArray | None) -> Float[Array, "b *shape"]:
        keys = None if key is None else jax.random.split(key, index.shape[0])
        images = source.take(index, keys)
        if keys is not None and augment is not None:
            images = jax.vmap(augment)(images, keys)
        return (images.astype(jnp.float32) - source.mean) / source.deviation

    return Setup(init, fast_in_both_modes(apply), objective, optimizer, gather)
