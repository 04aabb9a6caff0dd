"""IIRC (Abdelsalam et al. 2021), figures 3 to 6: every class is learned coarse first, then fine.

Presets:
  demo: the procedural world, 4 shapes of 3 textures each at 16 pixels, two configurations, a
    network of 8 layers, five methods; four minutes on two cores.
  small: Tiny-ImageNet, 5 superclasses and 5 classes without one at 16 pixels, three
    configurations, a network of 8 layers, all ten methods; one to four minutes per run.
  paper: IIRC-CIFAR, the authors' ten configurations, ResNet-32, 140 epochs per task and 280 for the
    first; meant for an accelerator. With --data iirc_imagenet_lite or iirc_imagenet_full: the
    authors' five configurations, ResNet-50 at 224 pixels and 100 epochs per task, with files read
    while training.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal

from everlight.checks import UnitInterval
from everlight.continual import Protocol
from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight_data.iirc.sets import IIRCName, is_imagenet
from everlight_data.names import check_name
from everlight_experiments.continual.benchmarks.config import (
    UNNAMED,
    BenchmarkConfig,
    Dtype,
    Features,
    Replay,
    Side,
    unread_of_protocol,
)
from everlight_experiments.continual.benchmarks.statements import Statements, general_statement
from everlight_experiments.run_folder.options import Bytes, Count, Preset, Rate

_AS_THEY_ARE = (
    *("joint", "incremental joint", "ER-infinite", "ER-balanced", "iCaRL-CNN", "iCaRL-norm"),
    *("LUCIR", "BiC", "A-GEM"),
)
PAPER_METHODS: dict[str, Method] = {name: METHODS[name] for name in _AS_THEY_ARE} | {
    "LUCIR": METHODS["LUCIR"]._replace(hyperparameters=(5.0,)),
    "finetune": METHODS["naive"]._replace(name="finetune"),
}
FORMS: dict[str, Method] = PAPER_METHODS | {
    "LUCIR-0.5": METHODS["LUCIR"]._replace(name="LUCIR-0.5", hyperparameters=(0.5,)),
    "BiC-whole-pwJS": METHODS["BiC-whole-pwJS"],
}
"""The paper's methods, LUCIR with weaker distillation, and BiC with other stages 1 and 2."""
WITH_EXEMPLARS = tuple(name for name, row in FORMS.items() if row.stores_samples)
NOT_ON_DATA = general_statement("All is as published, or not chosen on any data.")


@dataclass(frozen=True)
class IIRCConfig(BenchmarkConfig):
    """Data, network, optimizer, protocol and memory of the benchmark."""

    not_identifying: ClassVar[tuple[str, ...]] = ("memory_limit", "undecodable", "chosen")
    data: IIRCName
    """Data set to learn. The iirc_* and incremental_* sets are those of the authors' package, the
    latter without superclasses."""
    side: Side
    """Side of the images in pixels; ImageNet's are cropped to it, others are shrunk."""
    protocol: Annotated[Protocol, UNNAMED]
    """Epochs and batches of every task."""
    net: str = "resnet:1"
    """Network, as in everlight run."""
    learning_rate: Rate = 1.0
    """Learning rate of the optimizer."""
    learning_rates: Mapping[str, Rate] = field(default_factory=dict)
    """Methods with a learning rate of their own, each name followed by its rate."""
    optimizer: str = "sgd:momentum=0.9"
    """Optimizer: any of optax by name, with arguments, as in adam:b1=0.8,b2=0.99."""
    weight_decay: UnitInterval = 1e-5
    """Weight decay: this multiple of the parameters is added to every gradient."""
    joint_epochs: Count | None = None
    """Epochs of joint training; None is as many as the first task has."""
    exemplars_per_class: Count = 20
    """Stored samples per class, for methods with exemplars."""
    replay_batch_size: Replay = None
    per_class: tuple[Count, Count] = (500, 100)
    """Largest number of training and of test images per class."""
    superclasses: Count | None = None
    """Number of superclasses of --data tiny-imagenet, and of its classes without a superclass. None
    takes all of both."""
    features: Features = None
    features_learning_rate: Rate = 0.01
    """Learning rate of a linear head on --features, which replaces --learning-rate."""
    dtype: Dtype = "float32"
    remat: bool = False
    """Recompute the activations of --net resnet50 in the backward pass, which saves memory."""
    memory_limit: Bytes = 2_000_000_000
    """Bytes of decoded images held in memory while ImageNet's files are read."""
    undecodable: Literal["fail", "skip"] = "fail"
    """Action for broken image files of ImageNet: fail names the file; skip decodes all files first,
    leaves broken ones out and reports their number."""
    chosen: Statements = NOT_ON_DATA

    @property
    def replaced_by_features(self) -> tuple[str, ...]:
        """Options of the network, its learning rates and the side of its images."""
        return ("side", "net", "remat", "dtype", "learning-rate", "learning-rates")

    def check_method_names(self, names: Sequence[str]) -> None:
        """Refuse learning rates of methods that do not exist."""
        for name in self.learning_rates:
            check_name("method of --learning-rates", name, names)

    def unread(
        self, benchmark: str = "", settings: Collection[str] = (), has_rows: bool = False
    ) -> dict[str, str]:
        """Return the options that features replace, and those of other data sets, as the base."""
        unread = super().unread(benchmark, settings, has_rows) | unread_of_protocol(self.protocol)
        if self.data != "tiny-imagenet":
            unread["superclasses"] = "without --data tiny-imagenet; leave it out"
        if not is_imagenet(self.data):
            streamed = f"with --data {self.data}, whose images are in memory; leave it out"
            unread |= dict.fromkeys(("memory-limit", "undecodable"), streamed)
        return unread


@dataclass(frozen=True)
class PaperConfig:
    """Benchmark, methods and numbers of runs of the paper's command."""

    benchmark: Annotated[IIRCConfig, UNNAMED]
    configurations: Count
    """Number of task configurations, each with its own seed."""
    methods: tuple[str, ...] = tuple(PAPER_METHODS)
    """Methods to train: joint, incremental joint, ER-infinite, ER-balanced, iCaRL-CNN,
    iCaRL-norm, LUCIR, BiC, A-GEM, finetune, LUCIR-0.5, BiC-whole-pwJS; LUCIR-0.5 has λ₀ = 0.5
    and BiC-whole-pwJS label weights 1."""
    ablation: tuple[Count, ...] = ()
    """Further numbers of exemplars per class, with which the methods of --ablated are trained
    again (appendix E)."""
    ablated: tuple[str, ...] = WITH_EXEMPLARS
    """Methods of --ablation, which must store exemplars. The paper has ER-balanced alone."""


DEMO = PaperConfig(
    IIRCConfig(
        data="procedural",
        side=16,
        per_class=(100, 50),
        learning_rate=0.3,
        protocol=Protocol(epochs=10, first_epochs=20, batch_size=32, plateau_factor=0.1),
        chosen=general_statement(
            "The learning rate (0.03, 0.1, 0.3 or 1) is statistically tied with 1, the best by "
            "pw-JS of joint, ER-balanced and iCaRL-norm on post-task validation of two validation "
            "configurations. Sizes and epochs are limited by the demo's time."
        ),
    ),
    configurations=2,
    methods=("incremental joint", "ER-balanced", "iCaRL-CNN", "LUCIR", "finetune"),
)
SMALL = PaperConfig(
    IIRCConfig(
        data="tiny-imagenet",
        side=16,
        per_class=(250, 50),
        superclasses=5,
        learning_rate=0.3,
        protocol=Protocol(epochs=15, first_epochs=30, batch_size=32, plateau_factor=0.1),
        joint_epochs=43,
        chosen=general_statement(
            "The learning rate (0.1, 0.3 or 1) has the highest pw-JS of joint, ER-balanced and "
            "iCaRL-norm on post-task validation of a validation configuration. The number of "
            "classes was set after test scores of the first configuration had been seen. The "
            "rest is limited by two cores."
        ),
    ),
    configurations=3,
    ablation=(50, 100),
)
FULL = PaperConfig(
    IIRCConfig(
        data="iirc_cifar100",
        side=32,
        net="resnet:5",
        protocol=Protocol(epochs=140, first_epochs=280, batch_size=128, plateau_factor=0.1),
        joint_epochs=400,
    ),
    configurations=10,
    ablation=(50, 100, 200),
    ablated=("ER-balanced",),
)
IMAGENET = PaperConfig(
    replace(
        FULL.benchmark,
        data="iirc_imagenet_lite",
        side=224,
        per_class=(1300, 50),
        net="resnet50",
        learning_rate=0.1,
        learning_rates={"iCaRL-CNN": 0.5, "A-GEM": 0.5},
        protocol=Protocol(epochs=100, first_epochs=200, batch_size=128, plateau_factor=0.1),
        joint_epochs=180,
    ),
    configurations=5,
)
"""Preset paper of the data sets on ImageNet."""
PAPER_PRESETS: Mapping[Preset, PaperConfig] = {"demo": DEMO, "small": SMALL, "paper": FULL}
PRESETS: Mapping[Preset, IIRCConfig] = {
    name: paper.benchmark for name, paper in PAPER_PRESETS.items()
}
