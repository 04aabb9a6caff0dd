"""Published weights: arrays by the names of another implementation, as variables of a network."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jaxtyping import Array, PyTree

from everlight.errors import ArgumentError


def variables_of_arrays(
    shapes: PyTree,
    arrays: Mapping[str, Any],
    name_of: Callable[[tuple], str],
    convert: Callable[[str, jax.ShapeDtypeStruct], Array],
    complete_set: str,
) -> PyTree:
    """Return the variables of a network, each leaf converted from its array.

    Args:
      shapes: shapes and dtypes of the variables.
      arrays: arrays by name.
      name_of: function from a leaf's path to the name of its array.
      convert: function from a name and a leaf's shape and dtype to the leaf.
      complete_set: words for all arrays, for the message.

    Raises:
      ValueError: an array is missing or unknown; the message names it.
    """
    names = {name_of(path) for path, _ in jax.tree.leaves_with_path(shapes)}
    wrong = sorted(names ^ set(arrays))
    if wrong:
        fault = "is missing" if wrong[0] in names else "is not an array of the network"
        raise ArgumentError(f"{wrong[0]} {fault}; give all of {complete_set}")
    return jax.tree.map_with_path(lambda path, leaf: convert(name_of(path), leaf), shapes)
