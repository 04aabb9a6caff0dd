"""Published image sets in one format: IDX files as MNIST's, and a list of classes.

`everlight data prepare` writes the format from the publisher's files, from class folders, or from a
set that TensorFlow Datasets (TFDS) prepared. Every form is checked against what is known of the
set: the shape, the classes, their numbers of images, and the mean and deviation of the channels.
`classes.json` is written first, so that images without it are never read as the official ones.
"""

import functools
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import refusing
from everlight_data.formats.idx import idx_bytes
from everlight_data.formats.originals import Original, is_original
from everlight_data.formats.tables import read_json
from everlight_data.images.published_forms.class_folders import (
    BY_NAME,
    BY_NUMBER,
    OrderedImages,
    read_class_folders,
)
from everlight_data.images.published_forms.idx_folders import COLOR_FILES, FILES, load_idx
from everlight_data.images.published_forms.tfds_sets import read_prepared
from everlight_data.locations import data_root
from everlight_data.sets.data_set import (
    DataSet,
    PreparationRequest,
    Prepare,
    describe_created,
    prepare_recipe,
)
from everlight_data.sets.image_set import ImageSet
from everlight_data.sets.preparing import (
    MANIFEST,
    Files,
    Recipe,
    Source,
    is_whole,
    matching,
    read_manifest,
)

CLASSES_FILE = "classes.json"
OFFICIAL, TFDS = "official", "TFDS"
ORDERS = (OFFICIAL, BY_NUMBER, BY_NAME, TFDS)
"""Orders of the samples, as `classes.json` names them."""
TOLERANCE = 1e-6
"""Greatest difference of a channel's mean or deviation from the known one, on a scale of 0 to 1."""
JPEG_TOLERANCE = 1e-3
"""The same for JPEG files, which decoders turn into levels that differ by one."""
_TFDS_FILE = "dataset_info.json"


class PublishedSet(NamedTuple):
    """The known properties of a published image set."""

    name: str
    shape: tuple[int, int, int]
    """Height, width and channels."""
    class_names: tuple[str, ...] | None
    """Names in the order of labels; None takes the publisher's files alone."""
    train_counts: tuple[int, ...]
    """Training images of each class."""
    test_counts: tuple[int, ...]
    statistics: tuple[Sequence[float], Sequence[float]]
    """Mean and deviation of all training pixels, one number per channel."""
    tolerance: float = TOLERANCE
    originals: Mapping[str, Original] = MappingProxyType({})
    """Hashes of the files that are written, if the samples are in the official order."""

    @property
    def files(self) -> tuple[str, ...]:
        """Return the names of the files that `everlight data prepare` writes, in its order."""
        return (CLASSES_FILE, *(FILES if self.shape[2] == 1 else COLOR_FILES))


OfficialReader = Callable[[Source], ImageSet | None]
"""Reader of the publisher's files, in their order; it returns None if the source has none."""


def locate_published(name: str, row: DataSet) -> Path:
    """Return the folder of a prepared set.

    Args:
      name: name of the data set.
      row: its row.

    Raises:
      MissingDataError: the folder is missing. If a release lies below EVERLIGHT_DATA, the message
        has the command that prepares it.
    """
    root = data_root()
    release = None if root is None else row.release(root)
    if release is not None and not (root / row.folder).exists():
        raise MissingDataError(
            f"{root / row.folder} does not exist, and {release} is not read as it is. Run "
            f"`everlight data prepare {name} {shlex.quote(str(release))}` once."
        )
    return row.locate()


def load_published(folder: Path, published: PublishedSet) -> ImageSet:
    """Load a prepared set; its name has the order of the samples if it is not the official one.

    Files are compared with the hashes of the folder's manifest, if it has one.

    Raises:
      MissingDataError: a file is missing.
      DataError: a file is damaged, or is not of this set.
    """
    remedy = f"Prepare {published.name} again with `everlight data prepare`."
    for file in published.files:
        if not (folder / file).exists():
            raise MissingDataError(f"{folder} lacks {file}. {remedy}")
    for file, entry in read_manifest(folder).items():
        if file in published.files and not is_whole(folder / file, entry):
            raise DataError(
                f"{folder / file} is damaged: it is not as {MANIFEST} beside it records. {remedy}"
            )
    order, class_names = _read_classes(folder, remedy)
    images = load_idx(folder, _ordered_name(published, order), class_names)
    if fault := _fault(images, published):
        raise DataError(f"{folder} is not {published.name}: it has {fault}. {remedy}")
    return images


def _read_classes(folder: Path, remedy: str) -> tuple[str, tuple[str, ...]]:
    """Return the order of the samples, and the names of the classes."""
    path = folder / CLASSES_FILE
    table = read_json(path, remedy)
    with refusing(path, remedy):
        order, names = table["order"], table["names"]
        if order not in ORDERS:
            raise ValueError(f"order {order!a} is not one of {', '.join(ORDERS)}")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("names is not a list of text")
        return order, tuple(names)


def _ordered_name(published: PublishedSet, order: str) -> str:
    if order == OFFICIAL:
        return published.name
    return f"{published.name} in the order of {order}, not of the official files"


def prepare_images(published: PublishedSet, read_official: OfficialReader) -> Prepare:
    """Return the preparation function of a set, whose sentence has the order of the samples."""
    recipe = _recipe(published, read_official)

    def prepare(row: DataSet, request: PreparationRequest) -> str:
        created = prepare_recipe(recipe, row, request, together=True)
        order, _ = _read_classes(request.folder, f"Delete {request.folder} and prepare again.")
        result = f"{describe_created(created)}: {_ordered_name(published, order)}"
        another = f"; to take another source, delete {request.folder} first"
        return result if created else result + another

    return prepare


def _recipe(published: PublishedSet, read_official: OfficialReader) -> Recipe:
    def recipe(source: Source) -> Files:
        @functools.cache
        def read() -> OrderedImages:
            loaded = _read(source, published, read_official)
            check_published(loaded.images, published, source)
            return loaded

        def classes() -> bytes:
            names, order = read().images.class_names, read().order
            equal = [
                is_original(files[file](), known) for file, known in published.originals.items()
            ]
            if equal and all(equal):
                order = OFFICIAL
            return json.dumps({"names": names, "order": order}).encode()

        def images(part: slice) -> bytes:
            array = read().images.images[part]
            return idx_bytes(array[..., 0] if published.shape[2] == 1 else array)

        def labels(name: str) -> bytes:
            return idx_bytes(getattr(read().images, name).astype(np.uint8))

        trained = sum(published.train_counts)
        makers = (
            classes,
            lambda: images(slice(trained)),
            lambda: labels("train_labels"),
            lambda: images(slice(trained, None)),
            lambda: labels("test_labels"),
        )
        files = dict(zip(published.files, makers, strict=True))
        return files

    return recipe


def _read(source: Source, published: PublishedSet, read_official: OfficialReader) -> OrderedImages:
    """Read a source in whichever form it has."""
    images = read_official(source)
    if images is not None:
        return OrderedImages(images, OFFICIAL)
    forms = f"the files of {published.name}"
    if published.class_names is not None:
        forms += (
            "; in a folder or zip, images train/CLASS/FILE.png and test/CLASS/FILE.png; a folder "
            "prepared by TFDS"
        )
        folders = read_class_folders(source, published.name, published.class_names, published.shape)
        if folders is not None:
            return folders
        infos = matching(source, lambda path: f"/{path}".endswith(f"/{_TFDS_FILE}"))
        if len(infos) > 1:
            raise DataError(
                f"{source.path} holds {len(infos)} sets of TFDS. Give the folder of one."
            )
        if infos and not source.path.is_dir():
            raise DataError(f"{source.path} holds a set of TFDS. Unpack it and give its folder.")
        if infos:
            return OrderedImages(read_prepared((source.path / infos[0]).parent), TFDS)
    raise DataError(f"{source.path} has none of these: {forms}. {source.remedy}")


def check_published(images: ImageSet, published: PublishedSet, source: Source) -> None:
    """Check a set's shape, classes, counts, and mean and deviation of the training pixels.

    Raises:
      DataError: one of them differs; the message has both values.
    """
    fault = _fault(images, published)
    if fault is None:
        measured = np.array(channel_constants(images.images[: len(images.train_labels)]))
        known = np.array(published.statistics)
        if np.abs(measured - known).max() <= published.tolerance:
            return
        fault = (
            f"training pixels of mean and deviation {np.round(measured, 7).tolist()}, not "
            f"{np.round(known, 7).tolist()}, as a resized or lossy copy has"
        )
    raise DataError(f"{source.path} is not {published.name}: it has {fault}. {source.remedy}")


def _fault(images: ImageSet, published: PublishedSet) -> str | None:
    """Return in words what differs in shape, classes or counts; None if nothing does."""
    names, count = images.class_names, len(published.train_counts)
    if images.images.shape[1:] != published.shape:
        return f"images of {images.images.shape[1:]}, not {published.shape}"
    if len(names) != count:
        return f"{len(names)} classes, not {count}"
    for name, known in zip(names, published.class_names or names, strict=True):
        if name != known:
            return f"the class {name!a} in place of {known!a}"
    for part, labels, known in (
        ("training", images.train_labels, published.train_counts),
        ("test", images.test_labels, published.test_counts),
    ):
        counts = np.bincount(labels, minlength=count)
        for label in np.flatnonzero(counts != known):
            return f"{counts[label]} {part} images of {names[label]!a}, not {known[label]}"
    return None


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
