"""Outputs without features, as objectives take them."""

import jax.numpy as jnp

from everlight.base import Outputs


def outputs_of(logits):
    return Outputs(jnp.float32(logits), jnp.zeros((len(logits), 1)))
