"""The official Python files of CIFAR-10 and CIFAR-100, in their archive or unpacked."""

import io
import tarfile
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from everlight_data.formats.originals import Original, check_original
from everlight_data.formats.unpickle import load_restricted
from everlight_data.sets.image_set import ImageSet
from everlight_data.sets.preparing import Source, find, matching

MAX_BYTES = 200_000_000
"""Limit on the size of a file."""


class CifarRelease(NamedTuple):
    """Names and hashes of the files of a release, all of them pickles, and what stands in them."""

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


def read_batches(source: Source, release: CifarRelease) -> ImageSet | None:
    """Return the images of the official files in their order; None if the source has none of them.

    Raises:
      DataError: a file is missing, or is another one than the published.
    """
    if source.path.is_file() or matching(source, lambda path: path.endswith(release.archive)):
        archive = find(source, release.archive)
        if not archive.endswith(".tar.gz"):
            return None
        content = _checked(source, archive, release.originals[release.archive])
        return images_of(_unpacked(content, release), release, str(source.path))
    if not matching(source, lambda path: path.rpartition("/")[2] in release.members):
        return None
    contents = {
        member: _checked(source, find(source, member), release.originals[member])
        for member in release.members
    }
    return images_of(contents, release, str(source.path))


def images_of(contents: Mapping[str, bytes], release: CifarRelease, origin: str) -> ImageSet:
    """Decode the bytes of a release's files; a row of `data` holds the three colours' planes."""
    *trains, test, meta = (
        load_restricted(contents[member], f"{origin}: {member}", "bytes")
        for member in release.members
    )
    planes = np.concatenate([part[b"data"] for part in (*trains, test)]).reshape(-1, 3, 32, 32)
    return ImageSet(
        release.name,
        np.ascontiguousarray(planes.transpose(0, 2, 3, 1)),
        np.concatenate([np.array(part[release.labels], np.int32) for part in trains]),
        np.array(test[release.labels], np.int32),
        tuple(name.decode("ascii") for name in meta[release.names]),
    )


def _checked(source: Source, path: str, original: Original) -> bytes:
    content = source.read(path, MAX_BYTES)
    check_original(io.BytesIO(content), f"{source.path}: {path}", original, source.remedy)
    return content


def _unpacked(content: bytes, release: CifarRelease) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {
            member: archive.extractfile(f"{release.folder}/{member}").read()
            for member in release.members
        }
