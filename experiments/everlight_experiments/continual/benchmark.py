"""The record that the runner takes, and how images with classes fill it."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from everlight.continual import (
    Protocol,
    SequenceResult,
    Setup,
    StoredImages,
    TaskSequence,
    flax_setup,
    softmax_objective,
)
from everlight.models import MLP
from everlight.models.heads import HeadKind
from everlight.scenarios import class_incremental, same_shapes, tested_on_validation
from everlight_data.errors import DataError
from everlight_data.images.image_set import ImageSet
from everlight_data.images.jpeg_store import JpegStore
from everlight_experiments.common.checkpoint import checksums_of
from everlight_experiments.common.plots import plot_samples
from everlight_experiments.common.report import Column, Figure, Section, Table
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.continual.methods import Demand, Method, Needs, Trains

TUNING_SEED = 1_000
"""Validation seeds begin at the run's seed plus this number and are never reported."""
VALID = 0.1
"""Validation share of each class's training images, at least one image."""
MOST_LISTED = 200
"""Classes that a report lists."""
NAME = 24
"""Characters of a class's name that a picture shows."""

Use = Literal["reported", "tuning"]
Arrays = dict[str, np.ndarray]


class Draw(NamedTuple):
    """Which of a benchmark's sequences."""

    use: Use
    seed: int
    """The run's."""
    number: int

    @property
    def first(self) -> int:
        """The seed from which this use counts on."""
        return self.seed + (TUNING_SEED if self.use == "tuning" else 0)

    @property
    def order(self) -> int:
        """Tells it from any other of the benchmark."""
        return self.first + self.number

    @property
    def key(self) -> PRNGKeyArray:
        """The run's random key, a root of its own: no run's key is derived from another's."""
        return jax.random.key(self.order)


class Own(NamedTuple):
    """What differs between the runs of a method."""

    class_group: Int[Array, "c"]
    """The task of each class where that is told, else one group of all."""
    hyperparameter: Float[Array, ""]


class RunData(NamedTuple):
    """What a compiled sequence gets as its data; other values compile nothing."""

    shared: Any
    own: Own


Begin = Callable[[str, Method, RunData], tuple[Setup, Needs]]
"""What a strategy is made from in a scenario, but for its hyperparameter."""


class Scores(NamedTuple):
    """A run in the one measure that a benchmark has; NaN where nothing is told."""

    over_time: Float[np.ndarray, "t"]
    """On all that was learnt so far, or on what the benchmark's `tested` says, after every task."""
    matrix: Float[np.ndarray, "t t"]
    """R[i, j] after task i on task j."""


class Benchmark(NamedTuple):
    """Data, net and training; the same methods run on all of them."""

    name: str
    note: str
    """The data actually used, said in every report."""
    measure: str
    """What scores are of."""
    scenarios: tuple[str, ...]
    """Several ways to learn or to test the same."""
    draws: str
    """What each seed has of its own."""
    training: str
    """Net, optimizer and length, for the report."""
    chosen: str
    """How these were chosen, for the report."""
    facts: Callable[[str, Method], dict]
    """What tells its runs from any other's, beside method, order and hyperparameter."""
    checksums: tuple[int, ...]
    """Of data, training labels, test labels and, where those are learnt from, features."""
    offers: Callable[[str], frozenset[Demand]]
    """What a method may demand in a scenario."""
    shared: Callable[[str, Method], Any]
    """Data of all runs of a method, on the device."""
    begin: Begin
    protocol: Callable[[str, Method], Protocol]
    sequence: Callable[[str, Method, Draw], TaskSequence]
    """Those of a scenario and method are all of one shape, whichever are asked for."""
    keep: Callable[[str, Method, SequenceResult], dict[str, Any]]
    """The arrays that a run leaves, beside losses, steps and samples stored."""
    scores: Callable[[str, Arrays, TaskSequence], Scores]
    """From them, and the sequence that was learnt."""
    by_type: Callable[[Draw, Arrays, TaskSequence], Mapping[str, float]] | None = None
    """The measure after the last task by type of classes, where there are types."""
    metric: Callable[[str, Arrays, TaskSequence], float] | None = None
    """By which hyperparameters are chosen; None is the score after the last task."""
    goodness_name: str = ""
    """In words, where it is not that score."""
    hyperparameters: Mapping[str, tuple[float, ...]] = {}
    """Grids of methods that have another here than in the table."""
    store: JpegStore | None = None
    """Of images that are read as steps ask for them."""
    counts: str = ""
    """Of the data, after the note."""
    images: ImageSet | None = None
    """Where each is of one class."""
    tested: str = "all tasks so far"
    """On what the measure over time is taken, in words."""
    one_program: bool = False
    """Scenarios differ in their data and protocol alone: what is compiled for one serves all."""
    one_by_one: bool = False
    """Runs are trained one after another on one device, so that each one's seconds are its own."""
    prepare: Callable[[RunFolder], "Benchmark"] | None = None
    """Learns in the run's folder what comes before the first task, and gives the benchmark with
    it."""
    plan: Any = None
    """How it is trained, as it can be changed on the command line."""
    sections: Callable[[Path], Sequence[Section]] = lambda folder: ()
    """What the report shows of the data, its pictures below the run's folder."""

    @property
    def criterion(self) -> str:
        """By which hyperparameters are chosen, in words."""
        return self.goodness_name or f"final {self.measure}"

    def opened(self, folder: RunFolder) -> "Benchmark":
        """The benchmark with all that comes before the first task."""
        return self if self.prepare is None else self.prepare(folder)

    def row(self, method: Method) -> Method:
        """A method with the grid that it has here."""
        return method._replace(
            hyperparameters=self.hyperparameters.get(method.name, method.hyperparameters)
        )

    def judge(self, scenario: str, arrays: Arrays, sequence: TaskSequence) -> float:
        """By which hyperparameters are chosen."""
        if self.metric is not None:
            return self.metric(scenario, arrays, sequence)
        return float(self.scores(scenario, arrays, sequence).over_time[-1])

    def own(self, scenario: str, sequence: TaskSequence, hyperparameter: float = 1.0) -> Own:
        """What a run has of its own."""
        return own_of(sequence, hyperparameter, "task-incremental" in self.offers(scenario))


class Net(NamedTuple):
    """Of images with classes."""

    make: Callable[[Trains, HeadKind], nn.Module]
    layers: tuple[str, ...]
    """Of the net below its head, in order; none where they have no names."""
    note: str
    named: bool = True
    """Whether its head has the name and the kinds that methods ask for."""


class Training(NamedTuple):
    """Of images with classes."""

    tasks: int
    protocol: Protocol
    """Of tasks with boundaries."""
    online_batch: int
    """Samples a step where every sample comes once."""
    optimizer: optax.GradientTransformation
    exemplars: int
    note: str
    chosen: str
    """How all this was chosen, for the report."""
    reach: float | None = None
    """As in `Needs`."""
    replay_batch_size: int | None = None
    """As in `Needs`."""
    validates: bool = False
    """Whether the held-out images choose epochs too."""
    buffer_size: int | None = None
    """As in `Needs`."""


def classes_begin(net: Net, training: Training, classes: int) -> Begin:
    """What strategies are made from: softmax over the seen classes, or over a told task's own."""

    def begin(scenario: str, method: Method, data: RunData) -> tuple[Setup, Needs]:
        group = data.own.class_group
        module, objective = net.make(method.trains, method.head), softmax_objective(group, True)
        setup = flax_setup(module, data.shared, objective, training.optimizer)
        return setup, Needs(
            training.tasks,
            classes,
            training.exemplars,
            reach=training.reach,
            layers=net.layers if method.trains == "net" else (),
            class_group=group,
            replay_batch_size=training.replay_batch_size,
            buffer_size=training.buffer_size,
        )

    return begin


def of_classes(
    name: str,
    note: str,
    images: ImageSet,
    stored: StoredImages,
    net: Net,
    training: Training,
    scenarios: tuple[str, ...],
    facts: dict,
) -> Benchmark:
    """A benchmark of images, each of one class, whose classes come in tasks.

    Args:
      name, note, scenarios: of the record; scenarios among told, not told and online.
      images: of all classes.
      stored: the same as nets read them.
      net, training: what learns, and how.
      facts: what tells its runs from any other's, beside net and data.

    Raises:
      DataError: more tasks than classes, or a memory of less than a sample per class.
    """
    classes = len(images.class_names)
    if training.tasks > classes:
        raise DataError(f"--tasks {training.tasks} of {classes} classes; give {classes} or fewer")
    size = training.buffer_size
    if size is not None and size < classes:
        raise DataError(f"--buffer-size {size} for {classes} classes; give {classes} or more")
    sequences = _sequences(images, training.tasks, training.validates)
    content = [images.images, images.train_labels, images.test_labels]
    if len(stored.shape) == 1:
        content.append(np.asarray(stored.pieces))
    checksums = checksums_of(*content)
    every = {"benchmark": name, "net": net.note, "data": list(checksums), **facts}
    always: set[Demand] = {"class scores", "one label", "own classes", "chosen classes"}
    if net.named:
        always.add("named head")
    if net.layers:
        always.add("hidden layers")

    def protocol(scenario: str, method: Method) -> Protocol:
        if scenario == "online":
            return Protocol(epochs=1, batch_size=training.online_batch, select="last")
        return training.protocol

    def keep(scenario: str, method: Method, result: SequenceResult) -> dict[str, Array]:
        told, not_told = result.evaluation.task_masked, result.evaluation.class_incremental
        return {
            "matrix": told if scenario == "task-incremental" else not_told,
            "validation": result.validation,
        }

    held_out = len(images.train_labels) - int(np.sum(sequences(0, "reported").tasks.train.mask))
    sizes = sorted(set(np.bincount(np.asarray(sequences(0, "reported").class_task)).tolist()))
    return Benchmark(
        name,
        note,
        "accuracy",
        scenarios,
        "order of classes",
        f"{net.note}, {training.note}",
        training.chosen,
        lambda scenario, method: every | _net_facts(method),
        checksums,
        lambda scenario: frozenset(
            always | ({"task-incremental"} if scenario == "task-incremental" else set())
        ),
        lambda scenario, method: stored,
        classes_begin(net, training, classes),
        protocol,
        lambda scenario, method, draw: sequences(draw.order, draw.use),
        keep,
        lambda scenario, arrays, sequence: of_matrix(arrays["matrix"]),
        counts=f"; {len(images.train_labels):,} training images, of which {held_out:,} are for "
        f"validation only (they select {'epochs and ' if training.validates else ''}"
        f"hyper-parameters), and {len(images.test_labels):,} test images; "
        f"{training.tasks} tasks of {' or '.join(map(str, sizes))} classes",
        images=images,
        one_program=True,
        sections=lambda folder: [_data(folder, images)],
    )


def own_of(sequence: TaskSequence, hyperparameter: float = 1.0, told: bool = False) -> Own:
    """A run's, whose tasks are told or not."""
    tasks = sequence.class_task
    return Own(tasks if told else jnp.zeros_like(tasks), jnp.float32(hyperparameter))


def of_matrix(matrix: Float[np.ndarray, "t t"]) -> Scores:
    """Scores of which the tasks so far weigh alike."""
    learned = np.tri(len(matrix), dtype=bool)
    return Scores(np.mean(matrix, axis=1, where=learned), matrix)


def short_name(name: str) -> str:
    """A class's name as a picture shows it."""
    return name if len(name) <= NAME else f"{name[: NAME - 1]}…"


def _net_facts(method: Method) -> dict:
    """What tells runs of the net before a cosine head from those when it ended in a ReLU."""
    return {"last_relu": False} if method.head == "cosine" else {}


def head_or(shape: nn.Module, classes: int) -> Callable[[Trains, HeadKind], nn.Module]:
    """Return a net with the method's head; a head over the inputs where a method trains no net.

    Before a cosine head, which is LUCIR's, features keep their sign.
    """

    def make(trains: Trains, head: HeadKind) -> nn.Module:
        if trains == "head":
            return MLP(classes, (), head)
        signed = {"last_relu": False} if head == "cosine" and hasattr(shape, "last_relu") else {}
        return shape.clone(head=head, **signed)

    return make


def _sequences(images: ImageSet, tasks: int, validates: bool) -> Callable[[int, Use], TaskSequence]:
    classes = len(images.class_names)
    counts = np.bincount(images.train_labels, minlength=classes)
    # Every class has one that validates, whatever rounding makes of one over its size.
    fraction = np.maximum(VALID, (1 + 1e-6) / counts)

    def ordered(order: np.ndarray) -> TaskSequence:
        cut = [part.tolist() for part in np.array_split(order, tasks)]
        return class_incremental(images.train_labels, images.test_labels, cut, classes, fraction)

    # The largest classes first make the largest task that any order can have.
    largest = ordered(np.argsort(-counts, kind="stable"))
    shapes = largest, tested_on_validation(largest)

    @functools.cache
    def sequence(order: int, use: Use) -> TaskSequence:
        drawn = ordered(np.random.default_rng(order).permutation(classes))
        if use == "tuning":
            drawn = tested_on_validation(drawn)
        found = same_shapes([drawn, *shapes])[0]
        return found if validates else _not_validating(found)

    return sequence


def _not_validating(sequence: TaskSequence) -> TaskSequence:
    """Nothing is chosen by validation within a task, which would train GDumb's nets for it."""
    valid = sequence.tasks.valid
    none = valid._replace(mask=jnp.zeros_like(valid.mask))
    return sequence._replace(tasks=sequence.tasks._replace(valid=none))


def _data(folder: Path, images: ImageSet) -> Section:
    classes = len(images.class_names)
    train, test = (
        np.bincount(labels, minlength=classes)
        for labels in (images.train_labels, images.test_labels)
    )
    rows = [
        [name, f"{train[label]:,}", f"{test[label]:,}"]
        for label, name in enumerate(images.class_names[:MOST_LISTED])
    ]
    caption = "Images per class. The training images include those for validation."
    if classes > MOST_LISTED:
        caption += f" The first {MOST_LISTED} of {classes:,}."
    table = Table(caption, [Column("class"), Column("training"), Column("test")], rows)
    if not images.images.size:
        return Section("The data", [], [table])
    said = "Training images of some classes at the network's resolution."
    samples = Figure(said, plot_samples(folder / "samples.png", images, short_name))
    return Section("The data", [], [samples, table])
