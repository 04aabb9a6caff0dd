"""Images, tasks and settings that everlight and the authors' code both receive.

The images are those of CIFAR-100, or Tiny-ImageNet's first 100 classes in its format. Each of these
has the name of a CIFAR-100 class, so that the authors' hierarchy and task configurations apply.
"""

import json
import pickle
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from itertools import chain
from pathlib import Path

import numpy as np

from everlight.scenarios.iirc import TaskConfiguration
from everlight_data.iirc.metadata import Metadata, official_metadata
from everlight_data.iirc.sets import IIRCData
from everlight_data.images.cifar100 import CLASSES as CIFAR100_NAMES
from everlight_data.images.cifar100 import RELEASE, load_cifar100
from everlight_data.images.published_forms.cifar_batches import images_of
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32
from everlight_data.sets.image_set import ImageSet, PerClass, first_per_class

DATA = "iirc_cifar100"
CLASSES = 100
METADATA = "metadata"
DESCRIPTION = "workload.json"
"""File of the settings of the runs in a folder."""
SPLITS = ("train", "intask_valid", "test")


@dataclass(frozen=True)
class Workload:
    """Settings of a comparison, the same on both sides."""

    cifar100: bool = False
    """CIFAR-100's images, in place of Tiny-ImageNet's."""
    train_images: int = 30
    """Training images per class, both validation sets included."""
    test_images: int = 20
    """Test images per class."""
    superclasses: int | None = 2
    """Superclasses of the first task; None takes the authors' tasks as they are."""
    task_classes: int = 2
    """Classes of every other task, where the tasks are not the authors'."""
    tasks: int = 5
    epochs: int = 10
    """Epochs per task; the first task has twice as many."""
    batch_size: int = 16
    learning_rate: float = 0.1
    weight_decay: float = 1e-5
    exemplars_per_class: int = 3
    blocks: int = 3
    """Blocks per stage; the network has six times as many layers plus two."""
    augment: bool = True
    """Crop and mirror the training images."""

    @property
    def layers(self) -> int:
        """Return the number of the network's layers."""
        return 6 * self.blocks + 2


CIFAR = Workload(
    cifar100=True,
    train_images=100,
    test_images=50,
    superclasses=None,
    tasks=8,
    batch_size=32,
    exemplars_per_class=10,
)
"""CIFAR-100 at a size for two CPU cores: 45 of the 115 classes, a fifth of their images."""


def write_inputs(workload: Workload, folder: Path) -> None:
    """Write the archive and the metadata files that both sides read."""
    images = load_cifar100() if workload.cifar100 else load_tiny_imagenet_32(range(CLASSES))
    write_archive(
        first_per_class(images, PerClass(workload.train_images, workload.test_images)),
        folder / RELEASE.folder,
    )
    metadata = folder / METADATA
    metadata.mkdir(parents=True, exist_ok=True)
    shipped = resources.files("iirc") / METADATA
    for name in (f"{DATA}_hierarchy.json", "dataset_configurations.json"):
        (metadata / name).write_bytes((shipped / name).read_bytes())
    tasks = {f"task_{number}": names for number, names in enumerate(task_order(workload))}
    path = metadata / f"{DATA}_task_configurations.json"
    path.write_text(json.dumps({"configuration_0": tasks}), "utf-8")
    (folder / DESCRIPTION).write_text(json.dumps(asdict(workload)), "utf-8")


def write_archive(images: ImageSet, folder: Path) -> None:
    """Write images as the three files of CIFAR-100's Python version, with CIFAR-100's names."""
    folder.mkdir(parents=True, exist_ok=True)
    planes = images.images.transpose(0, 3, 1, 2).reshape(len(images.images), -1)
    trained = len(images.train_labels)
    parts = (planes[:trained], images.train_labels), (planes[trained:], images.test_labels)
    contents = [
        {b"data": np.ascontiguousarray(rows), b"fine_labels": labels.tolist()}
        for rows, labels in parts
    ]
    names = [name.encode() for name in CIFAR100_NAMES]
    contents.append({b"fine_label_names": names})
    for member, content in zip(RELEASE.members, contents, strict=True):
        (folder / member).write_bytes(pickle.dumps(content, protocol=2))


def task_order(workload: Workload) -> list[list[str]]:
    """Return the classes of every task: a part of the authors' first configuration, in its order.

    They are its first tasks where the workload has no number of superclasses. Otherwise the first
    task has the first superclasses, and the others have the next classes that are a subclass of
    these or have no superclass.

    Raises:
      ValueError: the configuration has too few such classes.
    """
    official = official_metadata(DATA)
    first, *later = official.configurations[0].tasks
    if workload.superclasses is None:
        return [list(first), *map(list, later[: workload.tasks - 1])]
    chosen = first[: workload.superclasses]
    grouped = {member for members in official.hierarchy.values() for member in members}
    allowed = {member for name in chosen for member in official.hierarchy[name]}
    rest = [
        name
        for name in chain.from_iterable(later)
        if name in allowed or name not in grouped | set(official.hierarchy)
    ]
    size, count = workload.task_classes, workload.tasks - 1
    if len(chosen) < workload.superclasses or len(rest) < size * count:
        raise ValueError(f"{workload} needs more classes than the first configuration has")
    return [list(chosen), *(rest[size * task : size * (task + 1)] for task in range(count))]


def read_inputs(folder: Path) -> IIRCData:
    """Return everlight's view of the files that `write_inputs` wrote."""
    contents = {
        member: (folder / RELEASE.folder / member).read_bytes() for member in RELEASE.members
    }
    images = images_of(contents, RELEASE, str(folder))
    path = folder / METADATA / f"{DATA}_task_configurations.json"
    tasks = json.loads(path.read_text("utf-8"))["configuration_0"]
    order = tuple(tuple(tasks[f"task_{number}"]) for number in range(len(tasks)))
    official = official_metadata(DATA)
    names = (*official.hierarchy, *images.class_names)
    introduced = set(chain.from_iterable(order))
    left_out = tuple(name for name in names if name not in introduced)
    configuration = TaskConfiguration(order, left_out)
    return IIRCData(images, Metadata(official.hierarchy, (configuration,), official.valid_fraction))


def labelled_samples(data: IIRCData) -> dict[str, list[list[list]]]:
    """Return every sample of each split and task: the sum of its pixels' bytes, and its labels.

    Each task's samples are sorted. The authors' side returns the same of its own data sets.
    """
    (sequence,) = data.sequences("incomplete", validation=False).test
    names = np.array(data.order(0))
    test, member = sequence.test, np.asarray(sequence.test_member)
    tasks = sequence.tasks
    samples_of = {"train": [], "intask_valid": [], "test": []}
    for task in range(len(member)):
        for split, samples in (("train", tasks.train), ("intask_valid", tasks.valid)):
            mask = np.asarray(samples.mask[task])
            index, labels = np.asarray(samples.index[task]), np.asarray(samples.labels[task])
            samples_of[split].append(_described(data, index[mask], labels[mask], names))
        mask = member[task] & np.asarray(test.mask)
        index, labels = np.asarray(test.index)[mask], np.asarray(test.labels)[mask]
        # Labels of later tasks are not known yet.
        seen = np.asarray(sequence.class_task) <= task
        labels = np.where((labels >= 0) & seen[labels], labels, -1)
        samples_of["test"].append(_described(data, index, labels, names))
    return samples_of


def _described(
    data: IIRCData, index: np.ndarray, labels: np.ndarray, names: Sequence[str]
) -> list[list]:
    rows = zip(data.images.images[index], labels, strict=True)
    return sorted(
        [_checksum(image.tobytes()), sorted(names[row[row >= 0]].tolist())] for image, row in rows
    )


def _checksum(content: bytes) -> int:
    return zlib.crc32(content)
