"""Memory, operations and time of a run, from one compiled training step; nothing is trained."""

import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding
from jaxtyping import Array

from everlight.base import TaskSequence
from everlight.checks import NonNegativeInt, checked
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import Run
from everlight.continual.engine.sequence import initial_state, lower_step
from everlight.trees import tree_bytes


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


PEAKS = {"TPU v5 lite": Peaks(197e12, 819e9, 16_000_000_000)}
"""Peaks of a chip by its name in JAX; from the maker's data sheet."""


class Estimate(NamedTuple):
    """Costs of one sequence, by the compiler's own analysis."""

    parameters: int
    data_bytes: int
    """Bytes on the device, once for all runs."""
    state_bytes: int
    """Bytes of a run between steps."""
    working_bytes: int
    """Bytes of a run within a step."""
    operations: float
    """Floating-point operations of a step."""
    step_seconds: float | None
    """Seconds of a step; None if no peaks are known and none was timed."""

    def at_once(self, memory: int) -> int:
        """Return the number of runs that a device of so many bytes holds."""
        return max(0, (memory - self.data_bytes) // (self.state_bytes + self.working_bytes))


def chips_of_a_v5e() -> Sequence[jax.Device]:
    """Return four chips of a TPU v5e to compile for, which need not exist.

    Raises:
      ImportError: the TPU's compiler is not installed.
    """
    # What the compiler would ask a TPU machine for.
    for name, value in (
        ("TPU_SKIP_MDS_QUERY", "1"),
        ("TPU_ACCELERATOR_TYPE", "v5litepod-4"),
        ("TPU_WORKER_HOSTNAMES", "localhost"),
    ):
        os.environ.setdefault(name, value)
    from jax.experimental import topologies

    try:
        return topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
    except Exception as error:
        raise ImportError(
            f"the TPU's compiler is not there ({type(error).__name__}); install the extra tpu"
        ) from error


def memory_of(device: jax.Device) -> int:
    """Return a device's bytes of memory; a CPU's is the machine's."""
    if device.device_kind in PEAKS:
        return PEAKS[device.device_kind].memory
    if device.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return device.memory_stats()["bytes_limit"]


@checked
def estimate_run(run: Run, device: jax.Device, timed_steps: NonNegativeInt = 0) -> Estimate:
    """Return the costs of a run on a device, which must exist only if steps are timed.

    Args:
      run: the run; its arrays may be shapes and dtypes (`jax.ShapeDtypeStruct`).
      device: device to compile for.
      timed_steps: number of steps on zeros, of which the shortest counts, after one that does not;
        0 takes the least seconds of `PEAKS`.
    """
    sharding = SingleDeviceSharding(device)
    data, sequence, key = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
        (run.data, run.sequence, run.key),
    )
    run = Run(run.build, run.protocol, data, sequence, key)
    state = initial_state(run)
    compiled = lower_step(run).compile()
    cost, peaks = compiled.cost_analysis(), PEAKS.get(device.device_kind)
    seconds = peaks and peaks.least_seconds(cost)
    return Estimate(
        sum(leaf.size for leaf in jax.tree.leaves(state.result.learner.params)),
        tree_bytes(data),
        tree_bytes(state),
        compiled.memory_analysis().temp_size_in_bytes,
        float(cost["flops"]),
        _timed(compiled, timed_steps) if timed_steps else seconds,
    )


@checked
def count_steps(protocol: Protocol, sequence: TaskSequence, replayed: NonNegativeInt = 0) -> int:
    """Return the steps of a sequence, whose epochs pass over a task's samples.

    Args:
      protocol: epochs and batches.
      sequence: concrete tasks.
      replayed: stored samples per earlier class that an epoch passes over too.
    """
    tasks = sequence.tasks
    epochs = [protocol.epochs_of(task) for task in range(len(tasks.id))]
    if protocol.epoch_steps is not None:
        return sum(epochs) * protocol.epoch_steps
    own = np.asarray(tasks.train.mask).sum(axis=1)
    new = np.asarray(tasks.classes).sum(axis=1)
    counts = own + replayed * (np.cumsum(new) - new)
    return sum(
        number * math.ceil(count / protocol.batch_size)
        for number, count in zip(epochs, counts, strict=True)
    )


def _timed(compiled: jax.stages.Compiled, steps: int) -> float:
    """Return the least seconds of steps on zeros, after one that is not counted."""

    def zeros(of: Any) -> Array:
        if jnp.issubdtype(of.dtype, jax.dtypes.prng_key):
            return jnp.broadcast_to(jax.random.key(0), of.shape)
        return jnp.zeros(of.shape, of.dtype)

    (*given, learned, opened), _ = jax.tree.map(
        zeros, compiled.args_info, is_leaf=lambda leaf: hasattr(leaf, "donated")
    )
    found = []
    for _ in range(1 + steps):
        start = time.perf_counter()
        learned, _ = jax.block_until_ready(compiled(*given, learned, opened))
        found.append(time.perf_counter() - start)
    return min(found[1:])
