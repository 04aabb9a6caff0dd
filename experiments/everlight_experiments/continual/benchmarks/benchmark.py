"""The type `Benchmark`: data, network, training and metrics in one setting.

`images/benchmark.py` and the papers' `benchmark.py` build them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import jax.numpy as jnp

from everlight.continual import Protocol, SequenceResult, Setup, TaskSequence
from everlight.continual.methods.method import Method, Requirement, StrategyArguments
from everlight_data.errors import DataError
from everlight_data.images.inputs.jpeg_store import JpegStore
from everlight_data.sets.image_set import ImageSet
from everlight_experiments.continual.benchmarks.config import BenchmarkConfig, SettingName
from everlight_experiments.continual.benchmarks.metric import Metric, Metrics
from everlight_experiments.continual.benchmarks.run_data import (
    AddedData,
    Normalization,
    PerRunData,
    RunData,
    SequenceId,
    TrainedRun,
)
from everlight_experiments.continual.benchmarks.statements import Statement, statement_paragraph
from everlight_experiments.report.writer import Section
from everlight_experiments.run_folder.folder import RunFolder


class Data(NamedTuple):
    """Data that a benchmark learns from, with their description and fingerprint."""

    note: str
    """Description of the data, stated in every report."""
    checksums: tuple[int, ...]
    """Checksums of images, training labels and test labels, and of features that replace images."""
    fingerprint: Mapping[str, Any]
    """Values of the data that identify a run."""
    shared: Callable[[Method], Any]
    """Data of all runs of a method, on the device."""
    sequence: Callable[[Method, SequenceId], TaskSequence]
    """Function that returns a sequence; all sequences of a method have one shape."""
    counts: str = ""
    """Sizes of the data, after the note."""
    images: ImageSet | None = None
    """Images with one class each, if the benchmark has them."""
    store: JpegStore | None = None
    """Reader of images that are decoded when steps need them."""
    normalization: Callable[[TaskSequence], Normalization] = lambda sequence: ()
    """Function from a sequence to the normalization that its runs have of their own."""
    draws_stream: bool = False
    """True if every seed draws permutations or angles of its tasks."""
    stream: Mapping[str, Any] = {}
    """Options that change the tasks' inputs, or the share of each class in a task."""
    sections: Callable[[Path], Sequence[Section]] = lambda folder: ()
    """Report sections on the data; pictures go into the folder."""

    @property
    def words(self) -> str:
        """The data and their sizes, for reports."""
        return self.note + self.counts


class Setting(NamedTuple):
    """Name of a setting, differences between its runs, and their metrics."""

    name: str
    """Setting: class-incremental, task-incremental, online, or the benchmark's own."""
    draws: str
    """The part of a run that differs between seeds."""
    capabilities: frozenset[Requirement]
    """Requirements of methods that are met here."""
    metrics: Metrics
    tested: str = "all tasks so far"
    """Test data of the score over time."""
    remedies: Mapping[Requirement, tuple[str, ...]] = {}
    """Options with which a requirement is met that is not met here."""


class Training(NamedTuple):
    """Network and training of every method."""

    words: str
    """Network, optimizer and length, for the report."""
    fingerprint: Callable[[Method], Mapping[str, Any]]
    """Values that identify a method's runs beside data, method, seed and hyper-parameter."""
    setup: Callable[[Method, RunData], tuple[Setup, StrategyArguments]]
    """Parts of a strategy, without its hyper-parameter."""
    protocol: Callable[[Method], Protocol]
    keep: Callable[[Method, SequenceResult], dict[str, Any]]
    """Arrays that a run saves beside losses, steps and stored samples; metrics read them."""
    learning_rate: Callable[[Method], str] = lambda method: "–"
    """Learning rate of a method in words; – where `words` names one for all."""
    compute_budget: int | None = None
    """Operations per task, in training steps of naive finetuning; None leaves the protocol's
    epochs."""
    one_by_one: bool = False
    """True if runs are trained one after another on one device, with seconds of their own."""
    program: str = ""
    """Benchmarks of one prefix with equal names here share their compiled programs."""


class Selection(NamedTuple):
    """Rules by which hyper-parameters are selected, and other values were."""

    chosen: tuple[Statement, ...]
    """Statements for the report how network, optimizer and length were chosen."""
    criterion: Metric | None = None
    """Number that selects hyper-parameters; None is the score after the last task."""
    grids: Mapping[str, tuple[float, ...]] = {}
    """Hyper-parameters of methods that differ from the table's."""
    validation_tasks: int | None = None
    """Number of tasks that validation seeds train and select by, the first ones; None is all."""
    changed: tuple[str, ...] = ()
    """Options that the user set to other values than the benchmark's."""

    @property
    def scope(self) -> str:
        """The tasks that the selection of hyper-parameters sees, in a sentence."""
        if self.validation_tasks is None:
            return (
                "The choice sees all tasks of the validation seeds, so it is optimistic: no "
                "learner has later tasks beforehand (--validation-tasks limits it)."
            )
        return (
            f"The choice sees only the first tasks of the validation seeds (number of tasks: "
            f"{self.validation_tasks}); the evaluation includes their classes."
        )

    @property
    def words(self) -> str:
        """Statements on the choice of the configuration's values, in sentences."""
        rest = statement_paragraph(self.chosen)
        if not self.changed:
            return rest
        return f"Given by the user: {', '.join(self.changed)}." + (
            rest and f" Without these: {rest}"
        )

    def with_changed(self, options: Sequence[str]) -> "Selection":
        """Return the selection of a configuration in which the user set these options."""
        names = {option.rpartition(".")[2] for option in options}
        chosen = tuple(
            left for part in self.chosen if (left := part.drop_options(names)) is not None
        )
        return self._replace(chosen=chosen, changed=tuple(options))


class Benchmark(NamedTuple):
    """Data and training in one setting; the same methods run on every benchmark.

    Commands change `selection` and `prefix`.
    """

    name: str
    data: Data
    setting: Setting
    training: Training
    selection: Selection
    prefix: str = ""
    """Prefix of its file names in the folder of a run with several benchmarks."""
    prepare: Callable[[RunFolder], tuple[Data, Training]] | None = None
    """Function that makes data and training in a run's folder, such as by pretraining. Those that
    the benchmark has until then are for checks alone. None if nothing has to be made."""

    def prepared(self, folder: RunFolder) -> "Benchmark":
        """Return the benchmark as runs are trained on it, with what has to be made in a folder."""
        if self.prepare is None:
            return self
        data, training = self.prepare(folder)
        return self._replace(data=data, training=training, prepare=None)

    @property
    def score(self) -> str:
        """Name of the score."""
        return self.setting.metrics.score.name

    @property
    def criterion(self) -> str:
        """The criterion that selects hyper-parameters, in words."""
        criterion, tasks = self.selection.criterion, self.selection.validation_tasks
        if criterion is None:
            return f"final {self.score}" if tasks is None else f"{self.score} after task {tasks}"
        return criterion.name + ("" if tasks is None else f" until task {tasks}")

    def fingerprint(self, method: Method) -> dict[str, Any]:
        """Return the values that identify runs beside method, seed and hyper-parameter."""
        return {**self.data.fingerprint, **self.training.fingerprint(method)}

    def run_fingerprint(
        self, method: Method, seq_id: SequenceId, hyperparameter: float
    ) -> dict[str, Any]:
        """Return the values that identify one run of a method."""
        fingerprint = {
            "setting": self.setting.name,
            "method": method.name,
            "order": seq_id.seed,
            "hyperparameter": hyperparameter,
            **self.fingerprint(method),
        }
        if seq_id.use == "validation" and self.selection.validation_tasks is not None:
            fingerprint["validation_tasks"] = self.selection.validation_tasks
        return fingerprint

    def select_by(self, run: TrainedRun) -> float:
        """Return the value by which hyper-parameters are selected."""
        tasks, criterion = self.selection.validation_tasks or run.tasks, self.selection.criterion
        if criterion is not None:
            return float(criterion.compute(replace(run, tasks=tasks)))
        return float(self.setting.metrics.score.compute(run)[tasks - 1])

    def per_run_data(
        self, sequence: TaskSequence, hyperparameter: float = 1.0, seed: int = 0
    ) -> PerRunData:
        """Return the data of one run, with classes grouped by task if that is given at test.

        Args:
          sequence: the run's sequence.
          hyperparameter: the method's hyper-parameter.
          seed: seed of the sequence.
        """
        tasks = sequence.class_task
        group = tasks if "task-incremental" in self.setting.capabilities else jnp.zeros_like(tasks)
        return PerRunData(
            group,
            jnp.float32(hyperparameter),
            self.data.normalization(sequence),
            (jnp.uint32(seed),) if self.data.draws_stream else (),
        )

    def run_data(
        self, method: Method, sequence: TaskSequence, hyperparameter: float = 1.0, seed: int = 0
    ) -> RunData:
        """Return the data of a method's run on a sequence; see `per_run_data`."""
        per_run = self.per_run_data(sequence, hyperparameter, seed)
        return RunData(self.data.shared(method), per_run)


Benchmarks = Mapping[str, Benchmark]
"""Benchmarks of a run by the name of their column: the setting, or prefix and setting."""


C = TypeVar("C", bound=BenchmarkConfig)
PAPER_VALIDATION_SEEDS = 1
"""Seeds that select hyper-parameters in the commands of papers."""


class Request(NamedTuple, Generic[C]):
    """Arguments of a function that builds benchmarks."""

    name: str
    config: C
    settings: tuple[SettingName, ...] = ("class-incremental",)
    """Settings to run; benchmarks with their own ignore them."""
    seed: int = 0
    """Seed of the run and of a procedural world."""
    seeds: int = 1
    validation_seeds: int = PAPER_VALIDATION_SEEDS
    runs: Path = Path("runs")
    """Folder of run folders; computed features are kept there."""
    added: tuple[AddedData, ...] = ()
    """Images of further tasks, in the order in which they came."""

    def refuse_more_seeds_than(self, available: int, what: str) -> None:
        """Refuse more seeds than a benchmark has without those for validation, its last ones.

        Raises:
          DataError: there are too many; the message has the largest number.
        """
        left = available - self.validation_seeds
        if self.seeds > left:
            raise DataError(
                f"--seeds {self.seeds}; {self.name} has {available} {what}, of which "
                f"--validation-seeds {self.validation_seeds} take some: give {left} or less"
            )
