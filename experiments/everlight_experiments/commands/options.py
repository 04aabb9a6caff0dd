"""Options of the commands that train methods on a benchmark."""

import dataclasses
from typing import Annotated, Literal, get_args

import tyro

from everlight.checks import Between
from everlight_experiments.common.settings import Count, RunSettings
from everlight_experiments.continual.benchmark import VALIDATION_SEED

Option = Literal["task-incremental", "class-incremental", "online"]
SETTINGS: tuple[Option, ...] = get_args(Option)
Seeds = Annotated[int, Between(1, VALIDATION_SEED)]
WIDENING = ("methods", "strategy", "setting", "seeds", "published")
"""Options that say which runs there are, and change none of them."""


@dataclasses.dataclass(frozen=True)
class BenchmarkOptions(RunSettings):
    """Options of every command on one benchmark; `with_config` adds those of its configuration."""

    benchmark: tyro.conf.Positional[str] = ""
    """Name of the benchmark, with an optional preset as in tiny-imagenet:small. There are digits,
    fashion-mnist, mnist, procedural, tiny-imagenet, cifar100, icifar, iirc, core50-ni, core50-nc,
    core50-nic, facts, and images for your own --data."""
    setting: tuple[Option, ...] | None = None
    """Settings to run: task-incremental gives the task identity at test, class-incremental does
    not, online is class-incremental in one pass; None is class-incremental. iirc, core50 and facts
    have their own."""
    validation_seeds: Count = 2
    """Number of validation seeds, which select hyper-parameters; they begin at --seed + 1000 and
    are never evaluated on."""


@dataclasses.dataclass(frozen=True)
class RunOptions(BenchmarkOptions):
    """Train any methods on one benchmark or on your own images."""

    methods: tuple[str, ...] | None = ("joint", "EWC", "ER", "DER++", "nearest mean")
    """Names of methods; quote names that contain spaces. None is every applicable one; naive always
    runs."""
    strategy: tuple[str, ...] = ()
    """Your own strategy, my_file.py:my_strategy, a function from a `Setup` to a `Strategy`."""
    hyperparameters: tuple[str, ...] = ()
    """Grids that replace the default ones, as in EWC=1e2,1e4,1e6; a single number is used as it
    is."""
    published: bool = True
    """Add a row with the hyper-parameter that each method's paper recommends."""
    seeds: Seeds = 3
    """Number of evaluation seeds, from --seed on, each with its own class order; more can be added
    later."""
    keep_nets: bool = False
    """Keep the trained network after every task in the run's folder, for `load_net`."""
