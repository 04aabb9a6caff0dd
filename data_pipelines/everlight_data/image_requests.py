"""Labelled images by the name of a data set, or by a user's path."""

import os
from pathlib import Path

from everlight_data.errors import DataError
from everlight_data.images.user_files.image_lists import FORMS
from everlight_data.images.user_files.user_images import TFDS, load_user_images
from everlight_data.names import did_you_mean
from everlight_data.registry import IMAGE_SETS
from everlight_data.sets.data_set import DataSet, ImageRequest
from everlight_data.sets.image_set import (
    ImageSet,
    LoadedImages,
    first_per_class,
    shrink_images,
    some_classes,
)
from everlight_data.sets.loading import loaded_once


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
    if request.data in IMAGE_SETS:
        images = _choose_classes(_load_row(IMAGE_SETS[request.data], request), request)
        if request.side is not None:
            images = shrink_images(images, request.side)
        after = f", after the first {request.first_class}" if request.first_class else ""
        return LoadedImages(images, _note_of_named(images) + after)
    _check_source(request.data)
    images, note = load_user_images(
        request.data,
        request.side,
        request.test_every,
        request.test_data,
        request.fewest_classes,
    )
    return LoadedImages(_choose_classes(images, request), note + _note_of_choice(request))


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
        raise DataError(f"per_class={tuple(request.per_class)}; give 1 or more of each")


def _check_source(data: str) -> None:
    """Refuse text that is neither a name nor looks like a path."""
    path = Path(data)
    if data.startswith(TFDS) or os.path.lexists(path) or path.suffix or len(path.parts) > 1:
        return
    hint = did_you_mean(data, list(IMAGE_SETS)) or "."
    raise DataError(
        f"no data {data!a}{hint} There are {', '.join(map(repr, IMAGE_SETS))}; "
        f"for your own images give --data {FORMS}"
    )


def _load_row(row: DataSet, request: ImageRequest) -> ImageSet:
    if row.class_count is not None:
        _check_classes(request, row.class_count(request))
    return row.load(request)


def _choose_classes(images: ImageSet, request: ImageRequest) -> ImageSet:
    available = len(images.class_names)
    _check_classes(request, available)
    first, count = request.first_class, request.classes
    if first or count is not None:
        images = some_classes(images, first, available if count is None else first + count)
    return images if request.per_class is None else first_per_class(images, request.per_class)


def _check_classes(request: ImageRequest, available: int) -> None:
    first, count = request.first_class, request.classes
    if first and first > available - 2:
        raise DataError(
            f"--first-class {first}: {request.data} has {available} classes; give 0 to "
            f"{available - 2}"
        )
    available -= first
    if count is not None and not 2 <= count <= available:
        after = f" after the first {first}" if first else ""
        raise DataError(
            f"{request.data} has {available} classes{after}, not {count}; give 2 to {available}"
        )


def _note_of_named(images: ImageSet) -> str:
    _, height, width, channels = images.images.shape
    gray = ", grey" if channels == 1 else ""
    return f"{images.name}: {len(images.class_names)} classes at {height}×{width} pixels{gray}"


def _note_of_choice(request: ImageRequest) -> str:
    chosen, first = [], request.first_class
    classes = f"classes after the first {first}" if first else "classes"
    if request.classes is not None:
        chosen.append(f"the first {request.classes} {classes}")
    elif first:
        chosen.append(f"all {classes}")
    if request.per_class is not None:
        chosen.append(
            f"at most {request.per_class.train:,} training and {request.per_class.test:,} test "
            "images per class"
        )
    return f"; used: {', '.join(chosen)}" if chosen else ""
