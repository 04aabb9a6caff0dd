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
from everlight_data.texts import one_line

FORMS = (
    "an .npz of arrays by name, as in layer/kernel, or the folder of an orbax checkpoint of the "
    "network's parameters"
)
_REMEDY = f"Give {FORMS}."
_MARKS = "_METADATA", "manifest.ocdbt"
"""Files of which an orbax checkpoint has one."""


class NetworkWeights(NamedTuple):
    """Arrays of a network by name."""

    params: dict[str, np.ndarray]
    batch_stats: dict[str, np.ndarray]


def load_user_weights(path: Path) -> NetworkWeights:
    """Return the arrays of a file or of the newest checkpoint of a folder.

    Raises:
      MissingDataError: there is no such file, or no checkpoint in the folder.
      DataError: it is damaged, or an array is not finite or not of floating-point numbers.
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
    steps = sorted((part for part in folder.iterdir() if part.name.isdigit()), key=_number)
    places = [folder, *(item for step in steps[::-1] for item in (step, *sorted(step.iterdir())))]
    checkpoint = next((place for place in places if _is_checkpoint(place)), None)
    if checkpoint is None:
        raise MissingDataError(f"{folder} holds no checkpoint. {_REMEDY}")
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


def _number(path: Path) -> int:
    return int(path.name)


def _is_checkpoint(folder: Path) -> bool:
    return any((folder / name).exists() for name in _MARKS)
