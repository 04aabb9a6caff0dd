"""Costs of the papers' presets: one training step of each is compiled, and nothing is trained.

    everlight cost
    everlight cost --timed              # hours on this machine's first device
    everlight cost --device tpu-v5e     # needs the extra tpu, and no TPU
    everlight cost --device h100        # needs the extra cuda12 or cuda13, and no GPU

Data are shapes alone.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import jax

from everlight.continual import Run
from everlight.continual.engine.cost.estimate import Estimate, count_sequence_steps, estimate_run
from everlight.continual.engine.cost.targets import chip_of_an_h100, chips_of_a_v5e, memory_of
from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError, MissingDataError
from everlight_experiments.cl_metrics.config import PRESETS as ICIFAR
from everlight_experiments.continual.benchmarks.benchmark import Benchmark
from everlight_experiments.continual.training.programs import MethodPrograms
from everlight_experiments.core50 import benchmark as core50_benchmark
from everlight_experiments.core50.config import PRESETS as CORE50
from everlight_experiments.der.config import PAPER_METHODS as DER_METHODS
from everlight_experiments.der.config import PAPER_PRESETS as DER
from everlight_experiments.der.config import BenchmarkName
from everlight_experiments.facts import benchmark as facts_benchmark
from everlight_experiments.facts.config import PRESETS as FACTS
from everlight_experiments.iirc import benchmark as iirc_benchmark
from everlight_experiments.iirc.config import PRESETS as IIRC
from everlight_experiments.images import benchmark as images_benchmark
from everlight_experiments.run_folder.compilation import describe_tpu
from everlight_experiments.terminal import aligned_row

Device = Literal["here", "tpu-v5e", "h100"]
TIMED_STEPS = 3


@dataclass(frozen=True)
class CostOptions:
    """Print the memory, operations and hours of the paper presets without training."""

    device: Device = "here"
    """Device to compile for: this machine's first device, or one that it need not have: a TPU v5e
    (extra tpu) or an NVIDIA H100 (extra cuda12 or cuda13)."""
    timed: bool = False
    """Time some steps on zeros to estimate hours; possible on this machine's device only."""


class Work(NamedTuple):
    """A method on a paper's benchmark, whose images are shapes alone."""

    name: str
    benchmark: Benchmark
    method: Method
    replayed: int = 0
    """Exemplars of every earlier class that an epoch also passes over."""

    @property
    def run(self) -> Run:
        """Return the engine's argument."""
        return MethodPrograms(self.benchmark).run(self.method)


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
        run = work.run
        estimate = estimate_run(run, device, TIMED_STEPS if options.timed else 0)
        steps = count_sequence_steps(run.protocol, run.sequence, work.replayed)
        cells = _cells(f"{work.name}: {work.method.name}", steps, estimate, memory)
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
    """Return the device to compile for, if its compiler is installed."""
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
    benchmark = images_benchmark.shapes("icifar", ICIFAR["paper"], "task-incremental")
    return Work("icifar", benchmark, METHODS["EWC"])


def iirc_cifar() -> Work:
    """Return ER on the first configuration of IIRC-CIFAR."""
    config = IIRC["paper"]
    benchmark = iirc_benchmark.shapes(config)
    return Work("iirc", benchmark, METHODS["ER-balanced"], config.exemplars_per_class)


def core50_nc(net: str) -> Work:
    """Return naive on new classes of CORe50 with one of the paper's networks."""
    benchmark = core50_benchmark.shapes(replace(CORE50["paper"], net=net), "NC")
    return Work(f"core50-nc, {net}", benchmark, METHODS["naive"])


def mid_scale_facts() -> Work:
    """Return IMM on the paper's smaller set of facts."""
    benchmarks = facts_benchmark.shapes(FACTS["paper"])
    return Work("facts, mid-scale", benchmarks["random"], METHODS["IMM mode"])


def der_on_images(name: BenchmarkName, classes: int, per_class: tuple[int, int], side: int) -> Work:
    """Return DER++ with 500 samples on a benchmark of DER's table."""
    config = DER["paper"].benchmark_of(name, 500)
    sized = replace(config, classes=classes, per_class=per_class, side=side)
    benchmark = images_benchmark.shapes("der", sized, "class-incremental")
    return Work(f"der, {name}", benchmark, DER_METHODS["DER++"])


WORKS: tuple[Callable[[], Work], ...] = (
    icifar,
    iirc_cifar,
    lambda: core50_nc("Mid-CaffeNet"),
    lambda: core50_nc("Mid-VGG"),
    mid_scale_facts,
    lambda: der_on_images("split-cifar10", 10, (5000, 1000), 32),
    lambda: der_on_images("split-tiny-imagenet", 200, (500, 50), 64),
)


def _cells(name: str, steps: int, estimate: Estimate, memory: int) -> dict[str, str]:
    """Return the cells of a row by column."""
    seconds = estimate.step_seconds
    return {
        "run": name,
        "parameters": f"{estimate.parameters:,}",
        "data": f"{estimate.data_bytes / 1e6:,.0f} MB",
        "state": f"{estimate.state_bytes / 1e6:,.0f} MB",
        "step's memory": f"{estimate.working_bytes / 1e6:,.0f} MB",
        "GFLOP per step": f"{estimate.operations / 1e9:,.1f}",
        "steps": f"{steps:,}",
        "h": "–" if seconds is None else f"{seconds * steps / 3600:.3f}",
        "runs at once": f"{estimate.max_runs(memory):,}",
        **({} if estimate.kernels is None else {"kernels": f"{estimate.kernels:,}"}),
    }


def _row(cells: Collection[str]) -> str:
    """Return a row, whose widths are known before the other rows are compiled."""
    return aligned_row(cells, [44, *[14] * (len(cells) - 1)], left=1)
