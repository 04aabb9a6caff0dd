"""Reader of CIFAR-100 (Krizhevsky 2009): the official files, or TensorFlow Datasets' version."""

import io
import tarfile
from pathlib import Path

import numpy as np

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import read_bytes, refusing
from everlight_data.formats.originals import Original, check_original
from everlight_data.formats.unpickle import load_restricted
from everlight_data.images.published_forms.tfds_sets import read_prepared
from everlight_data.locations import data_root
from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.image_set import Channels, ImageSet
from everlight_data.sets.preparing import Files, Source, find
from everlight_data.writing import amount

OWNER = "Krizhevsky 2009 (cs.toronto.edu/~kriz/cifar.html)"
FOLDER = "cifar-100-python"
ARCHIVE = "cifar-100-python.tar.gz"
PREPARED = "tensorflow_datasets/cifar100/3.0.2"
MEMBERS = ("train", "test", "meta")
ORIGINALS = {
    ARCHIVE: Original(169_001_437, "eb9058c3a382ffc7106e4002c42a8d85"),
    "train": Original(None, "16019d7e3df5f24257cddd939b257f8d"),
    "test": Original(None, "f0ef6b0ae62326f3e7ffdfab6717acfc"),
    "meta": Original(None, "7973b15100ade9c7d40fb424638fde48"),
}
IIRC_CHANNELS: Channels = (0.5071, 0.4866, 0.4409), (0.2009, 0.1984, 0.2023)
"""Mean and deviation by which IIRC's authors normalize.

Over all training pixels the deviations are greater, 0.267 for red.
"""
MAX_BYTES = 200_000_000
"""Limit on the size of a file."""
# Training samples, test samples, classes.
SIZES = (50_000, 10_000, 100)


def load_cifar100() -> ImageSet:
    """Load CIFAR-100 with its 100 fine labels: 50,000 training and 10,000 test images of 32x32.

    The first of these below EVERLIGHT_DATA is read, and no other, even if it is damaged:

    1. `cifar-100-python/`, the official archive unpacked;
    2. `cifar-100-python.tar.gz`, the archive itself;
    3. `tensorflow_datasets/cifar100/3.0.2/`, prepared by TFDS with `file_format="array_record"`;
    reading it needs no TensorFlow.

    1 and 2 keep the official order. 3 has the same training and test images in TFDS's order.

    Raises:
      MissingDataError: none of the three exists, or the folder lacks a file.
      DataError: the MD5 of an official file differs, TFDS cannot read its folder, or the sizes
        differ.
    """
    root = data_root()
    readers = {FOLDER: _read_folder, ARCHIVE: _read_archive, PREPARED: _read_prepared}
    for place, read in readers.items():
        if root is not None and (root / place).exists():
            return read(root / place)
    where = "EVERLIGHT_DATA is not set" if root is None else f"EVERLIGHT_DATA={root} lacks it"
    raise MissingDataError(
        f"CIFAR-100 is needed, but {where}. Download {ARCHIVE} "
        f"({amount(ORIGINALS[ARCHIVE].size)}) from {OWNER}, put it at <folder>/{ARCHIVE}, or "
        f"unpacked ({DATA_SETS['cifar100'].size}) at <folder>/{FOLDER}, or prepare cifar100 with "
        f'tensorflow-datasets, file_format="array_record", at <folder>/{PREPARED}; '
        "then set EVERLIGHT_DATA=<folder>."
    )


def _read_folder(folder: Path) -> ImageSet:
    remedy = f"Unpack {ARCHIVE} again, or download it from {OWNER}."
    paths = [folder / member for member in MEMBERS]
    return _assemble([_read_checked(path, remedy) for path in paths], folder)


def _read_archive(path: Path) -> ImageSet:
    remedy = f"Download it again from {OWNER}."
    content = _read_checked(path, remedy)
    with refusing(path, remedy):
        members = _unpacked(content)
    return _assemble(members, path)


def _unpacked(content: bytes) -> list[bytes]:
    """Return the bytes of MEMBERS from those of the official archive."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return [archive.extractfile(f"{FOLDER}/{member}").read() for member in MEMBERS]


def cifar100_files(source: Source) -> Files:
    """Return the recipe of the official archive's three files, which `load_cifar100` reads.

    Raises:
      DataError: the source is not the official archive.
    """
    content = source.read(find(source, ARCHIVE), MAX_BYTES)
    name = f"{source.path}: {ARCHIVE}"
    check_original(io.BytesIO(content), name, ORIGINALS[ARCHIVE], source.remedy)
    members = zip(MEMBERS, _unpacked(content), strict=True)
    return {member: lambda content=content: content for member, content in members}


def _read_checked(path: Path, remedy: str) -> bytes:
    """Return the bytes of an official file, which must be as it was published."""
    content = read_bytes(path, MAX_BYTES, remedy)
    check_original(io.BytesIO(content), path, ORIGINALS[path.name], remedy)
    return content


def _assemble(contents: list[bytes], origin: Path) -> ImageSet:
    """Decode the bytes of MEMBERS; a row of `data` holds the red, green and blue planes."""
    train, test, meta = (
        load_restricted(content, f"{origin}: {member}", "bytes")
        for member, content in zip(MEMBERS, contents, strict=True)
    )
    planes = np.concatenate([train[b"data"], test[b"data"]]).reshape(-1, 3, 32, 32)
    return ImageSet(
        "CIFAR-100",
        np.ascontiguousarray(planes.transpose(0, 2, 3, 1)),
        np.array(train[b"fine_labels"], np.int32),
        np.array(test[b"fine_labels"], np.int32),
        tuple(name.decode("ascii") for name in meta[b"fine_label_names"]),
    )


def _read_prepared(folder: Path) -> ImageSet:
    images = read_prepared(folder)
    sizes = len(images.train_labels), len(images.test_labels), len(images.class_names)
    if sizes != SIZES:
        raise DataError(
            f"{folder} holds (training, test, classes) {sizes}, expected {SIZES}. "
            "Prepare all of it again."
        )
    return images._replace(name="CIFAR-100")


DATA_SETS = {
    "cifar100": DataSet(
        "CIFAR-100: 50,000 training and 10,000 test images of 32x32",
        files=tuple(f"{FOLDER}/{member}" for member in MEMBERS),
        owner=OWNER,
        source=ARCHIVE,
        size_bytes=187_000_000,
        prepare=file_by_file(cifar100_files),
        alternatives=(ARCHIVE, PREPARED),
        load=lambda _: load_cifar100(),
    )
}
