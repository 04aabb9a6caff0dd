"""Lifelong fact learning (Elhoseiny et al. 2018) on random and semantic splits, tables 2 to 17.

Presets:
  demo: the procedural world's facts, no data needed; 60 facts in four tasks, five methods, one
    seed; three and a half minutes on two cores.
  small: VRD's annotations, rendered at 32 pixels; mid-scale with 186 facts in four tasks, all
    methods and three seeds, then large-scale with all facts in eight tasks; an hour on two busy
    cores.
  paper: all examples of VRD at 64 pixels, a wider network, more epochs; meant for an accelerator.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from everlight.continual import Protocol
from everlight.continual.methods.method import Method, with_published
from everlight.continual.methods.registry import METHODS
from everlight_data.facts.splits.fact_images import FactSource
from everlight_data.facts.splits.fact_splits import PerFact, Size
from everlight_experiments.continual.benchmarks.config import (
    UNNAMED,
    BenchmarkConfig,
    Dtype,
    Features,
    Replay,
    Side,
    refuse_options,
    unread_of_protocol,
)
from everlight_experiments.continual.benchmarks.run_data import Seeds
from everlight_experiments.continual.benchmarks.statements import (
    NOTHING_TUNED,
    Statements,
    general_statement,
)
from everlight_experiments.facts.published_tables import TABLES
from everlight_experiments.run_folder.options import Count, Preset, Rate

GRIDS: Mapping[str, tuple[float, ...]] = {
    "IMM mode": (1e-4, 1e-3, 1e-2, 1e-1),
    "MAS": (0.1, 1, 10, 100, 1000),
}
# The paper's methods, EWC, IMM's mean, and the values that SI's and MAS's papers recommend.
PAPER_METHODS: dict[str, Method] = {
    method.name: method
    for method in with_published(
        [
            METHODS["naive" if name == "finetune" else name]._replace(name=name)
            for name in (*TABLES[:-1], "EWC", "IMM mean", "joint")
        ]
    )
}


@dataclass(frozen=True)
class Network:
    """Joint embedding of subject, predicate and object, and Adam's learning rate."""

    side: Side = 32
    """Side of the images in pixels."""
    trunk: tuple[Count, ...] = (16, 32)
    """Channels of the shared convolutional blocks, one number per block."""
    branch: Count = 32
    """Channels of the block of each of the three branches."""
    hidden: Count = 128
    """Hidden units of each of the three branches."""
    learning_rate: Rate = 1e-3
    """Learning rate of Adam, which restarts at every task."""
    dtype: Dtype = "float32"


@dataclass(frozen=True)
class Scale:
    """Number of facts, tasks and examples, and the training of every task."""

    facts: Count | None
    """Number of facts, those with the most training images; None is all."""
    tasks: Count
    """Number of tasks that the facts are divided into."""
    per_fact: tuple[Count, Count]
    """Largest number of training and of test images per fact."""
    protocol: Annotated[Protocol, UNNAMED]
    """Epochs and batches of every task."""
    replay_batch_size: Replay = None

    @property
    def size(self) -> Size:
        """Return the number of facts, tasks and examples."""
        return Size(self.facts, self.tasks, PerFact(*self.per_fact))


@dataclass(frozen=True)
class FactsConfig(BenchmarkConfig):
    """Data, network and training of the benchmark."""

    # A checksum stands for features.
    not_identifying: ClassVar[tuple[str, ...]] = ("features", "memory_limit", "chosen")
    data: Annotated[FactSource, UNNAMED]
    network: Annotated[Network, UNNAMED]
    scale: Annotated[Scale, UNNAMED]
    features: Features = None
    chosen: Statements = NOTHING_TUNED

    @property
    def replaced_by_features(self) -> tuple[str, ...]:
        """Options of the convolutions."""
        return ("trunk", "branch")

    @property
    def unread_of_training(self) -> dict[str, str]:
        """Options of training that have no effect: reason and remedy."""
        protocol = self.scale.protocol
        without = "here, where no task has validation images"
        validating = {
            "select": f"{without}; give last" if protocol.select == "best" else "",
            "plateau-factor": f"{without}; leave it out" if protocol.plateau_factor != 1 else "",
        }
        reasons = {option: reason for option, reason in validating.items() if reason}
        return unread_of_protocol(protocol) | reasons

    def unread(
        self, benchmark: str = "", settings: Collection[str] = (), has_rows: bool = False
    ) -> dict[str, str]:
        """Return the options that features replace, and those of other sources, as the base."""
        unread = super().unread(benchmark, settings, has_rows)
        unread |= self.unread_of_training
        if self.data.splits is None:
            unread["memory-limit"] = "without --splits; leave it out"
        else:
            unread |= dict.fromkeys(("data", "scenes"), "with --splits; leave it out")
        if self.data.data != "procedural":
            unread["scenes"] = "without --data procedural; leave it out"
        return unread


@dataclass(frozen=True)
class PaperScale:
    """One of the paper's benchmarks and the methods that are trained on it."""

    scale: Annotated[Scale, UNNAMED]
    methods: tuple[str, ...] = tuple(PAPER_METHODS)
    """Methods to train: ExpertGate, finetune, IMM mode, SI, MAS, EWC, IMM mean, joint, and
    the published hyper-parameters, as in "SI, published"."""
    seeds: Seeds = 3
    """Number of evaluation seeds, each with its own initialization."""
    hyperparameters: Count = 5
    """Number of hyper-parameter values per method, the middle ones of its grid."""


@dataclass(frozen=True)
class PaperConfig:
    """Configuration of the paper's command."""

    data: Annotated[FactSource, UNNAMED]
    network: Annotated[Network, UNNAMED]
    scales: Annotated[Mapping[str, PaperScale], UNNAMED]
    """The paper's benchmarks by name, mid-scale and large-scale."""
    seeds: Seeds | None = None
    """Number of evaluation seeds of every benchmark; None is each benchmark's own."""
    chosen: Statements = NOTHING_TUNED

    def check_changed(self, options: Sequence[str]) -> None:
        """Refuse options that no benchmark of the paper reads.

        Raises:
          DataError: the message has the first of them and the remedy.
        """
        for name in self.scales:
            config = scale_config(self, name)
            training = {
                f"{name}.{option}": reason.replace("--", f"--{name}.")
                for option, reason in config.unread_of_training.items()
            }
            refuse_options(options, config.unread() | training)


def _last(epochs: int, batch_size: int) -> Protocol:
    # The last epoch: joint training would be selected by the last task's validation alone.
    return Protocol(epochs=epochs, batch_size=batch_size, select="last")


DEMO = PaperConfig(
    FactSource("procedural"),
    Network(),
    {
        "mid-scale": PaperScale(
            Scale(60, 4, (60, 20), _last(6, 32)),
            ("ExpertGate", "finetune", "IMM mode", "MAS", "joint"),
            seeds=1,
            hyperparameters=2,
        )
    },
    chosen=general_statement(
        "The learning rate is the best of 0.0003, 0.001 and 0.003 for finetune and joint on "
        "held-out scenes of two validation seeds. Sizes and epochs are limited by the demo's time."
    ),
)
SMALL = PaperConfig(
    FactSource(),
    Network(),
    {
        "mid-scale": PaperScale(Scale(186, 4, (25, 10), _last(12, 32))),
        "large-scale": PaperScale(
            Scale(None, 8, (20, 3), _last(4, 32)), (*TABLES, "SI, published", "MAS, published")
        ),
    },
    chosen=general_statement(
        "Learning rates were compared for finetune and joint on held-out scenes of two "
        "validation seeds, mid-scale. With 6 epochs 0.001 is the best of 0.0003, 0.001 and 0.003; "
        "with 12, as here, its mean Top-5 is 0.011 below that of 0.0003. It was not changed. The "
        "rest is limited by two cores."
    ),
)
FULL = PaperConfig(
    FactSource(),
    Network(side=64, trunk=(64, 128, 256), branch=256, hidden=1024),
    {
        "mid-scale": PaperScale(Scale(186, 4, (150, 75), _last(30, 64)), seeds=5),
        "large-scale": PaperScale(Scale(None, 8, (100_000, 100_000), _last(10, 64))),
    },
    chosen=general_statement("The paper gives none, and these were not chosen on any data."),
)
PAPER_PRESETS: Mapping[Preset, PaperConfig] = {"demo": DEMO, "small": SMALL, "paper": FULL}


def scale_config(config: PaperConfig, name: str) -> FactsConfig:
    """Return the configuration of one of the paper's benchmarks."""
    return FactsConfig(config.data, config.network, config.scales[name].scale, chosen=config.chosen)


PRESETS: Mapping[Preset, FactsConfig] = {
    preset: scale_config(config, "mid-scale") for preset, config in PAPER_PRESETS.items()
}
