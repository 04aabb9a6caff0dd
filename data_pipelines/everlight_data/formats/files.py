"""Opening and reading of untrusted files with limits on size and content.

A file may be malicious or damaged. All readers therefore open regular files only and load nothing
above their size limit, even if the file states a smaller size. Each failure is one line with the
file's name and a remedy.
"""

import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from everlight_data.errors import DataError, MissingDataError
from everlight_data.texts import one_line

MAX_TEXT_BYTES = 256_000_000
"""Limit on the size of a text file: CSV, JSON or a list of numbers."""
MAX_RELEASE_BYTES = 1 << 45
"""Limit on the size of a file that is read in parts, such as a release's archive."""


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

    Only decoding belongs inside: an error of other code would be blamed on the file.

    Args:
      name: name of the file, with which the message begins.
      remedy: sentence that the message ends with.

    Raises:
      DataError: any other exception was raised inside; a DataError passes unchanged.
    """

    def convert(error: Exception) -> DataError:
        if isinstance(error, MemoryError):
            return memory_lacking(name, remedy)
        text = one_line(error)
        reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return DataError(f"{name} is damaged or not the expected file ({reason}). {remedy}")

    return converting(convert)


def memory_lacking(name: object, remedy: str) -> DataError:
    """Return the error for a file that memory does not suffice for; it may be intact."""
    return DataError(
        f"{name} cannot be read: there is not enough memory. Close other programs and run the same "
        f"command again. If that does not help, the file may be damaged: {remedy}"
    )


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
