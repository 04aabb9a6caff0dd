"""The main table of DER (Buzzega et al. 2020, NeurIPS): four benchmarks and three buffers.

Presets:
  demo: permuted and rotated digits, two seeds; no data needed.
  small: permuted and rotated MNIST with SGD, joint training, ER, DER and DER++; for two cores.
  paper: all benchmarks and methods; split CIFAR-10 and Tiny-ImageNet are meant for an accelerator.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from everlight.continual import Protocol
from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight_experiments.continual.chosen import stated
from everlight_experiments.continual.config import Config
from everlight_experiments.continual.published import grids_of, settings_of
from everlight_experiments.continual.published_settings import PUBLISHED
from everlight_experiments.run_folder.options import Count, Preset

BenchmarkName = Literal[
    "permuted-mnist",
    "rotated-mnist",
    "split-cifar10",
    "split-tiny-imagenet",
    "permuted-digits",
    "rotated-digits",
]
NO_MEMORY = ("SGD", "joint", "online EWC", "SI")
"""Methods without stored samples, which are trained once."""
_ROWS: dict[str, Method] = {
    "SGD": METHODS["naive"],
    **{
        name: METHODS[name]
        for name in (*NO_MEMORY[1:], "ER", "GEM", "A-GEM", "HAL", "iCaRL", "DER", "DER++")
    },
}
PAPER_METHODS: dict[str, Method] = {
    name: row._replace(name=name, published=None) for name, row in _ROWS.items()
}
SMALLEST_BUFFER = 200
CHOSEN = stated(
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
    chosen=stated("Each method has the settings that the authors selected on MNIST."),
)
CONFIGS: dict[BenchmarkName, Config] = {
    "permuted-mnist": replace(MNIST, stream="permuted"),
    "rotated-mnist": replace(MNIST, stream="rotated"),
    "split-cifar10": replace(IMAGES, data="cifar10", tasks=(5,), protocol=_epochs(50)),
    "split-tiny-imagenet": replace(
        IMAGES, data="tiny-imagenet-64", tasks=(10,), protocol=_epochs(100)
    ),
    "permuted-digits": replace(DIGITS, stream="permuted"),
    "rotated-digits": replace(DIGITS, stream="rotated"),
}
DIGITS_STREAMS: tuple[BenchmarkName, ...] = ("permuted-digits", "rotated-digits")
MNIST_STREAMS: tuple[BenchmarkName, ...] = ("permuted-mnist", "rotated-mnist")


@dataclass(frozen=True)
class PaperConfig:
    """Configuration of the paper's command."""

    benchmarks: tuple[BenchmarkName, ...] = MNIST_STREAMS
    """Benchmarks to run: permuted-mnist, rotated-mnist, split-cifar10, split-tiny-imagenet; or
    permuted-digits, rotated-digits, with the settings of MNIST."""
    methods: tuple[str, ...] = tuple(PAPER_METHODS)
    """Methods to train: SGD, joint, online EWC, SI, ER, GEM, A-GEM, HAL, iCaRL, DER, DER++. Those
    that do not apply to a benchmark are left out there."""
    buffer_sizes: tuple[Count, ...] = (200, 500, 5120)
    """Total numbers of stored samples, among 200, 500 and 5120; methods with a memory are trained
    with each."""
    seeds: Count = 10
    """Number of evaluation seeds, each with its own permutations or angles and initial network."""

    def benchmark_of(self, name: BenchmarkName, buffer_size: int | None) -> Config:
        """Return a benchmark with a buffer and the authors' settings for both.

        Methods without a memory have the same settings with any buffer, which None leaves out.
        """
        config, buffer_size = CONFIGS[name], buffer_size or SMALLEST_BUFFER
        data = "mnist" if config.data == "digits" else config.data
        published = PUBLISHED[data, config.stream].with_buffer(buffer_size)
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
    "paper": PaperConfig((*MNIST_STREAMS, "split-cifar10", "split-tiny-imagenet")),
}
