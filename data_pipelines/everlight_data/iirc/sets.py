"""Images with the class hierarchy and task configurations of an IIRC benchmark."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Int

from everlight.continual import TaskSequence
from everlight.scenarios.iirc import LabelSetting, TaskConfiguration, iirc
from everlight.scenarios.shapes import pad_sequences
from everlight_data.errors import DataError
from everlight_data.iirc.metadata import (
    Metadata,
    OfficialName,
    drawn_metadata,
    imagenet_listing,
    official_metadata,
    procedural_metadata,
    superclasses_first,
    tiny_imagenet_metadata,
)
from everlight_data.images.cifar100 import IIRC_STATISTICS, load_cifar100
from everlight_data.images.imagenet import ImageFiles, list_imagenet
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32, tiny_imagenet_names
from everlight_data.procedural.render import World
from everlight_data.procedural.world import load_procedural
from everlight_data.sets.image_set import (
    ChannelStatistics,
    ImageSet,
    PerClass,
    first_per_class,
    shrink_images,
)
from everlight_data.sets.loading import loaded_once

IIRCName = Literal["procedural", "tiny-imagenet"] | OfficialName
STATISTICS: Mapping[str, ChannelStatistics] = dict.fromkeys(
    ("iirc_cifar100", "incremental_cifar100"), IIRC_STATISTICS
)
"""Channel means and deviations that the authors fix for a data set."""


class IIRCData(NamedTuple):
    """Images of the subclasses, their superclasses, and the orders in which both are learned."""

    images: ImageSet | ImageFiles
    metadata: Metadata

    @property
    def classes(self) -> int:
        """Number of subclasses and superclasses that a task configuration introduces."""
        return len(self.order(0))

    @property
    def sizes(self) -> str:
        """Return the numbers of classes and images in words, for reports."""
        hierarchy, fraction = self.metadata.hierarchy, self.metadata.valid_fraction
        per_class = np.bincount(self.images.train_labels)
        grouped = sum(map(len, hierarchy.values()))
        # Rounded down per class, as in `iirc`.
        train, validation = (
            _format_range(per_class),
            _format_range((fraction * per_class).astype(int)),
        )
        return (
            f"{len(hierarchy)} superclasses of {grouped} classes and {len(per_class) - grouped} "
            f"classes without one; {train} training images per class, {validation} of them "
            "in-task validation and as many left out"
        )

    def sequences(self, setting: LabelSetting, validation: bool = True) -> "IIRCSequences":
        """Return the tasks of every configuration, all of one shape.

        Args:
          setting: labels of the training samples: see `everlight.scenarios.iirc.iirc`.
          validation: False leaves `post_task` empty.
        """
        images, metadata = self.images, self.metadata
        build = partial(
            iirc, images.train_labels, images.test_labels, images.class_names, metadata.hierarchy
        )
        benchmarks = [
            build(order, setting, metadata.valid_fraction) for order in metadata.configurations
        ]
        post_task = [benchmark.post_task for benchmark in benchmarks] if validation else []
        padded = pad_sequences([*(benchmark.sequence for benchmark in benchmarks), *post_task])
        return IIRCSequences(padded[: len(benchmarks)], padded[len(benchmarks) :])

    def order(self, configuration: int) -> tuple[str, ...]:
        """Return the names of all classes of a task configuration in order of introduction."""
        return tuple(chain.from_iterable(self.metadata.configurations[configuration].tasks))

    def superclass(self, configuration: int) -> Int[np.ndarray, "c"]:
        """Return the number of each class's superclass, -1 where it has none."""
        names, parent = self.order(configuration), {}
        for name, members in self.metadata.hierarchy.items():
            if name in names:
                parent |= dict.fromkeys(members, names.index(name))
        return np.array([parent.get(name, -1) for name in names])


class IIRCSequences(NamedTuple):
    """Tasks of every configuration by the samples that they are tested on."""

    test: list[TaskSequence]
    """Tasks with the test set."""
    post_task: list[TaskSequence]
    """Tasks with the post-task validation."""


@dataclass(frozen=True)
class IIRCRequest:
    """Data set and limits on what is taken from it."""

    name: IIRCName
    side: int
    """Side to which images in memory are shrunk, in pixels."""
    per_class: PerClass
    """Largest number of training and test images per class."""
    configurations: int
    """Largest number of task configurations."""
    superclasses: int | None = None
    """Number of Tiny-ImageNet's superclasses, with as many classes that have none; None is all."""
    seed: int = 0
    """Seed of the procedural world."""


def is_imagenet(name: str) -> bool:
    """Return True if the images are ImageNet's files, which are read while training."""
    return name in get_args(OfficialName) and "imagenet" in name


@loaded_once
def load_iirc(request: IIRCRequest) -> IIRCData:
    """Return a data set's images, or the listing of its files, with its task configurations.

    Raises:
      MissingDataError, DataError: data or the package `iirc` are missing or damaged, or
        Tiny-ImageNet has fewer superclasses.
    """
    name, count = request.name, request.configurations
    if is_imagenet(name):
        images, metadata = _imagenet(name, count)
        return IIRCData(first_per_class(images, request.per_class), metadata)
    if name == "procedural":
        world = World(4, 3, seed=request.seed)
        images = load_procedural(world, request.per_class)
        metadata = procedural_metadata(world, count)
    elif name == "tiny-imagenet":
        images, metadata = _tiny_imagenet(request.superclasses, count)
    else:
        images, metadata = load_cifar100(), official_metadata(name)
        metadata = metadata._replace(configurations=metadata.configurations[:count])
    images = shrink_images(first_per_class(images, request.per_class), request.side)
    return IIRCData(images, metadata)


def _format_range(counts: Int[np.ndarray, "c"]) -> str:
    least, most = counts.min(), counts.max()
    return f"{least}" if least == most else f"{least} to {most}"


def _tiny_imagenet(superclasses: int | None, count: int) -> tuple[ImageSet, Metadata]:
    metadata = tiny_imagenet_metadata(count)
    if superclasses is None:
        return load_tiny_imagenet_32(), metadata
    most = len(metadata.hierarchy)
    if not 1 <= superclasses <= most:
        raise DataError(f"superclasses={superclasses}; give 1 to {most}, or None for all")
    hierarchy = dict(list(metadata.hierarchy.items())[:superclasses])
    grouped = set(chain.from_iterable(metadata.hierarchy.values()))
    names = tiny_imagenet_names()
    single = [name for name in names if name not in grouped][:superclasses]
    class_names = [*chain.from_iterable(hierarchy.values()), *single]
    images = load_tiny_imagenet_32([names.index(name) for name in class_names])
    first = superclasses_first(superclasses)
    return images, drawn_metadata(images.class_names, hierarchy, first, count)


def _imagenet(name: OfficialName, count: int) -> tuple[ImageFiles, Metadata]:
    """Return the files of the classes that the first `count` configurations introduce."""
    official = official_metadata(name)
    orders = [order.tasks for order in official.configurations[:count]]
    introduced = {name for tasks in orders for name in chain.from_iterable(tasks)}
    hierarchy = {
        name: members for name, members in official.hierarchy.items() if name in introduced
    }
    class_names = {member for name in introduced for member in hierarchy.get(name, (name,))}
    files = list_imagenet(imagenet_listing(name), class_names)
    names = (*hierarchy, *files.class_names)
    configurations = []
    for tasks in orders:
        left_out = tuple(x for x in names if x not in set(chain.from_iterable(tasks)))
        configurations.append(TaskConfiguration(tasks, left_out))
    return files, Metadata(hierarchy, tuple(configurations), official.valid_fraction)
