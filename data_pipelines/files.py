"""Files from outside, read within bounds.

Whoever made a file may have meant harm, and a disk may have damaged it. So every reader goes
through these: only regular files are opened, nothing larger than a reader's bound is taken into
memory, whatever a file says of its own size, and each failure is one line with the file's name and
the way out.
"""

import csv
import io
import json
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from data_pipelines.errors import DataError, MissingDataError

SHOWN = 300
"""Characters of another library's message that ours repeats."""
TABLE_BYTES = 256_000_000
"""Of a text file: a csv, a JSON or a list of numbers."""
MEMBERS = 1_000_000
"""Files in an archive; CORe50's has 330,000 with the depth images."""
RATIO = 1_100
"""Bytes from one byte of a deflated file; the format itself cannot give more than 1,032."""

_ENCRYPTED = 1


def one_line(error: object) -> str:
    """What an error says, without line breaks and not longer than a message can bear."""
    text = " ".join(str(error).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def leads_outside(name: str) -> bool:
    """Whether a file's name that stands in another file leads out of the folder that it is for."""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts or "\0" in name


@contextmanager
def refusing(name: object, way_out: str) -> Iterator[None]:
    """Turns whatever a decoder raises into one line that names the file.

    Decoders of damaged files raise nearly everything, running out of memory or depth included.

    Args:
      name: of the file, as the message begins.
      way_out: the sentence that the message ends with.

    Raises:
      DataError: anything else was raised within; a DataError passes as it is.
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        said = one_line(error)
        reason = f"{type(error).__name__}: {said}" if said else type(error).__name__
        raise DataError(f"{name} is damaged or another file ({reason}). {way_out}") from error


@contextmanager
def opened(path: Path, limit: int, way_out: str) -> Iterator[BinaryIO]:
    """A regular file, open for reading bytes.

    Raises:
      MissingDataError: there is no such file.
      DataError: it is a folder, a device or a pipe, larger than `limit` bytes, or cannot be read.
    """
    try:
        # A pipe without a writer would be waited for until it has one.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise MissingDataError(f"{path} does not exist. {way_out}") from None
    # A name with a zero in it is a ValueError.
    except (OSError, ValueError) as error:
        reason = one_line(getattr(error, "strerror", error))
        raise DataError(f"{path} cannot be read ({reason}). {way_out}") from error
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise DataError(f"{path} is no regular file. {way_out}")
    with os.fdopen(handle, "rb") as stream:
        if status.st_size > limit:
            raise DataError(
                f"{path} has {status.st_size:,} bytes, more than the {limit:,} that such a file "
                f"may have. {way_out}"
            )
        try:
            yield stream
        except OSError as error:
            # Pillow's and the archives' own errors are of this kind too, but without a number.
            if error.errno is None or isinstance(error, DataError):
                raise
            raise DataError(f"{path} cannot be read ({one_line(error)}). {way_out}") from error


def read_bytes(path: Path, limit: int, way_out: str) -> bytes:
    """All bytes of a regular file; raises as `opened` does."""
    with opened(path, limit, way_out) as stream:
        return stream.read(limit + 1)


def read_text(path: Path, way_out: str, limit: int = TABLE_BYTES) -> str:
    """A text file in UTF-8; raises as `opened` does, and DataError for another encoding."""
    content = read_bytes(path, limit, way_out)
    with refusing(path, way_out):
        return content.decode("utf-8-sig")


def read_json(path: Path, way_out: str, limit: int = TABLE_BYTES) -> Any:
    """What a JSON file holds; raises as `read_text` does, and DataError where it is no JSON."""
    text = read_text(path, way_out, limit)
    with refusing(path, way_out):
        return json.loads(text)


def read_csv(path: Path, way_out: str, limit: int = TABLE_BYTES) -> list[tuple[int, list[str]]]:
    """Line numbers and cells of a csv file's rows, empty ones left out; raises as `read_text`."""
    lines = csv.reader(io.StringIO(read_text(path, way_out, limit), newline=""))
    with refusing(path, way_out):
        return [(lines.line_num, row) for row in lines if row]


class Archive:
    """The files in a zip, each read within a bound."""

    def __init__(self, path: Path, opened_zip: zipfile.ZipFile, way_out: str):
        """Lists the members; see `opened_archive`."""
        self.path, self.way_out = path, way_out
        self._zip = opened_zip
        self._infos = {info.filename: info for info in opened_zip.infolist() if not info.is_dir()}

    def files(self) -> list[tuple[str, int]]:
        """Names and sizes of the files, in the archive's order; the sizes are what it claims."""
        return [(name, info.file_size) for name, info in self._infos.items()]

    def read(self, name: str, limit: int) -> bytes:
        """The bytes of a member.

        Raises:
          DataError: there is no such member, it is encrypted, packed by another method than
            deflate, claims more than `limit` bytes or more than deflate can give, or is damaged.
        """
        full = f"{self.path}/{name}"
        info = self._infos.get(name)
        if info is None:
            raise DataError(f"{self.path} has no {name}. {self.way_out}")
        if info.flag_bits & _ENCRYPTED:
            raise DataError(f"{full} is encrypted. {self.way_out}")
        # The other methods give all that one block holds at once, however much that is.
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(
                f"{full} is packed by method {info.compress_type}, not by deflate. {self.way_out}"
            )
        if info.file_size > min(limit, RATIO * (info.compress_size + 1)):
            raise DataError(
                f"{full} claims {info.file_size:,} bytes, more than such a file may have. "
                f"{self.way_out}"
            )
        with refusing(full, self.way_out):
            return self._zip.read(info)


@contextmanager
def opened_archive(path: Path, way_out: str, limit: int = 1 << 40) -> Iterator[Archive]:
    """A zip whose members are read within bounds; nothing is unpacked.

    Raises:
      MissingDataError: there is no such file.
      DataError: it is no regular file, no whole zip, or holds too many files or one twice.
    """
    with opened(path, limit, way_out) as stream:
        with refusing(path, way_out):
            archive = zipfile.ZipFile(stream)
        with archive:
            infos = archive.infolist()
            if len(infos) > MEMBERS or len({info.filename for info in infos}) < len(infos):
                raise DataError(f"{path} holds too many files, or one twice. {way_out}")
            yield Archive(path, archive, way_out)


class Folder:
    """The files below a folder, or one file alone, as an `Archive` gives those in a zip."""

    def __init__(self, path: Path, way_out: str):
        """Lists the files; see `opened_source`."""
        self.path, self.way_out = path, way_out
        found = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        base = path.parent if path.is_file() else path
        self._paths = {each.relative_to(base).as_posix(): each for each in found}

    def files(self) -> list[tuple[str, int]]:
        """Names below the folder and sizes of the files, in order."""
        return [(name, path.stat().st_size) for name, path in self._paths.items()]

    def read(self, name: str, limit: int) -> bytes:
        """The bytes of a file; raises as `read_bytes` does."""
        if name not in self._paths:
            raise DataError(f"{self.path} has no {name}. {self.way_out}")
        return read_bytes(self._paths[name], limit, self.way_out)


@contextmanager
def opened_source(path: Path, way_out: str) -> Iterator[Archive | Folder]:
    """What somebody publishes: a folder, a zip, or another file alone.

    Raises:
      MissingDataError: there is no such file or folder.
      DataError: it is no whole zip, or a device or a pipe.
    """
    with refusing(path, way_out):
        is_folder = path.is_dir()
    if is_folder:
        yield Folder(path, way_out)
    elif path.suffix.lower() == ".zip":
        with opened_archive(path, way_out) as archive:
            yield archive
    else:
        with opened(path, 1 << 45, way_out):
            yield Folder(path, way_out)


def inflate(content: bytes, limit: int, gzip: bool = False) -> bytes:
    """What a zlib stream holds, or one with gzip's header.

    Raises:
      zlib.error, ValueError: it is damaged or cut off, or holds more than `limit` bytes.
    """
    stream = zlib.decompressobj(wbits=31 if gzip else 15)
    found = stream.decompress(content, limit)
    if not stream.eof:
        raise ValueError(f"a packed part that is cut off, or of more than {limit:,} bytes")
    return found


_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


def png_size(content: bytes) -> tuple[int, int]:
    """Height and width that a PNG's header states.

    Raises:
      ValueError: no PNG.
    """
    if not content.startswith(_PNG) or len(content) < 24:
        raise ValueError("no PNG")
    width, height = struct.unpack(">II", content[16:24])
    return height, width


# Tags and types of numbers of TIFF 6.0.
_WIDTH, _HEIGHT, _SHORT, _LONG = 256, 257, 3, 4


def tiff_size(content: bytes) -> tuple[int, int]:
    """Height and width that a TIFF's first directory states.

    Raises:
      ValueError: no TIFF, or no size in it.
    """
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(content[:4])
    if order is None:
        raise ValueError("no TIFF")
    try:
        (place,) = struct.unpack_from(f"{order}I", content, 4)
        (count,) = struct.unpack_from(f"{order}H", content, place)
        sizes = {}
        for start in range(place + 2, place + 2 + 12 * count, 12):
            tag, kind, _ = struct.unpack_from(f"{order}HHI", content, start)
            if kind in (_SHORT, _LONG):
                code = "H" if kind == _SHORT else "I"
                (sizes[tag],) = struct.unpack_from(f"{order}{code}", content, start + 8)
        return sizes[_HEIGHT], sizes[_WIDTH]
    except (struct.error, KeyError):
        raise ValueError("a TIFF without a size") from None


# The markers of a frame (ITU T.81, table B.1) but those of tables among them.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def jpeg_size(content: bytes) -> tuple[int, int]:
    """Height and width that a JPEG's first frame states.

    Raises:
      ValueError: no JPEG, or no frame in it.
    """
    if not content.startswith(b"\xff\xd8"):
        raise ValueError("no JPEG")
    place = 2
    while place + 9 <= len(content) and content[place] == 0xFF:
        marker, length = content[place + 1], int.from_bytes(content[place + 2 : place + 4])
        if marker in _FRAMES:
            height, width = struct.unpack(">HH", content[place + 5 : place + 9])
            return height, width
        # A marker may be filled up with any number of bytes 0xFF before it.
        place += 1 if marker == 0xFF else 2 + length
    raise ValueError("a JPEG without a frame")
