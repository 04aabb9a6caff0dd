"""Reader of image classification sets prepared by TensorFlow Datasets, without TensorFlow.

The sets must be in the format array_record: `tfds.builder(NAME, file_format="array_record")` and
its `download_and_prepare()`. A set whose builder itself computes with TensorFlow must be prepared
on a machine with TensorFlow and copied.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.arrays import dtype_and_shape
from everlight_data.formats.pictures import square
from everlight_data.locations import locate
from everlight_data.optional_packages import import_package
from everlight_data.sets.image_set import ImageSet
from everlight_data.texts import one_line

FOLDER = "tensorflow_datasets"
MAX_BYTES = 8_000_000_000
"""Limit on the bytes of all images."""
_TRAIN, _TESTS = "train", ("test", "validation")
_NAME = re.compile(r"([a-z]\w*(?:/[\w.-]+)?)(?::(\d+\.\d+\.\d+))?")
_PREPARE = 'Prepare it with tensorflow-datasets, file_format="array_record".'


def load_tfds(name: str, side: int) -> ImageSet:
    """Load a prepared set below EVERLIGHT_DATA, with the central square of each image.

    Test images are those of the split `test`, or else of `validation`.

    Args:
      name: name in TFDS, optionally with configuration and version, as in "mnist", "cifar10:3.0.2"
        or "horses_or_humans/plain:3.0.0". The default is the newest version.
      side: side of the images in pixels.

    Raises:
      MissingDataError: the set is not prepared; the message lists the prepared ones.
      DataError: the name is invalid, or as for `read_prepared`.
    """
    return read_prepared(find_prepared(name), side)


def find_prepared(name: str) -> Path:
    """Return the folder of a prepared set, `tensorflow_datasets/NAME[/CONFIG]/VERSION`.

    Raises:
      MissingDataError: the set is not prepared; the message lists the prepared ones.
      DataError: the name is not a valid TFDS name.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise DataError(f"{name!a} is not a TFDS name; give NAME, NAME/CONFIG or NAME:VERSION")
    root = locate(FOLDER, _PREPARE)
    prepared = {
        (path.parent.relative_to(root).as_posix(), path.name): path
        for path in _prepared_folders(root)
    }
    config, version = match.groups()
    fit = [key for key in prepared if key[0] == config and version in (None, key[1])]
    if not fit:
        listed = ", ".join(sorted(f"{key}:{number}" for key, number in prepared)) or "none"
        raise MissingDataError(f"{name} is not prepared in {root}, which has {listed}. {_PREPARE}")
    return prepared[max(fit, key=lambda key: tuple(map(int, key[1].split("."))))]


def _prepared_folders(root: Path) -> list[Path]:
    infos = [*root.glob("*/*/dataset_info.json"), *root.glob("*/*/*/dataset_info.json")]
    return [path.parent for path in infos if re.fullmatch(r"\d+\.\d+\.\d+", path.parent.name)]


def read_prepared(folder: Path, side: int | None = None) -> ImageSet:
    """Read the set in a folder, in TFDS's stored order; grey sets keep one channel.

    Args:
      folder: folder of one version.
      side: side of square images in pixels; None keeps the images, which must have one size.

    Raises:
      MissingPackageError: tensorflow-datasets is not installed.
      DataError: TFDS cannot read the set without TensorFlow, or features or splits are missing. Or
        images vary in size without `side`, are not 8-bit, exceed the limit, or labels are not
        classes. The message names the fault.
    """
    tfds = import_package("tensorflow_datasets")
    with _refusing(folder):
        builder = tfds.builder_from_directory(folder)
        features = dict(builder.info.features)
        splits = {name: info.num_examples for name, info in builder.info.splits.items()}
        file_format = builder.info.file_format.value
    if file_format != "array_record":
        raise DataError(
            f"{folder} is prepared as {file_format}, which only TensorFlow can read. {_PREPARE}"
        )
    class_names = _class_names(folder, features, tfds)
    test = next((name for name in _TESTS if name in splits), None)
    if _TRAIN not in splits or test is None:
        raise DataError(
            f"{folder} has the splits {', '.join(sorted(splits))}; a split train and a split "
            "test or validation are needed. Use another set, or a folder of images."
        )
    counts = splits[_TRAIN], splits[test]
    with _refusing(folder):
        sources = builder.as_data_source([_TRAIN, test])
        if tuple(map(len, sources)) != counts:
            raise ValueError(f"{tuple(map(len, sources))} samples, not {counts}")
        channels = 1 if features["image"].shape[-1] == 1 else 3
        parts = [_read_split(source, side, channels) for source in sources]
    (images, train_labels), (test_images, test_labels) = parts
    if images.shape[1:] != test_images.shape[1:]:
        raise DataError(f"{folder}: images of several sizes; give --side")
    _check_labels(folder, _TRAIN, train_labels, len(class_names))
    _check_labels(folder, test, test_labels, len(class_names))
    return ImageSet(
        builder.info.name,
        np.concatenate([images, test_images]),
        train_labels,
        test_labels,
        class_names,
    )


@contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    """Convert an error into a DataError that names the folder, and TensorFlow if that is needed."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{folder}: {error}") from error
    # A damaged folder raises errors of protobuf, ArrayRecord, Pillow or TFDS itself.
    except Exception as error:
        missing = re.search(r"tensorflow\b(?!-)", str(error).lower())
        reason = "; that needs TensorFlow" if missing else ""
        raise DataError(
            f"{folder} is not a set that TFDS can read ({type(error).__name__}: {one_line(error)})"
            f"{reason}. {_PREPARE}"
        ) from error


def _check_labels(folder: Path, split: str, labels: Int[np.ndarray, "n"], classes: int) -> None:
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise DataError(
            f"{folder}: the split {split} has the label {wrong[0]}, not one of {classes} classes. "
            "Use another set, or a folder of images."
        )


def _class_names(folder: Path, features: dict[str, Any], tfds: Any) -> tuple[str, ...]:
    label, image = features.get("label"), features.get("image")
    if not isinstance(label, tfds.features.ClassLabel) or not isinstance(
        image, tfds.features.Image
    ):
        raise DataError(
            f"{folder} has the features {', '.join(sorted(features))}; it needs an image and a "
            "class label. Use an image classification set."
        )
    return tuple(label.names)


def _read_split(
    source: Any, side: int | None, channels: int
) -> tuple[UInt8[np.ndarray, "n h w c"], Int[np.ndarray, "n"]]:
    """Return images and labels of a split."""
    labels = np.empty(len(source), np.int32)
    images = None
    for place, sample in enumerate(source):
        image, labels[place] = sample["image"], sample["label"]
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] not in (1, 3):
            raise DataError(f"image {place} has {dtype_and_shape(image)}, not 8-bit grey or RGB")
        image = np.broadcast_to(image, (*image.shape[:2], channels))
        if side is not None:
            image = square(Image.fromarray(image[..., 0] if channels == 1 else image), side)
        if images is None:
            shape = (len(source), *image.shape)
            if np.prod(shape, dtype=float) > MAX_BYTES:
                raise DataError(f"images of {shape} take more than {MAX_BYTES:,} bytes")
            images = np.empty(shape, np.uint8)
        if image.shape != images.shape[1:]:
            raise DataError("images of several sizes; give --side")
        images[place] = image
    if images is None:
        raise DataError("a split has no samples")
    return images, labels
