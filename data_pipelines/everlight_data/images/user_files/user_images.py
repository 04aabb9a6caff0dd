"""Reader of a user's own images: a folder, a csv, an npz, a folder of IDX files or a TFDS set.

A folder has one sub-folder per class. A csv has the header `file,label` and files below its own
folder. An npz holds `images`, uint8 `[n, h, w, 3]` or grey `[n, h, w]`, and `labels`, integers or
text. Transparent pixels are laid over white. The note counts images that were converted or
skipped; a file that cannot be used is an error of one line.
"""

import os
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

from everlight.data_checks import ambiguous_samples, check_tests, repeated_samples
from everlight_data.errors import DataError
from everlight_data.formats.arrays import dtype_and_shape, read_npz, take
from everlight_data.formats.pictures import (
    DEPTH_REMEDY,
    FORMATS,
    MAX_PIXELS,
    DeepImageError,
    convert_mode,
    opaque,
    opened_image,
    square,
)
from everlight_data.images.published_forms.idx_folders import is_idx_folder, load_idx
from everlight_data.images.published_forms.tfds_sets import load_tfds
from everlight_data.images.user_files.class_names import (
    MIN_CLASSES,
    MIN_IMAGES,
    check_present,
    check_shape,
    class_numbers,
)
from everlight_data.images.user_files.image_lists import ListedImages, list_csv, list_folder
from everlight_data.names import name_first
from everlight_data.sets.image_set import (
    ImageSet,
    LoadedImages,
    as_rgb,
    every_nth,
    shrink_images,
    split_off,
)
from everlight_data.texts import printable

SIDE = 32
"""Default side of photographs in pixels."""
TFDS = "tfds:"
"""Prefix of the name of a set that TFDS prepared."""
MAX_BYTES = 8_000_000_000
"""Limit on the bytes of all images at their new size."""
LARGE_PIXELS = 20_000_000
"""Pixels of an image from which on one image is decoded at a time; 1 GB may be needed for it."""
SHOWN = 3
"""Number of names that a message repeats."""
MIN_TRAINING = 2
"""Smallest number of training images of a class, to train and to select hyper-parameters."""
_ONE_LARGE = threading.Lock()
_GRAY = "grey"
_ANIMATED, _TRANSPARENT, _DEEP, _PROFILED = "animated", "transparent", "deep", "profiled"
_KINDS = {"L": _GRAY, "1": _GRAY, "LA": _GRAY, "P": "palette", "PA": "palette", "CMYK": "CMYK"}
"""Name in the note of each of Pillow's modes that is not RGB."""


class _Part(NamedTuple):
    """A source's images, and sentences for the note."""

    images: ImageSet
    """All images are training images if the source has no test images of its own."""
    size: str
    """Description of the images' size."""
    notes: Sequence[str]


class _Squares(NamedTuple):
    images: UInt8[np.ndarray, "n side side c"]
    labels: Sequence[str]
    notes: Sequence[str]


class _ReadImage(NamedTuple):
    image: UInt8[np.ndarray, "side side 3"] | None
    """None if the file is not an intact image."""
    kinds: Sequence[str]


def load_user_images(
    source: str,
    side: int | None,
    test_every: int,
    test_data: Path | None = None,
    fewest_classes: int = MIN_CLASSES,
) -> LoadedImages:
    """Load a user's images with their test images.

    Photographs become squares: the middle of each image, turned upright by its EXIF orientation.
    The images have one channel if all are grey, and else three. IDX and TFDS sets have test images
    of their own; of other sets every `test_every`-th image of a class is a test image. With
    `test_data`, all test images are those of that source.

    Args:
      source: path of a folder, a .csv, an .npz or a folder of IDX files, or tfds:NAME.
      side: side of the squares in pixels; None is 32, or the IDX files' own.
      test_every: 2 or more, in the order of names, or that of the csv or npz.
      test_data: source of the test images in any of these forms, with the same class names.
      fewest_classes: smallest number of classes.

    Raises:
      MissingDataError: a file or folder does not exist.
      DataError: the source has no classes, a class of too few images, a file that is not an intact
        image, unusable labels, or too many images, or it is `test_data` too; the message names it.
    """
    fewest = MIN_IMAGES if test_data is None else 1
    part = _read_source(source, side, fewest, fewest_classes)
    images, notes = part.images, list(part.notes)
    if test_data is not None:
        if Path(source).resolve() == test_data.resolve() and not len(images.test_labels):
            raise DataError(
                f"{source} has the training images, and --test-data names the same. Leave out "
                "--test-data: some of them then test, and do not train."
            )
        images, tests = _add_tests(
            part.images, str(test_data), images.images.shape[1], fewest_classes
        )
        notes += tests
        chosen_by = f" (all from {printable(test_data.name)})"
    elif len(images.test_labels):
        chosen_by = ""
    else:
        labels, chosen_by = images.train_labels, f" (every {_ordinal(test_every)} of a class)"
        test = every_nth(labels, test_every)
        images = split_off(images.name, images.images, labels, test, images.class_names)
    _check_counts(source, images, fewest_classes)
    trained = len(images.train_labels)
    repeated = int(repeated_samples(images.images[:trained], images.images[trained:]).sum())
    if repeated:
        notes.append(f"{repeated:,} test images equal training images")
    every_label = np.concatenate([images.train_labels, images.test_labels])
    if ambiguous := int(ambiguous_samples(images.images, every_label).sum()):
        notes.append(f"{ambiguous:,} images equal an image of another class")
    note = (
        f"{images.name}: {len(images.images):,} images of {len(images.class_names)} classes, of "
        f"which {len(images.test_labels):,} test{chosen_by}; {part.size}"
    )
    return LoadedImages(images, "; ".join([note, *notes]))


def _read_source(source: str, side: int | None, fewest: int, classes: int) -> _Part:
    """Read a source in any form, of a smallest number of images of a class, and of classes."""
    path, pixels = Path(source), side or SIDE
    squares_of = f"the middle square of each at {pixels}×{pixels} pixels"
    if source.startswith(TFDS):
        return _whole_set(load_tfds(source.removeprefix(TFDS), pixels), squares_of)
    if is_idx_folder(path):
        images = load_idx(path)
        pixels = side or images.images.shape[1]
        return _whole_set(shrink_images(images, pixels), f"each at {pixels}×{pixels} pixels")
    if path.suffix.lower() == ".npz" and path.is_file():
        squares = _read_npz(path, pixels)
    else:
        files = list_csv(path) if path.suffix.lower() == ".csv" else list_folder(path)
        squares = _decode(path, files, pixels)
    class_names, number = class_numbers(path, squares.labels, fewest, classes)
    name = printable(path.name or source)
    images = ImageSet(name, squares.images, number, number[:0], class_names)
    return _Part(images, squares_of, squares.notes)


def _whole_set(images: ImageSet, size: str) -> _Part:
    gray = images.images.shape[-1] == 1
    return _Part(images, size, ["grey, in one channel"] if gray else [])


def _add_tests(
    images: ImageSet, source: str, side: int, classes: int
) -> tuple[ImageSet, list[str]]:
    """Return a set with the test images of another source, and sentences for the note."""
    part = _read_source(source, side, 1, classes)
    other, trained = part.images, len(images.train_labels)
    if set(other.class_names) != set(images.class_names):
        wrong = sorted(set(other.class_names) ^ set(images.class_names))
        raise DataError(
            f"{source} has other classes than the training images: {name_first(wrong, SHOWN)} "
            f"{'is' if len(wrong) == 1 else 'are'} only in one of them. Give both the same names."
        )
    # A set with test images of its own gives those alone.
    start = len(other.train_labels) if len(other.test_labels) else 0
    labels = np.concatenate([other.train_labels, other.test_labels])[start:]
    pair = [images.images[:trained], other.images[start:]]
    check_tests(images.name, pair[0], source, pair[1])
    notes = [f"test: {note}" for note in part.notes]
    if pair[0].shape[-1] != pair[1].shape[-1]:
        pair = [as_rgb(part) for part in pair]
        notes.append("all converted to RGB")
    if len(images.test_labels):
        notes.append(f"{len(images.test_labels):,} test images of {images.name} not used")
    if start:
        notes.append(f"{start:,} training images of {other.name} not used")
    places = np.array([images.class_names.index(name) for name in other.class_names], np.int32)
    return images._replace(images=np.concatenate(pair), test_labels=places[labels]), notes


def _check_counts(source: str, images: ImageSet, fewest: int) -> None:
    """Refuse a class that cannot be trained, validated and tested."""
    classes = len(images.class_names)
    train = np.bincount(images.train_labels, minlength=classes)
    test = np.bincount(images.test_labels, minlength=classes)
    few = np.flatnonzero((train < MIN_TRAINING) | (test < 1))
    if classes < fewest:
        raise DataError(f"{source} holds one class. Give two or more.")
    if len(few):
        raise DataError(
            f"{source}: the class {images.class_names[few[0]]!a} has {train[few[0]]} training and "
            f"{test[few[0]]} test images; a class needs {MIN_TRAINING} and 1."
        )


def _decode(source: Path, files: ListedImages, side: int) -> _Squares:
    squares = _empty_squares(len(files.paths), side)
    kinds: Counter = Counter()
    wrong = []
    # A picture may take some hundred megabytes while it is decoded.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, read in enumerate(pool.map(lambda path: _read_square(path, side), files.paths)):
            if read.image is None:
                wrong.append(printable(str(files.paths[number].relative_to(_image_folder(source)))))
            else:
                squares[number] = read.image
            kinds.update(read.kinds)
    if wrong:
        deep = kinds[_DEEP]
        remedy = f" {deep:,} of them {'has' if deep == 1 else 'have'} 16 bits: {DEPTH_REMEDY}"
        raise DataError(
            f"{source}: {len(wrong)} of {len(files.paths):,} files "
            f"cannot be used (missing, above {MAX_PIXELS:,} pixels, or not a complete 8-bit "
            f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]} file): "
            f"{name_first(wrong, SHOWN)}. Repair, convert or remove them.{remedy if deep else ''}"
        )
    gray = kinds[_GRAY] == len(squares)
    notes = _notes_of_kinds(kinds, gray)
    if files.skipped:
        counts = ", ".join(f"{count} {place}" for place, count in files.skipped.items())
        notes.append(f"files not read: {counts}")
    # The copy frees the two other channels.
    return _Squares(squares[..., :1].copy() if gray else squares, files.labels, notes)


def _image_folder(source: Path) -> Path:
    return source if source.is_dir() else source.parent


def _read_square(path: Path, side: int) -> _ReadImage:
    try:
        with opened_image(path, "") as image:
            kinds = []
            if getattr(image, "n_frames", 1) > 1:
                kinds.append(_ANIMATED)
            if _has_other_colors(image):
                kinds.append(_PROFILED)
            # A JPEG is decoded at the least size that is large enough, which is much faster.
            image.draft(None, (2 * side, 2 * side))
            # A thread per core would need that many times its memory.
            is_large = image.width * image.height > LARGE_PIXELS
            with _ONE_LARGE if is_large else nullcontext():
                upright = ImageOps.exif_transpose(image)
                if upright.mode in _KINDS:
                    kinds.append(_KINDS[upright.mode])
                plain, is_transparent = opaque(upright)
                if is_transparent:
                    kinds.append(_TRANSPARENT)
                return _ReadImage(square(convert_mode(plain, "RGB"), side), kinds)
    except DeepImageError:
        return _ReadImage(None, [_DEEP])
    except DataError:
        return _ReadImage(None, [])


def _has_other_colors(image: Image.Image) -> bool:
    """Return True for a colour profile that is not named sRGB, or a gamma far from sRGB's 1/2.2."""
    profile, gamma = image.info.get("icc_profile") or b"", image.info.get("gamma") or 1 / 2.2
    is_srgb = not profile or any("sRGB".encode(code) in profile for code in ("ascii", "utf-16-be"))
    return not (is_srgb and 0.4 < gamma < 0.5)


def _read_npz(path: Path, side: int) -> _Squares:
    remedy = (
        "Give it images, uint8 [n, h, w, 3] or grey [n, h, w], and labels [n], text or integers."
    )
    arrays = read_npz(path, remedy)
    images, labels = take(arrays, path, ("images", "labels"), remedy)
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.dtype != np.uint8 or images.shape[-1] not in (1, 3):
        raise DataError(f"{path}: images have {dtype_and_shape(images)}. {remedy}")
    check_shape(path, labels, "images", images.shape, remedy)
    if not images.size:
        raise DataError(f"{path} holds no image. {remedy}")
    gray = images.shape[-1] == 1
    texts = [str(label) for label in labels.tolist()]
    check_present(path, texts)
    squares = _empty_squares(len(images), side, images.shape[-1])
    for place, image in zip(squares, images, strict=True):
        place[...] = square(Image.fromarray(image[..., 0] if gray else image), side)
    notes = _notes_of_kinds(Counter(), gray)
    others = [printable(name) for name in arrays if name not in ("images", "labels")]
    if others:
        notes.append(f"arrays not read: {name_first(others, SHOWN)}")
    return _Squares(squares, texts, notes)


def _empty_squares(count: int, side: int, channels: int = 3) -> UInt8[np.ndarray, "n side side c"]:
    shape = (count, side, side, channels)
    if np.prod(shape, dtype=float) > MAX_BYTES:
        raise DataError(
            f"{count:,} images of {side}x{side} take more than {MAX_BYTES:,} bytes; give a smaller "
            "--side"
        )
    return np.empty(shape, np.uint8)


def _notes_of_kinds(kinds: Counter, gray: bool) -> list[str]:
    """Return the sentences on converted images; `gray` images are all kept in one channel."""
    animated, transparent = kinds.pop(_ANIMATED, 0), kinds.pop(_TRANSPARENT, 0)
    profiled = kinds.pop(_PROFILED, 0)
    notes = []
    if gray:
        notes.append("grey, in one channel")
    elif kinds:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        notes.append(f"converted to RGB: {counts}")
    if transparent:
        notes.append(f"{transparent:,} with transparency, laid over white")
    if profiled:
        notes.append(f"{profiled:,} with a colour profile or gamma not named sRGB, not applied")
    if animated:
        notes.append(f"{animated:,} with several frames, of which the first is used")
    return notes


def _ordinal(number: int) -> str:
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
