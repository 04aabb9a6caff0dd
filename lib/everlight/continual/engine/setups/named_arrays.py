"""Arrays of a module of any kind as nested dictionaries by name, as linen has its parameters."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array, PyTree

from everlight.base import Outputs

Path = tuple[str, ...]


class NamedArrays(NamedTuple):
    """Names of a list of arrays, in order."""

    paths: tuple[Path, ...]

    def pack(self, arrays: Sequence[Array]) -> PyTree:
        """Return the arrays as nested dictionaries; `{}` if there are none."""
        # The type is fixed: a loop's state keeps its types, and Python's numbers have weak ones.
        typed = [jnp.asarray(array, array.dtype) for array in arrays]
        return unflatten_dict(dict(zip(self.paths, typed, strict=True)))

    def unpack(self, tree: PyTree) -> list[Array]:
        """Return the list of arrays of such dictionaries."""
        by_path = flatten_dict(tree)
        return [by_path[path] for path in self.paths]


def names_of(path: Sequence[Any]) -> Path:
    """Return the names of a key path: attributes and keys, and numbers of list entries."""
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)


def as_outputs(returned: Any) -> Outputs:
    """Return the outputs of a network; those of one that returns logits alone have them twice."""
    return returned if isinstance(returned, Outputs) else Outputs(returned, returned)
