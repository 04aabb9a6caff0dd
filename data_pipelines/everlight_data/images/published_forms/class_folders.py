"""Copies of published image sets as class folders: train/CLASS/FILE and test/CLASS/FILE."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from everlight_data.errors import DataError
from everlight_data.formats.files import refusing
from everlight_data.formats.pictures import image_from, opaque
from everlight_data.sets.image_set import ImageSet
from everlight_data.sets.preparing import Source, matching

MAX_IMAGE_BYTES = 1_000_000
"""Limit on the size of an image's file."""
PARTS = ("train", "test")
_PATH = re.compile(r"(?:.*/)?(train|test)/([^/]+)/[^/]+\.(?:png|jpe?g)", re.IGNORECASE)


class ImageFile(NamedTuple):
    """Path of an image in a source, and its label."""

    path: str
    label: int


def read_class_folders(
    source: Source, name: str, class_names: Sequence[str], shape: Sequence[int]
) -> ImageSet | None:
    """Return the images of class folders; None if the source has none.

    The images of a part are in the order of their numbers if all file names are different numbers,
    and otherwise in the order of classes and file names.

    Args:
      source: the opened folder or archive.
      name: name of the set in reports.
      class_names: names of the folders, in the order of labels.
      shape: height, width and channels of every image.

    Raises:
      DataError: a folder has the name of no class, a part is missing, or a file is not an intact
        image of this shape.
    """
    parts = {part: _listed(source, part, class_names) for part in PARTS}
    if not any(parts.values()):
        return None
    for part, files in parts.items():
        if not files:
            raise DataError(f"{source.path} has no images {part}/CLASS/FILE. {source.remedy}")
    files = [file for part in PARTS for file in parts[part]]
    train, test = (np.array([file.label for file in parts[part]], np.int32) for part in PARTS)
    paths = [file.path for file in files]
    return ImageSet(name, read_images(source, paths, shape), train, test, tuple(class_names))


def read_images(
    source: Source, paths: Sequence[str], shape: Sequence[int]
) -> UInt8[np.ndarray, "n h w c"]:
    """Return the images of a source's files, all of one shape.

    Grey images become images of three equal channels where `shape` has three.

    Raises:
      DataError: a file is not an intact image, or has another shape; the message names it.
    """
    images = np.empty((len(paths), *shape), np.uint8)
    for image, path in zip(images, paths, strict=True):
        full = f"{source.path}/{path}"
        content = source.read(path, MAX_IMAGE_BYTES)
        with refusing(full, source.remedy):
            pixels, _ = opaque(image_from(content, full, source.remedy))
            decoded = np.asarray(pixels).reshape(pixels.height, pixels.width, -1)
        if decoded.shape[:2] != image.shape[:2] or decoded.shape[2] not in (1, image.shape[2]):
            raise DataError(f"{full} is an image of {decoded.shape}, not {tuple(shape)}.")
        image[...] = decoded
    return images


def _listed(source: Source, part: str, class_names: Sequence[str]) -> list[ImageFile]:
    """Return the files of a part, in order."""
    labels = {class_name: label for label, class_name in enumerate(class_names)}
    files = []
    for path in matching(source, _PATH.fullmatch):
        match = _PATH.fullmatch(path)
        if match[1].lower() != part:
            continue
        if match[2] not in labels:
            shown = ", ".join(class_names[:3])
            raise DataError(
                f"{source.path}: {match[1]}/{match[2]} is not one of the {len(labels)} classes "
                f"{shown} ... {class_names[-1]}. Name the folders as the classes."
            )
        files.append(ImageFile(path, labels[match[2]]))
    stems = [PurePosixPath(file.path).stem for file in files]
    if all(stem.isascii() and stem.isdigit() for stem in stems):
        numbers = [int(stem) for stem in stems]
        if len(set(numbers)) == len(numbers):
            return [file for _, file in sorted(zip(numbers, files, strict=True))]
    return sorted(files, key=lambda file: (file.label, file.path))
