"""Compiled programs let go: a worker of the suite would otherwise grow by gigabytes."""

import ctypes
import gc

import jax


def release_memory():
    """Forgets all compiled programs and gives what they took back to the system."""
    jax.clear_caches()
    gc.collect()
    # The C library keeps freed memory otherwise; others than glibc have no such call.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
