"""What every run of strategies on a benchmark can be asked for, and how its tasks are trained."""

import dataclasses
from typing import Annotated, Literal, NamedTuple, get_args

from everlight.checks import Between
from everlight_experiments.common.plan_settings import PlannedRun, changed_plan
from everlight_experiments.common.settings import Count, Rate
from everlight_experiments.continual.benchmark import TUNING_SEED

WIDENING = ("methods", "strategy", "setting", "seeds", "published")
"""Settings that say which runs there are, and change none of them."""

Seeds = Annotated[int, Between(1, TUNING_SEED)]
Option = Literal["task-incremental", "class-incremental", "online"]
OPTIONS: tuple[Option, ...] = get_args(Option)


Dtype = Literal["float32", "bfloat16"]
"""Of a net's computation; parameters, statistics and losses are float32."""


def computed_in(dtype: Dtype) -> str:
    """Behind a net's name in reports; nothing where it is as usual."""
    return "" if dtype == "float32" else f", computed in {dtype} below its head"


def in_replay_batches(size: int | None) -> str:
    """Return what a report adds to the exemplars where a replay batch size is set."""
    return "" if size is None else f", replayed in batches of {size}"


def without_unset(facts: dict) -> dict:
    """Return a run's facts without sizes of memory that are None, so that older runs are found."""
    sizes = ("replay_batch_size", "buffer_size")
    return {name: value for name, value in facts.items() if name not in sizes or value is not None}


class Plan(NamedTuple):
    """How tasks are trained; each of it can be given on the command line."""

    tasks: Count
    epochs: Count
    """Of a task; online there is one pass."""
    batch_size: Count
    """Samples a step."""
    online_batch: Count
    """The same where every sample comes once."""
    learning_rate: Rate
    """Of gradient descent."""
    exemplars_per_class: Count
    """Of every class, where a method keeps any; a memory that classes share has as many in all."""
    chosen: str
    """How all this was chosen, for the report."""
    dtype: Dtype = "float32"
    replay_batch_size: Count | None = None
    """Samples that "ER", DER++, ER-ACE and A-GEM draw from memory per step; None is as
    many as a step has. It has no effect on other methods."""
    blocks: Annotated[int, Between(0, 100)] = 0
    """Of each stage of a reduced ResNet, for pictures; 0 is a plain net of two convolutions."""
    buffer_size: Count | None = None
    """Samples that a memory holds in all, in the place of `exemplars_per_class`."""


@dataclasses.dataclass(frozen=True)
class StrategiesRun(PlannedRun):
    """Strategies on a benchmark; None is the benchmark's own value."""

    methods: tuple[str, ...] | None = None
    """Names of methods from the list above, in quotes where they contain spaces. None is every
    method that the benchmark supports. The baseline naive always runs."""
    strategy: tuple[str, ...] = ()
    """Your own strategies, each as my_file.py:my_strategy, a function from a `Setup` to a
    `Strategy` (docs/guide/strategy.md)."""
    hyperparameters: tuple[str, ...] = ()
    """Values to try instead of those in the list above, one entry per method, as in
    EWC=1e2,1e4,1e6 SI=0.1. A single value is used without tuning. icifar, CORe50 and facts try
    other values for some methods by default."""
    setting: tuple[Option, ...] | None = None
    """Settings to run: task-incremental (task identity given at test), class-incremental (not
    given; None is this one) or online (one pass). Only the image benchmarks and icifar take it;
    iirc, CORe50 and facts have their own settings."""
    published: bool = True
    """Add a row with the hyper-parameter that each method's paper recommends."""
    seeds: Seeds = 3
    """Number of evaluation seeds, counted up from --seed: 0 to N-1 by default. Each has its own
    task order (facts: its own initialization). More can be added later."""
    epochs: Count | None = None
    """Number of epochs per task; online runs have one pass. None is the benchmark's own value."""
    batch_size: Count | None = None
    """Number of new samples per training step. None is the benchmark's own value."""
    learning_rate: Rate | None = None
    """Learning rate of the optimizer. None is the benchmark's own value."""
    exemplars_per_class: Count | None = None
    """Number of stored samples per class; a shared memory holds this many times the number of
    classes. None is the benchmark's own value."""
    replay_batch_size: Count | None = None
    """Number of samples that ER, DER++, ER-ACE and A-GEM replay per step; None is the batch
    size."""
    buffer_size: Count | None = None
    """Total number of stored samples, which the seen classes share. None is the number that
    follows from --exemplars-per-class."""
    dtype: Dtype | None = None
    """Data type of the network's computation; parameters, statistics and losses are float32. None
    is float32."""
    validation_seeds: Count = 2
    """Number of validation seeds, which select hyper-parameters and are never evaluated. They are
    counted up from --seed + 1000; iirc and CORe50 take their last task orders instead."""
    keep_nets: bool = False
    """Save every trained network after every task, in the folder models/ of the run; the Python
    function `load_net` loads them."""
    features: str | None = None
    """Learn from features instead of images: efficientnet-lite0 computes them by a pretrained
    network, FILE.npz holds your own with labels. None learns from the images."""

    @property
    def scenarios(self) -> tuple[str, ...]:
        """In the order of `OPTIONS`."""
        asked = ("class-incremental",) if self.setting is None else self.setting
        return tuple(option for option in OPTIONS if option in asked)


def planned(default: Plan, settings: StrategiesRun) -> Plan:
    """The plan with what the settings give.

    Raises:
      DataError: a setting of the plan that there is not, or a value that it cannot have.
    """
    asked = {
        name: value for name in Plan._fields if (value := getattr(settings, name, None)) is not None
    }
    if settings.batch_size is not None:
        asked["online_batch"] = settings.batch_size
    return changed_plan(default, asked | settings.plan)
