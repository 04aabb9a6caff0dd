"""Readers of untrusted files with limits on size and content.

A file may be malicious or damaged. All readers therefore open regular files only and load nothing
above their size limit, even if the file states a smaller size. Each failure is one line with the
file's name and a remedy.
"""

import csv
import io
import itertools
import json
import os
import posixpath
import shutil
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from everlight_data.errors import DataError, MissingDataError
from everlight_data.texts import one_line

MAX_TEXT_BYTES = 256_000_000
"""Limit on the size of a text file: CSV, JSON or a list of numbers."""
MAX_ROWS = 2_000_000
"""Limit on the rows of a CSV; ImageNet has 1.3 million images."""
MAX_RELEASE_BYTES = 1 << 45
"""Limit on the size of a file that is read in parts, such as a release's archive."""
MAX_MEMBERS = 1_000_000
"""Limit on the files in an archive; CORe50's has 330,000 with the depth images."""
MAX_INFLATION = 1_100
"""Limit on the inflation ratio of a deflated file; the format allows at most 1,032."""

_ENCRYPTED = 1
_PART_BYTES = 1 << 20


def leads_outside(name: str) -> bool:
    """Return True if a file name read from another file points outside its folder."""
    path = PurePosixPath(posixpath.normpath(name.replace("\\", "/")))
    return path.is_absolute() or path.parts[:1] == ("..",) or "\0" in name


@contextmanager
def converting(convert: Callable[[Exception], DataError]) -> Iterator[None]:
    """Raise what a function makes of an exception; a DataError passes unchanged.

    Decoders of damaged files raise almost any exception, including MemoryError and RecursionError.
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise convert(error) from error


def refusing(name: object, remedy: str) -> AbstractContextManager[None]:
    """Convert any exception of a decoder into a one-line DataError that names the file.

    Args:
      name: name of the file, with which the message begins.
      remedy: sentence that the message ends with.

    Raises:
      DataError: any other exception was raised inside; a DataError passes unchanged.
    """

    def convert(error: Exception) -> DataError:
        text = one_line(error)
        reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return DataError(f"{name} is damaged or not the expected file ({reason}). {remedy}")

    return converting(convert)


@contextmanager
def opened(path: Path, limit: int, remedy: str) -> Iterator[BinaryIO]:
    """Open a regular file for reading bytes.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the path is a folder, a device or a pipe, larger than `limit` bytes, or unreadable.
    """
    try:
        # A pipe without a writer would be waited for until it has one.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise MissingDataError(f"{path} does not exist. {remedy}") from None
    # A name with a zero in it is a ValueError.
    except (OSError, ValueError) as error:
        reason = one_line(getattr(error, "strerror", error))
        raise DataError(f"{path} cannot be read ({reason}). {remedy}") from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise DataError(f"{path} is not a regular file. {remedy}")
    with os.fdopen(handle, "rb") as stream:
        if status.st_size > limit:
            raise DataError(
                f"{path} has {status.st_size:,} bytes, more than the limit of {limit:,} for such a "
                f"file. {remedy}"
            )
        try:
            yield stream
        except OSError as error:
            # Pillow's and the archives' own errors are of this kind too, but without a number.
            if error.errno is None or isinstance(error, DataError):
                raise
            raise DataError(f"{path} cannot be read ({one_line(error)}). {remedy}") from error


def check_readable(path: Path, limit: int, remedy: str) -> None:
    """Check that `opened` can open a file; raises the same errors."""
    with opened(path, limit, remedy):
        pass


def read_bytes(path: Path, limit: int, remedy: str) -> bytes:
    """Return all bytes of a regular file; raises the same errors as `opened`."""
    with opened(path, limit, remedy) as stream:
        # All requested bytes are allocated at once.
        return stream.read(os.fstat(stream.fileno()).st_size)


def read_text(path: Path, remedy: str, limit: int = MAX_TEXT_BYTES) -> str:
    """Read a UTF-8 text file; raises as `opened` does, and DataError for another encoding."""
    content = read_bytes(path, limit, remedy)
    with refusing(path, remedy):
        return content.decode("utf-8-sig")


def read_json(path: Path, remedy: str, limit: int = MAX_TEXT_BYTES) -> Any:
    """Parse a JSON file; raises as `read_text` does, and DataError for invalid JSON."""
    text = read_text(path, remedy, limit)
    with refusing(path, remedy):
        return parse_json(text)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON whose objects have every name once.

    Raises:
      ValueError: the text is not JSON, or an object has a name twice.
    """
    return json.loads(text, object_pairs_hook=_distinct)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; the parser itself would take the last of two equal names."""
    values = dict(pairs)
    if len(values) < len(pairs):
        ((repeated, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"it has the name {repeated!a} twice in an object")
    return values


def read_csv(path: Path, remedy: str) -> list[tuple[int, list[str]]]:
    """Return line number and cells of each non-empty CSV row.

    Raises:
      MissingDataError, DataError: as for `read_text`, or there are more than `MAX_ROWS` rows.
    """
    content = io.BytesIO(read_bytes(path, MAX_TEXT_BYTES, remedy))
    lines = csv.reader(io.TextIOWrapper(content, "utf-8-sig", newline=""))
    with refusing(path, remedy):
        rows = ((lines.line_num, row) for row in lines if row)
        # A row takes some hundred bytes, however few it has in the file.
        table = list(itertools.islice(rows, MAX_ROWS + 1))
    if len(table) > MAX_ROWS:
        raise DataError(f"{path} has more than {MAX_ROWS:,} rows. {remedy}")
    return table


def read_columns(path: Path, columns: Sequence[str], remedy: str) -> list[tuple[str, ...]]:
    """Return the named columns of a CSV file with a header, without spaces around the cells.

    Raises:
      MissingDataError, DataError: as for `read_csv`, or a column is missing or occurs twice, or a
        row has another number of cells than the header.
    """
    (_, header), *lines = read_csv(path, remedy) or [(0, [])]
    absent = [name for name in columns if name not in header]
    if absent:
        raise DataError(
            f"{path} lacks the columns {', '.join(absent)}; it has {one_line(header)}. {remedy}"
        )
    repeated = [name for name in columns if header.count(name) > 1]
    if repeated:
        raise DataError(f"{path} has the column {repeated[0]} twice; remove one. {remedy}")
    for number, line in lines:
        if len(line) != len(header):
            raise DataError(
                f"{path}, line {number} has {len(line)} cells, the header {len(header)}. {remedy}"
            )
    places = [header.index(name) for name in columns]
    return [tuple(line[place].strip() for place in places) for _, line in lines]


class Archive:
    """Files of a zip archive, each read within a size limit."""

    def __init__(self, path: Path, opened_zip: zipfile.ZipFile, remedy: str):
        """List the members; see `opened_archive`."""
        self.path, self.remedy = path, remedy
        self._zip = opened_zip
        self._infos = {
            info.filename: info for info in opened_zip.infolist() if not info.filename.endswith("/")
        }

    def files(self) -> list[tuple[str, int]]:
        """Return names and claimed sizes of the files, in the archive's order."""
        return [(name, info.file_size) for name, info in self._infos.items()]

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
    with opened(path, limit, remedy) as stream:
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

    def files(self) -> list[tuple[str, int]]:
        """Return names relative to the folder and sizes of the files, sorted."""
        return [(name, path.stat().st_size) for name, path in self._paths.items()]

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
