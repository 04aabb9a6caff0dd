"""Comparison of files with those that their publishers released."""

import hashlib
import io
from typing import BinaryIO, NamedTuple

from everlight_data.errors import DataError


class Original(NamedTuple):
    """Size and hash of a file as its publisher released it."""

    size: int | None
    """Number of bytes; None compares the hash alone."""
    digest: str
    """Hexadecimal hash: 32 digits of MD5 or 64 of SHA-256."""


def check_original(stream: BinaryIO, name: object, original: Original, remedy: str) -> None:
    """Check that a file is the one that its publisher released.

    Raises:
      DataError: the size or the hash differs; the message gives both values.
    """
    size = stream.seek(0, io.SEEK_END)
    if original.size not in (None, size):
        raise DataError(
            f"{name} has {size:,} bytes, expected {original.size:,}: it is truncated or not "
            f"the expected file. {remedy}"
        )
    kind = {32: "md5", 64: "sha256"}[len(original.digest)]
    stream.seek(0)
    digest = hashlib.file_digest(stream, kind).hexdigest()
    if digest != original.digest:
        raise DataError(
            f"{name} has {kind} {digest}, expected {original.digest}: it is damaged or not the "
            f"expected file. {remedy}"
        )


def is_original(content: bytes, original: Original) -> bool:
    """Return True if content has the size and hash of a file as its publisher released it."""
    try:
        check_original(io.BytesIO(content), "", original, "")
    except DataError:
        return False
    return True
