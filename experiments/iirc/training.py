"""Data of a plan, and every method trained on every configuration, once and for good."""

from dataclasses import asdict, dataclass
from itertools import chain
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from data_pipelines.cifar100 import load_cifar100
from data_pipelines.iirc_metadata import (
    Metadata,
    draw_configuration,
    official_metadata,
    procedural_metadata,
    tiny_imagenet_metadata,
)
from data_pipelines.image_set import ImageSet, first_per_class, shrink_images
from data_pipelines.procedural import World, load_procedural
from data_pipelines.tiny_imagenet import load_tiny_imagenet_32, tiny_imagenet_names
from everlight.continual.base import TaskSequence
from everlight.continual.steps import Protocol
from everlight.models.resnet import ReducedResNet
from everlight.scenarios.iirc import Setting, iirc
from everlight.scenarios.shapes import same_shapes
from experiments.common.run_folder import RunFolder
from experiments.common.sequences import store_images, train_unit
from experiments.iirc.methods import METHODS, build_method, protocol_of

ABLATED = "ER"
"""The method whose exemplars the paper varies (appendix E)."""

DataSet = Literal["procedural", "tiny-imagenet", "cifar100"]


@dataclass(frozen=True)
class Plan:
    """What a scale changes."""

    data: DataSet
    side: int
    """Images are shrunk to this, by means of blocks."""
    blocks: int
    """Of each stage of the net: 5 is ResNet-32."""
    protocol: Protocol
    configurations: int
    methods: tuple[str, ...] = tuple(METHODS)
    rate: float = 1.0
    exemplars: int = 20
    """Of every class, where a method keeps any."""
    ablation: tuple[int, ...] = ()
    """Other numbers of exemplars that ER is trained with."""
    per_class: tuple[int, int] = (500, 100)
    """At most so many training and test images of each class."""
    superclasses: int | None = None
    """Of Tiny-ImageNet, the first so many, with as many classes that have none; None is all."""


class Benchmark(NamedTuple):
    """Images with the hierarchy and the orders in which their classes are learnt."""

    images: ImageSet
    metadata: Metadata


class Learnt(NamedTuple):
    """What a method leaves on one configuration."""

    predicted: UInt8[np.ndarray, "t m packed"]
    """Labels predicted for every test sample after each task, as bits."""
    losses: Float[np.ndarray, "t e"]
    validation: Float[np.ndarray, "t e"]
    steps: Int[np.ndarray, "t"]


def load_benchmark(plan: Plan, seed: int) -> Benchmark:
    """The plan's images at their size, and its task configurations."""
    if plan.data == "procedural":
        world = World(4, 3, seed=seed)
        images = load_procedural(world, *plan.per_class)
        metadata = procedural_metadata(world, plan.configurations)
    elif plan.data == "cifar100":
        images, metadata = load_cifar100(), official_metadata("iirc_cifar100")
    else:
        images, metadata = _tiny_imagenet(plan)
    images = shrink_images(first_per_class(images, *plan.per_class), plan.side)
    return Benchmark(images, metadata)


def _tiny_imagenet(plan: Plan) -> Benchmark:
    metadata = tiny_imagenet_metadata(plan.configurations)
    if plan.superclasses is None:
        return Benchmark(load_tiny_imagenet_32(), metadata)
    hierarchy = dict(list(metadata.hierarchy.items())[: plan.superclasses])
    grouped = set(chain.from_iterable(metadata.hierarchy.values()))
    names = tiny_imagenet_names()
    single = [name for name in names if name not in grouped][: plan.superclasses]
    wanted = [*chain.from_iterable(hierarchy.values()), *single]
    images = load_tiny_imagenet_32([names.index(name) for name in wanted])
    first = -(-2 * plan.superclasses // 3)
    orders = tuple(
        draw_configuration(images.class_names, hierarchy, first, number)
        for number in range(plan.configurations)
    )
    return Benchmark(images, Metadata(hierarchy, orders, metadata.valid_fraction))


class Trainer:
    """Trains methods on configurations and keeps what each left in the run's folder."""

    def __init__(self, folder: RunFolder, plan: Plan, benchmark: Benchmark):
        self._folder, self._plan, self._benchmark = folder, plan, benchmark
        self._stored = store_images(benchmark.images)
        classes = len(benchmark.images.class_names) + len(benchmark.metadata.hierarchy)
        kinds = [
            *((name, plan.exemplars) for name in plan.methods),
            *((ABLATED, exemplars) for exemplars in plan.ablation),
        ]
        self._builds = {
            (name, exemplars): build_method(
                name,
                ReducedResNet(classes, plan.blocks, METHODS[name].head),
                plan.rate,
                exemplars,
            )
            for name, exemplars in kinds
        }
        self._sequences: dict[Setting, list[TaskSequence]] = {}

    def sequence(self, name: str, configuration: int) -> TaskSequence:
        """The task sequence that a method learns, of the same shapes in every configuration."""
        setting = METHODS[name].setting
        if setting not in self._sequences:
            images, metadata = self._benchmark
            self._sequences[setting] = same_shapes(
                [
                    iirc(
                        images.train_labels,
                        images.test_labels,
                        images.class_names,
                        metadata.hierarchy,
                        order,
                        setting,
                        metadata.valid_fraction,
                    ).sequence
                    for order in metadata.configurations[: self._plan.configurations]
                ]
            )
        return self._sequences[setting][configuration]

    def superclass(self, configuration: int) -> Int[np.ndarray, "c"]:
        """The number of each class's superclass, -1 where it has none."""
        metadata = self._benchmark.metadata
        names = list(chain.from_iterable(metadata.configurations[configuration].tasks))
        parent = {
            member: names.index(name)
            for name, members in metadata.hierarchy.items()
            if name in names
            for member in members
        }
        return np.array([parent.get(name, -1) for name in names])

    def train(
        self, name: str, configuration: int, seed: int, exemplars: int | None = None
    ) -> Learnt:
        """One method on one configuration; read back if it was trained before.

        Args:
          name: of the method.
          configuration: its number.
          seed: of the run.
          exemplars: of every class; None is the plan's.
        """
        plan, suffix = self._plan, "" if exemplars is None else f"-{exemplars}-exemplars"
        kept = plan.exemplars if exemplars is None else exemplars
        facts = {"method": name, "configuration": configuration, "seed": seed, **asdict(plan)}
        arrays = train_unit(
            self._folder,
            f"{name}{suffix}-{configuration}",
            facts | {"exemplars": kept},
            self._builds[name, kept],
            protocol_of(name, plan.protocol),
            self._stored,
            self.sequence(name, configuration),
            jax.random.fold_in(jax.random.key(seed), configuration),
            lambda result: {
                "predicted": result.evaluation,
                "losses": result.losses,
                "validation": result.validation,
                "steps": np.diff(result.usage.steps, prepend=0),
            },
        )
        return Learnt(**arrays)


def unpack(learnt: Learnt, classes: int) -> Bool[np.ndarray, "t m c"]:
    """The predicted labels as booleans."""
    return np.unpackbits(learnt.predicted, axis=-1, count=classes).astype(bool)
