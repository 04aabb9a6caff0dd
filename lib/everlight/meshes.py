"""Device meshes: independent runs on separate devices, and batches of a run across devices.

A mesh has the axis "runs" and, where devices share a run's work, the axis "data". It may span
processes (`jax.distributed`); each process then calls the same functions with the same arguments.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree, Shaped

from everlight.checks import PositiveInt, checked
from everlight.errors import Argument, ArgumentError

RUNS_AXIS, DATA_AXIS = "runs", "data"
RUNS_SPEC, REPLICATED = PartitionSpec(RUNS_AXIS), PartitionSpec()
"""Specifications of a leading axis over runs, and of arrays replicated on all devices."""


@checked
def runs_mesh(devices: list[jax.Device] | None = None, data: PositiveInt = 1) -> Mesh:
    """Create a mesh with the axis "runs", and with "data" where devices share a run.

    Args:
      devices: devices of the mesh; None uses all, including those of other processes.
      data: number of adjacent devices that share the batches of a run. Sums over a batch are then
        taken in another order, and results agree only up to rounding.

    Raises:
      ValueError: the number of devices is not a multiple of `data`.
    """
    devices = jax.devices() if devices is None else devices
    if len(devices) % data:
        raise ArgumentError(
            Argument("data", data), f" of {len(devices)} devices", remedy=("give a divisor",)
        )
    axes = {RUNS_AXIS: len(devices) // data} | ({DATA_AXIS: data} if data > 1 else {})
    # The compiler shards a batch over "data"; `shard_map` takes "runs".
    return jax.make_mesh(
        tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes), devices=devices
    )


def shard_batch(rows: Shaped[Array, "b *shape"]) -> Shaped[Array, "b *shape"]:
    """Shard a batch's rows over the devices that share a run, if the mesh has the axis "data"."""
    if DATA_AXIS not in jax.sharding.get_abstract_mesh().axis_names:
        return rows
    return jax.lax.with_sharding_constraint(rows, PartitionSpec(DATA_AXIS))


def put_on_mesh(mesh: Mesh, spec: PartitionSpec, tree: PyTree) -> PyTree:
    """Put a tree on a mesh; every process passes the same tree and stores its devices' parts."""
    sharding = NamedSharding(mesh, spec)
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)
    return jax.tree.map(partial(_place_leaf, sharding), tree)


def _place_leaf(sharding: NamedSharding, leaf: Array) -> Array:
    leaf = jnp.asarray(leaf)
    if not leaf.is_fully_addressable:
        return leaf  # already on the mesh
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        words = _place_leaf(sharding, jax.random.key_data(leaf))
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
    # device_put would transfer the whole array to check that it is equal on all processes.
    values = np.asarray(leaf)
    return jax.make_array_from_callback(values.shape, sharding, values.__getitem__)


def fetch(array: Array | np.ndarray) -> np.ndarray:
    """Return an array's values, including those on other processes' devices; all must call it."""
    if getattr(array, "is_fully_addressable", True) or array.is_fully_replicated:
        return np.asarray(array)
    return multihost_utils.process_allgather(array, tiled=True)


@partial(jax.jit, static_argnames="missing")
def pad_runs(tree: PyTree, missing: int) -> PyTree:
    """Pad a tree's leading axis of runs by repeating the last run `missing` times."""
    return jax.tree.map(lambda leaf: jnp.concatenate([leaf, *[leaf[-1:]] * missing]), tree)
