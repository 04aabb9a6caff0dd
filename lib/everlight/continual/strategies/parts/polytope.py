"""A fixed head whose weights are the vertices of a regular simplex (X-DER-RPC)."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Outputs, Setup
from everlight.checks import PositiveInt, checked
from everlight.errors import ArgumentError


@checked
def simplex(classes: PositiveInt) -> Float[np.ndarray, "d c"]:
    """Return the vertices of a regular simplex around 0 as unit columns, `[classes - 1, classes]`.

    The cosine of two columns is −1 / (classes − 1).

    Raises:
      ValueError: there are fewer than two classes.
    """
    if classes < 2:
        raise ArgumentError("a polytope head needs at least 2 classes, and there is 1")
    dimensions = classes - 1
    last = np.full((dimensions, 1), (1 - np.sqrt(classes)) / dimensions)
    vertices = np.hstack([np.eye(dimensions), last])
    vertices -= vertices.mean(axis=1, keepdims=True)
    return vertices / np.linalg.norm(vertices[:, 0])


@checked
def with_polytope(setup: Setup) -> Setup:
    """Return the setup whose logits are the first c − 1 of c outputs times the fixed `simplex`."""

    def apply(
        params: PyTree, batch_stats: PyTree, inputs: Array, train: bool, key: PRNGKeyArray | None
    ) -> tuple[Outputs, PyTree]:
        outputs, stats = setup.apply(params, batch_stats, inputs, train, key)
        head = jnp.asarray(simplex(outputs.logits.shape[-1]), outputs.logits.dtype)
        return outputs._replace(logits=outputs.logits[..., :-1] @ head), stats

    return setup._replace(apply=apply)
