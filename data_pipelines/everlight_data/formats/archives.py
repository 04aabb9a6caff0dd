"""Readers of releases: a zip archive, a folder or a single file; nothing is unpacked to disk."""

import functools
import io
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from everlight_data.errors import DataError
from everlight_data.formats.files import MAX_RELEASE_BYTES, opened, read_bytes, refusing

MAX_MEMBERS = 1_000_000
"""Limit on the files in an archive; CORe50's has 330,000 with the depth images."""
MAX_INFLATION = 1_100
"""Limit on the inflation ratio of a deflated file; the format allows at most 1,032."""

_ENCRYPTED = 1
_PART_BYTES = 1 << 20


class Member(NamedTuple):
    """A file of a release, with its size in bytes."""

    name: str
    size: int


class Archive:
    """Files of a zip archive, each read within a size limit."""

    def __init__(self, path: Path, opened_zip: zipfile.ZipFile, remedy: str):
        """List the members; see `opened_archive`."""
        self.path, self.remedy = path, remedy
        self._zip = opened_zip
        self._infos = {
            info.filename: info for info in opened_zip.infolist() if not info.filename.endswith("/")
        }

    def files(self) -> list[Member]:
        """Return the files with their claimed sizes, in the archive's order."""
        return [Member(name, info.file_size) for name, info in self._infos.items()]

    def read(self, name: str, limit: int) -> bytes:
        """Return the bytes of a member.

        Raises:
          DataError: the member is missing, encrypted, damaged or packed by a method other than
            deflate. Or it claims more than `limit` bytes, or more than deflate can produce.
        """
        full = f"{self.path}/{name}"
        info = self._infos.get(name)
        if info is None:
            raise DataError(f"{self.path} does not contain {name}. {self.remedy}")
        if info.flag_bits & _ENCRYPTED:
            raise DataError(f"{full} is encrypted. {self.remedy}")
        # The other methods give all that one block holds at once, however much that is.
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(
                f"{full} is packed by method {info.compress_type}, not deflate. {self.remedy}"
            )
        if info.file_size > min(limit, MAX_INFLATION * (info.compress_size + 1)):
            raise DataError(
                f"{full} claims {info.file_size:,} bytes, more than allowed for such a file. "
                f"{self.remedy}"
            )
        with refusing(full, self.remedy), self._zip.open(info) as stream:
            # The zip's own reading at once joins all parts, and holds them twice.
            content = io.BytesIO()
            shutil.copyfileobj(stream, content, _PART_BYTES)
            return content.getvalue()


@contextmanager
def opened_archive(path: Path, remedy: str, limit: int = 1 << 40) -> Iterator[Archive]:
    """Open a zip archive whose members are read within limits; nothing is unpacked.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the path is not a regular file or an intact zip, or the zip holds too many files or
        duplicate names.
    """
    with opened(path, limit, remedy) as stream, open_inner_archive(stream, path, remedy) as archive:
        yield archive


@contextmanager
def open_inner_archive(stream: BinaryIO, path: Path, remedy: str) -> Iterator[Archive]:
    """Open a zip archive whose bytes a stream gives; raises as `opened_archive` does."""
    with refusing(path, remedy):
        archive = zipfile.ZipFile(stream)
    with archive:
        infos = archive.infolist()
        if len(infos) > MAX_MEMBERS or len({info.filename for info in infos}) < len(infos):
            raise DataError(f"{path} holds too many files or duplicate names. {remedy}")
        yield Archive(path, archive, remedy)


class Folder:
    """Files below a folder, or a single file, with the interface of `Archive`."""

    def __init__(self, path: Path, remedy: str):
        """List the files; see `opened_source`."""
        self.path, self.remedy = path, remedy
        files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        base = path.parent if path.is_file() else path
        self._paths = {file.relative_to(base).as_posix(): file for file in files}

    @functools.cached_property
    def _files(self) -> list[Member]:
        return [Member(name, path.stat().st_size) for name, path in self._paths.items()]

    def files(self) -> list[Member]:
        """Return the files by their names relative to the folder, sorted."""
        return self._files

    def read(self, name: str, limit: int) -> bytes:
        """Return the bytes of a file; raises the same errors as `read_bytes`."""
        if name not in self._paths:
            raise DataError(f"{self.path} does not contain {name}. {self.remedy}")
        return read_bytes(self._paths[name], limit, self.remedy)


@contextmanager
def opened_source(path: Path, remedy: str) -> Iterator[Archive | Folder]:
    """Open a published folder, zip archive or single file.

    Raises:
      MissingDataError: the file or folder does not exist.
      DataError: the path is a damaged zip, a device or a pipe.
    """
    with refusing(path, remedy):
        is_folder = path.is_dir()
    if is_folder:
        yield Folder(path, remedy)
    elif path.suffix.lower() == ".zip":
        with opened_archive(path, remedy) as archive:
            yield archive
    else:
        with opened(path, MAX_RELEASE_BYTES, remedy):
            yield Folder(path, remedy)


def inflate(content: bytes, limit: int, gzip: bool = False) -> bytes:
    """Decompress a zlib stream, or a gzip stream if `gzip` is set.

    Raises:
      zlib.error, ValueError: the stream is damaged, truncated, or holds more than `limit` bytes.
    """
    stream = zlib.decompressobj(wbits=31 if gzip else 15)
    inflated = stream.decompress(content, limit)
    if not stream.eof:
        raise ValueError(f"a compressed part is truncated or holds more than {limit:,} bytes")
    return inflated
