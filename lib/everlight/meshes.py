"""Independent runs dealt to devices, and the batches of a run to several of them.

A mesh has the axis "runs" and, where devices share the work of a run, the axis "data". It may span
processes (`jax.distributed`); then each of them calls the same functions with the same arguments.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree, Shaped

from everlight.checks import PositiveInt, checked

AXIS, DATA = "runs", "data"
RUNS, SHARED = PartitionSpec(AXIS), PartitionSpec()
"""A leading axis over runs; what all devices hold whole."""


@checked
def runs_mesh(devices: list[jax.Device] | None = None, data: PositiveInt = 1) -> Mesh:
    """A mesh of the axis "runs", and of "data" where devices share a run.

    Args:
      devices: None is all, those of other processes too.
      data: how many share the batches of a run, next to each other; sums over a batch are then
        taken in another order, and results agree to rounding alone.

    Raises:
      ValueError: devices that are no multiple of `data`.
    """
    every = np.array(jax.devices() if devices is None else devices)
    if data == 1:
        return Mesh(every, (AXIS,))
    if len(every) % data:
        raise ValueError(f"data={data} of {len(every)} devices; give a divisor")
    return Mesh(every.reshape(-1, data), (AXIS, DATA))


def dealt(rows: Shaped[Array, "b *shape"]) -> Shaped[Array, "b *shape"]:
    """A batch's rows, dealt to the devices that share a run where the program has such."""
    if DATA not in jax.sharding.get_abstract_mesh().axis_names:
        return rows
    return jax.lax.with_sharding_constraint(rows, PartitionSpec(DATA))


def place(mesh: Mesh, spec: PartitionSpec, tree: PyTree) -> PyTree:
    """The tree on a mesh; each process gives the same and holds what its own devices need."""
    sharding = NamedSharding(mesh, spec)
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)
    return jax.tree.map(partial(_placed, sharding), tree)


def _placed(sharding: NamedSharding, leaf: Array) -> Array:
    leaf = jnp.asarray(leaf)
    if not leaf.is_fully_addressable:
        return leaf  # it was placed before
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        words = _placed(sharding, jax.random.key_data(leaf))
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
    # Not device_put, which would send all of it around to see whether it is the same everywhere.
    values = np.asarray(leaf)
    return jax.make_array_from_callback(values.shape, sharding, values.__getitem__)


def whole(array: Array | np.ndarray) -> np.ndarray:
    """An array's values, those on other processes' devices too, which then all ask for them."""
    if getattr(array, "is_fully_addressable", True) or array.is_fully_replicated:
        return np.asarray(array)
    return multihost_utils.process_allgather(array, tiled=True)


@partial(jax.jit, static_argnames="missing")
def filled(tree: PyTree, missing: int) -> PyTree:
    """The runs of a tree's leading axis with the last one repeated so many times."""
    return jax.tree.map(lambda leaf: jnp.concatenate([leaf, *[leaf[-1:]] * missing]), tree)
