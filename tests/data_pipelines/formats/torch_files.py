"""Writer of files in PyTorch's old format, byte by byte after its description."""

import pickle
import struct

import numpy as np

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
SYSTEM = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def numbers(values):
    return b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"


def tensor(key, count, shape, strides, offset=0, kind="FloatStorage"):
    """Return a call of `_rebuild_tensor_v2` on a reference to a storage."""
    storage = text("storage") + f"ctorch\n{kind}\n".encode() + text(key) + text("cpu")
    reference = b"(" + storage + b"J" + struct.pack("<i", count) + b"NtQ"
    place = b"J" + struct.pack("<i", offset) + numbers(shape) + numbers(strides)
    hooks = b"\x89ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + reference + place + hooks + b"tR"


def state(**tensors):
    """Return an ordered dict with the metadata that PyTorch leaves in its state."""
    items = b"".join(text(name) + item for name, item in tensors.items())
    metadata = b"}" + text("_metadata") + b"ccollections\nOrderedDict\n)Rsb"
    return b"\x80\x02ccollections\nOrderedDict\n)R(" + items + b"u" + metadata + b"."


def write(path, pickled, storages, magic=MAGIC, system=SYSTEM):
    head = b"".join(pickle.dumps(item, 2) for item in (magic, VERSION, system))
    keys = pickle.dumps(list(storages), 2)
    data = b"".join(struct.pack("<q", item.size) + item.tobytes() for item in storages.values())
    path.write_bytes(head + pickled + keys + data)
    return path


FLOATS = np.arange(12, dtype="<f4")
