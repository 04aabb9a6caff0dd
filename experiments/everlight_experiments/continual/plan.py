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
    """Names of methods; quote names that contain spaces. None is every applicable one; naive always
    runs."""
    strategy: tuple[str, ...] = ()
    """Your own strategy, my_file.py:my_strategy, a function from a `Setup` to a `Strategy`."""
    hyperparameters: tuple[str, ...] = ()
    """Grids that replace the default ones, as in EWC=1e2,1e4,1e6; a single number is used as it
    is."""
    setting: tuple[Option, ...] | None = None
    """Settings to run: task-incremental gives the task identity at test, class-incremental does
    not, online is class-incremental in one pass; None is class-incremental."""
    published: bool = True
    """Add a row with the hyper-parameter that each method's paper recommends."""
    seeds: Seeds = 3
    """Number of evaluation seeds, each with its own class order; more can be added later."""
    epochs: Count | None = None
    """Number of epochs per task; online runs have one pass."""
    batch_size: Count | None = None
    """Number of new samples per training step."""
    learning_rate: Rate | None = None
    """Learning rate of the optimizer."""
    exemplars_per_class: Count | None = None
    """Number of stored samples per class; a shared memory holds this many times the number of
    classes."""
    replay_batch_size: Count | None = None
    """Number of samples that ER, DER++, ER-ACE and A-GEM replay per step; None is the batch
    size."""
    buffer_size: Count | None = None
    """Total number of stored samples, instead of --exemplars-per-class; seen classes share them."""
    dtype: Dtype | None = None
    """Data type of the network's computation; parameters, statistics and losses are float32."""
    validation_seeds: Count = 2
    """Number of validation seeds, whose class orders select hyper-parameters."""
    keep_nets: bool = False
    """Keep the trained network after every task in the run's folder, for `load_net`."""
    features: str | None = None
    """Features instead of images: efficientnet-lite0 computes them, FILE.npz holds features with
    labels."""

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
