"""What each preset of the CORe50 runs changes.

Presets:
  demo: the procedural world in CORe50's structure at 32x32, one run; a small net that has learnt
    other objects of such a world first, in place of ILSVRC-2012; three minutes on two cores.
  small: the same with more frames and three runs.
  paper: the prepared release below EVERLIGHT_DATA, Mid-CaffeNet or, by `--net`, Mid-VGG at 128x128,
    ten runs (cumulative five of NC, three of NIC), the authors' rates and iterations, which are the
    same for both; meant for an accelerator. Weights learnt on ILSVRC-2012 are the user's to give,
    by `--weights`; otherwise it begins at random.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from everlight.continual.engine.protocol import Protocol
from everlight_data.errors import DataError
from everlight_experiments.common.settings import Count, Preset, Rate
from everlight_experiments.continual.plan import Dtype, computed_in

Approach = Literal["tuned", "frozen", "cumulative"]
"""Which of a plan's lengths a method has: naive's, CWR's or cumulative's."""
CaffeNet = Literal["Mid-CaffeNet", "Mid-VGG"]
BatchScenario = Literal["NI", "NC", "NIC"]
SCENARIOS: tuple[BatchScenario, ...] = ("NI", "NC", "NIC")


@dataclass(frozen=True)
class Length:
    """Of the training on each batch, in steps, and the rate."""

    first: int
    later: int
    learning_rate: Rate
    later_rate: Rate | None = None
    """Of all batches but the first; None is the same."""

    @property
    def later_factor(self) -> float:
        """On the rate, in all batches but the first."""
        return 1.0 if self.later_rate is None else self.later_rate / self.learning_rate


@dataclass(frozen=True)
class Pretraining:
    """Of the small net, on the procedural world's other objects."""

    subclasses: int = 5
    """Of each of 12 families of shapes."""
    images: int = 60
    """Of each subclass."""
    epochs: int = 8
    learning_rate: Rate = 2e-3
    """Adam's."""


@dataclass(frozen=True)
class Plan:
    """What a preset changes."""

    data: Literal["procedural", "core50"]
    net: Literal["small"] | CaffeNet
    side: int
    tuned: Mapping[BatchScenario, Length]
    """Of methods that go on training the whole net."""
    frozen: Length
    """Of methods that train a head over the frozen trunk's features."""
    cumulative: Length
    """From the common beginning at every batch."""
    fine_tuning: Length
    """Of the static benchmark."""
    scratch: Length
    """Of the static benchmark's net that begins at random."""
    batch_size: int
    orders: int
    """Runs, each with the published order of its number."""
    gain: float
    """CWR's, of the weights consolidated at the first batch of NC and NIC: 3 as published, less in
    demo and small, where 3 leaves its classes all predictions."""
    chosen: str
    """How lengths, rates and gain came about, for the report."""
    cumulative_orders: Mapping[BatchScenario, int] = field(default_factory=dict)
    """Where cumulative has fewer."""
    pretraining: Pretraining | None = None
    """None for nets whose weights the user gives."""
    frames: int = 300
    """Of every object and session, of the procedural world."""
    test_frames: int | None = None
    """Of every object and session in tests after batches, evenly spaced; None is all."""
    channels: tuple[int, int] = (8, 16)
    """Of the small net."""
    hidden: int = 1024
    """Of the small net."""
    dense_rate: float = 10.0
    """Factor on the rate of the whole nets' fully connected layers; biases have twice as much."""
    dtype: Dtype = "float32"
    replay_batch_size: Count | None = None
    """Samples that methods draw from memory per step; None is as many as a step has."""

    @property
    def net_description(self) -> str:
        """For the report."""
        small = f"small CNN, channels {self.channels}, {self.hidden} hidden units"
        return (small if self.net == "small" else self.net) + computed_in(self.dtype)


def choose_net(plan: Plan, net: CaffeNet | None) -> Plan:
    """The plan with another of the paper's nets; None keeps its own.

    Raises:
      DataError: there is no such net, or the plan's is the small one.
    """
    if net is None:
        return plan
    if net not in get_args(CaffeNet):
        raise DataError(f"--net {net}; give {' or '.join(get_args(CaffeNet))}")
    if plan.net == "small":
        raise DataError(f"--net {net}: this preset has the small net; use --preset paper")
    return replace(plan, net=net)


def protocol_of(length: Length, batch_size: int) -> Protocol:
    """The protocol of equally many steps a batch, whatever it holds; nothing is validated."""
    chunk = math.gcd(length.first, length.later)
    return Protocol(
        epochs=length.later // chunk,
        first_epochs=length.first // chunk,
        batch_size=batch_size,
        epoch_steps=chunk,
        select="last",
        evaluation_batch=128,
    )


_ON_TRAINING_SESSIONS = (
    "Hidden units, learning rates and gain have the highest mean accuracy over batches on training "
    "sessions 6 and 11, with the steps of the preset small. The last published orders serve as "
    "validation seeds. Numbers of steps are limited by two cores."
)
PLANS: Mapping[Preset, Plan] = {
    "demo": Plan(
        data="procedural",
        net="small",
        side=32,
        tuned={
            "NI": Length(60, 6, 1e-3),
            "NC": Length(60, 20, 1e-3, 1e-4),
            "NIC": Length(60, 20, 1e-3, 1e-4),
        },
        frozen=Length(30, 30, 3e-3),
        cumulative=Length(120, 120, 1e-3),
        fine_tuning=Length(240, 240, 1e-2),
        scratch=Length(480, 480, 1e-2),
        batch_size=32,
        orders=1,
        gain=1.5,
        chosen=_ON_TRAINING_SESSIONS,
        pretraining=Pretraining(),
        frames=8,
        test_frames=2,
        dense_rate=1.0,
    ),
    "small": Plan(
        data="procedural",
        net="small",
        side=32,
        tuned={
            "NI": Length(120, 6, 1e-3),
            "NC": Length(120, 20, 1e-3, 1e-4),
            "NIC": Length(120, 20, 1e-3, 1e-4),
        },
        frozen=Length(30, 30, 3e-3),
        cumulative=Length(120, 120, 1e-3),
        fine_tuning=Length(960, 960, 1e-2),
        scratch=Length(1920, 1920, 1e-2),
        batch_size=32,
        orders=3,
        gain=1.5,
        chosen=_ON_TRAINING_SESSIONS,
        pretraining=Pretraining(images=120),
        frames=20,
        test_frames=4,
        dense_rate=1.0,
    ),
    "paper": Plan(
        data="core50",
        net="Mid-CaffeNet",
        side=128,
        tuned={
            "NI": Length(2000, 100, 1e-3),
            "NC": Length(2000, 300, 1e-3, 1e-5),
            "NIC": Length(2000, 300, 1e-3, 1e-4),
        },
        frozen=Length(300, 300, 1e-4),
        cumulative=Length(2000, 2000, 1e-3),
        fine_tuning=Length(2000, 2000, 1e-3),
        scratch=Length(10_000, 10_000, 1e-2),
        batch_size=256,
        orders=10,
        gain=3.0,
        chosen="All is as published.",
        cumulative_orders={"NC": 5, "NIC": 3},
    ),
}
