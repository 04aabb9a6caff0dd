"""Weights in PyTorch's file format of before version 1.6, read without PyTorch.

Five pickles one after another (a magic number, the format's version, facts of the writer's system,
the state with a reference in the place of every storage, the storages' keys), then each storage in
the order of its key: an int64 count and so many numbers, little-endian. The pickles are read by
the machine of `unpickle`, which calls nothing of what they name.
"""

import io
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from data_pipelines.arrays import DIMENSIONS
from data_pipelines.files import read_bytes, refusing
from data_pipelines.unpickle import Foreign, load_restricted

BYTES = 4_000_000_000
"""Of a file."""
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
    """In numbers."""


def read_torch_state(path: Path, way_out: str) -> dict[str, np.ndarray]:
    """The arrays of a state dict by name, read-only.

    Args:
      path: the file.
      way_out: the sentence that messages end with.

    Raises:
      MissingDataError: there is no such file.
      DataError: it is damaged, too large, of another format, or its pickles name anything but
        tensors in ordered dicts.
    """
    content = read_bytes(path, BYTES, way_out)
    with refusing(path, way_out):
        stream = io.BytesIO(content)

        def following() -> Any:
            return load_restricted(stream, str(path), foreign=_FOREIGN)

        magic, version = following(), following()
        if (magic, version) != (_MAGIC, _VERSION):
            raise ValueError("not PyTorch's format of before version 1.6")
        if following()["little_endian"] is not True:
            raise ValueError("written on a machine with the greater byte first")
        state, keys = following(), following()
        numbers = _storages(memoryview(content)[stream.tell() :], keys, _sizes(state))
        return {name: _array(tensor, numbers) for name, tensor in state.items()}


def _sizes(state: Any) -> dict[str, _Storage]:
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(value, _Tensor) for name, value in state.items()
    ):
        raise ValueError("something else than tensors by name")
    return {tensor.storage.key: tensor.storage for tensor in state.values()}


def _storages(
    content: memoryview, keys: list[str], known: dict[str, _Storage]
) -> dict[str, np.ndarray]:
    if sorted(keys) != sorted(known):
        raise ValueError("other storages than the tensors'")
    found, place = {}, 0
    for key in keys:
        storage = known[key]
        (count,) = np.frombuffer(content[place : place + _COUNT.itemsize], _COUNT)
        start, place = place + _COUNT.itemsize, place + _COUNT.itemsize
        place += storage.count * storage.dtype.itemsize
        if count != storage.count or place > len(content):
            raise ValueError(f"the storage {key} has not the {storage.count:,} numbers it should")
        found[key] = np.frombuffer(content[start:place], storage.dtype)
    if place != len(content):
        raise ValueError("bytes after the last storage")
    return found


def _array(tensor: _Tensor, numbers: dict[str, np.ndarray]) -> np.ndarray:
    storage = numbers[tensor.storage.key]
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides, strict=True))
    count = math.prod(tensor.shape)
    if not 0 < count <= len(storage) or tensor.offset + reach >= len(storage):
        raise ValueError("a tensor that reaches out of its storage")
    strides = [step * storage.itemsize for step in tensor.strides]
    view = np.lib.stride_tricks.as_strided(
        storage[tensor.offset :], tensor.shape, strides, writeable=False
    )
    array = np.ascontiguousarray(view).reshape(tensor.shape)
    array.flags.writeable = False
    return array


def _reference(value: Any) -> _Storage:
    """What stands for a storage in the pickle of the state."""
    match value:
        case ("storage", np.dtype() as dtype, str(key), str(), int(count), None) if count >= 0:
            return _Storage(key, dtype, count)
    raise ValueError("a reference that is to no whole storage")


def _make_tensor(
    storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any, hooks: Any
) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise ValueError("a tensor without storage")
    if not isinstance(shape, tuple) or not isinstance(strides, tuple) or len(shape) > DIMENSIONS:
        raise ValueError("a tensor without shape")
    if not all(type(each) is int and each >= 0 for each in (offset, *shape, *strides)):
        raise ValueError("a tensor whose shape is none")
    return _Tensor(storage, offset, shape, strides)


def _make_dict(*items: Any) -> dict:
    if items:
        raise ValueError("an ordered dict with items before it is made")
    return {}


_FOREIGN = Foreign(
    values=_TYPES,
    calls={
        ("collections", "OrderedDict"): _make_dict,
        ("torch._utils", "_rebuild_tensor_v2"): _make_tensor,
    },
    reference=_reference,
)
