"""CORe50 (Lomonaco and Maltoni 2017): batches of new instances (NI), new classes (NC) or both.

Presets:
  demo: the procedural world in CORe50's structure at 32x32 pixels, one run; a small network that
    is pretrained on other objects of such a world, in place of ILSVRC-2012; three minutes on two
    cores.
  small: the same with more frames and three runs.
  paper: the prepared release below EVERLIGHT_DATA, Mid-CaffeNet or, by `--net`, Mid-VGG at 128x128,
    ten runs (cumulative five of NC, three of NIC), the authors' learning rates and iterations,
    which are the same for both; meant for an accelerator. Weights of ILSVRC-2012 are given by
    `--weights`; without them training begins at random.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from everlight.checks import Between
from everlight.continual import Protocol, fixed_steps_protocol
from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight.scenarios.core50 import Level
from everlight_data.errors import DataError
from everlight_experiments.continual.benchmarks.config import (
    UNNAMED,
    BenchmarkConfig,
    Dtype,
    Features,
    Replay,
    Side,
    refuse_options,
)
from everlight_experiments.continual.benchmarks.statements import (
    AS_PUBLISHED,
    NOTHING_TUNED,
    Statements,
    general_statement,
)
from everlight_experiments.run_folder.options import Count, Preset, Rate

CITATION = (
    "Lomonaco and Maltoni 2017, "
    '"CORe50: a New Dataset and Benchmark for Continuous Object Recognition"'
)
Scenario = Literal["NI", "NC", "NIC"]
SCENARIOS: tuple[Scenario, ...] = ("NI", "NC", "NIC")
Orders = Annotated[int, Between(1, 10)]
PAPER_METHODS: Mapping[Scenario, tuple[str, ...]] = {
    "NI": ("naive", "cumulative"),
    "NC": ("naive", "CWR", "cumulative"),
    "NIC": ("naive", "CWR", "cumulative"),
}
# The paper's three, CWR in both forms, then others at hyper-parameters that were not tuned and do
# not diverge in NI.
_PLAIN = ("naive", "CWR", "CWR as coded", "cumulative", "ER-balanced", "A-GEM")
FIXED: dict[str, Method] = {name: METHODS[name] for name in _PLAIN} | {
    name: METHODS[name]._replace(hyperparameters=(value,))
    for name, value in {"EWC": 1.0, "SI": 1.0, "MAS": 0.01, "LwF": 1.0}.items()
}
# Their gradients are added to that of the loss.
GRIDS = {
    "EWC": (0.01, 0.1, 1, 10),
    "online EWC": (0.01, 0.1, 1, 10),
    "SI": (0.01, 0.1, 1, 10),
    "MAS": (1e-4, 1e-3, 1e-2, 1e-1),
    "AR1": (1e3, 1e4, 1e5),
    "AR1*": (1e3, 1e4, 1e5),
}


@dataclass(frozen=True)
class Length:
    """Steps and learning rate of the training on every batch."""

    first: Count
    """Training steps on the first batch."""
    later: Count
    """Training steps on every later batch."""
    learning_rate: Rate
    """Learning rate of the optimizer."""
    later_rate: Rate | None = None
    """Learning rate on later batches; None is the same."""

    @property
    def later_factor(self) -> float:
        """Factor of the learning rate on later batches."""
        return 1.0 if self.later_rate is None else self.later_rate / self.learning_rate

    def protocol(self, batch_size: int) -> Protocol:
        """Return the protocol of these steps."""
        protocol = fixed_steps_protocol(self.first, self.later, batch_size)
        return replace(protocol, evaluation_batch=128)

    @property
    def words(self) -> str:
        """Return steps and rates in words, for reports."""
        later = self.learning_rate * self.later_factor
        return f"{self.first} at {self.learning_rate:g}, then {self.later} at {later:g}"

    @property
    def rates_in_words(self) -> str:
        """Return the learning rates in words, for tables."""
        first = f"{self.learning_rate:g}"
        return first if self.later_rate is None else f"{first}, then {self.later_rate:g}"


@dataclass(frozen=True)
class Pretraining:
    """Training of the small network on other objects of the procedural world, before all else."""

    subclasses: Count = 5
    """Number of objects in each of 12 families of shapes."""
    images: Count = 60
    """Number of images of each object."""
    epochs: Count = 8
    """Number of training epochs."""
    learning_rate: Rate = 2e-3
    """Learning rate of Adam."""


@dataclass(frozen=True, kw_only=True)
class Base(BenchmarkConfig):
    """Data, network and optimizer."""

    # Checksums stand for the data and the initial weights.
    not_identifying: ClassVar[tuple[str, ...]] = ("data", "partial", "weights", "chosen")
    data: Literal["procedural", "core50"] = "procedural"
    """Frames: the procedural world, or the prepared release below EVERLIGHT_DATA."""
    partial: bool = False
    """Run on an incomplete release too and report its number of frames."""
    frames: Count = 8
    """Number of frames per object and session of the procedural world."""
    test_frames: Count | None = None
    """Number of test frames per object and session, evenly spaced; None is all."""
    side: Side = 32
    """Side of the images in pixels."""
    net: Literal["small", "Mid-CaffeNet", "Mid-VGG"] = "small"
    """Network: a small CNN, or one of the paper's."""
    weights: Path | None = None
    """Path of an .npz with a Caffe network's pretrained layers, for the paper's networks."""
    pretraining: Pretraining = Pretraining()
    """Training of the small network on other objects, before the first batch."""
    channels: tuple[Count, Count] = (8, 16)
    """Channels of the small network."""
    hidden: Count = 1024
    """Hidden units of the small network."""
    dense_rate: Rate = 1.0
    """Factor of the learning rate in fully connected layers of whole networks; biases have twice
    their layer's."""
    batch_size: Count = 32
    """Samples per training step."""
    dtype: Dtype = "float32"
    chosen: Statements = NOTHING_TUNED

    def unread(
        self, benchmark: str = "", settings: Collection[str] = (), has_rows: bool = False
    ) -> dict[str, str]:
        """Return the options of other frames and networks, and those that features replace."""
        unread = super().unread(benchmark, settings, has_rows)
        if self.data == "procedural":
            unread["partial"] = "without --data core50; leave it out"
        else:
            unread["frames"] = f"with --data {self.data}, which has all of its frames; leave it out"
        if self.net != "small":
            sizes = dict.fromkeys(
                ("pretraining", "channels", "hidden"), f"with --net {self.net}; leave it out"
            )
            unread = sizes | unread
        return unread


@dataclass(frozen=True, kw_only=True)
class Core50Config(Base):
    """A benchmark of batches that arrive one after another."""

    # Every method's own `Length` identifies its runs.
    not_identifying: ClassVar[tuple[str, ...]] = (
        *Base.not_identifying,
        *("ni", "nc", "nic", "head", "cumulative", "features"),
    )
    ni: Length
    """Training of whole networks on batches of new instances."""
    nc: Length
    """Training of whole networks on batches of new classes."""
    nic: Length
    """Training of whole networks on batches of new instances and classes."""
    head: Length
    """Training of heads over the frozen trunk's features."""
    cumulative: Length
    """Training of cumulative, which restarts at every batch."""
    gain: Annotated[float, Between(0, 1_000)]
    """CWR's factor on weights consolidated at the first batch of NC and NIC; published is 3."""
    replay_batch_size: Replay = None
    features: Features = None

    @property
    def replaced_by_features(self) -> tuple[str, ...]:
        """Options of the layers below the head; its initial values are those of --net."""
        return ("weights", "pretraining", "channels", "hidden", "dense-rate", "dtype")

    def unread(
        self, benchmark: str = "", settings: Collection[str] = (), has_rows: bool = False
    ) -> dict[str, str]:
        """Return the options of the other scenarios too."""
        scenario = benchmark.removeprefix("core50-")
        others = {"ni", "nc", "nic"} - {scenario} if benchmark else set()
        if scenario == "ni":
            others.add("gain")
        elsewhere = dict.fromkeys(others, f"by {benchmark}; leave it out")
        return super().unread(benchmark, settings, has_rows) | elsewhere


@dataclass(frozen=True)
class PaperConfig:
    """Options of the paper's command."""

    benchmark: Annotated[Core50Config, UNNAMED]
    scenarios: tuple[Scenario, ...] = SCENARIOS
    """Scenarios to run: NI has 8 batches, NC 9 and NIC 79."""
    methods: tuple[str, ...] | None = None
    """Methods to train: naive, CWR, CWR as coded, cumulative, EWC, SI, MAS, LwF, ER-balanced,
    A-GEM; None is the paper's of each scenario."""
    level: Level = "object"
    """Classes to predict: the 50 objects or the 10 categories."""
    orders: Orders = 10
    """Number of runs, each with the published order of its number."""
    cumulative_orders: tuple[Orders, Orders, Orders] = (10, 10, 10)
    """Largest number of runs of cumulative in NI, NC and NIC."""

    def check_changed(self, options: Sequence[str]) -> None:
        """Refuse options of scenarios that are not run, and a scenario that is named twice.

        Raises:
          DataError: the message has the first of them and the remedy.
        """
        for scenario in self.scenarios:
            if self.scenarios.count(scenario) > 1:
                raise DataError(f"--scenarios has {scenario} twice; give it once")
        reasons = {
            scenario.lower(): f"without --scenarios {scenario}; leave it out"
            for scenario in SCENARIOS
            if scenario not in self.scenarios
        }
        if {*self.scenarios} == {"NI"}:
            reasons["gain"] = "without --scenarios NC or NIC; leave it out"
        refuse_options(options, reasons)


ON_TRAINING_SESSIONS = general_statement(
    "Hidden units, learning rates and gain have the highest mean accuracy over batches on "
    "training sessions 6 and 11, with the steps of the preset small. The last published orders "
    "serve as validation seeds. Numbers of steps are limited by two cores."
)
DEMO = Core50Config(
    frames=8,
    test_frames=2,
    ni=Length(60, 6, 1e-3),
    nc=Length(60, 20, 1e-3, 1e-4),
    nic=Length(60, 20, 1e-3, 1e-4),
    head=Length(30, 30, 3e-3),
    cumulative=Length(120, 120, 1e-3),
    # At the published 3 the first batch's classes are all predictions.
    gain=1.5,
    chosen=ON_TRAINING_SESSIONS,
)
SMALL = replace(
    DEMO,
    frames=20,
    test_frames=4,
    ni=Length(120, 6, 1e-3),
    nc=Length(120, 20, 1e-3, 1e-4),
    nic=Length(120, 20, 1e-3, 1e-4),
    pretraining=Pretraining(images=120),
)
FULL = Core50Config(
    data="core50",
    frames=300,
    side=128,
    net="Mid-CaffeNet",
    dense_rate=10.0,
    batch_size=256,
    ni=Length(2000, 100, 1e-3),
    nc=Length(2000, 300, 1e-3, 1e-5),
    nic=Length(2000, 300, 1e-3, 1e-4),
    head=Length(300, 300, 1e-4),
    cumulative=Length(2000, 2000, 1e-3),
    gain=3.0,
    chosen=AS_PUBLISHED,
)
PRESETS: Mapping[Preset, Core50Config] = {"demo": DEMO, "small": SMALL, "paper": FULL}
PAPER_PRESETS: Mapping[Preset, PaperConfig] = {
    "demo": PaperConfig(DEMO, orders=1),
    "small": PaperConfig(SMALL, orders=3),
    "paper": PaperConfig(FULL, cumulative_orders=(10, 5, 3)),
}
