"""Claims on files: processes that share a folder divide its work without messages.

A claim is the operating system's lock of a file beside the claimed one, so it ends with its process
and the file of a killed process is free again.
"""

from pathlib import Path

import filelock

from everlight_data.locks import LOCK, try_lock
from everlight_data.writing import make_folder


class Claims:
    """Claims of this process; a file that does not exist yet can be claimed."""

    def __init__(self) -> None:
        """Begin without claims."""
        self._locks: dict[Path, filelock.BaseFileLock] = {}

    def claim(self, path: Path, patience: float = 0) -> bool:
        """Claim a file and return True, or return False if another process holds it.

        Two processes never hold one file: the lock of a file that its holder removed meanwhile is
        not taken, and that of the new file is tried.

        Args:
          path: file.
          patience: seconds to wait for a process that holds it.

        Raises:
          DataError: the folder cannot be written.
        """
        make_folder(path.parent)
        lock = try_lock(_lock_path(path), patience)
        if lock is not None:
            self._locks[path] = lock
        return lock is not None

    def release(self, path: Path) -> None:
        """End a claim; without one, nothing happens."""
        lock = self._locks.pop(path, None)
        if lock is not None:
            # While it is held: a process that has opened the file meanwhile finds the work done,
            # or not.
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release(force=True)

    def release_all(self) -> None:
        """End every claim."""
        for path in list(self._locks):
            self.release(path)

    def is_elsewhere(self, path: Path) -> bool:
        """Return True if another process holds a file."""
        # Without a file to lock it is free, and is not claimed from processes that look for work.
        if path in self._locks or not _lock_path(path).exists():
            return False
        if not self.claim(path):
            return True
        self.release(path)
        return False


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + LOCK)
