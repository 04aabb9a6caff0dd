"""The main tables of DER (Buzzega et al. 2020, NeurIPS) and X-DER (Boschini et al. 2022, TPAMI).

Split CIFAR-100 is X-DER's, the other benchmarks are DER's.

Presets:
  demo: permuted and rotated digits, two seeds; no data needed.
  small: permuted and rotated MNIST with SGD, joint training, ER, DER and DER++; for two cores.
  paper: all benchmarks and methods; those with a ResNet-18 are meant for an accelerator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from everlight.continual import Protocol
from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_experiments.continual.benchmarks.run_data import Seeds
from everlight_experiments.continual.benchmarks.statements import general_statement
from everlight_experiments.images.config import Config
from everlight_experiments.images.methods.published import grids_of, settings_of
from everlight_experiments.images.methods.published_settings import PUBLISHED, PublishedProtocol
from everlight_experiments.images.table_columns import TableColumn, methods_with
from everlight_experiments.run_folder.options import Counts, Preset

BenchmarkName = Literal[
    "permuted-mnist",
    "rotated-mnist",
    "split-cifar10",
    "split-cifar100",
    "split-tiny-imagenet",
    "permuted-digits",
    "rotated-digits",
]
_ROWS: dict[str, Method] = {
    "SGD": METHODS["naive"],
    **{
        name: METHODS[name]
        for name in (
            "joint",
            "online EWC",
            "SI",
            "ER",
            "ER-ACE",
            "GEM",
            "A-GEM",
            "HAL",
            "iCaRL",
            "BiC",
            "DER",
            "DER++",
            "X-DER-RPC",
        )
    },
}
PAPER_METHODS: dict[str, Method] = {
    name: row._replace(name=name, published=None) for name, row in _ROWS.items()
}
CHOSEN = general_statement(
    "All is as in the authors' code, whose settings of each method were selected on this benchmark "
    "and buffer. Joint training has the learning rate of SGD."
)
MNIST = Config(
    data="mnist",
    pixels="unit",
    stream_draws="seeded",
    tasks=(20,),
    net="mlp:100,100",
    initialization="xavier",
    loss_classes="all",
    optimizer="sgd",
    # Rotating all tests of twenty tasks after every task would take longer than training.
    protocol=Protocol(epochs=1, batch_size=128, select="last", evaluate_every=20),
    validation_fraction=0.0,
    chosen=CHOSEN,
)
IMAGES = Config(
    order="natural",
    net="resnet18",
    augmentation="crop-and-flip",
    loss_classes="all",
    optimizer="sgd",
    validation_fraction=0.0,
    chosen=CHOSEN,
)


def _epochs(epochs: int) -> Protocol:
    return Protocol(epochs=epochs, batch_size=32, select="last")


DIGITS = replace(
    MNIST,
    data="digits",
    tasks=(4,),
    protocol=replace(MNIST.protocol, batch_size=32, evaluate_every=4),
    chosen=general_statement("Each method has the settings that the authors selected on MNIST."),
)
CONFIGS: dict[BenchmarkName, Config] = {
    "permuted-mnist": replace(MNIST, stream="permuted"),
    "rotated-mnist": replace(MNIST, stream="rotated"),
    "split-cifar10": replace(IMAGES, data="cifar10", tasks=(5,), protocol=_epochs(50)),
    # X-DER-RPC and ER-ACE choose the classes of their losses, among those seen so far.
    "split-cifar100": replace(
        IMAGES,
        data="cifar100",
        tasks=(10,),
        loss_classes="seen",
        protocol=replace(_epochs(50), milestones=(35, 45)),
    ),
    "split-tiny-imagenet": replace(
        IMAGES, data="tiny-imagenet-64", tasks=(10,), protocol=_epochs(100)
    ),
    "permuted-digits": replace(DIGITS, stream="permuted"),
    "rotated-digits": replace(DIGITS, stream="rotated"),
}
DIGITS_STREAMS: tuple[BenchmarkName, ...] = ("permuted-digits", "rotated-digits")
MNIST_STREAMS: tuple[BenchmarkName, ...] = ("permuted-mnist", "rotated-mnist")


def published_of(name: BenchmarkName) -> PublishedProtocol:
    """Return the authors' settings for a benchmark; digits have those of MNIST."""
    config = CONFIGS[name]
    return PUBLISHED["mnist" if config.data == "digits" else config.data, config.stream]


@dataclass(frozen=True)
class PaperConfig:
    """Configuration of the paper's command."""

    benchmarks: tuple[BenchmarkName, ...] = MNIST_STREAMS
    """Benchmarks to run: permuted-mnist, rotated-mnist, split-cifar10, split-cifar100,
    split-tiny-imagenet; or permuted-digits, rotated-digits, with the settings of MNIST."""
    methods: tuple[str, ...] = tuple(PAPER_METHODS)
    """Methods to train: SGD, joint, online EWC, SI, ER, ER-ACE, GEM, A-GEM, HAL, iCaRL, BiC, DER,
    DER++, X-DER-RPC. Those that do not apply to a benchmark, or have no published settings for it,
    are left out there."""
    buffer_sizes: Counts = (200, 500, 2000, 5120)
    """Total numbers of stored samples, among 200, 500, 2000 (split-cifar100) and 5120 (the others);
    methods with a memory are trained with each that has settings for the benchmark."""
    seeds: Seeds = 10
    """Number of evaluation seeds, each with its own permutations or angles and initial network."""

    def check_changed(self, options: Sequence[str]) -> None:
        """Refuse buffer sizes without settings, and benchmarks for which there is no size left.

        Raises:
          DataError: the message has the first of them and the sizes that have settings.
        """
        sizes = {size for name in self.benchmarks for size in published_of(name).buffer_sizes}
        for size in self.buffer_sizes if "buffer-sizes" in options else ():
            if size not in sizes:
                raise DataError(
                    f"--buffer-sizes {size} has no settings for {', '.join(self.benchmarks)}; give "
                    f"some of {', '.join(map(str, sorted(sizes)))}"
                )
        methods = [PAPER_METHODS[name] for name in self.methods if name in PAPER_METHODS]
        for name in self.benchmarks if methods_with(1, methods) else ():
            if not self.sizes_of(name):
                known = " ".join(map(str, published_of(name).buffer_sizes))
                raise DataError(
                    f"--benchmarks {name} has no settings for a buffer of "
                    f"{', '.join(map(str, self.buffer_sizes))}; give --buffer-sizes {known}"
                )

    def sizes_of(self, name: BenchmarkName) -> list[int]:
        """Return the buffer sizes that have settings for a benchmark."""
        return [size for size in self.buffer_sizes if size in published_of(name).buffer_sizes]

    def column_of(self, name: BenchmarkName, buffer_size: int | None) -> TableColumn:
        """Return the methods with this buffer, or without a memory, that have settings."""
        benchmark = self.benchmark_of(name, buffer_size)
        having = [PAPER_METHODS[key] for key in self.methods if key in benchmark.method_settings]
        return TableColumn(benchmark, methods_with(buffer_size, having))

    def benchmark_of(self, name: BenchmarkName, buffer_size: int | None) -> Config:
        """Return a benchmark with a buffer and the authors' settings for both.

        Methods without a memory have the same settings with any buffer, which None leaves out.
        """
        config, protocol = CONFIGS[name], published_of(name)
        buffer_size = buffer_size or protocol.buffer_sizes[0]
        published = protocol.with_buffer(buffer_size)
        settings = settings_of(published)
        settings["SGD"] = settings["joint"] = settings.pop("naive")
        return replace(
            config,
            buffer_size=buffer_size,
            method_settings=settings,
            grids=grids_of(published),
        )


PAPER_PRESETS: Mapping[Preset, PaperConfig] = {
    "demo": PaperConfig(DIGITS_STREAMS, ("SGD", "joint", "ER", "DER++"), (200,), seeds=2),
    "small": PaperConfig(
        methods=("SGD", "joint", "ER", "DER", "DER++"), buffer_sizes=(200, 500), seeds=5
    ),
    "paper": PaperConfig(
        (*MNIST_STREAMS, "split-cifar10", "split-cifar100", "split-tiny-imagenet")
    ),
}
