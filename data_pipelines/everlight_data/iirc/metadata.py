"""Hierarchies and task configurations of IIRC (Abdelsalam et al. 2021), official and new ones.

The official ones are read from the authors' package `iirc`, their only place of publication.
"""

from collections.abc import Sequence
from importlib import resources
from itertools import chain
from typing import Any, Literal, NamedTuple

import numpy as np

from everlight.scenarios.iirc import Hierarchy, TaskConfiguration
from everlight_data.errors import DataError
from everlight_data.formats.tables import parse_json
from everlight_data.images.tiny_imagenet import tiny_imagenet_wnids
from everlight_data.optional_packages import import_package
from everlight_data.procedural.render import World
from everlight_data.procedural.shapes import SHAPES
from everlight_data.procedural.world import class_names, superclass_of

MAX_ATTEMPTS = 1000
VALID_FRACTION = 0.1
"""Fraction of the training samples in each validation set of new benchmarks."""
TASK_CLASSES = 5
"""Classes per task, except the first and possibly the last, as in IIRC-CIFAR."""
TINY_IMAGENET_FIRST = 14
"""Superclasses in the first task; the other 220 classes form tasks of five."""

OfficialName = Literal[
    "iirc_cifar100",
    "iirc_imagenet_full",
    "iirc_imagenet_lite",
    "incremental_cifar100",
    "incremental_imagenet_full",
    "incremental_imagenet_lite",
]


class Metadata(NamedTuple):
    """Class hierarchy and task orders of a benchmark, for `everlight.scenarios.iirc.iirc`."""

    hierarchy: Hierarchy
    configurations: tuple[TaskConfiguration, ...]
    valid_fraction: float
    """Fraction of the training samples in each of the two validation sets."""


def official_metadata(name: OfficialName) -> Metadata:
    """Return a benchmark of the authors' package, by its name there.

    CIFAR-100's classes have their usual names, ImageNet's their WordNet ids. The `incremental_*`
    benchmarks have no hierarchy. Classes that no task introduces, as in lite, are left out.

    Raises:
      MissingPackageError: the package `iirc` is not installed.
    """
    images = "cifar100" if "cifar100" in name else "imagenet"
    incremental = name.startswith("incremental")
    hierarchy = {} if incremental else _hierarchy(images)
    classes = [*hierarchy, *_package_table(f"{images}_classes.json")["classes"]]
    tables = _ordered_items(_package_table(f"{name}_task_configurations.json"), "configuration")
    orders = [_ordered_items(table, "task") for table in tables]
    # The package has no entry of its own for full and lite.
    settings = _package_table("dataset_configurations.json")[f"{name.split('_')[0]}_{images}"]
    return Metadata(
        hierarchy,
        tuple(_configuration(order, classes) for order in orders),
        settings["intask_valid_train_ratio"],
    )


def imagenet_listing(name: OfficialName) -> tuple[str, ...]:
    """Return a benchmark's ImageNet classes in the order of the authors' loader.

    There are 998 classes with a hierarchy. The `incremental_*` benchmarks list all 1,000 in another
    order. Full and lite list the same classes.

    Raises:
      MissingPackageError: the package `iirc` is not installed.
    """
    if name.startswith("incremental"):
        return tuple(_package_table("imagenet_classes.json")["classes"])
    table = _package_table("iirc_imagenet_hierarchy_wnids.json")
    return (*table["other_sub_classes"], *chain.from_iterable(table["super_classes"].values()))


def tiny_imagenet_metadata(count: int = 10) -> Metadata:
    """Return IIRC-TinyImageNet: the official ImageNet hierarchy on Tiny-ImageNet's 200 classes.

    Superclasses with fewer than two of these classes are dropped. This leaves 34 superclasses with
    124 classes, and 76 classes without a superclass. Configuration i is drawn with seed i: 14
    superclasses, then 44 tasks of five classes. Class names are those of `load_tiny_imagenet_32`.

    Raises:
      MissingPackageError: the package `iirc` is not installed.
      MissingDataError: Tiny-ImageNet's names are missing.
      DataError: the names are damaged.
    """
    names = tiny_imagenet_wnids()
    present = {
        superclass: tuple(names[wnid] for wnid in wnids if wnid in names)
        for superclass, wnids in _hierarchy("imagenet").items()
    }
    hierarchy = {superclass: members for superclass, members in present.items() if members[1:]}
    return drawn_metadata(tuple(names.values()), hierarchy, TINY_IMAGENET_FIRST, count)


def procedural_metadata(world: World, count: int = 10) -> Metadata:
    """Return the procedural world as an IIRC benchmark; a superclass is a shape.

    The first task has `superclasses_first` classes; tasks of five classes follow. Configuration i
    is drawn with seed i.

    Raises:
      DataError: the world has too few superclasses; the message gives the number.
    """
    names = class_names(world)
    parents = superclass_of(world, np.arange(len(names)))
    hierarchy = {
        SHAPES[number]: tuple(
            name for name, parent in zip(names, parents, strict=True) if parent == number
        )
        for number in range(world.superclasses)
    }
    return drawn_metadata(names, hierarchy, superclasses_first(world.superclasses), count)


def superclasses_first(count: int) -> int:
    """Return two thirds of the superclasses, rounded up, as in IIRC-CIFAR (10 of 15)."""
    return -(-2 * count // 3)


def drawn_metadata(
    data_classes: Sequence[str], hierarchy: Hierarchy, first: int, count: int
) -> Metadata:
    """Return a benchmark of `count` configurations; `draw_configuration` draws the i-th by seed i.

    Each validation set has a tenth of the training samples.
    """
    orders = (draw_configuration(data_classes, hierarchy, first, seed) for seed in range(count))
    return Metadata(hierarchy, tuple(orders), VALID_FRACTION)


def draw_configuration(
    data_classes: Sequence[str], hierarchy: Hierarchy, first: int, seed: int
) -> TaskConfiguration:
    """Draw a random task order in the paper's style (section 4.1).

    `first` superclasses come first, then tasks of five other classes of either kind. A superclass
    is in an earlier task than its subclasses; the last task takes the remainder.

    Raises:
      DataError: there are fewer than `first` superclasses, or no order was found.
    """
    if not 1 <= first <= len(hierarchy):
        raise DataError(f"first={first}; give 1 to {len(hierarchy)}, the number of superclasses")
    generator = np.random.default_rng(seed)
    for _ in range(MAX_ATTEMPTS):
        superclasses = generator.permutation(list(hierarchy)).tolist()
        rest = generator.permutation([*superclasses[first:], *data_classes]).tolist()
        tasks = _fill_tasks([superclasses[:first]], rest, hierarchy)
        if all(len(task) == TASK_CLASSES for task in tasks[1:-1]):
            return TaskConfiguration(tuple(map(tuple, tasks)))
    raise DataError(
        f"no order with {first} superclasses first fills tasks of {TASK_CLASSES}: too many classes "
        "need an earlier superclass; increase first"
    )


def _fill_tasks(tasks: list[list[str]], rest: list[str], hierarchy: Hierarchy) -> list[list[str]]:
    """Fill tasks with the next classes whose superclass, if any, is already introduced."""
    parent = {member: name for name, members in hierarchy.items() for member in members}
    while rest:
        seen = {None, *chain.from_iterable(tasks)}
        tasks.append([name for name in rest if parent.get(name) in seen][:TASK_CLASSES])
        rest = [name for name in rest if name not in tasks[-1]]
    return tasks


def _hierarchy(images: str) -> dict[str, tuple[str, ...]]:
    suffix = "_wnids" if images == "imagenet" else ""
    groups = _package_table(f"iirc_{images}_hierarchy{suffix}.json")["super_classes"]
    return {name: tuple(members) for name, members in groups.items()}


def _ordered_items(table: dict[str, Any], prefix: str) -> list[Any]:
    return [table[f"{prefix}_{number}"] for number in range(len(table))]


def _configuration(tasks: list[list[str]], classes: list[str]) -> TaskConfiguration:
    introduced = set(chain.from_iterable(tasks))
    left_out = tuple(name for name in classes if name not in introduced)
    return TaskConfiguration(tuple(map(tuple, tasks)), left_out)


def _package_table(file: str) -> Any:
    # The authors' package has the hierarchies and the task configurations.
    path = resources.files(import_package("iirc")) / "metadata" / file
    return parse_json(path.read_text("utf-8"))
