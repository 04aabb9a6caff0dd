"""A user's own images: a folder with one sub-folder per class, a csv, or an npz.

Whatever is changed or left out is counted in the set's note; what cannot be used is refused in one
line. A csv has the header `file,label` and files below its own folder; an npz holds `images`,
uint8 `[n, h, w, 3]` or grey `[n, h, w]`, and `labels`, whole numbers or text.
"""

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image, ImageOps

from everlight_data.arrays import read_npz, take
from everlight_data.errors import DataError, MissingDataError
from everlight_data.files import leads_outside, read_csv, refusing
from everlight_data.images.image_set import ImageSet, every_nth, split_off
from everlight_data.pictures import FORMATS, opened_image, square

FEWEST = 3
"""Images of a class: to train, to select hyper-parameters and to test."""
BYTES = 8_000_000_000
"""Of all images at their new size."""
SHOWN = 3
"""Names of a list that a message repeats."""
HEADER = ["file", "label"]
_FORMS = (
    "give a folder with one sub-folder per class, a .csv of file and label, or an .npz with images "
    "and labels"
)
_KINDS = {
    "1": "grey",
    "L": "grey",
    "LA": "grey",
    "P": "palette",
    "PA": "palette",
    "RGBA": "transparent",
    "CMYK": "CMYK",
}
"""How the note calls what is brought to RGB, by Pillow's mode."""


class OwnImages(NamedTuple):
    """The images, and all that a report owes about how they came about."""

    images: ImageSet
    note: str


class _Files(NamedTuple):
    paths: Sequence[Path]
    labels: Sequence[str]
    left_out: Counter


class _Read(NamedTuple):
    image: UInt8[np.ndarray, "side side 3"] | None
    """None where the file is no whole image."""
    kinds: Sequence[str]


def load_own_images(source: Path, side: int, test_every: int) -> OwnImages:
    """Images in square, in RGB, with every `test_every`-th of a class for its test images.

    Of each image the middle square is taken, upright as its camera says.

    Args:
      source: a folder, a .csv or an .npz.
      side: of the squares, in pixels.
      test_every: 2 or more; in the order of names, or that of the csv or npz.

    Raises:
      MissingDataError: there is no such file or folder.
      DataError: it holds no classes, a class of fewer than three images, a file that is no whole
        image, contradictory or unusable labels, or more than fits; named.
    """
    name = printable(source.name or str(source))
    if source.suffix == ".npz" and source.is_file():
        squares, labels, counted = _from_npz(source, side)
    else:
        files = _from_csv(source) if source.suffix == ".csv" else _from_folder(source)
        squares, counted = _decode(source, files, side)
        labels = files.labels
    class_names, number = class_numbers(source, labels)
    images = split_off(name, squares, number, every_nth(number, test_every), class_names)
    note = (
        f"{name}: {len(squares):,} images of {len(class_names)} classes, of which "
        f"{len(images.test_labels):,} test (every {_ordinal(test_every)} of a class); the middle "
        f"square of each at {side}×{side} pixels"
    )
    return OwnImages(images, "; ".join([note, *counted]))


def class_numbers(
    source: Path, labels: Sequence[str]
) -> tuple[tuple[str, ...], Int[np.ndarray, "n"]]:
    """The classes, in the order of their printable names, and the place among them of each label.

    Raises:
      DataError: an empty label, two that hardly differ, a class of too few, fewer than two classes.
    """
    class_names = _class_names(source, labels)
    place = {class_name: number for number, class_name in enumerate(class_names)}
    return class_names, np.array([place[printable(label)] for label in labels], np.int32)


def printable(name: str) -> str:
    """A name with what cannot be printed, such as bytes that are no text, as escapes."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in name
    )


def _from_folder(folder: Path) -> _Files:
    way_out = f"For --images {_FORMS}."
    if not os.path.lexists(folder):
        raise MissingDataError(f"{folder} does not exist. {way_out}")
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder. {way_out}")
    paths, labels, left_out = [], [], Counter()
    for entry in _listed(folder, way_out):
        if entry.name.startswith("."):
            left_out["hidden"] += 1
        elif not entry.is_dir():
            left_out["beside the classes' folders"] += 1
        else:
            for path in _listed(entry, way_out):
                if path.name.startswith("."):
                    left_out["hidden"] += 1
                elif path.is_dir():
                    raise DataError(
                        f"{printable(str(path))} is a folder in a class's folder. Give --images "
                        "the folder whose sub-folders are the classes, with images alone in each."
                    )
                else:
                    paths.append(path)
                    labels.append(entry.name)
            if not labels or labels[-1] != entry.name:
                raise DataError(
                    f"{printable(str(entry))} holds no image. Remove it, or put its images there."
                )
    if not paths:
        raise DataError(f"{folder} holds no sub-folder with images. {way_out}")
    return _Files(paths, labels, left_out)


def _listed(folder: Path, way_out: str) -> list[Path]:
    with refusing(printable(str(folder)), way_out):
        return sorted(folder.iterdir())


def _from_csv(path: Path) -> _Files:
    way_out = f"Give it the header {','.join(HEADER)} and a row for every image."
    rows = read_csv(path, way_out)
    if not rows or [cell.strip().lower() for cell in rows[0][1]] != HEADER:
        raise DataError(f"{path} does not begin with {','.join(HEADER)}. {way_out}")
    lines: dict[PurePosixPath, int] = {}
    labels = []
    for line, cells in rows[1:]:
        if len(cells) != 2 or not all(cell.strip() for cell in cells):
            raise DataError(f"{path}, line {line}, is no file and label. {way_out}")
        if leads_outside(cells[0]):
            raise DataError(
                f"{path}, line {line}: {cells[0]!a} leads out of the csv's folder. Put the csv "
                "beside or above its images."
            )
        file = PurePosixPath(cells[0])
        if file in lines:
            raise DataError(
                f"{path}, line {line}, names {cells[0]!a} again, after line {lines[file]}. Name "
                "every image once."
            )
        lines[file] = line
        labels.append(cells[1].strip())
    if not lines:
        raise DataError(f"{path} names no image. {way_out}")
    return _Files([path.parent / file for file in lines], labels, Counter())


def _decode(
    source: Path, files: _Files, side: int
) -> tuple[UInt8[np.ndarray, "n side side 3"], list[str]]:
    """The images, and what the note has to say of them."""
    squares = _room(len(files.paths), side)
    kinds: Counter = Counter()
    wrong = []
    # A picture may take some hundred megabytes while it is decoded.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, read in enumerate(pool.map(lambda path: _read(path, side), files.paths)):
            if read.image is None:
                wrong.append(printable(str(files.paths[number].relative_to(_base(source)))))
            else:
                squares[number] = read.image
                kinds.update(read.kinds)
    if wrong:
        raise DataError(
            f"{source}: {len(wrong)} of {len(files.paths):,} files "
            f"{'is' if len(wrong) == 1 else 'are'} missing or no whole {', '.join(FORMATS[:-1])} "
            f"or {FORMATS[-1]} of 8 bits: {_some(wrong)}. Mend or remove them."
        )
    said = _said_of_kinds(kinds)
    if files.left_out:
        counts = ", ".join(f"{count} {what}" for what, count in files.left_out.items())
        said.append(f"files not read: {counts}")
    return squares, said


def _base(source: Path) -> Path:
    return source if source.is_dir() else source.parent


def _read(path: Path, side: int) -> _Read:
    try:
        with opened_image(path, "") as image:
            kinds = []
            if getattr(image, "n_frames", 1) > 1:
                kinds.append("animated")
            # A JPEG is decoded at the least size that is large enough, which is much faster.
            image.draft(None, (2 * side, 2 * side))
            upright = ImageOps.exif_transpose(image)
            if upright.mode != "RGB":
                kinds.append(_KINDS[upright.mode])
            return _Read(square(upright.convert("RGB"), side), kinds)
    except DataError:
        return _Read(None, [])


def _from_npz(
    path: Path, side: int
) -> tuple[UInt8[np.ndarray, "n side side 3"], list[str], list[str]]:
    """The images, their labels, and what the note has to say of them."""
    way_out = "Give it images, uint8 [n, h, w, 3] or grey [n, h, w], and labels [n]."
    images, labels = take(read_npz(path, way_out), path, ("images", "labels"), way_out)
    kinds: Counter = Counter()
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.dtype != np.uint8 or images.shape[-1] not in (1, 3):
        raise DataError(f"{path}: images are {images.dtype} of {images.shape}. {way_out}")
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iuU":
        raise DataError(
            f"{path}: labels are {labels.dtype} of {labels.shape}, images {images.shape}. {way_out}"
        )
    if not images.size:
        raise DataError(f"{path} holds no image. {way_out}")
    if images.shape[-1] == 1:
        kinds["grey"] = len(images)
    squares = _room(len(images), side)
    for place, image in zip(squares, images, strict=True):
        place[...] = square(Image.fromarray(np.broadcast_to(image, (*image.shape[:2], 3))), side)
    return squares, [str(label) for label in labels.tolist()], _said_of_kinds(kinds)


def _room(count: int, side: int) -> UInt8[np.ndarray, "n side side 3"]:
    shape = (count, side, side, 3)
    if np.prod(shape, dtype=float) > BYTES:
        raise DataError(
            f"{count:,} images of {side}x{side} take more than {BYTES:,} bytes; give a smaller "
            "--side"
        )
    return np.empty(shape, np.uint8)


def _said_of_kinds(kinds: Counter) -> list[str]:
    animated = kinds.pop("animated", 0)
    said = []
    if kinds:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
        said.append(f"brought to RGB: {counts}")
    if animated:
        said.append(f"of {animated:,} with several frames the first")
    return said


def _class_names(source: Path, labels: Sequence[str]) -> tuple[str, ...]:
    counts = Counter(labels)
    alike: dict[str, list[str]] = {}
    for label in counts:
        if not label.strip():
            raise DataError(f"{source}: an empty label. Give every image a class.")
        key = " ".join(unicodedata.normalize("NFC", printable(label)).casefold().split())
        alike.setdefault(key, []).append(label)
    for twins in alike.values():
        if len(twins) > 1:
            raise DataError(
                f"{source}: the classes {' and '.join(f'{each!a}' for each in twins[:2])} differ "
                "only in case, spaces or the encoding of accents. Give one class one name."
            )
    if len(counts) < 2:
        raise DataError(f"{source} holds one class. Give two or more.")
    few = [label for label, count in counts.items() if count < FEWEST]
    if few:
        raise DataError(
            f"{source}: the class {few[0]!a} has {counts[few[0]]} image"
            f"{'s' * (counts[few[0]] > 1)}"
            f"{f', and {len(few) - 1} more have too few' if len(few) > 1 else ''}; a class needs "
            f"{FEWEST}, to train, to select hyper-parameters and to test."
        )
    # Whole numbers in their own order.
    numeric = all(re.fullmatch(r"-?\d+", label) for label in counts)
    return tuple(printable(label) for label in sorted(counts, key=int if numeric else printable))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _ordinal(number: int) -> str:
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
