"""Published image sets in one format: IDX files as MNIST's, and a list of classes.

`everlight data prepare` writes the format from the publisher's files, from class folders, or from a
set that TensorFlow Datasets prepared. Every form is checked against what is known of the set.
"""

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from everlight_data.errors import DataError
from everlight_data.formats.files import refusing
from everlight_data.formats.idx import idx_bytes
from everlight_data.formats.originals import Original, is_original
from everlight_data.formats.tables import read_json
from everlight_data.images.published_forms.class_folders import read_class_folders
from everlight_data.images.published_forms.idx_folders import COLOR_FILES, FILES, load_idx
from everlight_data.images.published_forms.tfds_sets import read_prepared
from everlight_data.sets.data_set import Prepare, file_by_file
from everlight_data.sets.image_set import Channels, ImageSet
from everlight_data.sets.preparing import Files, Recipe, Source

CLASSES_FILE = "classes.json"
OFFICIAL, BY_NAME, TFDS = "official", "class and file name", "TFDS"
"""Orders of the samples, as `classes.json` names them."""
TOLERANCE = 1e-6
"""Greatest difference of a channel's mean or deviation from the known one, on a scale of 0 to 1."""
JPEG_TOLERANCE = 1e-3
"""The same for JPEG files, which decoders turn into levels that differ by one."""
_REMEDY = "Prepare it again with `everlight data prepare`."


class PublishedSet(NamedTuple):
    """What is known of a published image set."""

    name: str
    shape: tuple[int, int, int]
    """Height, width and channels."""
    class_names: tuple[str, ...] | None
    """Names in the order of labels; None takes the publisher's files alone."""
    train_counts: tuple[int, ...]
    """Training images of each class."""
    test_counts: tuple[int, ...]
    channels: Channels
    """Mean and deviation of all training pixels."""
    tolerance: float = TOLERANCE
    originals: Mapping[str, Original] = MappingProxyType({})
    """Hashes of the files that are written, if the samples are in the official order."""

    @property
    def files(self) -> tuple[str, ...]:
        """Return the names of the files that `everlight data prepare` writes."""
        return (*(FILES if self.shape[2] == 1 else COLOR_FILES), CLASSES_FILE)


class OrderedImages(NamedTuple):
    """A set's images, and the order of its samples."""

    images: ImageSet
    order: str


OfficialReader = Callable[[Source], ImageSet | None]
"""Reader of the publisher's files, in their order; it returns None if the source has none."""


def load_published(folder: Path, name: str) -> ImageSet:
    """Load a prepared set; its name says if the samples are not in the official order.

    Raises:
      MissingDataError: a file is missing.
      DataError: a file is damaged, or the list of classes is not one.
    """
    path = folder / CLASSES_FILE
    table = read_json(path, _REMEDY)
    with refusing(path, _REMEDY):
        order, class_names = str(table["order"]), tuple(map(str, table["names"]))
    if order != OFFICIAL:
        name = f"{name} in the order of {order}, not the official one"
    return load_idx(folder, name, class_names)


def prepare_images(published: PublishedSet, read_official: OfficialReader) -> Prepare:
    """Return the preparation function of a set, which says if the order is not the official one."""
    prepare_all = file_by_file(_recipe(published, read_official))

    def prepare(source: Path, folder: Path, *arguments: Any) -> str:
        result = prepare_all(source, folder, *arguments)
        images = load_published(folder, published.name)
        return result if images.name == published.name else f"{result}: {images.name}"

    return prepare


def _recipe(published: PublishedSet, read_official: OfficialReader) -> Recipe:
    def recipe(source: Source) -> Files:
        @functools.cache
        def read() -> OrderedImages:
            loaded = _read(source, published, read_official)
            check_published(loaded.images, published, source)
            return loaded

        def images(part: slice) -> bytes:
            array = read().images.images[part]
            return idx_bytes(array[..., 0] if published.shape[2] == 1 else array)

        def labels(name: str) -> bytes:
            return idx_bytes(getattr(read().images, name).astype(np.uint8))

        def classes() -> bytes:
            loaded = read()
            equal = [
                is_original(made[file](), known) for file, known in published.originals.items()
            ]
            order = OFFICIAL if equal and all(equal) else loaded.order
            return json.dumps({"names": loaded.images.class_names, "order": order}).encode()

        trained = sum(published.train_counts)
        makers = (
            lambda: images(slice(trained)),
            lambda: labels("train_labels"),
            lambda: images(slice(trained, None)),
            lambda: labels("test_labels"),
            classes,
        )
        made = dict(zip(published.files, makers, strict=True))
        return made

    return recipe


def _read(source: Source, published: PublishedSet, read_official: OfficialReader) -> OrderedImages:
    """Read a source in whichever form it has."""
    if (source.path / "dataset_info.json").is_file():
        return OrderedImages(read_prepared(source.path), TFDS)
    images = read_official(source)
    if images is not None:
        return OrderedImages(images, OFFICIAL)
    if published.class_names is not None:
        images = read_class_folders(source, published.name, published.class_names, published.shape)
        if images is not None:
            return OrderedImages(images, BY_NAME)
    raise DataError(f"{source.path} has none of the files of {published.name}. {source.remedy}")


def check_published(images: ImageSet, published: PublishedSet, source: Source) -> None:
    """Check a set's shape, classes, counts, and mean and deviation of the training pixels.

    Raises:
      DataError: one of them differs; the message has both values.
    """
    remedy = f"{source.path} is not {published.name}. {source.remedy}"
    if images.images.shape[1:] != published.shape:
        raise DataError(f"images of {images.images.shape[1:]}, not {published.shape}: {remedy}")
    if published.class_names not in (None, images.class_names):
        differing = [
            f"{read} where {known} is expected"
            for read, known in zip(images.class_names, published.class_names, strict=False)
            if read != known
        ] or [f"{len(images.class_names)} classes, not {len(published.class_names)}"]
        raise DataError(f"class names: {differing[0]}: {remedy}")
    for part, labels, known in (
        ("training", images.train_labels, published.train_counts),
        ("test", images.test_labels, published.test_counts),
    ):
        counts = np.bincount(labels, minlength=len(known))
        if len(counts) > len(known):
            raise DataError(f"{len(counts)} classes of {part} images, not {len(known)}: {remedy}")
        wrong = np.flatnonzero(counts != known)
        if len(wrong):
            label = wrong[0]
            raise DataError(
                f"{counts[label]} {part} images of {images.class_names[label]}, not "
                f"{known[label]}: {remedy}"
            )
    measured = np.array(channel_constants(images.images[: len(images.train_labels)]))
    known = np.array(published.channels)[:, : published.shape[2]]
    if np.abs(measured - known).max() > published.tolerance:
        raise DataError(
            f"training pixels have mean and deviation {np.round(measured, 4).tolist()}, not "
            f"{np.round(known, 4).tolist()}: {remedy}"
        )


def channel_constants(images: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the exact mean and deviation of every channel, on a scale of 0 to 1."""
    levels = np.arange(256) / 255
    means, deviations = [], []
    for channel in range(images.shape[-1]):
        # In parts, since counting makes integers of eight bytes of all pixels.
        counts = sum(
            np.bincount(part[..., channel].ravel(), minlength=256)
            for part in np.array_split(images, max(1, len(images) // 1000))
        )
        mean = (counts * levels).sum() / counts.sum()
        means.append(float(mean))
        deviations.append(float(np.sqrt((counts * (levels - mean) ** 2).sum() / counts.sum())))
    return means, deviations
