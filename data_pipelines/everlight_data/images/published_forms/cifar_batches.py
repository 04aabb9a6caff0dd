"""The official Python files of CIFAR-10 and CIFAR-100, in their archive or unpacked."""

import io
import tarfile
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from everlight_data.formats.originals import Original, check_original
from everlight_data.formats.unpickle import load_restricted
from everlight_data.images.published_forms.prepared_sets import PublishedSet, prepare_images
from everlight_data.sets.data_set import DataSet
from everlight_data.sets.image_set import ImageSet
from everlight_data.sets.preparing import Source, find, matching

MAX_BYTES = 200_000_000
"""Limit on the size of a file."""


class CifarRelease(NamedTuple):
    """Names, hashes and keys of the pickles of a release."""

    name: str
    archive: str
    folder: str
    """Folder of the files in the archive."""
    train: tuple[str, ...]
    test: str
    meta: str
    labels: bytes
    """Key of the labels in a file of images."""
    names: bytes
    """Key of the class names in `meta`."""
    originals: Mapping[str, Original]
    """Size and MD5 of every file and of the archive."""

    @property
    def members(self) -> tuple[str, ...]:
        """Return the names of all files in the archive."""
        return (*self.train, self.test, self.meta)


def cifar_data_set(
    name: str, published: PublishedSet, release: CifarRelease, load: Callable[[], ImageSet]
) -> DataSet:
    """Return the row of CIFAR-10 or CIFAR-100.

    Args:
      name: name of the data set, which is that of its folder and of TFDS's set.
      published: what is known of the set.
      release: its official files.
      load: loader of the prepared set.
    """
    return DataSet(
        f"{published.name}: 50,000 training and 10,000 test images of 32x32",
        files=tuple(f"{name}/{file}" for file in published.files),
        owner="Krizhevsky 2009 (cs.toronto.edu/~kriz/cifar.html)",
        source=f"{release.archive} (or folders train/CLASS and test/CLASS, or TFDS's {name})",
        size_bytes=184_400_000,
        prepare=prepare_images(published, lambda source: read_batches(source, release)),
        releases=(release.folder, release.archive, f"tensorflow_datasets/{name}/3.0.2"),
        load=lambda _: load(),
    )


def read_batches(source: Source, release: CifarRelease) -> ImageSet | None:
    """Return the images of the official files in their order; None if the source has none of them.

    Raises:
      DataError: a file is missing, or is another one than the published.
    """
    names = {path.rpartition("/")[2] for path in matching(source, bool)}
    is_archive = source.path.is_file() and source.path.name.endswith(".tar.gz")
    if is_archive or release.archive in names:
        path = find(source, release.archive)
        contents = _unpack(_check_file(source, path, release.originals[release.archive]), release)
        return images_of(contents, release, str(source.path))
    if not names.intersection(release.members):
        return None
    contents = {
        member: _check_file(source, find(source, member), release.originals[member])
        for member in release.members
    }
    return images_of(contents, release, str(source.path))


def images_of(contents: Mapping[str, bytes], release: CifarRelease, origin: str) -> ImageSet:
    """Decode the bytes of a release's files; a row of `data` holds the three colours' planes."""
    *trains, test, meta = (
        load_restricted(contents[member], f"{origin}: {member}", "bytes")
        for member in release.members
    )
    parts = [part[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for part in (*trains, test)]
    images = np.empty((sum(map(len, parts)), 32, 32, 3), np.uint8)
    return ImageSet(
        release.name,
        np.concatenate(parts, out=images),
        np.concatenate([np.array(part[release.labels], np.int32) for part in trains]),
        np.array(test[release.labels], np.int32),
        tuple(name.decode("ascii") for name in meta[release.names]),
    )


def _check_file(source: Source, path: str, original: Original) -> bytes:
    content = source.read(path, MAX_BYTES)
    check_original(io.BytesIO(content), f"{source.path}: {path}", original, source.remedy)
    return content


def _unpack(content: bytes, release: CifarRelease) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {
            member: archive.extractfile(f"{release.folder}/{member}").read()
            for member in release.members
        }
