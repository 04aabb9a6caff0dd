"""Memory, operations and time of a run, from one compiled training step; nothing is trained."""

import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding
from jaxtyping import Array

from everlight.base import TaskSequence
from everlight.checks import NonNegativeInt, checked
from everlight.continual.engine.cost.kernels import kernel_bytes
from everlight.continual.engine.cost.targets import PEAKS
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import Run
from everlight.continual.engine.sequence import initial_state, lower_step
from everlight.trees import shapes_with, tree_bytes


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
    kernels: int | None = None
    """Kernels that a GPU starts in a step, loops counted once; None on other devices."""

    def max_runs(self, memory: int) -> int:
        """Return the number of runs that a device of so many bytes holds."""
        return max(0, (memory - self.data_bytes) // (self.state_bytes + self.working_bytes))


@checked
def estimate_run(run: Run, device: jax.Device, timed_steps: NonNegativeInt = 0) -> Estimate:
    """Return the costs of a run on a device, which must exist only if steps are timed.

    Args:
      run: the run; its arrays may be shapes and dtypes (`jax.ShapeDtypeStruct`).
      device: device to compile for.
      timed_steps: number of steps on zeros, of which the shortest counts, after one that does not;
        0 takes the least seconds of `PEAKS`.
    """
    placed = _shapes_on_device(run, device)
    state = initial_state(placed)
    compiled = lower_step(placed).compile()
    kernels = kernel_bytes(compiled.as_text(), "run") if device.platform == "gpu" else None
    cost = compiled.cost_analysis()
    if cost is None:
        # A GPU's compiler without a GPU analyses nothing; the CPU's analyses the traced program.
        traced = lower_step(_shapes_on_device(run, jax.devices("cpu")[0])).cost_analysis()
        cost = {"flops": traced["flops"], "bytes accessed": sum(kernels)}
    peaks = PEAKS.get(device.device_kind)
    seconds = peaks and peaks.least_seconds(cost)
    return Estimate(
        sum(leaf.size for leaf in jax.tree.leaves(state.result.learner.params)),
        tree_bytes(run.data),
        tree_bytes(state),
        compiled.memory_analysis().temp_size_in_bytes,
        float(cost["flops"]),
        _time_steps(compiled, timed_steps) if timed_steps else seconds,
        None if kernels is None else len(kernels),
    )


@checked
def count_sequence_steps(
    protocol: Protocol, sequence: TaskSequence, replayed: NonNegativeInt = 0
) -> int:
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
    sizes = np.asarray(tasks.train.mask).sum(axis=1)
    new = np.asarray(tasks.classes).sum(axis=1)
    counts = sizes + replayed * (np.cumsum(new) - new)
    return sum(
        number * math.ceil(count / protocol.batch_size)
        for number, count in zip(epochs, counts, strict=True)
    )


def _shapes_on_device(run: Run, device: jax.Device) -> Run:
    """Return a run whose arrays are shapes on a device."""
    sharding = SingleDeviceSharding(device)
    data, sequence, key = shapes_with(sharding, (run.data, run.sequence, run.key))
    return Run(run.build, run.protocol, data, sequence, key)


def _time_steps(compiled: jax.stages.Compiled, steps: int) -> float:
    """Return the least seconds of steps on zeros, after one that is not counted."""

    def zeros(tree: Any) -> Array:
        if jnp.issubdtype(tree.dtype, jax.dtypes.prng_key):
            return jnp.broadcast_to(jax.random.key(0), tree.shape)
        return jnp.zeros(tree.shape, tree.dtype)

    (*constants, learned, opened), _ = jax.tree.map(
        zeros, compiled.args_info, is_leaf=lambda leaf: hasattr(leaf, "donated")
    )
    seconds = []
    for _ in range(1 + steps):
        start = time.perf_counter()
        learned, _ = jax.block_until_ready(compiled(*constants, learned, opened))
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
