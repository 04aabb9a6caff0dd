"""A `Setup` from a Flax module and images on the device."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, UInt8

from everlight.continual.base import Objective, Outputs, Setup


class StoredImages(NamedTuple):
    """Images as they lie on the device once, and how they are normalised when taken from there."""

    images: UInt8[Array, "n h w c"]
    mean: Float[Array, "c"]
    """Of each channel, 0 to 255."""
    deviation: Float[Array, "c"]


def flax_setup(
    net: nn.Module,
    stored: StoredImages,
    objective: Objective,
    optimizer: optax.GradientTransformation,
    augment: Callable[[UInt8[Array, "h w c"], PRNGKeyArray], UInt8[Array, "h w c"]] | None = None,
) -> Setup:
    """The setup of a module called as `net(images, train)`, which gives `Outputs`.

    Args:
      net: may have dropout and batch statistics.
      stored: images, gathered by index and normalised inside the step.
      objective: what outputs mean.
      optimizer: begun anew at every task.
      augment: of one training image, before it is normalised.
    """

    def init(key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
        variables = net.init(key, jnp.zeros((1, *stored.images.shape[1:])), False)
        return variables["params"], variables.get("batch_stats", {})

    def apply(
        params: PyTree,
        batch_stats: PyTree,
        inputs: Float[Array, "b h w c"],
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

    def gather(index: Int[Array, "b"], key: PRNGKeyArray | None) -> Float[Array, "b h w c"]:
        images = stored.images[index]
        if key is not None and augment is not None:
            images = jax.vmap(augment)(images, jax.random.split(key, index.shape[0]))
        return (images.astype(jnp.float32) - stored.mean) / stored.deviation

    return Setup(init, apply, objective, optimizer, gather)
