"""Compiler and devices as runs need them; compiled programs on disk and in memory."""

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


def prepare_jax() -> None:
    """Set compiler and devices; to be called before JAX computes anything."""
    compile_faster()
    keep_compiled_programs()
    one_device_per_core()


def one_device_per_core() -> None:
    """Give each CPU core a device, so that independent runs share nothing but memory.

    Accelerators stay as they are. `JAX_NUM_CPU_DEVICES` and XLA's own flags have precedence.
    """
    forced = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if "JAX_NUM_CPU_DEVICES" not in os.environ and not forced:
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def keep_compiled_programs() -> None:
    """Keep compiled programs below the user's cache folder, unless JAX's settings say otherwise.

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
    """Set LLVM's second level on CPU: programs as fast as by its third, compiled in half the time.

    A level that `XLA_FLAGS` names stays.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    accelerated = bool(entry_points(group="jax_plugins")) or find_spec("libtpu") is not None
    if os.environ.get("JAX_PLATFORMS") != "cpu" and accelerated:
        return
    if "xla_backend_optimization_level" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_optimization_level=2".strip()


def release_programs() -> None:
    """Forget all programs where the process is large, and return their memory to the system."""
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
