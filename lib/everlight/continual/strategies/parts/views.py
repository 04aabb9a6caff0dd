"""Views of an input: its turned forms, each a class of its own, and their random changes."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from everlight.models.augmentation import resized_crop_and_flip


def random_view(
    inputs: Float[Array, "*shape"], key: PRNGKeyArray, least_area: float = 0.2
) -> Float[Array, "*shape"]:
    """Return a random crop, enlarged and perhaps flipped, of an image; other inputs unchanged.

    `least_area` is the smallest area of the crop, as a fraction of the image's.
    """
    return resized_crop_and_flip(inputs, key, least_area) if inputs.ndim == 3 else inputs


large_view = partial(random_view, least_area=0.3)
"""Random view of OCM and OnPro."""


def turned_forms(inputs: Float[Array, "*shape"]) -> Float[Array, "r *shape"]:
    """Return 16 forms of a square image with an even side; other inputs are their only form.

    The left, the right, both or no halves are turned by 180 degrees, and the whole then by 0, 180,
    90 and 270 degrees (OCM). The first form is the image itself.
    """
    if inputs.ndim != 3 or inputs.shape[0] != inputs.shape[1] or inputs.shape[0] % 2:
        return inputs[None]
    left, right = jnp.split(inputs, 2, axis=1)
    turned = jnp.rot90(left, 2), jnp.rot90(right, 2)
    halves = (left, right), (turned[0], right), turned, (left, turned[1])
    images = [jnp.concatenate(pair, axis=1) for pair in halves]
    return jnp.stack([jnp.rot90(image, turns) for turns in (0, 2, 1, 3) for image in images])


class Views(NamedTuple):
    """Functions that make the views of one input."""

    augment: Callable[[Float[Array, "*shape"], PRNGKeyArray], Float[Array, "*shape"]]
    """Random change that makes the second view."""
    forms: Callable[[Float[Array, "*shape"]], Float[Array, "r *shape"]]
    """Function to the forms of the input, the input itself first."""

    def second(
        self, inputs: Float[Array, "n *shape"], key: PRNGKeyArray
    ) -> Float[Array, "n *shape"]:
        """Return a random change of every input."""
        return jax.vmap(self.augment)(inputs, jax.random.split(key, inputs.shape[0]))

    def form_pairs(
        self, inputs: Float[Array, "n *shape"], key: PRNGKeyArray
    ) -> Float[Array, "v *shape"]:
        """Return all forms of the inputs, and then their second views.

        The first forms of all inputs come first, then the second ones, and so on.
        """
        stacked = jnp.moveaxis(jax.vmap(self.forms)(inputs), 1, 0)
        stacked = stacked.reshape(-1, *inputs.shape[1:])
        return jnp.concatenate([stacked, self.second(stacked, key)])
