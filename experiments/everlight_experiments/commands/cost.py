"""Costs of the papers' presets: one training step of each is compiled, and nothing is trained.

    everlight cost
    everlight cost --timed              # hours on this machine's first device
    everlight cost --device tpu-v5e     # needs the extra tpu, and no TPU
    everlight cost --device h100        # needs the extra cuda12 or cuda13, and no GPU

Data are shapes alone.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from everlight.continual import Protocol, Run, Setup, StoredImages, TaskSequence
from everlight.continual.engine.cost.estimate import Estimate, count_sequence_steps, estimate_run
from everlight.continual.engine.cost.targets import chip_of_an_h100, chips_of_a_v5e, memory_of
from everlight.continual.methods.method import Method, Needs
from everlight.continual.methods.registry import METHODS
from everlight.metrics.ranking import Facts
from everlight.models import NetworkRequest
from everlight.scenarios import class_incremental, core50, divide_classes, fact_sequence, iirc
from everlight.scenarios.facts import Examples
from everlight_data.errors import DataError, MissingDataError
from everlight_data.iirc.metadata import official_metadata
from everlight_experiments.cl_metrics.config import PRESETS as ICIFAR
from everlight_experiments.continual.benchmark import PerRunData, RunData
from everlight_experiments.continual.image_benchmarks import setup_factory as images_setup_factory
from everlight_experiments.continual.method_runner import build_with
from everlight_experiments.continual.parts import network
from everlight_experiments.core50 import benchmark as core50_benchmark
from everlight_experiments.core50.config import PRESETS as CORE50
from everlight_experiments.facts import benchmark as facts_benchmark
from everlight_experiments.facts.config import PRESETS as FACTS
from everlight_experiments.iirc import benchmark as iirc_benchmark
from everlight_experiments.iirc.config import PRESETS as IIRC
from everlight_experiments.run_folder.compilation import describe_tpu

FRAMES = 300
"""Frames per object and session of CORe50, about."""
Device = Literal["here", "tpu-v5e", "h100"]
TIMED_STEPS = 3
_NUMBER = jax.ShapeDtypeStruct((), jnp.float32)


@dataclass(frozen=True)
class CostOptions:
    """Print the memory, operations and hours of the paper presets without training."""

    device: Device = "here"
    """Device to compile for: this machine's first device, or one that it need not have: a TPU v5e
    (extra tpu) or an NVIDIA H100 (extra cuda12 or cuda13)."""
    timed: bool = False
    """Time some steps on zeros to estimate hours; possible on this machine's device only."""


class Work(NamedTuple):
    """A method on a paper's benchmark; its data are shapes alone."""

    benchmark: str
    method: Method
    begin: Callable[[Method, RunData], tuple[Setup, Needs]]
    protocol: Protocol
    shared: PyTree
    sequence: TaskSequence
    replayed: int = 0
    """Exemplars of every earlier class that an epoch also passes over."""

    @property
    def run(self) -> Run:
        """Return the engine's argument."""
        data = RunData(self.shared, PerRunData(self.sequence.class_task, _NUMBER))
        build = build_with(self, self.method)
        return Run(build, self.protocol, data, self.sequence, jax.random.key(0))


def run_cost(options: CostOptions) -> None:
    """Compile every experiment's step and print the costs of its sequence.

    Raises:
      DataError: steps are to be timed on a device that is missing.
      MissingDataError: the device's compiler is not installed.
    """
    if options.timed and options.device != "here":
        raise DataError("--timed is for --device here, where a step can run")
    device = _device(options.device)
    memory = memory_of(device)
    ran = "only zeros are trained on" if options.timed else "nothing is run"
    print(f"One run at the paper's preset, compiled for {device.device_kind}; {ran}.")
    for number, make in enumerate(WORKS):
        work = make()
        estimate = estimate_run(work.run, device, TIMED_STEPS if options.timed else 0)
        cells = _cells(work, estimate, memory)
        if number == 0:
            print(_row(cells))
        print(_row(cells.values()), flush=True)
    least = "the least that a step's operations and bytes can take at the device's peaks"
    clock = "a step timed here" if options.timed else least
    print(
        f"state: parameters, optimizer, best epoch and the strategy's memory. h: {clock} times "
        "steps, evaluation apart; – where neither is known (--timed). Several runs at once share "
        f"the data and take state and step's memory each: so many hold {memory / 1e9:.0f} GB."
    )


def _device(name: Device) -> jax.Device:
    """Return the device to compile for.

    Raises:
      MissingDataError: the device's compiler is not installed.
    """
    if name == "here":
        return jax.devices()[0]
    # JAX itself uses the CPU: without a driver its plugin for GPUs does not load otherwise.
    jax.config.update("jax_platforms", "cpu")
    describe_tpu()
    # A compiler without a device cannot read programs that it kept on disk.
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        return (chips_of_a_v5e() if name == "tpu-v5e" else chip_of_an_h100())[0]
    except ImportError as error:
        raise MissingDataError(str(error)) from error


def icifar() -> Work:
    """Return EWC on iCIFAR-100."""
    config = ICIFAR["paper"]
    (train, test), classes, side = config.per_class, config.classes, config.side
    request = NetworkRequest(classes, side, config.dtype, config.dropout)
    net = network(config.net, request, (side, side, 3))
    sequence = class_incremental(
        np.repeat(np.arange(classes), train),
        np.repeat(np.arange(classes), test),
        divide_classes(range(classes), config.tasks[0]),
        classes,
    )
    images = _images(classes * (train + test), side)
    begin = images_setup_factory(config, net, True)
    return Work("icifar", METHODS["EWC"], begin, config.protocol, images, sequence)


def iirc_cifar() -> Work:
    """Return ER on the first configuration of IIRC-CIFAR."""
    config, method = IIRC["paper"], METHODS["ER-balanced"]
    metadata = official_metadata("iirc_cifar100")
    order = metadata.configurations[0]
    names = sorted({name for task in order.tasks for name in task} - set(metadata.hierarchy))
    train, test = (np.repeat(np.arange(len(names)), count) for count in config.per_class)
    hierarchy = metadata.hierarchy, order, "incomplete", metadata.valid_fraction
    sequence = iirc(train, test, tuple(names), *hierarchy).sequence
    classes = sequence.class_task.shape[0]
    begin = iirc_benchmark.setup_factory(
        config, iirc_benchmark.network_of(config, classes), classes, len(order.tasks)
    )
    images = _images(len(train) + len(test), config.side)
    protocol, exemplars = iirc_benchmark.protocol_of(config, method), config.exemplars_per_class
    return Work("iirc", method, begin, protocol, images, sequence, exemplars)


def core50_nc(net: str) -> Work:
    """Return naive on new classes of CORe50 with one of the paper's networks."""
    config, method = replace(CORE50["paper"], net=net), METHODS["naive"]
    objects, sessions = (grid.ravel() for grid in np.mgrid[:50, :11])
    # As many frames of every recording as the release has on average.
    objects, sessions = np.repeat(objects, FRAMES), np.repeat(sessions, FRAMES)
    sequence, length = core50(objects, sessions, "NC"), config.nc
    schedule = core50_benchmark.TrainingSchedule("NC", "NC", lambda method: length)
    begin = core50_benchmark.setup_factory(config, schedule, 50)
    protocol = length.protocol(config.batch_size)
    shared = core50_benchmark.Shared(_images(len(objects), config.side), {}, _NUMBER, _NUMBER)
    return Work(f"core50-nc, {net}", method, begin, protocol, shared, sequence)


def mid_scale_facts() -> Work:
    """Return IMM on the paper's smaller set of facts."""
    config, method = FACTS["paper"], METHODS["IMM mode"]
    scale, words, dimension = config.scale, 170, 300
    example_facts = [np.repeat(np.arange(scale.facts), count) for count in scale.per_fact]
    examples = [Examples(np.arange(len(fact)), fact) for fact in example_facts]
    none = Examples(np.zeros(0, int), np.zeros(0, int))
    task = np.arange(scale.facts) * scale.tasks // scale.facts
    sequence = fact_sequence(task, examples[0], none, examples[1])
    shared = facts_benchmark.Shared(
        _images(sum(map(len, example_facts)), config.network.side),
        Facts(
            jax.ShapeDtypeStruct((scale.facts, 3), jnp.int32),
            jax.ShapeDtypeStruct((words, dimension), jnp.float32),
        ),
        jax.ShapeDtypeStruct((48,), jnp.int32),
    )
    begin = facts_benchmark.setup_factory(config, dimension, scale.facts)
    return Work("facts, mid-scale", method, begin, scale.protocol, shared, sequence)


WORKS: tuple[Callable[[], Work], ...] = (
    icifar,
    iirc_cifar,
    lambda: core50_nc("Mid-CaffeNet"),
    lambda: core50_nc("Mid-VGG"),
    mid_scale_facts,
)


def _images(count: int, side: int) -> StoredImages:
    channel = jax.ShapeDtypeStruct((3,), jnp.float32)
    images = jax.ShapeDtypeStruct((count, side, side, 3), jnp.uint8)
    return jax.eval_shape(StoredImages.of, images, channel, channel)


def _cells(work: Work, estimate: Estimate, memory: int) -> dict[str, str]:
    """Return the cells of a row by column."""
    steps, seconds = (
        count_sequence_steps(work.protocol, work.sequence, work.replayed),
        estimate.step_seconds,
    )
    return {
        "run": f"{work.benchmark}: {work.method.name}",
        "parameters": f"{estimate.parameters:,}",
        "data": f"{estimate.data_bytes / 1e6:,.0f} MB",
        "state": f"{estimate.state_bytes / 1e6:,.0f} MB",
        "step's memory": f"{estimate.working_bytes / 1e6:,.0f} MB",
        "GFLOP per step": f"{estimate.operations / 1e9:,.1f}",
        "steps": f"{steps:,}",
        "h": "–" if seconds is None else f"{seconds * steps / 3600:.3f}",
        "runs at once": f"{estimate.at_once(memory):,}",
        **({} if estimate.kernels is None else {"kernels": f"{estimate.kernels:,}"}),
    }


def _row(cells: Iterable[str]) -> str:
    run, *others = cells
    return f"{run:<44}" + "".join(f"{cell:>16}" for cell in others)
