"""One device a core where the CPU computes, so that independent runs share nothing but memory."""

import contextlib
import os

import jax


def one_device_a_core() -> None:
    """Ask JAX for one device per core; the number of accelerators stays.

    `JAX_NUM_CPU_DEVICES` and XLA's own flags have precedence. A process in which JAX has already
    computed keeps its devices: they cannot change any more.
    """
    forced = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if "JAX_NUM_CPU_DEVICES" not in os.environ and not forced:
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
