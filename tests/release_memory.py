"""Compiled programs let go: a worker of the suite would otherwise grow by gigabytes."""

import ctypes
import gc
import math
import os
from pathlib import Path

import jax

MOST = 2_000_000_000
"""Bytes that a worker may hold and go on: to forget programs means to compile many of them anew."""


def release_memory():
    """Where much is held, forgets all programs and gives what they took back to the system."""
    if resident() < MOST:
        return
    jax.clear_caches()
    gc.collect()
    # The C library keeps freed memory otherwise; others than glibc have no such call.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def resident() -> float:
    """Bytes of this process in memory; infinite where the system does not tell."""
    table = Path("/proc/self/statm")
    if not table.exists():
        return math.inf
    return int(table.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
