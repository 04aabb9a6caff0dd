"""Copies of published image sets as class folders: train/CLASS/FILE and test/CLASS/FILE."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from everlight_data.errors import DataError
from everlight_data.formats.files import refusing
from everlight_data.formats.pictures import decode_image, opaque
from everlight_data.sets.image_set import ImageSet
from everlight_data.sets.preparing import Source, matching

MAX_IMAGE_BYTES = 1_000_000
"""Limit on the size of an image's file."""
PARTS = ("train", "test")
BY_NUMBER, BY_NAME = "file numbers", "class and file name"
"""Orders of the samples."""
# Names that begin with a dot are notes of file systems and editors.
_PATH = re.compile(r"(?:.*/)?(train|test)/([^/.][^/]*)/[^/.][^/]*\.(?:png|jpe?g)", re.IGNORECASE)


class OrderedImages(NamedTuple):
    """A set's images, and the name of the order of its samples."""

    images: ImageSet
    order: str


class ImageFile(NamedTuple):
    """Path of an image in a source, and its label."""

    path: str
    label: int


def read_class_folders(
    source: Source, name: str, class_names: Sequence[str], shape: Sequence[int]
) -> OrderedImages | None:
    """Return the images of class folders; None if the source has none.

    The images are in the order of their numbers if the file names of each part are different
    numbers, and otherwise in the order of classes and file names.

    Args:
      source: the opened folder or archive.
      name: name of the set in reports.
      class_names: names of the folders, in the order of labels.
      shape: height, width and channels of every image.

    Raises:
      DataError: a folder has the name of no class, a part is missing, or a file is not an intact
        image of this shape.
    """
    parts = _files_of_parts(source, class_names)
    if not any(parts.values()):
        return None
    for part, files in parts.items():
        if not files:
            raise DataError(
                f"{source.path} has no images {part}/CLASS/FILE.png. Name the folder of its "
                f"{part} images {part}."
            )
    by_number = all(map(_are_numbered, parts.values()))
    ordered = {
        part: sorted(files, key=_number if by_number else _label_and_path)
        for part, files in parts.items()
    }
    train, test = (np.array([file.label for file in ordered[part]], np.int32) for part in PARTS)
    paths = [file.path for part in PARTS for file in ordered[part]]
    images = ImageSet(name, read_images(source, paths, shape), train, test, tuple(class_names))
    return OrderedImages(images, BY_NUMBER if by_number else BY_NAME)


def read_images(
    source: Source, paths: Sequence[str], shape: Sequence[int]
) -> UInt8[np.ndarray, "n h w c"]:
    """Return the images of a source's files, all of one shape.

    Grey images become images of three equal channels where `shape` has three, and images of three
    equal channels become grey where it has one.

    Raises:
      DataError: a file is not an intact image, or has another shape; the message names it.
    """
    images = np.empty((len(paths), *shape), np.uint8)
    for image, path in zip(images, paths, strict=True):
        full = f"{source.path}/{path}"
        content = source.read(path, MAX_IMAGE_BYTES)
        with refusing(full, source.remedy):
            pixels, _ = opaque(decode_image(content, full, source.remedy))
            decoded = np.asarray(pixels).reshape(pixels.height, pixels.width, -1)
        if image.shape[2] == 1 and (decoded == decoded[..., :1]).all():
            decoded = decoded[..., :1]
        if decoded.shape[:2] != image.shape[:2] or decoded.shape[2] not in (1, image.shape[2]):
            raise DataError(
                f"{full} is an image of {decoded.shape}, not {tuple(shape)}. {source.remedy}"
            )
        image[...] = decoded
    return images


def _files_of_parts(source: Source, class_names: Sequence[str]) -> dict[str, list[ImageFile]]:
    """Return the files of training and test images."""
    labels = {class_name: label for label, class_name in enumerate(class_names)}
    parts = {part: [] for part in PARTS}
    for path in matching(source, _PATH.fullmatch):
        part, class_name = _PATH.fullmatch(path).groups()
        if class_name not in labels:
            shown = ", ".join(class_names[:3])
            raise DataError(
                f"{source.path}: {part}/{class_name} is not one of the {len(labels)} classes "
                f"{shown} ... {class_names[-1]}. Name the folders as the classes."
            )
        parts[part.lower()].append(ImageFile(path, labels[class_name]))
    return parts


def _are_numbered(files: Sequence[ImageFile]) -> bool:
    """Return True if the names of the files are different numbers."""
    stems = [PurePosixPath(file.path).stem for file in files]
    if not all(stem.isascii() and stem.isdigit() for stem in stems):
        return False
    return len(set(map(int, stems))) == len(stems)


def _number(file: ImageFile) -> int:
    return int(PurePosixPath(file.path).stem)


def _label_and_path(file: ImageFile) -> tuple[int, str]:
    return file.label, file.path
