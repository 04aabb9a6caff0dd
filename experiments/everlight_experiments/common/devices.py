"""One device a core where the CPU computes, so that independent runs share nothing but memory."""

import os

import jax


def one_device_a_core() -> None:
    """To be called before JAX computes anything; accelerators are as many as there are.

    `JAX_NUM_CPU_DEVICES` says otherwise, as do XLA's own flags.
    """
    forced = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if "JAX_NUM_CPU_DEVICES" not in os.environ and not forced:
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
