"""Trees of arrays: stacked, divided into rows, measured, and identified by checksums.

Rows are taken and trees are stacked in one program for all leaves. Leaf by leaf, each shape would
be compiled by itself, several times.
"""

import json
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import PyTree


@jax.jit
def rows_of(tree: PyTree, rows: ArrayLike | tuple[ArrayLike, ...]) -> PyTree:
    """Return every leaf's row of that number, or rows of those numbers.

    Args:
      tree: arrays with a common leading axis.
      rows: number or numbers; a tuple has one entry per leading axis.
    """
    return jax.tree.map(lambda leaf: leaf[rows], tree)


@jax.jit
def stacked(trees: Sequence[PyTree]) -> PyTree:
    """Return trees of one structure and shape along a new leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def tree_bytes(tree: PyTree) -> int:
    """Return the bytes of a tree's arrays, or of arrays of these shapes and dtypes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def named_leaves(tree: PyTree) -> dict[str, Any]:
    """Return the leaves by their path, joined by /; a tuple's field is named as a dictionary's key.

    So the names stay when named tuples are stored as dictionaries.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def shapes_with(sharding: jax.sharding.Sharding, tree: PyTree) -> PyTree:
    """Return the shapes and dtypes of a tree's arrays, placed on devices that need not exist."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
    )


def describe_array(array: Any) -> str:
    """Return shape and dtype as text, as in [2, 3]float32; also for `jax.ShapeDtypeStruct`."""
    return json.dumps([*np.shape(array)]) + str(array.dtype)


def is_random_key(array: Any) -> bool:
    """Return True for typed random keys (`jax.random.key`); also for `jax.ShapeDtypeStruct`."""
    return hasattr(array, "dtype") and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)


def words_of_keys(array: Any) -> Any:
    """Return the words of random keys, which NumPy has no dtype for; other arrays unchanged."""
    return jax.random.key_data(array) if is_random_key(array) else array


def array_checksum(array: Any) -> int | list[int]:
    """Return the CRC-32 of an array's bytes, in C order; of random keys, that of their words.

    An array that is distributed over several processes has a list: one per part on this process.
    """
    array = words_of_keys(array)
    if getattr(array, "is_fully_addressable", True):
        return zlib.crc32(np.ascontiguousarray(array).tobytes())
    return [array_checksum(np.asarray(shard.data)) for shard in array.addressable_shards]


def checksums_of(*arrays: Any) -> tuple[int, ...]:
    """Return checksums of arrays, which identify the data that a training has learned from."""
    return tuple(map(array_checksum, map(np.asarray, arrays)))
