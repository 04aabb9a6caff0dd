"""Weights of a user's own network: an `.npz` of arrays by name, or an orbax checkpoint.

Names are joined by /, as in block/first/kernel. They may begin with params/ and batch_stats/, as
linen's variables do; without these, all arrays are parameters. The name of an array of an NNX state
is that of its variable.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from everlight.trees import named_leaves
from everlight_data.errors import DataError, MissingDataError
from everlight_data.pretrained.weight_arrays import check_weights, read_weights
from everlight_data.runs.orbax_messages import silence_orbax, unawaited_unreported
from everlight_data.texts import one_line, printable

FORMS = (
    "an .npz of arrays by name, as in layer/kernel, or the folder of an orbax checkpoint of the "
    "network's parameters"
)
_REMEDY = f"Give {FORMS}."
_MARKS = "_METADATA", "manifest.ocdbt"
"""Files of which an orbax checkpoint has one."""
_ITEMS = "params", "state", "default"
"""Names of the item with the parameters, the first of which is read."""


class NetworkWeights(NamedTuple):
    """Arrays of a network by name."""

    params: dict[str, np.ndarray]
    batch_stats: dict[str, np.ndarray]


def load_user_weights(path: Path) -> NetworkWeights:
    """Return the arrays of a file or of the newest checkpoint of a folder.

    Of a step that was saved as several items, the item `params` is read, else `state` or `default`.

    Raises:
      MissingDataError: there is no such file, or no checkpoint in the folder.
      DataError: it is damaged, an array is not finite or not of floating-point numbers, or the
        newest step has several items, none of them with a name of `_ITEMS`.
    """
    if path.is_dir():
        arrays = _read_checkpoint(path)
        check_weights(path, arrays, _REMEDY, "f")
    else:
        arrays = read_weights(path, _REMEDY, "f")
    return split_collections(arrays)


def split_collections(arrays: dict[str, np.ndarray]) -> NetworkWeights:
    """Return parameters and batch statistics without the names of their collections."""
    collections = {name: _without_prefix(arrays, f"{name}/") for name in NetworkWeights._fields}
    if not collections["params"]:
        return NetworkWeights(arrays, {})
    return NetworkWeights(**collections)


def _without_prefix(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _read_checkpoint(folder: Path) -> dict[str, np.ndarray]:
    checkpoint = _find_checkpoint(folder)
    silence_orbax()
    reader = ocp.PyTreeCheckpointer()
    # Orbax raises errors of many kinds about damaged files.
    try:
        with unawaited_unreported():
            shapes = reader.metadata(checkpoint.absolute()).item_metadata.tree
            as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), shapes)
            tree = reader.restore(checkpoint.absolute(), restore_args=as_numpy)
    except Exception as error:
        raise DataError(f"{checkpoint} cannot be read ({one_line(error)}). {_REMEDY}") from error
    leaves = named_leaves(tree)
    return {name.removesuffix("/value"): np.asarray(leaf) for name, leaf in leaves.items()}


def _find_checkpoint(folder: Path) -> Path:
    """Return the checkpoint that a folder is, or the one of its newest step."""
    numbered = (part for part in folder.iterdir() if part.name.isdigit() and part.is_dir())
    for place in (folder, *sorted(numbered, key=_number, reverse=True)):
        if _is_checkpoint(place):
            return place
        if place != folder and (items := list(filter(_is_checkpoint, sorted(place.iterdir())))):
            return _choose_item(items)
    raise MissingDataError(f"{folder} holds no checkpoint. {_REMEDY}")


def _choose_item(items: list[Path]) -> Path:
    """Return the item with the parameters among those that a step was saved as."""
    by_name = {item.name: item for item in items}
    for name in _ITEMS:
        if name in by_name:
            return by_name[name]
    if len(items) > 1:
        raise DataError(
            f"{items[0].parent} holds the checkpoints {', '.join(map(printable, by_name))}. Give "
            "the folder of one."
        )
    return items[0]


def _number(path: Path) -> int:
    return int(path.name)


def _is_checkpoint(folder: Path) -> bool:
    return any((folder / name).exists() for name in _MARKS)
