"""A `Setup` from a Flax module and images, stored on the device or streamed from the host."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped, UInt8

from everlight.checks import checked
from everlight.continual.base import Objective, Outputs, Setup

# The second last axis of a TPU's tiles. With rows in one piece, long ones are sliced apart before.
_PIECES = 8


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True)
class StoredImages:
    """Images as they lie on the device once, and how they are normalised when taken from there.

    Features that were computed once stand there as images do. A TPU lays small images out with
    their number as the last axis, and would copy all of them to take a few; hence the pieces.
    Made by `StoredImages.of`.
    """

    pieces: Shaped[Array, "n p q"]
    """All of them, each in p = 8 pieces, or in fewer where 8 does not divide its size."""
    mean: Float[Array, "*c"]
    """Of each channel, 0 to 255; or one number."""
    deviation: Float[Array, "*c"]
    shape: tuple[int, ...]
    """Of one image."""

    @classmethod
    @checked
    def of(
        cls,
        images: Shaped[Array | np.ndarray, "n *shape"],
        mean: Float[Array, "*c"],
        deviation: Float[Array, "*c"],
    ) -> "StoredImages":
        """From all images: NumPy's go to the device as they are, JAX's are copied there.

        Args:
          images: uint8, or floats.
          mean: of each channel, 0 to 255; or one number.
          deviation: likewise.
        """
        shape = tuple(images.shape[1:])
        size = math.prod(shape)
        parts = math.gcd(size, _PIECES)
        pieces = images.reshape(images.shape[0], parts, size // parts)
        return cls(jnp.asarray(pieces), mean, deviation, shape)

    @property
    def images(self) -> Shaped[Array, "n *shape"]:
        """All of them, `[n, *shape]`: a copy."""
        return self._shaped(self.pieces)

    def take(
        self, index: Int[Array, "b"], keys: Shaped[PRNGKeyArray, "b"] | None
    ) -> Shaped[Array, "b *shape"]:
        """Images as they are stored; nothing in them is drawn."""
        return self._shaped(self.pieces[index])

    def with_images(self, images: Shaped[Array | np.ndarray, "k *shape"]) -> "StoredImages":
        """Others, normalised as these."""
        return StoredImages.of(images, self.mean, self.deviation)

    def tree_flatten(self) -> tuple[tuple, tuple[int, ...]]:
        """What JAX sees: pieces, mean and deviation; the shape is static."""
        return (self.pieces, self.mean, self.deviation), self.shape

    @classmethod
    def tree_unflatten(cls, shape: tuple[int, ...], leaves: tuple) -> "StoredImages":
        """The inverse; leaves may be anything that stands for them."""
        stored = object.__new__(cls)
        for field, value in zip(dataclasses.fields(cls), (*leaves, shape), strict=True):
            object.__setattr__(stored, field.name, value)
        return stored

    def _shaped(self, pieces: Shaped[Array, "k p q"]) -> Shaped[Array, "k *shape"]:
        return pieces.reshape(pieces.shape[0], *self.shape)


class StreamedImages(NamedTuple):
    """Images that a function of the host reads when a step asks for them.

    Several devices call it at the same time, each in the process that it belongs to and for its
    own runs; devices that share the batches of a run cannot. The function is no array, so it is
    closed over by whoever builds the setup, not given as data.
    """

    read: Callable[..., UInt8[np.ndarray, "*b h w c"]]
    """`read(index)` in evaluation, `read(index, keys)` in training: NumPy arrays `[*b]` of places
    and `[*b, words]` of each sample's key, on which alone what it draws may depend. It must touch
    no JAX array, which can wait for the very program that called it."""
    shape: tuple[int, int, int]
    """Of one image: height, width, channels."""
    mean: Float[Array, "c"]
    """Of each channel, 0 to 255."""
    deviation: Float[Array, "c"]

    def take(
        self, index: Int[Array, "b"], keys: Shaped[PRNGKeyArray, "b"] | None
    ) -> UInt8[Array, "b h w c"]:
        """Images as the host reads them, one call for all that is vmapped."""
        read = self.read

        def on_host(*places_and_keys: Array) -> UInt8[np.ndarray, "*b h w c"]:
            # JAX hands over arrays of its own, which are small and there already.
            return read(*map(np.asarray, places_and_keys))

        words = [] if keys is None else [jax.random.key_data(keys)]
        wanted = jax.ShapeDtypeStruct((*index.shape, *self.shape), jnp.uint8)
        return jax.pure_callback(on_host, wanted, index, *words, vmap_method="broadcast_all")


@checked
def flax_setup(
    net: nn.Module,
    source: StoredImages | StreamedImages,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    augment: Callable[[UInt8[Array, "h w c"], PRNGKeyArray], UInt8[Array, "h w c"]] | None = None,
) -> Setup:
    """The setup of a module called as `net(images, train)`, which gives `Outputs`.

    Args:
      net: may have dropout and batch statistics.
      source: of the images, taken by index and normalised inside the step.
      objective: what outputs mean.
      optimizer: begun anew at every task.
      augment: of one training image, before it is normalised.
    """

    def init(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        variables = net.init(key, jnp.zeros((1, *source.shape)), False)
        return variables["params"], variables.get("batch_stats", {})

    def apply(
        params: PyTree,
        batch_stats: PyTree,
        inputs: Float[Array, "b *shape"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Outputs, PyTree]:
        variables = {"params": params, "batch_stats": batch_stats}
        if not train:
            return net.apply(variables, inputs, False), batch_stats
        outputs, changed = net.apply(
            variables, inputs, True, rngs={"dropout": key}, mutable=["batch_stats"]
        )
        return outputs, changed.get("batch_stats", {})

    def gather(index: Int[Array, "b"], key: PRNGKeyArray | None) -> Float[Array, "b *shape"]:
        keys = None if key is None else jax.random.split(key, index.shape[0])
        images = source.take(index, keys)
        if keys is not None and augment is not None:
            images = jax.vmap(augment)(images, keys)
        return (images.astype(jnp.float32) - source.mean) / source.deviation

    return Setup(init, apply, objective, optimizer, gather)
