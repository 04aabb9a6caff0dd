"""What every run of strategies on a benchmark can be asked for, and how its tasks are trained."""

import dataclasses
from typing import Annotated, Literal, NamedTuple, get_args

from everlight.checks import Between
from experiments.common.plan_settings import PlannedRun, changed_plan
from experiments.common.settings import Count, Rate
from experiments.continual.benchmark import TUNING_SEED

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
    """Names of the table of methods, each in quotes; None is all that make sense. naive is always
    among them."""
    strategy: tuple[str, ...] = ()
    """Of your own: my_file.py:my_strategy, a function from a `Setup` to a `Strategy`."""
    hyperparameters: tuple[str, ...] = ()
    """Grids in the place of the table's, as in EWC=1e2,1e4,1e6; of one number, that is taken."""
    setting: tuple[Option, ...] | None = None
    """Whether the test tells the task; online it does not, and every sample comes once. None is not
    told."""
    published: bool = True
    """Also the hyperparameter that a method's paper recommends, as a row beside the tuned one."""
    seeds: Seeds = 3
    """Runs of every method, each with its own order of classes; more can be added later."""
    epochs: Count | None = None
    """Of a task; online there is one pass."""
    batch_size: Count | None = None
    """Samples a step."""
    learning_rate: Rate | None = None
    """Of gradient descent."""
    exemplars_per_class: Count | None = None
    """Of every class, where a method keeps any; a memory that classes share has so many times the
    classes."""
    replay_batch_size: Count | None = None
    """Samples that "ER", DER++, ER-ACE and A-GEM draw from memory per step; None is as
    many as a step has. It has no effect on other methods."""
    buffer_size: Count | None = None
    """Samples that a memory holds in all, in the place of exemplars per class: the classes seen so
    far share them, and a reservoir has as many."""
    dtype: Dtype | None = None
    """Of the net's computation; parameters, statistics and losses are float32."""
    validation_seeds: Count = 2
    """Unreported orders of classes whose validation samples choose hyperparameters."""
    keep_nets: bool = False
    """Leave the trained net after every task in the run's folder; `load_net` reads it."""
    features: str | None = None
    """In the place of images: efficientnet-lite0 computes its own, FILE.npz holds some with
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
