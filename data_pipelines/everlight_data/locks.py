"""Locks of folders, which keep processes apart."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from everlight_data.errors import DataError
from everlight_data.writing import cannot_write

LOCK = ".lock"
_WITHOUT_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Errors of network file systems whose locks are missing or turned off."""


def lock_folder(folder: Path, remedy: str, patience: float = 0) -> filelock.BaseFileLock:
    """Lock a folder for this process, until the lock is released or the process ends.

    It is the operating system's lock of an open file, so a killed process leaves no lock behind.
    The same process may lock a folder more than once.

    Args:
      folder: folder to lock.
      remedy: advice for the case that another process holds the lock.
      patience: seconds to wait for that process, -1 for no limit.

    Raises:
      DataError: another process holds the lock, or the folder is not writable.
    """
    lock = try_lock(folder / LOCK, patience)
    if lock is None:
        raise DataError(f"{folder} is in use by another process. {remedy}")
    return lock


def try_lock(path: Path, patience: float = 0) -> filelock.BaseFileLock | None:
    """Lock a lock file; return None if another process holds the lock.

    Raises:
      DataError: the file cannot be written, or its file system has no locks.
    """
    # The instance is shared in the process, and by all its threads. A lock that is a file alone
    # would outlive a killed process, and keep its work from all others.
    lock = filelock.FileLock(path, thread_local=False, is_singleton=True, fallback_to_soft=False)
    try:
        lock.acquire(timeout=patience)
    except filelock.Timeout:
        return None
    except (OSError, NotImplementedError) as error:
        if isinstance(error, NotImplementedError) or error.errno in _WITHOUT_LOCKS:
            raise DataError(
                f"{path.parent} is on a file system without locks of files (flock), which keep "
                "processes apart. Choose a folder elsewhere, such as on a local disk: --runs for "
                "runs, EVERLIGHT_DATA for data."
            ) from error
        raise cannot_write(path, error) from error
    return lock


@contextmanager
def locked_folder(folder: Path, remedy: str, patience: float = 0) -> Iterator[None]:
    """Hold the lock of `lock_folder` while the context lasts; arguments and errors are the same."""
    lock = lock_folder(folder, remedy, patience)
    try:
        yield
    finally:
        lock.release()
