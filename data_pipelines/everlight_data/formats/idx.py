"""Reader and writer of IDX files: a header of big-endian 32-bit numbers, then an array's bytes.

It may be compressed by gzip (`.gz`). Of the format's types only unsigned bytes are read.
"""

import io
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from everlight_data.formats.archives import inflate
from everlight_data.formats.files import read_bytes, refusing
from everlight_data.formats.originals import Original, check_original

MAX_BYTES = 2_000_000_000
"""Limit on the bytes of one file, as it is stored and uncompressed."""
REMEDY = "Download it again, or remove it."
_BYTES_TYPE = 8
"""Code of unsigned bytes in the third byte of a header."""


def read_idx(
    path: Path, dimensions: int, original: Original | None = None
) -> UInt8[np.ndarray, "*shape"]:
    """Return the array of a file; nothing above what its header states is decompressed.

    Args:
      path: path of the file, compressed if it ends with `.gz`.
      dimensions: number of dimensions that the array must have.
      original: hash of the unpacked file; None compares nothing.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged or too large, has other dimensions, or its hash differs.
    """
    content = read_bytes(path, MAX_BYTES, REMEDY)
    start = 4 + 4 * dimensions
    with refusing(path, REMEDY):
        packed = path.suffix == ".gz"
        header = zlib.decompressobj(31).decompress(content, start) if packed else content[:start]
        if header[:4] != bytes([0, 0, _BYTES_TYPE, dimensions]) or len(header) < start:
            raise ValueError(f"not an IDX file of bytes in {dimensions} dimensions")
        shape = struct.unpack(f">{dimensions}I", header[4:])
        size = start + math.prod(shape)
        if size > MAX_BYTES:
            raise ValueError(f"{shape} is more than the limit of {MAX_BYTES:,} bytes")
        # One byte more, without which the end of the compressed stream would not be reached.
        values = inflate(content, size + 1, gzip=True) if packed else content
        if len(values) != size:
            raise ValueError(f"{len(values):,} bytes, but {shape} needs {size:,}")
        if original is not None:
            check_original(io.BytesIO(values), path, original, REMEDY)
        return np.frombuffer(values, np.uint8, offset=start).reshape(shape)


def idx_bytes(array: UInt8[np.ndarray, "*shape"]) -> bytes:
    """Return the content of the uncompressed file of an array."""
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, _BYTES_TYPE, array.ndim, *array.shape)
    # A join copies the pixels once; `tobytes` would hold them twice.
    return b"".join((header, np.ascontiguousarray(array).data))
