"""Independent runs dealt to devices: a mesh of one axis, and runs filled up to a multiple of it."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import PyTree

AXIS = "runs"
RUNS, SHARED = PartitionSpec(AXIS), PartitionSpec()
"""A leading axis over runs; what all devices hold whole."""


def runs_mesh(devices: list[jax.Device] | None = None) -> Mesh:
    """A mesh of the axis "runs" alone, over all devices or some."""
    return Mesh(np.array(jax.devices() if devices is None else devices), (AXIS,))


def filled(tree: PyTree, missing: int) -> PyTree:
    """The runs of a tree's leading axis with the last one repeated so many times."""
    return jax.tree.map(lambda leaf: jnp.concatenate([leaf, *[leaf[-1:]] * missing]), tree)
