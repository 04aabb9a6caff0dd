"""Trees of arrays: rows, stacks, sizes and checksums."""

import zlib
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from everlight.trees import (
    array_checksum,
    checksums_of,
    describe_array,
    named_leaves,
    rows_of,
    stacked,
    tree_bytes,
)


class State(NamedTuple):
    """A tree of every kind of node."""

    params: dict
    rest: list


def tree(value):
    return State({2: jnp.full((2, 3), value, jnp.float32)}, [jnp.full(2, value, jnp.bfloat16)])


def test_rows_of_stacked_trees_are_the_trees():
    complete = stacked([tree(1), tree(2), tree(3)])
    chex.assert_trees_all_equal(rows_of(complete, 1), tree(2))
    chex.assert_trees_all_equal(rows_of(complete, np.array([2, 0])), stacked([tree(3), tree(1)]))
    assert rows_of(complete, (0, 1)).params[2].shape == (3,)


def test_leaves_have_a_name_shape_and_size():
    leaves = named_leaves(tree(1))
    assert list(leaves) == ["params/2", "rest/0"]
    assert [describe_array(leaf) for leaf in leaves.values()] == ["[2, 3]float32", "[2]bfloat16"]
    assert tree_bytes(tree(1)) == tree_bytes(jax.eval_shape(lambda: tree(1))) == 24 + 4


def test_checksums_are_of_the_bytes_in_c_order():
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    expected = zlib.crc32(array.tobytes())
    assert array_checksum(array) == array_checksum(jnp.asarray(array)) == expected
    both = expected, array_checksum(array + 1)
    assert checksums_of(np.asfortranarray(array), array + 1) == both
