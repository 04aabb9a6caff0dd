"""Trains one method on one order of tasks after another, each once and for good."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from data_pipelines.images.cifar100 import load_cifar100
from data_pipelines.images.image_set import ImageSet, first_per_class, shrink_images
from data_pipelines.images.tiny_imagenet import load_tiny_imagenet_32
from data_pipelines.procedural.world import World, load_procedural
from everlight.continual.base import TaskSequence
from everlight.continual.engine.sequence import Protocol, initial_state, operations_per_step
from everlight.metrics.accuracy_matrix import accuracy
from everlight.models.small_cnn import SmallCNN
from everlight.scenarios.class_incremental import (
    class_incremental,
    equal_tasks,
    tested_on_validation,
)
from everlight.scenarios.shapes import same_shapes
from experiments.cl_metrics.methods import (
    METHODS,
    SCENARIOS,
    Scenario,
    build_method,
    join_data,
)
from experiments.common.many_runs import Unit, has_diverged, refuse_diverged, train_units
from experiments.common.run_folder import RunFolder
from experiments.common.sequences import store_images

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

    def __init__(
        self, folder: RunFolder, plan: Plan, images: ImageSet, seeds: Sequence[int], tuning: int
    ):
        """Prepares the orders of the reported seeds, and of the one that chooses strengths."""
        self._folder, self._plan, self._images = folder, plan, images
        chosen_on = tested_on_validation(self._draw(tuning))
        # Of one shape, so that trying strengths and reporting are one program.
        every = same_shapes([chosen_on, *map(self._draw, seeds)])
        self._sequences = dict(zip([tuning, *seeds], every, strict=True))
        self._seeds, self._tuning = seeds, tuning
        self._stored = store_images(images)
        net = SmallCNN(plan.classes, plan.channels, plan.hidden, plan.dropout)
        self._builds = {
            (name, scenario): build_method(name, scenario, plan.tasks, net, plan.rate)
            for name, scenario in itertools.product(plan.methods, SCENARIOS)
        }

    def sequence(self, seed: int) -> TaskSequence:
        """The tasks of a seed; those of the one that chooses strengths test validation images."""
        return self._sequences[seed]

    def train(self, name: str, scenario: Scenario, strength: float) -> SequenceRun:
        """A run of every seed, stacked; read back where they were trained before.

        Raises:
          DivergedRunError: which seed did, and where.
        """
        units = [
            self._unit(f"{scenario}-{name}-{seed}", name, scenario, strength, seed)
            for seed in self._seeds
        ]
        kept = self._train(name, scenario, units)
        refuse_diverged(units, kept)
        return jax.tree.map(lambda *leaves: np.stack(leaves), *map(_sequence_run, kept))

    def try_strengths(self, name: str, scenario: Scenario) -> dict[float, float]:
        """A on the validation images for each of the method's strengths; NaN where it diverged."""
        strengths = METHODS[name].strengths[: self._plan.strengths_tried]
        units = [
            self._unit(
                f"strength-{scenario}-{name}-{strength:g}", name, scenario, strength, self._tuning
            )
            for strength in strengths
        ]
        scores = [
            np.nan if has_diverged(kept) else float(accuracy(jnp.asarray(kept["accuracy"])))
            for kept in self._train(name, scenario, units)
        ]
        return dict(zip(strengths, scores, strict=True))

    def facts(self, name: str, scenario: Scenario) -> MethodFacts:
        """Sizes, and operations of a step."""
        build, sequence = self._builds[name, scenario], self._sequences[self._seeds[0]]
        data = join_data(self._stored, (sequence.class_task, jnp.float32(1)))
        arguments = (build, self._plan.protocol, data, sequence, jax.random.key(0))
        result = initial_state(*arguments).result
        return MethodFacts(
            sum(leaf.size for leaf in jax.tree.leaves(result.learner.params)),
            build(data)[1].parameter_copies,
            sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(result.memory)),
            operations_per_step(*arguments),
        )

    def _draw(self, seed: int) -> TaskSequence:
        order = np.random.default_rng(seed).permutation(self._plan.classes)
        tasks = equal_tasks(order.tolist(), self._plan.tasks)
        labels = self._images.train_labels, self._images.test_labels
        return class_incremental(*labels, tasks, self._plan.classes)

    def _unit(self, unit: str, name: str, scenario: Scenario, strength: float, seed: int) -> Unit:
        facts = {
            "method": name,
            "scenario": scenario,
            "strength": strength,
            "seed": seed,
            **dataclasses.asdict(self._plan),
        }
        sequence = self.sequence(seed)
        own = sequence.class_task, jnp.float32(strength)
        return Unit(unit, facts, sequence, jax.random.key(seed), own)

    def _train(
        self, name: str, scenario: Scenario, units: Sequence[Unit]
    ) -> list[dict[str, np.ndarray]]:
        return train_units(
            self._folder,
            units,
            self._builds[name, scenario],
            self._plan.protocol,
            self._stored,
            lambda result: {
                "accuracy": getattr(result.evaluation, scenario.replace("-", "_")),
                "losses": result.losses,
                "validation": result.validation,
                "steps": np.diff(result.usage.steps, prepend=0),
                "stored_samples": result.usage.stored_samples,
            },
            join_data,
        )


def _sequence_run(kept: Mapping[str, np.ndarray]) -> SequenceRun:
    return SequenceRun(**{name: kept[name] for name in SequenceRun._fields})
