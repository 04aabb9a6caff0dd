"""Trees of arrays stacked, and rows of them taken, in one program for all leaves.

Leaf by leaf each shape would be compiled by itself, several times.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import PyTree


@jax.jit
def rows_of(tree: PyTree, rows: ArrayLike | tuple[ArrayLike, ...]) -> PyTree:
    """Every leaf's row of that number, or rows of those numbers; a tuple is of leading axes."""
    return jax.tree.map(lambda leaf: leaf[rows], tree)


@jax.jit
def stacked(trees: Sequence[PyTree]) -> PyTree:
    """Trees of one shape along a new leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
