"""Devices to compile for, which need not exist, and the peak rates of devices by their makers."""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
from jax.experimental import topologies


class Peaks(NamedTuple):
    """Greatest rates of a device, by its maker."""

    operations: float
    """Floating-point operations per second, in bfloat16."""
    bandwidth: float
    """Bytes per second from its memory."""
    memory: int
    """Bytes of its memory."""

    def least_seconds(self, cost: Mapping[str, float]) -> float:
        """Return the least seconds of a program: the longer of operations and bytes.

        Args:
          cost: the compiler's analysis, with "flops" and "bytes accessed"; its own
            "optimal_seconds" counts an operation that it cannot judge as -1.
        """
        return max(cost["flops"] / self.operations, cost["bytes accessed"] / self.bandwidth)


PEAKS = {
    "TPU v5 lite": Peaks(197e12, 819e9, 16_000_000_000),
    "NVIDIA H100 80GB HBM3": Peaks(989e12, 3.35e12, 80_000_000_000),
}
"""Peaks of a device by its name in JAX; from the makers' data sheets, without sparsity."""

H100_DESCRIPTION = """
gpu_device_info {
  cuda_compute_capability { major: 9 minor: 0 }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  registers_per_block_limit: 65536
  registers_per_core_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  l2_cache_size: 52428800
  memory_bandwidth: 3352320000000
  device_memory_size: 84978434048
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
"""Message `GpuTargetConfigProto` of XLA for the H100 SXM, as its driver describes it."""


def chips_of_a_v5e() -> Sequence[jax.Device]:
    """Return four chips of a TPU v5e to compile for, which need not exist.

    Without a TPU the compiler needs the environment variables TPU_SKIP_MDS_QUERY=1,
    TPU_ACCELERATOR_TYPE=v5litepod-4 and TPU_WORKER_HOSTNAMES=localhost before it is called first.

    Raises:
      ImportError: the TPU's compiler is not installed.
    """
    try:
        return topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
    except Exception as error:
        raise ImportError(
            f"the TPU's compiler is not installed ({type(error).__name__}); install the extra tpu"
        ) from error


def chip_of_an_h100() -> Sequence[jax.Device]:
    """Return an NVIDIA H100 (SXM) to compile for, which need not exist.

    On a machine without a GPU's driver `jax_platforms` must be "cpu" before JAX looks for devices:
    otherwise it does not load the compiler.

    Raises:
      ImportError: the GPU's compiler is not installed, or was not loaded.
    """
    try:
        # The compiler asks for the shape of the machine: hosts, GPUs per host and so on.
        return topologies.get_topology_desc(
            platform="cuda", topology_name="h100", topology="1x1x1", target_config=H100_DESCRIPTION
        ).devices
    except Exception as error:
        raise ImportError(
            f"the GPU's compiler is not installed ({type(error).__name__}); install the extra "
            "cuda12 or cuda13, and without a GPU set JAX_PLATFORMS=cpu"
        ) from error


def memory_of(device: jax.Device) -> int:
    """Return a device's bytes of memory; a CPU's is the machine's."""
    if device.device_kind in PEAKS:
        return PEAKS[device.device_kind].memory
    if device.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return device.memory_stats()["bytes_limit"]
