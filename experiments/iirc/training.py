"""Data of a plan, and every method trained on every configuration, once and for good."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from data_pipelines.images.cifar100 import IIRC_CHANNELS, load_cifar100
from data_pipelines.images.iirc_metadata import (
    Metadata,
    OfficialName,
    draw_configuration,
    official_metadata,
    procedural_metadata,
    superclasses_first,
    tiny_imagenet_metadata,
)
from data_pipelines.images.image_set import Channels, ImageSet, first_per_class, shrink_images
from data_pipelines.images.imagenet import ImageFiles
from data_pipelines.images.jpeg_store import JpegStore
from data_pipelines.images.tiny_imagenet import load_tiny_imagenet_32, tiny_imagenet_names
from data_pipelines.procedural.world import World, load_procedural
from everlight.continual.base import TaskSequence
from everlight.continual.engine.state import SequenceResult
from everlight.continual.engine.steps import Protocol
from everlight.models.heads import HeadKind
from everlight.models.resnet import ReducedResNet, ResNet50
from everlight.scenarios.iirc import Hierarchy, Setting, TaskConfiguration, iirc
from everlight.scenarios.shapes import same_shapes
from experiments.common.many_runs import Unit, refuse_diverged, train_streamed, train_units
from experiments.common.run_folder import RunFolder
from experiments.common.sequences import store_images
from experiments.common.streaming import channels, naming_files, stream
from experiments.iirc.methods import METHODS, PAPER_METHODS, build_method, protocol_of
from experiments.iirc.streaming import fingerprint, load_imagenet

ABLATED = "ER"
"""The method whose exemplars the paper varies (appendix E)."""

CHANNELS: Mapping[str, Channels] = dict.fromkeys(
    ("iirc_cifar100", "incremental_cifar100"), IIRC_CHANNELS
)
"""By which the authors normalise a data set in memory; others are by their own training images."""

DataSet = Literal["procedural", "tiny-imagenet"] | OfficialName


@dataclass(frozen=True)
class Plan:
    """What a scale changes."""

    data: DataSet
    side: int
    """Images are shrunk to this, by means of blocks; ImageNet's are cropped."""
    blocks: int | None
    """Of each stage of the reduced net: 5 is ResNet-32; None is ResNet-50."""
    protocol: Protocol
    configurations: int
    methods: tuple[str, ...] = tuple(PAPER_METHODS)
    rate: float = 1.0
    rates: Mapping[str, float] = field(default_factory=dict)
    """Of methods that have another."""
    joint_epochs: int | None = None
    """Of joint's only task; None is as many as of any first task."""
    exemplars: int = 20
    """Of every class, where a method keeps any."""
    ablation: tuple[int, ...] = ()
    """Other numbers of exemplars that ER is trained with."""
    per_class: tuple[int, int] = (500, 100)
    """At most so many training and test images of each class."""
    superclasses: int | None = None
    """Of Tiny-ImageNet, the first so many, with as many classes that have none; None is all."""
    choice: str = "no setting was chosen on test samples"
    """How the settings were chosen, for the report."""


class Benchmark(NamedTuple):
    """Images with the hierarchy and the orders in which their classes are learnt."""

    images: ImageSet | ImageFiles
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
    elif plan.data == "tiny-imagenet":
        images, metadata = _tiny_imagenet(plan)
    elif is_imagenet(plan.data):
        files, metadata = load_imagenet(plan.data, plan.configurations)
        return Benchmark(first_per_class(files, *plan.per_class), metadata)
    else:
        images, metadata = load_cifar100(), official_metadata(plan.data)
    images = shrink_images(first_per_class(images, *plan.per_class), plan.side)
    return Benchmark(images, metadata)


def is_imagenet(data: DataSet) -> bool:
    """Whether the images are ImageNet's files, which are streamed."""
    return data in get_args(OfficialName) and "imagenet" in data


def open_store(plan: Plan, benchmark: Benchmark, memory_limit: int) -> JpegStore | None:
    """Where the benchmark's files are read from; None where its images are all in memory."""
    images = benchmark.images
    if isinstance(images, ImageSet):
        return None
    return JpegStore(images.folder, images.images, plan.side, memory_limit)


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
    first = superclasses_first(plan.superclasses)
    orders = tuple(
        draw_configuration(images.class_names, hierarchy, first, number)
        for number in range(plan.configurations)
    )
    return Benchmark(images, Metadata(hierarchy, orders, metadata.valid_fraction))


class Trainer:
    """Trains methods on configurations and keeps what each left in the run's folder."""

    def __init__(
        self, folder: RunFolder, plan: Plan, benchmark: Benchmark, store: JpegStore | None = None
    ):
        self._folder, self._plan, self._benchmark = folder, plan, benchmark
        self._store = store
        self._data = (
            store_images(benchmark.images, CHANNELS.get(plan.data)) if store is None else channels()
        )
        classes = len(benchmark.images.class_names) + len(benchmark.metadata.hierarchy)
        kinds = [
            *((name, plan.exemplars) for name in plan.methods),
            *((ABLATED, exemplars) for exemplars in plan.ablation),
        ]
        self._builds = {
            (name, exemplars): build_method(
                name,
                _make_net(plan, classes, METHODS[name].head),
                plan.rates.get(name, plan.rate),
                exemplars,
                None if store is None else partial(stream, store),
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

    def train(self, name: str, seed: int, exemplars: int | None = None) -> list[Learnt]:
        """One method on every configuration; read back where it was trained before.

        Args:
          name: of the method.
          seed: of the run.
          exemplars: of every class; None is the plan's.

        Raises:
          DivergedRunError: on which it did, and where.
        """
        plan, store = self._plan, self._store
        kept = plan.exemplars if exemplars is None else exemplars
        suffix = "" if exemplars is None else f"-{exemplars}-exemplars"
        facts = {"method": name, "seed": seed, **asdict(plan), "exemplars": kept}
        # What else the run trains is nothing to these sequences.
        for field_name in ("methods", "configurations", "ablation", "choice"):
            del facts[field_name]
        if store is not None:
            facts["files"] = fingerprint(self._benchmark.images)
        units = [
            Unit(
                f"{name}{suffix}-{number}",
                facts | {"configuration": number},
                self.sequence(name, number),
                jax.random.fold_in(jax.random.key(seed), number),
            )
            for number in range(plan.configurations)
        ]
        protocol = protocol_of(name, plan.protocol, plan.joint_epochs)
        parts = (self._folder, units, self._builds[name, kept], protocol, self._data, _kept)
        if store is None:
            arrays = train_units(*parts)
        else:
            with naming_files(store):
                arrays = train_streamed(*parts, store.announce)
        refuse_diverged(units, arrays)
        return [Learnt(**{field: each[field] for field in Learnt._fields}) for each in arrays]


def _kept(result: SequenceResult) -> dict[str, Any]:
    return {
        "predicted": result.evaluation,
        "losses": result.losses,
        "validation": result.validation,
        "steps": np.diff(result.usage.steps, prepend=0),
    }


def _make_net(plan: Plan, classes: int, head: HeadKind) -> nn.Module:
    if plan.blocks is None:
        return ResNet50(classes, head)
    return ReducedResNet(classes, plan.blocks, head)


def superclass_numbers(
    hierarchy: Hierarchy, configuration: TaskConfiguration
) -> Int[np.ndarray, "c"]:
    """The number of each class's superclass, -1 where it has none."""
    names = list(chain.from_iterable(configuration.tasks))
    parent = {
        member: names.index(name)
        for name, members in hierarchy.items()
        if name in names
        for member in members
    }
    return np.array([parent.get(name, -1) for name in names])


def unpack(learnt: Learnt, classes: int) -> Bool[np.ndarray, "t m c"]:
    """The predicted labels as booleans."""
    return np.unpackbits(learnt.predicted, axis=-1, count=classes).astype(bool)
