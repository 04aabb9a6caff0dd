"""How files are written: whole or not at all, by one process, where there is room, with checksums.

A file gets its name once it is whole and on the disk; until then it ends in `.unfinished`, and what
a killed process leaves under such a name the next start removes.
"""

import io
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
import numpy as np

from data_pipelines.arrays import BYTES, read_npz
from data_pipelines.errors import DataError
from data_pipelines.files import one_line, read_bytes

UNFINISHED = ".unfinished"
LOCK = ".lock"
SPARE = 1_000_000
"""Bytes that notes, logs and the file system itself take."""

_SEAL = b"crc32 %08x"
_DIGITS = 8


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path to write to; what lies there afterwards gets the name of `path`, in one step.

    Raises:
      DataError: it cannot be written; what was at `path` is still there.
    """
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        yield unfinished
        with unfinished.open("rb") as stream:
            os.fsync(stream.fileno())
        unfinished.replace(path)
    except OSError as error:
        # On a full disk the beginning of a file is of no use and in the way.
        remove(unfinished)
        raise cannot_write(path, error) from error
    except BaseException:
        remove(unfinished)
        raise


def make_folder(folder: Path) -> None:
    """Makes a folder, where it is missing, and those above it.

    Raises:
      DataError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


def cannot_write(path: Path, error: OSError) -> DataError:
    """The error about a file that the system does not let be written."""
    return DataError(
        f"{path} cannot be written ({one_line(error.strerror or error)}). What was finished before "
        "is kept; make room or give another place, and the same command goes on."
    )


def remove(path: Path) -> None:
    """Removes a file, where it is there and the disk lets it go."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return


def remove_unfinished(folder: Path) -> None:
    """Removes what a killed process left half written in a folder; its lock must be held."""
    for path in folder.glob(f"*{UNFINISHED}"):
        remove(path)


def lock_folder(folder: Path, way_out: str, patience: float = 0) -> filelock.BaseFileLock:
    """Claims a folder for this process, until the lock is released or the process ends.

    It is the system's lock of an open file, so that nothing is left of it where a process is
    killed. The same process may claim a folder more than once.

    Args:
      folder: to claim.
      way_out: what to do where another process has claimed it.
      patience: seconds to wait for that one, -1 for as long as it takes.

    Raises:
      DataError: another process has claimed it, or the folder cannot be written.
    """
    lock = try_lock(folder / LOCK, patience)
    if lock is None:
        raise DataError(f"{folder} is in use by another process. {way_out}")
    return lock


def try_lock(path: Path, patience: float = 0) -> filelock.BaseFileLock | None:
    """Claims a file made for that; None where another process has.

    Raises:
      DataError: it cannot be written.
    """
    # The instance is shared in the process, and by all its threads.
    lock = filelock.FileLock(path, thread_local=False, is_singleton=True)
    try:
        lock.acquire(timeout=patience)
    except filelock.Timeout:
        return None
    except OSError as error:
        raise cannot_write(path, error) from error
    return lock


@contextmanager
def locked_folder(folder: Path, way_out: str) -> Iterator[None]:
    """A folder claimed as by `lock_folder`, while the context lasts."""
    lock = lock_folder(folder, way_out)
    try:
        yield
    finally:
        lock.release()


def check_room(folder: Path, needed: int, what: str) -> None:
    """Refuses to begin what the disk cannot hold.

    Raises:
      DataError: fewer bytes are free than needed.
    """
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise cannot_write(folder, error) from error
    if needed + SPARE > free:
        raise DataError(
            f"{what}: {amount(needed + SPARE)} are needed in {folder}, but {amount(free)} are "
            "free. Make room, and the same command goes on."
        )


def amount(count: int) -> str:
    """A number of bytes, in MB or GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def save_sealed(path: Path, **arrays: np.ndarray) -> None:
    """Writes an `.npz` whose comment is the checksum of all before it; any NumPy reads it.

    Raises:
      DataError: it cannot be written.
    """
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = _SEAL % 0
    content = buffer.getvalue()[:-_DIGITS]
    with written_whole(path) as unfinished:
        unfinished.write_bytes(content + b"%08x" % zlib.crc32(content))


def read_sealed(path: Path, way_out: str, limit: int = BYTES) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` that `save_sealed` wrote.

    Raises:
      MissingDataError: there is no such file.
      DataError: any bit of it is another one than was written, or it has no seal.
    """
    content = read_bytes(path, limit, way_out)
    if content[-_DIGITS:] != b"%08x" % zlib.crc32(content[:-_DIGITS]):
        raise DataError(f"{path} is not what was written: its checksum differs. {way_out}")
    return read_npz(path, way_out, limit)
