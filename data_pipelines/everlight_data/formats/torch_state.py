"""Reader of weights in PyTorch's file format before version 1.6, without PyTorch.

Such a file holds five pickles: a magic number, the format's version, properties of the writer's
system, the state, and the storages' keys. In the state, every storage is a reference. The storages
follow in the order of their keys: an int64 count, then that many little-endian numbers. The pickles
are read by `unpickle`, which calls nothing that they name.
"""

import io
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from everlight_data.formats.arrays import MAX_DIMENSIONS
from everlight_data.formats.files import read_bytes, refusing
from everlight_data.formats.pickle_machine import Foreign
from everlight_data.formats.unpickle import load_restricted

MAX_BYTES = 4_000_000_000
"""Limit on the size of a file."""
_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001
_COUNT = np.dtype("<i8")
_TYPES = {
    ("torch", f"{name}Storage"): np.dtype(code)
    for name, code in {"Float": "<f4", "Double": "<f8", "Half": "<f2", "Long": "<i8"}.items()
}


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype
    count: int


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Strides in elements."""


def read_torch_state(path: Path, remedy: str) -> dict[str, np.ndarray]:
    """Return the arrays of a state dict by name, read-only.

    Args:
      path: path of the file.
      remedy: sentence that every error message ends with.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged, too large, of another format, or its pickles name anything but
        tensors in ordered dicts.
    """
    content = read_bytes(path, MAX_BYTES, remedy)
    with refusing(path, remedy):
        stream = io.BytesIO(content)

        def following() -> Any:
            return load_restricted(stream, str(path), foreign=_FOREIGN)

        magic, version = following(), following()
        if (magic, version) != (_MAGIC, _VERSION):
            raise ValueError("it is not in PyTorch's format before version 1.6")
        if following()["little_endian"] is not True:
            raise ValueError("it was written on a big-endian machine")
        state, keys = following(), following()
        known = _find_storages(state)
        copied = sum(math.prod(t.shape) * t.storage.dtype.itemsize for t in state.values())
        # Weights that two layers share are written twice.
        if copied > 2 * len(content):
            raise ValueError("its tensors hold the same numbers over and over")
        numbers = _storages(memoryview(content)[stream.tell() :], keys, known)
        return {name: _array(tensor, numbers) for name, tensor in state.items()}


def _find_storages(state: Any) -> dict[str, _Storage]:
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, _Tensor) for name, value in state.items()
    ):
        raise ValueError("it does not map names to tensors")
    storages: dict[str, _Storage] = {}
    for tensor in state.values():
        first = storages.setdefault(tensor.storage.key, tensor.storage)
        if first != tensor.storage:
            raise ValueError(
                f"the storage {first.key} is {first.count:,} {first.dtype} in one tensor and "
                f"{tensor.storage.count:,} {tensor.storage.dtype} in another"
            )
    return storages


def _storages(
    content: memoryview, keys: list[str], known: dict[str, _Storage]
) -> dict[str, np.ndarray]:
    if sorted(keys) != sorted(known):
        raise ValueError("its storages do not match its tensors")
    storages, place = {}, 0
    for key in keys:
        storage = known[key]
        (count,) = np.frombuffer(content[place : place + _COUNT.itemsize], _COUNT)
        start, place = place + _COUNT.itemsize, place + _COUNT.itemsize
        place += storage.count * storage.dtype.itemsize
        if count != storage.count or place > len(content):
            raise ValueError(f"the storage {key} does not hold {storage.count:,} numbers")
        storages[key] = np.frombuffer(content[start:place], storage.dtype)
    if place != len(content):
        raise ValueError("bytes follow the last storage")
    return storages


def _array(tensor: _Tensor, numbers: dict[str, np.ndarray]) -> np.ndarray:
    storage = numbers[tensor.storage.key]
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=True))
    count = math.prod(tensor.shape)
    if not 0 < count <= len(storage) or tensor.offset + reach >= len(storage):
        raise ValueError("a tensor exceeds its storage")
    strides = [step * storage.itemsize for step in tensor.strides]
    view = np.lib.stride_tricks.as_strided(
        storage[tensor.offset :], tensor.shape, strides, writeable=False
    )
    array = np.ascontiguousarray(view).reshape(tensor.shape)
    array.flags.writeable = False
    return array


def _reference(value: Any) -> _Storage:
    """Return the placeholder of a storage from its reference in the state's pickle."""
    match value:
        case ("storage", np.dtype() as dtype, str(key), str(), int(count), None) if count >= 0:
            return _Storage(key, dtype, count)
    raise ValueError("a reference does not name an entire storage")


def _make_tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any, hooks: Any
) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise ValueError("a tensor has no storage")
    if (
        not isinstance(shape, tuple)
        or not isinstance(strides, tuple)
        or len(shape) > MAX_DIMENSIONS
    ):
        raise ValueError("a tensor has no shape")
    if not all(type(number) is int and number >= 0 for number in (offset, *shape, *strides)):
        raise ValueError("a tensor has an invalid shape")
    return _Tensor(storage, offset, shape, strides)


def _make_dict(*items: Any) -> dict:
    if items:
        raise ValueError("an ordered dict has items before it is created")
    return {}


_FOREIGN = Foreign(
    values=_TYPES,
    calls={
        ("collections", "OrderedDict"): _make_dict,
        ("torch._utils", "_rebuild_tensor_v2"): _make_tensor,
    },
    reference=_reference,
)
