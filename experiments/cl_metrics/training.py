"""Trains one method on one order of tasks after another, each once and for good."""

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from data_pipelines.cifar100 import load_cifar100
from data_pipelines.image_set import ImageSet, first_per_class, shrink_images
from data_pipelines.procedural import World, load_procedural
from data_pipelines.tiny_imagenet import load_tiny_imagenet_32
from everlight.continual.base import TaskSequence
from everlight.continual.engine.sequence import Protocol, initial_state, operations_per_step
from everlight.metrics.accuracy_matrix import accuracy
from everlight.models.small_cnn import SmallCNN
from everlight.scenarios.class_incremental import (
    class_incremental,
    equal_tasks,
    tested_on_validation,
)
from experiments.cl_metrics.methods import (
    METHODS,
    SCENARIOS,
    Scenario,
    SequenceData,
    build_method,
)
from experiments.common.run_folder import RunFolder
from experiments.common.sequences import DivergedRunError, store_images, train_unit

DataSet = Literal["procedural", "tiny-imagenet", "cifar100"]


@dataclass(frozen=True)
class Plan:
    """What a scale changes."""

    data: DataSet
    tasks: int
    classes: int
    side: int
    """Images are shrunk to this, by means of blocks."""
    channels: tuple[int, int]
    hidden: int
    protocol: Protocol
    seeds: int
    methods: tuple[str, ...] = tuple(METHODS)
    dropout: tuple[float, float, float] = (0.25, 0.25, 0.5)
    """After both blocks and the dense layer."""
    rate: float = 1e-3
    """Adam's (Zenke et al. 2017)."""
    strengths_tried: int = 4
    """Of each method's, from the smallest on."""
    per_class: tuple[int, int] = (100, 50)
    """At most so many training and test images of each class."""


class SequenceRun(NamedTuple):
    """What a trained sequence leaves, as raw arrays."""

    accuracy: Float[np.ndarray, "t t"]
    """The matrix of its scenario's scoring."""
    losses: Float[np.ndarray, "t e"]
    validation: Float[np.ndarray, "t e"]
    steps: Int[np.ndarray, "t"]
    """Of each task."""
    stored_samples: Int[np.ndarray, "t"]


class MethodFacts(NamedTuple):
    """What does not depend on the run."""

    parameters: int
    parameter_copies: int
    """Held from the second task on, by the paper's counting."""
    memory_bytes: int
    """Occupied by the strategy's memory."""
    operations: float
    """Of one step, from the compiled step's cost analysis."""


def load_images(plan: Plan, seed: int) -> ImageSet:
    """The plan's data set at its size."""
    if plan.data == "procedural":
        subclasses = -(-plan.classes // 10)
        world = World(plan.classes // subclasses, subclasses, seed=seed)
        loaded = load_procedural(world, *plan.per_class)
    elif plan.data == "cifar100":
        loaded = load_cifar100()
    else:
        loaded = load_tiny_imagenet_32(range(plan.classes))
    return shrink_images(first_per_class(loaded, *plan.per_class), plan.side)


class Trainer:
    """Trains and keeps the results of every run in the run's folder."""

    def __init__(self, folder: RunFolder, plan: Plan, images: ImageSet):
        self._folder, self._plan, self._images = folder, plan, images
        self._stored = store_images(images)
        net = SmallCNN(plan.classes, plan.channels, plan.hidden, plan.dropout)
        self._builds = {
            (name, scenario): build_method(name, scenario, plan.tasks, net, plan.rate)
            for name, scenario in itertools.product(plan.methods, SCENARIOS)
        }

    def sequence(self, seed: int) -> TaskSequence:
        """The tasks in the order that a seed draws."""
        order = np.random.default_rng(seed).permutation(self._plan.classes)
        tasks = equal_tasks(order.tolist(), self._plan.tasks)
        labels = self._images.train_labels, self._images.test_labels
        return class_incremental(*labels, tasks, self._plan.classes)

    def train(self, name: str, scenario: Scenario, strength: float, seed: int) -> SequenceRun:
        """One sequence; read back if it was trained before."""
        unit = f"{scenario}-{name}-{seed}"
        return self._train(unit, name, scenario, strength, self.sequence(seed), seed)

    def try_strengths(self, name: str, scenario: Scenario, seed: int) -> dict[float, float]:
        """A on the validation images for each of the method's strengths; NaN where it diverged."""
        sequence, grid = tested_on_validation(self.sequence(seed)), {}
        for strength in METHODS[name].strengths[: self._plan.strengths_tried]:
            unit = f"strength-{scenario}-{name}-{strength:g}"
            try:
                run = self._train(unit, name, scenario, strength, sequence, seed)
            except DivergedRunError:
                grid[strength] = np.nan
            else:
                grid[strength] = float(accuracy(jnp.asarray(run.accuracy)))
        return grid

    def facts(self, name: str, scenario: Scenario) -> MethodFacts:
        """Sizes, and operations of a step."""
        build, sequence = self._builds[name, scenario], self.sequence(0)
        data = self._data(sequence, 1.0)
        arguments = (build, self._plan.protocol, data, sequence, jax.random.key(0))
        result = initial_state(*arguments).result
        return MethodFacts(
            sum(leaf.size for leaf in jax.tree.leaves(result.learner.params)),
            build(data)[1].parameter_copies,
            sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(result.memory)),
            operations_per_step(*arguments),
        )

    def _data(self, sequence: TaskSequence, strength: float) -> SequenceData:
        return SequenceData(self._stored, sequence.class_task, jnp.float32(strength))

    def _train(
        self,
        unit: str,
        name: str,
        scenario: Scenario,
        strength: float,
        sequence: TaskSequence,
        seed: int,
    ) -> SequenceRun:
        facts = {
            "method": name,
            "scenario": scenario,
            "strength": strength,
            "seed": seed,
            **dataclasses.asdict(self._plan),
        }
        arrays = train_unit(
            self._folder,
            unit,
            facts,
            self._builds[name, scenario],
            self._plan.protocol,
            self._data(sequence, strength),
            sequence,
            jax.random.key(seed),
            lambda result: {
                "accuracy": getattr(result.evaluation, scenario.replace("-", "_")),
                "losses": result.losses,
                "validation": result.validation,
                "steps": np.diff(result.usage.steps, prepend=0),
                "stored_samples": result.usage.stored_samples,
            },
        )
        return SequenceRun(**arrays)
