"""Atomic writing of files, with checks of disk space and checksums.

A file gets its name once it is complete and on disk. Until then its name ends in `.unfinished`; the
next start removes such files of a killed process.
"""

import io
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from everlight_data.errors import DataError
from everlight_data.formats.arrays import MAX_BYTES, decode_npz
from everlight_data.formats.files import read_bytes
from everlight_data.texts import one_line

UNFINISHED = ".unfinished"
RESERVED_BYTES = 1_000_000
"""Bytes reserved for notes, logs and the file system itself."""

FOLDER_GONE = (
    "Its folder was removed or moved meanwhile. Move it back to continue, or delete what is left "
    "of it and run the same command again to start again."
)
"""Advice for a run's folder that disappears while it is written."""
_SEAL = b"crc32 %08x"
_DIGITS = 8


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` atomically when the block ends.

    Raises:
      DataError: the file cannot be written; the previous content of `path` is kept.
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
    """Create a folder and its parents where they are missing.

    Raises:
      DataError: the folder cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


def cannot_write(path: Path, error: OSError) -> DataError:
    """Return the error for a file that the operating system refuses to write."""
    remedy = (
        "Finished files are kept; free disk space or choose another folder, and run the same "
        "command again."
    )
    if isinstance(error, FileNotFoundError):
        remedy = FOLDER_GONE
    return DataError(f"{path} cannot be written ({one_line(error.strerror or error)}). {remedy}")


def remove(path: Path) -> None:
    """Remove a file if it exists and the disk allows it."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove a killed process's unfinished files from a folder, whose lock must be held."""
    for path in folder.glob(f"*{UNFINISHED}"):
        remove(path)


def check_room(folder: Path, needed: int, what: str) -> None:
    """Check that the disk has enough free space.

    Raises:
      DataError: fewer bytes are free than needed.
    """
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise cannot_write(folder, error) from error
    if needed + RESERVED_BYTES > free:
        raise DataError(
            f"{what}: {amount(needed + RESERVED_BYTES)} are needed in {folder}, but {amount(free)} "
            "are free. Free disk space and run the same command again."
        )


def amount(count: int) -> str:
    """Format a number of bytes in kB, MB or GB."""
    if count < 50_000:
        return f"{count / 1e3:.0f} kB"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def save_sealed(path: Path, **arrays: np.ndarray) -> None:
    """Write an `.npz` whose comment is the checksum of all preceding bytes; NumPy can read it.

    Raises:
      DataError: the file cannot be written.
    """
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = _SEAL % 0
    content = buffer.getvalue()[:-_DIGITS]
    with written_whole(path) as unfinished:
        unfinished.write_bytes(content + b"%08x" % zlib.crc32(content))


def read_sealed(path: Path, remedy: str) -> dict[str, np.ndarray]:
    """Return the arrays of an `.npz` that `save_sealed` wrote.

    Raises:
      MissingDataError: the file does not exist.
      DataError: a bit of the file has changed, or it has no checksum.
    """
    content = read_bytes(path, MAX_BYTES, remedy)
    if content[-_DIGITS:] != b"%08x" % zlib.crc32(content[:-_DIGITS]):
        raise DataError(f"{path} has changed since it was written: its checksum differs. {remedy}")
    return decode_npz(content, path, remedy)
