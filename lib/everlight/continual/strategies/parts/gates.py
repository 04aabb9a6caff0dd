"""Gates of hidden units, which close some of them in a task."""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from everlight.base import Learner

Gates = Mapping[str, Float[Array, "u"]]
"""Gates of each layer's units, from 0 to 1."""


def gate(params: PyTree, gates: Gates) -> PyTree:
    """Return the parameters multiplied by their units' gates; the head is unchanged."""
    return {
        name: jax.tree.map(partial(jnp.multiply, gates[name]), layer) if name in gates else layer
        for name, layer in params.items()
    }


def gate_learner(learner: Learner, gates: Gates) -> Learner:
    """Return a learner of gated parameters, which predicts with the gates."""
    return learner._replace(params=gate(learner.params, gates))
