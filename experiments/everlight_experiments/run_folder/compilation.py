"""Compiler and devices as runs need them; compiled programs on disk and in memory."""

import ctypes
import gc
import math
import os
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import jax

MIN_SECONDS = 0.1
"""Minimum compilation time in seconds of a program that is cached on disk."""
MAX_RESIDENT = 2_000_000_000
"""Largest size of a process in bytes; above it, programs are dropped and compiled again later."""


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    # macOS and Windows have no affinity.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def prepare_jax() -> None:
    """Set compiler and devices; to be called before JAX computes anything."""
    compile_faster()
    keep_compiled_programs()
    enough_threads()
    one_device_per_core()


def enough_threads() -> None:
    """Give XLA four threads per CPU core, unless `PJRT_NPROC` or `NPROC` is set.

    A batched factorization blocks its thread until others have done parts of it. With one thread
    per device, programs of all devices that factorize at once can deadlock, as with SLCA on
    two cores. Four are enough for a few independent factorizations per program; 24 on two devices
    need more.
    """
    if not {"PJRT_NPROC", "NPROC"} & {*os.environ}:
        os.environ["PJRT_NPROC"] = str(4 * usable_cores())


def one_device_per_core() -> None:
    """Give each CPU core a device, unless `JAX_NUM_CPU_DEVICES` or XLA's own flags are set."""
    forced = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if "JAX_NUM_CPU_DEVICES" not in os.environ and not forced:
        jax.config.update("jax_num_cpu_devices", usable_cores())


def keep_compiled_programs() -> None:
    """Keep compiled programs below the user's cache folder, or in `JAX_COMPILATION_CACHE_DIR`."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no home
        return
    jax.config.update("jax_compilation_cache_dir", str(caches / "everlight"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_SECONDS)


def compile_faster() -> None:
    """Set LLVM's second level on CPU: as fast programs as by its third in half the time."""
    flags = os.environ.get("XLA_FLAGS", "")
    accelerated = bool(entry_points(group="jax_plugins")) or find_spec("libtpu") is not None
    if os.environ.get("JAX_PLATFORMS") != "cpu" and accelerated:
        return
    if "xla_backend_optimization_level" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_optimization_level=2".strip()


def describe_tpu() -> None:
    """Set unset variables that the TPU's compiler would otherwise request from a TPU machine."""
    for name, value in (
        ("TPU_SKIP_MDS_QUERY", "1"),
        ("TPU_ACCELERATOR_TYPE", "v5litepod-4"),
        ("TPU_WORKER_HOSTNAMES", "localhost"),
    ):
        os.environ.setdefault(name, value)


def release_programs() -> bool:
    """Drop all compiled programs if the process is large, and return their memory to the system.

    Returns:
      True if they were dropped.
    """
    if _resident() < MAX_RESIDENT:
        return False
    jax.clear_caches()
    gc.collect()
    # The C library keeps freed memory otherwise; others than glibc have no such call.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return True


def _resident() -> float:
    """Return this process's bytes in memory; infinite where the system has no such table."""
    table = Path("/proc/self/statm")
    pages = int(table.read_text().split()[1]) if table.exists() else math.inf
    return pages * os.sysconf("SC_PAGE_SIZE")
