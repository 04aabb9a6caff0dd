"""Reader of IDX files: MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017).

A folder holds `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the same two of `t10k`, each
as it is or with `.gz`. A file is a header of big-endian 32-bit numbers and the array's bytes.
"""

import hashlib
import math
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int, UInt8

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import inflate, read_bytes, refusing
from everlight_data.images.class_names import printable
from everlight_data.locations import locate
from everlight_data.sets.data_set import DataSet
from everlight_data.sets.image_set import ImageSet

MAX_BYTES = 2_000_000_000
"""Limit on the bytes of one file, as it is stored and uncompressed."""
PARTS = ("train", "t10k")
IMAGES_FILE, LABELS_FILE = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"
# fmt: off
FASHION_CLASSES = (
    "T-shirt or top", "trouser", "pullover", "dress", "coat",
    "sandal", "shirt", "sneaker", "bag", "ankle boot",
)
# fmt: on
FILES = [name.format(part) for part in PARTS for name in (IMAGES_FILE, LABELS_FILE)]
"""Names of the four files, without .gz."""
FASHION_SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
"""SHA-256 of the unpacked files of Debian's package dataset-fashion-mnist. Compressed files are not
compared, since their gzip headers differ from the published ones."""
_BYTES_TYPE = 8
"""Code of unsigned bytes in the third byte of a header."""
_REMEDY = "Download it again, or remove it."


def load_fashion_mnist() -> ImageSet:
    """Load Fashion-MNIST: 60,000 training and 10,000 test images of 28x28 in one channel.

    Raises:
      MissingDataError: `fashion_mnist` below EVERLIGHT_DATA is missing, or lacks a file.
      DataError: as for `load_idx`, or a file is another one than the published.
    """
    source = "github.com/zalandoresearch/fashion-mnist, its four .gz files"
    folder = locate("fashion_mnist", source, "31 MB")
    return load_idx(folder, "Fashion-MNIST", FASHION_CLASSES, FASHION_SHA256)


def load_mnist() -> ImageSet:
    """Load MNIST: 60,000 training and 10,000 test images of 28x28 in one channel.

    Raises:
      MissingDataError: `mnist` below EVERLIGHT_DATA is missing, or lacks a file.
      DataError: as for `load_idx`.
    """
    source = "yann.lecun.com/exdb/mnist or a mirror, its four .gz files"
    return load_idx(locate("mnist", source, "12 MB"), "MNIST", tuple("0123456789"))


def is_idx_folder(folder: Path) -> bool:
    """Return True if a folder holds at least one of the four files."""
    return any(os.path.lexists(folder / f"{file}{end}") for file in FILES for end in ("", ".gz"))


def load_idx(
    folder: Path,
    name: str | None = None,
    class_names: tuple[str, ...] | None = None,
    sha256: Mapping[str, str] | None = None,
) -> ImageSet:
    """Load the four IDX files of a folder, in their order.

    Args:
      folder: folder of the files; of a file and its `.gz`, the former is read.
      name: name of the set in reports; None is the folder's.
      class_names: names of the labels 0, 1 and so on; None names the training labels by their
        numbers, which may begin at 1 or have gaps.
      sha256: hashes of the unpacked files by name; None compares nothing.

    Raises:
      MissingDataError: a file is missing.
      DataError: a file is damaged or too large, images are not square or vary in size, the numbers
        of images and labels differ, a label is out of range, or a hash differs; the message names
        the file.
    """
    train, train_labels, train_path = _read_part(folder, PARTS[0], sha256 or {})
    test, test_labels, test_path = _read_part(folder, PARTS[1], sha256 or {})
    if train.shape[1:] != test.shape[1:]:
        sizes = " and ".join("{}x{}".format(*part.shape[1:]) for part in (train, test))
        raise DataError(f"{folder}: training and test images are of {sizes} pixels. {_REMEDY}")
    values = np.unique(train_labels) if class_names is None else np.arange(len(class_names))
    names = tuple(map(str, values)) if class_names is None else class_names
    return ImageSet(
        name or printable(folder.resolve().name),
        np.concatenate([train, test])[..., None],
        _numbered(train_labels, values, train_path),
        _numbered(test_labels, values, test_path),
        names,
    )


def _read_part(
    folder: Path, part: str, sha256: Mapping[str, str]
) -> tuple[UInt8[np.ndarray, "n h w"], UInt8[np.ndarray, "n"], Path]:
    """Return images and labels of a part, and the path of its labels."""
    images_path, labels_path = (
        _find(folder, name.format(part)) for name in (IMAGES_FILE, LABELS_FILE)
    )
    images, labels = _read(images_path, 3, sha256), _read(labels_path, 1, sha256)
    if len(images) != len(labels):
        raise DataError(
            f"{labels_path} has {len(labels):,} labels for {len(images):,} images. {_REMEDY}"
        )
    if not images.size:
        raise DataError(f"{images_path} holds no image. {_REMEDY}")
    if images.shape[1] != images.shape[2]:
        raise DataError(
            f"{images_path}: images of {images.shape[1]}x{images.shape[2]} pixels. Give squares."
        )
    return images, labels, labels_path


def _find(folder: Path, file: str) -> Path:
    for path in (folder / file, folder / f"{file}.gz"):
        if path.exists():
            return path
    raise MissingDataError(
        f"{folder} lacks {file} or {file}.gz. Put it there, beside {', '.join(FILES)}."
    )


def _read(path: Path, dimensions: int, sha256: Mapping[str, str]) -> UInt8[np.ndarray, "*shape"]:
    """Return the array of a file; nothing above what its header states is decompressed."""
    content = read_bytes(path, MAX_BYTES, _REMEDY)
    start = 4 + 4 * dimensions
    with refusing(path, _REMEDY):
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
        expected = sha256.get(path.name.removesuffix(".gz"))
        if expected and hashlib.sha256(values).hexdigest() != expected:
            raise ValueError("its SHA-256 is not that of the published file")
        return np.frombuffer(values, np.uint8, offset=start).reshape(shape)


def _numbered(
    labels: UInt8[np.ndarray, "n"], values: Int[np.ndarray, "classes"], path: Path
) -> Int[np.ndarray, "n"]:
    wrong = np.flatnonzero(~np.isin(labels, values))
    if len(wrong):
        raise DataError(
            f"{path}: label {labels[wrong[0]]} of image {wrong[0]} is not one of the "
            f"{len(values)} classes, {values[0]} to {values[-1]}. {_REMEDY}"
        )
    return np.searchsorted(values, labels).astype(np.int32)


_SOURCE = "its four .gz files, or these unpacked"
DATA_SETS = {
    "fashion-mnist": DataSet(
        "Fashion-MNIST: 60,000 training and 10,000 test images of 28x28",
        files=tuple(f"fashion_mnist/{file}.gz" for file in FILES),
        owner="Xiao et al. 2017 (github.com/zalandoresearch/fashion-mnist), MIT",
        source=_SOURCE,
        bytes=31_000_000,
        alternatives=(f"fashion_mnist/{FILES[0]}",),
        load=lambda _: load_fashion_mnist(),
    ),
    "mnist": DataSet(
        "MNIST: 60,000 training and 10,000 test images of 28x28",
        files=tuple(f"mnist/{file}.gz" for file in FILES),
        owner="LeCun et al. 1998 (yann.lecun.com/exdb/mnist) or a mirror",
        source=_SOURCE,
        bytes=12_000_000,
        alternatives=(f"mnist/{FILES[0]}",),
        load=lambda _: load_mnist(),
    ),
}
