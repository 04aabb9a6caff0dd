"""Compiled programs: kept on disk between runs by JAX's cache, let go where many are held."""

import ctypes
import gc
import math
import os
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import jax

LEAST_SECONDS = 0.1
"""Least seconds of compilation of a program that is kept."""
MOST_RESIDENT = 2_000_000_000
"""Bytes that a process may hold and go on: what is forgotten is compiled anew when it is wanted."""


def keep_compiled_programs() -> None:
    """Keeps them below the user's cache folder, unless JAX was told where or told not to.

    `JAX_COMPILATION_CACHE_DIR` names another folder, `JAX_ENABLE_COMPILATION_CACHE=false` is none.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no home
        return
    jax.config.update("jax_compilation_cache_dir", str(caches / "everlight"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)


def compile_faster() -> None:
    """Where the CPU computes, LLVM's second level: as fast programs as by its third, twice as soon.

    To be called before JAX computes anything. A level that `XLA_FLAGS` names stays.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    accelerated = bool(entry_points(group="jax_plugins")) or find_spec("libtpu") is not None
    if os.environ.get("JAX_PLATFORMS") != "cpu" and accelerated:
        return
    if "xla_backend_optimization_level" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_optimization_level=2".strip()


def release_programs() -> None:
    """Where much is held, forgets all programs and gives what they took back to the system."""
    if _resident() < MOST_RESIDENT:
        return
    jax.clear_caches()
    gc.collect()
    # The C library keeps freed memory otherwise; others than glibc have no such call.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident() -> float:
    """Bytes of this process in memory; infinite where the system does not tell."""
    table = Path("/proc/self/statm")
    if not table.exists():
        return math.inf
    return int(table.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
