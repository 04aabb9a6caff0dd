"""What each continual experiment would take at the paper's preset, compiled here and not run.

    everlight cost
    everlight cost --timed              # hours on this machine's first device
    everlight cost --device tpu-v5e     # needs the extra tpu, and no TPU

One training step of every experiment is compiled ahead of time at the paper's shapes, for this
machine's first device or for a chip of a TPU v5e. Nothing is trained and no data are read.
"""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding
from jaxtyping import Array, PyTree

from everlight.continual import (
    Build,
    Protocol,
    StoredImages,
    TaskSequence,
    initial_state,
    lower_step,
)
from everlight.continual.engine.run import Run
from everlight.metrics.ranking import Facts
from everlight.scenarios import class_incremental, core50, equal_tasks, fact_sequence, iirc
from everlight.scenarios.facts import Examples
from everlight_data.errors import DataError, MissingDataError
from everlight_data.images.iirc_metadata import official_metadata
from everlight_experiments.cl_metrics.record import PLANS as ICIFAR_PLANS
from everlight_experiments.cl_metrics.record import icifar_begin
from everlight_experiments.continual.benchmark import Begin, Own, RunData
from everlight_experiments.continual.methods import METHODS, Method
from everlight_experiments.continual.runner import build_with
from everlight_experiments.core50 import plans as core50_plans
from everlight_experiments.core50 import record as core50_record
from everlight_experiments.facts import record as facts_record
from everlight_experiments.iirc import record as iirc_record

Device = Literal["here", "tpu-v5e"]
V5E = "TPU v5 lite"
"""What JAX calls it."""
V5E_BYTES = 16_000_000_000
"""High-bandwidth memory of a chip, by its maker."""
V5E_OPERATIONS, V5E_BANDWIDTH = 197e12, 819e9
"""Operations in bfloat16 and bytes from memory that a chip manages in a second, by its maker."""
TIMED_STEPS = 3
COLUMNS = (
    *("run", "parameters", "data", "state", "step's memory", "GFLOP a step", "steps", "h"),
    "runs at once",
)


@dataclass(frozen=True)
class PlanSettings:
    """Print the memory, operations and hours of the paper presets without training."""

    device: Device = "here"
    """Device to compile for: the first device here, or a TPU v5e, which needs the extra tpu."""
    timed: bool = False
    """Time some steps on zeros to estimate hours; possible on this machine's device only."""


class Work(NamedTuple):
    """A sequence at the paper's preset; its data are shapes alone."""

    name: str
    build: Build
    protocol: Protocol
    data: PyTree
    sequence: TaskSequence
    replayed: int = 0
    """Exemplars of every earlier class that an epoch passes over too."""


class Estimate(NamedTuple):
    """Of one sequence, by the compiler's own analysis."""

    parameters: int
    data_bytes: int
    """On the device once, for all of its runs."""
    state_bytes: int
    """Of a run, between steps."""
    working_bytes: int
    """Of a run, within a step."""
    operations: float
    """Of a step."""
    steps: int
    step_seconds: float | None
    """None where no peaks are known, and none was timed."""

    def at_once(self, memory: int) -> int:
        """How many runs a device of so many bytes holds."""
        return max(0, (memory - self.data_bytes) // (self.state_bytes + self.working_bytes))


def run_plan(settings: PlanSettings) -> None:
    """Compiles every experiment's step and prints what its sequence would take.

    Raises:
      DataError: steps are to be timed on a device that is not there.
      MissingDataError: the TPU's compiler is not installed.
    """
    if settings.timed and settings.device != "here":
        raise DataError("--timed is for --device here, where a step can run")
    device = _device(settings.device)
    memory = _memory(device)
    ran = "only zeros are learnt from" if settings.timed else "nothing is run"
    print(f"One run at the paper's preset, compiled for {device.device_kind}; {ran}.")
    print(_row(*COLUMNS))
    for make in WORKS:
        work = make()
        print(_told(work.name, estimate(work, device, settings.timed), memory), flush=True)
    least = "the least that a step's operations and bytes can take at the peaks of a TPU v5e"
    clock = "a step timed here" if settings.timed else least
    print(
        f"state: parameters, optimizer, best epoch and the strategy's memory. h: {clock} times "
        "steps, evaluation apart; – where neither is known (--timed). Several runs at once share "
        f"the data and take state and step's memory each: so many hold {memory / 1e9:.0f} GB."
    )


def estimate(work: Work, device: jax.Device, timed: bool = False) -> Estimate:
    """What a sequence takes on a device, which must be there only if its steps are timed."""
    sharding = SingleDeviceSharding(device)

    def placed(tree: PyTree) -> PyTree:
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
        )

    data, sequence, key = placed((work.data, work.sequence, jax.random.key(0)))
    run = Run(work.build, work.protocol, data, sequence, key)
    state = initial_state(run)
    compiled = lower_step(run).compile()
    cost, memory = compiled.cost_analysis(), compiled.memory_analysis()
    seconds = least_seconds(cost) if V5E in device.device_kind else None
    return Estimate(
        sum(leaf.size for leaf in jax.tree.leaves(state.result.learner.params)),
        _bytes(work.data),
        _bytes(state),
        memory.temp_size_in_bytes,
        float(cost["flops"]),
        steps_of(work),
        _seconds(compiled) if timed else seconds,
    )


def least_seconds(cost: Mapping[str, float]) -> float:
    """Of a step on a chip of a TPU v5e: whichever of operations and bytes takes longer.

    The compiler's own "optimal_seconds" counts an operation that it cannot judge as -1.
    """
    return max(cost["flops"] / V5E_OPERATIONS, cost["bytes accessed"] / V5E_BANDWIDTH)


def _seconds(compiled: jax.stages.Compiled) -> float:
    """Of a step on zeros, the least of some, after one that is not counted."""

    def zeros(of: Any) -> Array:
        if jnp.issubdtype(of.dtype, jax.dtypes.prng_key):
            return jnp.broadcast_to(jax.random.key(0), of.shape)
        return jnp.zeros(of.shape, of.dtype)

    (*given, learned, opened), _ = jax.tree.map(
        zeros, compiled.args_info, is_leaf=lambda leaf: hasattr(leaf, "donated")
    )
    found = []
    for _ in range(1 + TIMED_STEPS):
        start = time.perf_counter()
        learned, _ = jax.block_until_ready(compiled(*given, learned, opened))
        found.append(time.perf_counter() - start)
    return min(found[1:])


def steps_of(work: Work) -> int:
    """Of a whole sequence whose strategy passes over a task's samples, and its exemplars."""
    protocol, tasks = work.protocol, work.sequence.tasks
    if protocol.epoch_steps is not None:
        return sum(protocol.epochs_of(task) * protocol.epoch_steps for task in range(len(tasks.id)))
    own = np.asarray(tasks.train.mask).sum(axis=1)
    new = np.asarray(tasks.classes).sum(axis=1)
    kept = work.replayed * (np.cumsum(new) - new)
    return sum(
        protocol.epochs_of(task) * math.ceil(count / protocol.batch_size)
        for task, count in enumerate(own + kept)
    )


def _work(
    name: str,
    begin: Begin,
    scenario: str,
    method: Method,
    protocol: Protocol,
    shared: PyTree,
    sequence: TaskSequence,
    replayed: int = 0,
) -> Work:
    build = build_with(begin, scenario, method)
    data = RunData(shared, Own(sequence.class_task, _number()))
    return Work(f"{name}: {method.name}", build, protocol, data, sequence, replayed)


def _icifar() -> Work:
    plan = ICIFAR_PLANS["paper"]
    sequence = class_incremental(
        np.repeat(np.arange(plan.classes), plan.per_class[0]),
        np.repeat(np.arange(plan.classes), plan.per_class[1]),
        equal_tasks(range(plan.classes), plan.tasks),
        plan.classes,
    )
    images = _images(plan.classes * sum(plan.per_class), plan.side)
    begin, method = icifar_begin(plan), METHODS["EWC"]
    return _work("icifar", begin, "task-incremental", method, plan.protocol, images, sequence)


def _iirc() -> Work:
    plan, method = iirc_record.PLANS["paper"], METHODS["ER-balanced"]
    metadata = official_metadata("iirc_cifar100")
    order = metadata.configurations[0]
    names = sorted({name for task in order.tasks for name in task} - set(metadata.hierarchy))
    sequence = iirc(
        np.repeat(np.arange(len(names)), plan.per_class[0]),
        np.repeat(np.arange(len(names)), plan.per_class[1]),
        tuple(names),
        metadata.hierarchy,
        order,
        "incomplete",
        metadata.valid_fraction,
    ).sequence
    begin = iirc_record.iirc_begin(plan, sequence.class_task.shape[0], len(order.tasks))
    images = _images(len(names) * sum(plan.per_class), plan.side)
    protocol = iirc_record.iirc_protocol(plan, method)
    scenario = iirc_record.SCENARIO
    return _work(
        "iirc", begin, scenario, method, protocol, images, sequence, plan.exemplars_per_class
    )


def _core50(net: core50_plans.CaffeNet) -> Work:
    plan = core50_plans.choose_net(core50_plans.PLANS["paper"], net)
    objects, sessions = (each.ravel() for each in np.mgrid[:50, :11])
    # As many frames of every recording as the release has on average.
    objects, sessions = np.repeat(objects, plan.frames), np.repeat(sessions, plan.frames)
    sequence, length = core50(objects, sessions, "NC"), plan.tuned["NC"]
    begin = core50_record.core50_begin(plan, 50, sequence.tasks.id.shape[0])
    protocol = core50_plans.protocol_of(length, plan.batch_size)
    images = _images(len(objects), plan.side)
    shared = core50_record.Shared(images, {}, _number(), _number())
    name, method = f"core50-nc, {net}", METHODS["naive"]
    return _work(name, begin, "NC", method, protocol, shared, sequence)


def _facts() -> Work:
    plan = facts_record.PLANS["paper"]
    wanted = plan.benchmarks["mid-scale"]
    facts, (train, test) = wanted.size.facts, wanted.size.per_fact
    fact_task = np.arange(facts) * wanted.size.tasks // facts
    every = np.repeat(np.arange(facts), train), np.repeat(np.arange(facts), test)
    count = sum(map(len, every))
    examples = [Examples(np.arange(len(fact)), fact) for fact in every]
    none = Examples(np.zeros(0, int), np.zeros(0, int))
    sequence = fact_sequence(fact_task, examples[0], none, examples[1])
    words, dimension = 170, 300
    shared = facts_record.Shared(
        _images(count, plan.net.side),
        Facts(
            jax.ShapeDtypeStruct((facts, 3), jnp.int32),
            jax.ShapeDtypeStruct((words, dimension), jnp.float32),
        ),
        jax.ShapeDtypeStruct((48,), jnp.int32),
    )
    begin = facts_record.facts_begin(plan.net, dimension, facts, wanted.size.tasks)
    name, method = "facts, mid-scale", METHODS["IMM mode"]
    return _work(name, begin, "random", method, wanted.protocol, shared, sequence)


WORKS: tuple[Callable[[], Work], ...] = (
    _icifar,
    _iirc,
    lambda: _core50("Mid-CaffeNet"),
    lambda: _core50("Mid-VGG"),
    _facts,
)


def _images(count: int, side: int) -> StoredImages:
    channel = jax.ShapeDtypeStruct((3,), jnp.float32)
    images = jax.ShapeDtypeStruct((count, side, side, 3), jnp.uint8)
    return jax.eval_shape(StoredImages.of, images, channel, channel)


def _number() -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((), jnp.float32)


def _device(wanted: Device) -> jax.Device:
    return jax.devices()[0] if wanted == "here" else chips_of_a_v5e()[0]


def chips_of_a_v5e() -> Sequence[jax.Device]:
    """Four chips that need not be there, to compile for.

    Raises:
      MissingDataError: the TPU's compiler is not installed.
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
        raise MissingDataError(
            f"the TPU's compiler is not there ({type(error).__name__}); install the extra tpu"
        ) from error


def _memory(device: jax.Device) -> int:
    """Of a device, in bytes; a CPU's is the machine's, a v5e may not be there to be asked."""
    if V5E in device.device_kind:
        return V5E_BYTES
    if device.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return device.memory_stats()["bytes_limit"]


def _bytes(tree: PyTree) -> int:
    return sum(leaf.size * _width(leaf) for leaf in jax.tree.leaves(tree))


def _width(leaf: Any) -> int:
    return leaf.dtype.itemsize


def _told(name: str, found: Estimate, memory: int) -> str:
    seconds = found.step_seconds
    return _row(
        name,
        f"{found.parameters:,}",
        *(f"{size / 1e6:,.0f} MB" for size in found[1:4]),
        f"{found.operations / 1e9:,.1f}",
        f"{found.steps:,}",
        "–" if seconds is None else f"{seconds * found.steps / 3600:.2f}",
        f"{found.at_once(memory):,}",
    )


def _row(name: str, *cells: str) -> str:
    return f"{name:<44}" + "".join(f"{cell:>16}" for cell in cells)
