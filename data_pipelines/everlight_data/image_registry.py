"""Registry of image sets: every set of labelled images by its name, or by a user's path.

A new data set is one function and one row of `IMAGE_SETS`.
"""

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from everlight_data.errors import DataError
from everlight_data.images.cifar100 import load_cifar100
from everlight_data.images.digits import load_digits
from everlight_data.images.idx import load_fashion_mnist, load_mnist
from everlight_data.images.image_lists import FORMS
from everlight_data.images.image_set import (
    ImageSet,
    LoadedImages,
    first_classes,
    first_per_class,
    last_classes,
    shrink_images,
)
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32, tiny_imagenet_names
from everlight_data.images.user_images import TFDS, load_user_images
from everlight_data.loading import loaded_once

PROCEDURAL_CLASSES, PROCEDURAL_PER_CLASS = 20, (100, 50)
"""Default size of the procedural world: classes, and training and test images per class."""
MOST_PROCEDURAL = 100
"""Largest number of classes of the procedural world, without repeated textures or palettes."""


class ImageRequest(NamedTuple):
    """An image set by name or path, and the share of it that an experiment uses."""

    data: str
    """Name of a row of `IMAGE_SETS`, tfds:NAME, or path of a user's images."""
    side: int | None = None
    """Side in pixels; None is the set's own, or 32 for a user's photographs and TFDS sets."""
    classes: int | None = None
    """Number of classes, the first ones; None is all, or 20 of the procedural world."""
    per_class: tuple[int, int] | None = None
    """Largest numbers of training and test images per class; None is all, or 100 and 50 of the
    procedural world."""
    test_every: int = 5
    """Interval of test images: every N-th image of a class of a user's set."""
    test_data: Path | None = None
    """Path of a user's own test set, or tfds:NAME; it has the same class names."""
    seed: int = 0
    """Seed of the procedural world."""
    first_class: int = 0
    """Number of classes that are left out before the first one."""


def _digits(_: ImageRequest) -> ImageSet:
    return load_digits()


def _fashion_mnist(_: ImageRequest) -> ImageSet:
    return load_fashion_mnist()


def _mnist(_: ImageRequest) -> ImageSet:
    return load_mnist()


def _procedural(request: ImageRequest) -> ImageSet:
    # It renders with JAX, which is slow to import, and not needed by the stored sets.
    from everlight_data.procedural.world import World, load_procedural

    classes = min(request.classes or PROCEDURAL_CLASSES, MOST_PROCEDURAL)
    subclasses = -(-classes // 10)
    # A number of classes that `subclasses` does not divide leaves the last ones over.
    world = World(-(-classes // subclasses), subclasses, seed=request.seed)
    return load_procedural(world, *(request.per_class or PROCEDURAL_PER_CLASS))


def _tiny_imagenet(request: ImageRequest) -> ImageSet:
    # Only the images of the chosen classes are decoded.
    available = len(tiny_imagenet_names())
    # A request for more classes than there are is refused with all of them.
    end = request.first_class + (request.classes or available - request.first_class)
    return load_tiny_imagenet_32(range(min(end, available)))


def _cifar100(_: ImageRequest) -> ImageSet:
    return load_cifar100()


IMAGE_SETS: dict[str, Callable[[ImageRequest], ImageSet]] = {
    "digits": _digits,
    "fashion-mnist": _fashion_mnist,
    "mnist": _mnist,
    "procedural": _procedural,
    "tiny-imagenet": _tiny_imagenet,
    "cifar100": _cifar100,
}
"""Functions from a request to a set by name; a function may return more than the request needs."""


@loaded_once
def load_images(request: ImageRequest) -> LoadedImages:
    """Load the requested images at the requested size, with a note for the report.

    The side of a stored set is reached by block means. A user's photographs and TFDS sets are
    resized.

    Raises:
      MissingDataError: the data set, file or folder does not exist.
      DataError: the name is unknown, or the request does not fit the set; see also the set's
        reader.
    """
    _check_request(request)
    named = request.data in IMAGE_SETS
    if named:
        images, note = IMAGE_SETS[request.data](request), ""
    else:
        _check_source(request.data)
        images, note = load_user_images(
            request.data, request.side, request.test_every, request.test_data
        )
    chosen = _chosen(images, request)
    if named and request.side is not None:
        chosen = shrink_images(chosen, request.side)
    if not named:
        return LoadedImages(chosen, note + _note_of_choice(request))
    after = f", after the first {request.first_class}" if request.first_class else ""
    return LoadedImages(chosen, _note_of_named(chosen) + after)


def _check_request(request: ImageRequest) -> None:
    named = request.data in IMAGE_SETS or request.data.startswith(TFDS)
    if named and request.test_data is not None:
        raise DataError(
            f"{request.data} has its own test images; give --test-data only with --data PATH"
        )
    if request.test_every < 2:
        raise DataError(f"--test-every {request.test_every}; give 2 or more")
    if request.side is not None and request.side < 1:
        raise DataError(f"--side {request.side}; give 1 or more")
    if request.per_class is not None and min(request.per_class) < 1:
        raise DataError(f"per_class={request.per_class}; give 1 or more of each")


def _check_source(data: str) -> None:
    """Refuse text that is neither a name nor looks like a path."""
    path = Path(data)
    if data.startswith(TFDS) or os.path.lexists(path) or path.suffix or len(path.parts) > 1:
        return
    near = difflib.get_close_matches(data.casefold(), IMAGE_SETS, n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    raise DataError(
        f"no data {data!a}{meant} There are {', '.join(map(repr, IMAGE_SETS))}; "
        f"for your own images give --data {FORMS}"
    )


def _chosen(images: ImageSet, request: ImageRequest) -> ImageSet:
    first, available = request.first_class, len(images.class_names)
    if first:
        if first > available - 2:
            raise DataError(
                f"--first-class {first}: {request.data} has {available} classes; give 0 to "
                f"{available - 2}"
            )
        images, available = last_classes(images, first), available - first
    if request.classes is not None:
        if not 2 <= request.classes <= available:
            after = f" after the first {first}" if first else ""
            raise DataError(
                f"{request.data} has {available} classes{after}, not {request.classes}; give 2 to "
                f"{available}"
            )
        images = first_classes(images, request.classes)
    return images if request.per_class is None else first_per_class(images, *request.per_class)


def _note_of_named(images: ImageSet) -> str:
    _, height, width, channels = images.images.shape
    grey = ", grey" if channels == 1 else ""
    return f"{images.name}: {len(images.class_names)} classes at {height}×{width} pixels{grey}"


def _note_of_choice(request: ImageRequest) -> str:
    chosen = []
    after = f"classes after the first {request.first_class}"
    if request.classes is not None:
        named = after if request.first_class else "classes"
        chosen.append(f"the first {request.classes} {named}")
    elif request.first_class:
        chosen.append(f"all {after}")
    if request.per_class is not None:
        chosen.append(
            "at most {:,} training and {:,} test images per class".format(*request.per_class)
        )
    return f"; used: {', '.join(chosen)}" if chosen else ""
