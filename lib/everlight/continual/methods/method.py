"""Methods: a strategy's factory with its hyper-parameters, requirements and words for reports."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from flax.core import FrozenDict
from jaxtyping import Array, Float, Int

from everlight.base import Setup, Strategy
from everlight.continual.ema import with_ema
from everlight.models.heads import HeadKind
from everlight.scenarios.iirc import LabelSetting

Trains = Literal["net", "head"]
Requirement = Literal[
    "task-incremental",
    "class scores",
    "one label",
    "multi-label",
    "disjoint classes",
    "task boundaries",
    "chosen classes",
    "named head",
    "head kinds",
    "hidden layers",
    "layer inputs",
    "layer outputs",
    "stages",
    "last weights",
    "pretrained layers",
    "pretrained transformer",
]
SINGLE_LABEL_SCORES: tuple[Requirement, ...] = ("class scores", "one label")
"""Requirements of methods that compare, count or normalize class scores, of one label each."""
OTHER_WEIGHTS: tuple[Requirement, ...] = (*SINGLE_LABEL_SCORES, "last weights")
"""Requirements of those that predict by other values than the last weights."""
PER_TASK_WEIGHTS: tuple[Requirement, ...] = (
    *("task-incremental", "class scores", "named head", "hidden layers", "last weights"),
    "disjoint classes",
)
"""Requirements of methods whose layers have other weights for every task."""
NETWORK_REQUIREMENTS: frozenset[Requirement] = frozenset(
    ("named head", "head kinds", "hidden layers", "layer inputs", "layer outputs", "stages")
)
"""Requirements that a network meets or not, on any benchmark."""
INCOMPATIBILITIES: dict[Requirement, str] = {
    "task-incremental": "needs the task identity at test, which is not given here",
    "class scores": "needs class scores, but outputs are embeddings here",
    "one label": "needs one label per sample, but there are several here",
    "multi-label": "needs several labels per sample, but there is one here",
    "disjoint classes": "needs new classes in every task, but known ones recur here",
    "task boundaries": "acts at the start or end of a task, but tasks have no boundaries here",
    "chosen classes": "limits its loss to some of the classes, but the loss covers all here",
    "named head": "needs a linear last layer named head, which this network lacks",
    "head kinds": "needs a head of another kind, such as one of cosines; this network's module has "
    "no field head that sets it, as models.MLP has",
    "hidden layers": "needs named hidden layers; this network does not return those of all layers "
    'below a linear one named head, as Outputs(logits, features, {"hidden1": values}) does',
    "layer inputs": "needs the inputs of all layers, which only linen networks give",
    "layer outputs": "needs the outputs of a chosen layer, which only linen networks give",
    "stages": "shares all stages of the network but the last one, and this network does not state "
    "two or more, as models.MLP(classes, (256, 256)) and models.ReducedResNet do",
    "last weights": "predicts by other values than the last weights, to which a moving average of "
    "them adds nothing",
    "pretrained layers": "is made for pretrained layers, and those of this network are drawn at "
    "random",
    "pretrained transformer": "needs a pretrained vision transformer, which is not given here",
}


class StrategyArguments(NamedTuple):
    """Values of a benchmark from which strategies are made, in addition to the setup."""

    tasks: int
    """Number of tasks of the sequence."""
    classes: int
    exemplars_per_class: int
    """Stored samples per class; a shared memory holds this many times the number of classes."""
    hyperparameter: Float[Array, ""] | float = 0.0
    """Selected value of the method's hyper-parameter, where it has one."""
    implicit_rate: float | None = None
    """Learning rate divided by 1 − momentum, with which implicit steps apply a penalty exactly.
    They diverge at no value of a grid. None adds the penalty's gradient instead."""
    layers: tuple[str, ...] = ()
    """Names of the network's hidden layers, in order."""
    class_group: Int[Array, "c"] | None = None
    """Head of each class, at most one per task; None is one head."""
    labels: int = 1
    """Largest number of labels per sample."""
    importance_samples: int = 1024
    """Samples of a task from which importances are estimated."""
    replay_batch_size: int | None = None
    """Samples that a method draws from memory per step; None is the batch size."""
    buffer_size: int | None = None
    """Total number of stored samples, instead of `exemplars_per_class`."""
    ema_decay: float | None = None
    """Decay of the moving average of the weights that predicts; None predicts by the last ones."""
    arguments: Mapping[str, Any] = {}
    """Arguments of the factory that replace those of the method's row."""

    @property
    def total_buffer_size(self) -> int:
        """Return the number of samples of a memory that is not divided by classes."""
        return self.buffer_size or self.exemplars_per_class * self.classes

    @property
    def groups(self) -> int:
        """Return the number of heads."""
        return 1 if self.class_group is None else self.tasks


BENCHMARK_ARGUMENTS = frozenset((*StrategyArguments._fields, "groups")) - {"hyperparameter"}
"""Names of parameters that get a benchmark's values."""
StoredData = Literal["all samples", "samples", "old net", "statistics"]
"""Kind of data that a method keeps of earlier tasks: all their samples or some; weights of an
earlier network or an average of networks; or numbers, such as importances and class means."""


class Publication(NamedTuple):
    """Paper of a method, and the kinds of data that it keeps of earlier tasks."""

    authors: str = ""
    """Authors of the paper; empty without one, as are year and venue."""
    year: int | None = None
    venue: str = ""
    keeps: tuple[StoredData, ...] = ()


class Method(NamedTuple):
    """A row of the registry."""

    name: str
    factory: Callable[..., Strategy]
    """Function from a setup and arguments to the strategy. Parameters with the name of a value of
    `StrategyArguments` get it; the row states the other arguments."""
    publication: Publication
    summary: str
    """Description in a few words."""
    tunes: str = ""
    """Name of the argument that the hyper-parameter fills; empty without one."""
    hyperparameters: tuple[float, ...] = ()
    """Values from which one is selected; none without a hyper-parameter, one if it is fixed."""
    published: float | None = None
    """Value that its paper recommends, where it recommends one."""
    fixed: Mapping[str, Any] = FrozenDict()
    """Arguments that are the same on every benchmark."""
    derived: Callable[[StrategyArguments], dict[str, Any]] | None = None
    """Function to the arguments that follow another rule than their names."""
    trains: Trains = "net"
    """Trained part: the whole network, or a head over frozen features or over the inputs."""
    head: HeadKind = "linear"
    requirements: tuple[Requirement, ...] = ()
    """Requirements of a benchmark."""
    advised: tuple[Requirement, ...] = ()
    """Requirements without which the method runs but is of little use. `--methods all` leaves the
    method out of benchmarks without them; where it is named, a line warns."""
    benchmarks: tuple[str, ...] = ()
    """Benchmarks of the paper that the row reproduces; `--methods all` leaves it out elsewhere. An
    empty tuple is every benchmark."""
    authors: Mapping[str, Any] = FrozenDict()
    """Values of the authors, as far as they are known: by argument of the factory, or by setting of
    the command as `docs/tools/make_official_code.py` names it. Words stand for several values."""
    adapt: Callable[[Setup, Any, Mapping[str, Any], StrategyArguments], Setup] | None = None
    """Function from the setup of a pretrained network, the network, its layers and the benchmark's
    values to the setup that the strategy trains; None trains the network itself."""
    select: Literal["best", "last"] = "best"
    """Kept epoch of a task where a benchmark validates within tasks."""
    retrains_from_scratch: bool = False
    """True if each task trains a new network on all samples so far."""
    label_setting: LabelSetting = "incomplete"
    """Labels that it learns from where samples get further labels later (IIRC)."""
    nearest_mean: bool = False
    """True if it predicts by the nearest mean of stored samples itself; it then has no variants."""
    extends_network: bool = False
    """True if the network that it trains is only a part of the one that predicts; it then has no
    variants."""
    has_review: bool = True
    """True if an epoch on its stored samples by the usual loss trains the network that predicts;
    without it there is no variant "review"."""
    planned_total: Literal["tasks", "classes"] | None = None
    """Total number on which its memory, head or schedule depends from the start: of tasks, such as
    one part of a memory for each, or of classes, such as fixed directions of a head. It then cannot
    go on with a further task; None depends on neither, or only in the size of arrays."""
    takes_targets: bool = False
    """True if it reads no class, so that it learns targets of any kind (`train_targets`)."""
    version: str = ""
    """Checksum of a user's file, so that results of an earlier version are not reused."""

    @property
    def label(self) -> str:
        """Name of the method in names of runs."""
        return f"{self.name}@{self.version}" if self.version else self.name

    @staticmethod
    def name_in(label: str) -> str:
        """Return the name of the method that has a label."""
        return label.partition("@")[0]

    @property
    def row_name(self) -> str:
        """Name of the registry's row from which a variant is made, as ER for "ER, review"."""
        return self.name.partition(", ")[0]

    @property
    def strategy_key(self) -> tuple[Any, ...]:
        """Value that is equal for rows of one strategy with other names or hyper-parameters."""
        return self.factory, self.tunes, self.fixed, self.derived, self.adapt, self.label_setting

    @property
    def is_reference(self) -> bool:
        """True if it learns from all data at once, or from all labels, as a bound for others."""
        return self.retrains_from_scratch or self.label_setting != "incomplete"

    @property
    def stores_samples(self) -> bool:
        """True if it keeps some samples of earlier tasks; the benchmark sets how many."""
        return "samples" in self.publication.keeps

    @property
    def argument_meanings(self) -> dict[str, str]:
        """Return the meaning of each argument, as the docstring of the function states it."""
        _, _, listed = (inspect.getdoc(self.factory) or "").partition("Args:\n")
        listed, *_ = listed.split("\n\n")
        pairs = re.findall(r"^  (\w+): (.+(?:\n {4}.*)*)", listed, re.MULTILINE)
        return {name: " ".join(text.replace("`", "").split()) for name, text in pairs}

    def row_arguments(self, arguments: StrategyArguments) -> dict[str, Any]:
        """Return the factory's arguments by name, without the setup.

        A parameter's default stays where `arguments` has None. `buffer_size` gets the number of
        samples of the whole memory; with `exemplars_per_class` it gets the benchmark's, if set.
        """
        _, *parameters = inspect.signature(self.factory).parameters.values()
        per_class = any(parameter.name == "exemplars_per_class" for parameter in parameters)
        values = arguments._asdict() | {"groups": arguments.groups}
        if not per_class:
            values["buffer_size"] = arguments.total_buffer_size
        filled = {
            parameter.name: values[parameter.name]
            for parameter in parameters
            if parameter.name in BENCHMARK_ARGUMENTS
            and (values[parameter.name] is not None or parameter.default is parameter.empty)
        }
        tuned = {self.tunes: arguments.hyperparameter} if self.tunes else {}
        derived = self.derived(arguments) if self.derived else {}
        return filled | tuned | derived | {**self.fixed}

    @property
    def selection_grid(self) -> tuple[float | int, ...]:
        """The values among which validation selects; empty where there is one or none."""
        return self.hyperparameters if len(self.hyperparameters) > 1 else ()

    def make(self, setup: Setup, arguments: StrategyArguments) -> Strategy:
        """Return the strategy."""
        strategy = self.factory(setup, **self.row_arguments(arguments) | arguments.arguments)
        return strategy if arguments.ema_decay is None else with_ema(strategy, arguments.ema_decay)

    def arguments(self, arguments: StrategyArguments) -> dict[str, Any]:
        """Return the arguments of the strategy, defaults of the factory included, for reports.

        Arrays, functions and None are left out.
        """
        _, *parameters = inspect.signature(self.factory).parameters.values()
        values = {parameter.name: parameter.default for parameter in parameters}
        values |= self.row_arguments(arguments) | arguments.arguments
        return {name: value for name, value in values.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str)


def incompatibility(method: Method, capabilities: frozenset[Requirement]) -> str | None:
    """Return why a method does not apply to these capabilities; None where it does."""
    return _missing(method.requirements, capabilities)


def _missing(names: Sequence[Requirement], capabilities: frozenset[Requirement]) -> str | None:
    return next((INCOMPATIBILITIES[name] for name in names if name not in capabilities), None)


def why_left_out(
    method: Method, benchmark: str, capabilities: frozenset[Requirement]
) -> str | None:
    """Return why `--methods all` leaves a method out of a benchmark; None where it does not.

    Args:
      method: row of the registry.
      benchmark: name of the benchmark.
      capabilities: capabilities of the benchmark.
    """
    if method.benchmarks and benchmark not in method.benchmarks:
        return f"reproduces a paper's results on {', '.join(method.benchmarks)}"
    return _missing(method.advised, capabilities)


def with_published(methods: Sequence[Method]) -> list[Method]:
    """Return each method with a second row for its published hyper-parameter, if it has one."""
    rows = []
    for method in methods:
        rows.append(method)
        if method.published is not None and method.selection_grid:
            rows.append(
                method._replace(
                    name=f"{method.name}, published",
                    hyperparameters=(method.published,),
                    published=None,
                )
            )
    return rows
