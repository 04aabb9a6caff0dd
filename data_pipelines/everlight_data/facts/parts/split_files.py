"""Facts as image labels, the split files of lifelong fact learning, and its images.

Elhoseiny et al., "Exploring the Challenges towards Lifelong Fact Learning" (2018). A split's folder
holds three files per task k, from 1. `B{k}_facts.csv` has the columns id, type, S, P and O.
`B{k}_train.csv` and `B{k}_test.csv` have image_links and id. The authors' loader also reads
NLP_links, w_s, w_p and w_o, which follow from the fact.
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import leads_outside
from everlight_data.formats.pictures import opaque, opened_image
from everlight_data.formats.tables import read_columns, read_numbered_columns
from everlight_data.names import name_first
from everlight_data.texts import one_line

_REMEDY = "Download the split's folder again."
_CORRECT = "Correct or remove these lines."


class Fact(NamedTuple):
    """Fact <S,*,*>, <S,P,*> or <S,P,O> in words; an undefined component is empty."""

    subject: str
    predicate: str = ""
    object: str = ""

    @property
    def type(self) -> str:
        """Type of the fact: S, SP or SPO."""
        return "SPO"[: 1 + bool(self.predicate) + bool(self.object)]


class FactSamples(NamedTuple):
    """Images and the fact that each shows; an image may occur with several facts."""

    images: tuple[str, ...]
    """Paths relative to the folder of images."""
    facts: Int[np.ndarray, "n"]
    """Index of each sample's fact in `FactSet.facts`."""


class FactSet(NamedTuple):
    """Label space of distinct facts, with training and test samples."""

    name: str
    """Name of the set in reports."""
    facts: tuple[Fact, ...]
    train: FactSamples
    test: FactSamples


class FactSplit(NamedTuple):
    """Facts and the task of each, from 0."""

    facts: FactSet
    task: Int[np.ndarray, "f"]


def read_split(folder: Path) -> FactSplit:
    """Return the facts of a split with their tasks.

    Facts are sorted by id, samples by task. Other columns are ignored, including `type`, which
    follows from the components; an undefined component is an empty cell. Without `B{k}_train.csv`
    or `B{k}_test.csv`, the name in the authors' large semantic split is tried:
    `B{k}_BD_complete_train.csv`.

    Raises:
      MissingDataError: the folder or one of a task's three files is missing.
      DataError: a column or cell is missing or unreadable, or a fact is not S, SP or SPO. Or a fact
        or id occurs twice, a sample names no image, or its id is not a fact of its task.
    """
    count = _count_tasks(folder)
    tables = [_read_facts(folder / f"B{number}_facts.csv") for number in range(1, count + 1)]
    _refuse_shared(folder, tables)
    order = sorted((number, task) for task, table in enumerate(tables) for number in table)
    places = {number: place for place, (number, _) in enumerate(order)}
    facts = tuple(tables[task][number] for number, task in order)
    _check_facts(facts, str(folder))
    parts = (
        [_read_samples(folder, k, part, table) for k, table in enumerate(tables, 1)]
        for part in ("train", "test")
    )
    samples = (FactSamples(*_join(part, places)) for part in parts)
    task = np.array([task for _, task in order], np.int32)
    return FactSplit(FactSet(folder.name, facts, *samples), task)


def read_images(
    folder: Path, links: Sequence[str], side: int, squares: Float[np.ndarray, "n 4"] | None = None
) -> UInt8[np.ndarray, "n side side 3"]:
    """Read images from a folder as RGB; for many images, call it with batches of links.

    Args:
      folder: folder that `links` are relative to; the authors' `images`.
      links: paths as in `FactSamples.images`. A missing file is replaced by the .png of the same
        name, as in the authors' loader.
      side: side of the results in pixels.
      squares: region to cut from each image, [ymin, ymax, xmin, xmax] in pixels, black outside the
        image. None is the largest central square.

    Raises:
      MissingDataError: images are missing; the message counts them and names the first.
      DataError: a file is not an image; the message names it.
    """
    paths = [folder / name for name in find_images(folder, links)]
    images = np.empty((len(paths), side, side, 3), np.uint8)
    for i, path in enumerate(paths):
        with opened_image(path, "Download it again.") as opened:
            image = opaque(opened).image.convert("RGB")
        square = _central_square(*image.size) if squares is None else squares[i]
        top, bottom, left, right = (round(float(edge)) for edge in square)
        cut = image.crop((left, top, max(right, left + 1), max(bottom, top + 1)))
        images[i] = np.asarray(cut.resize((side, side), Image.Resampling.BICUBIC))
    return images


def find_images(folder: Path, links: Sequence[str]) -> list[str]:
    """Return the files that links refer to; a missing file is replaced by its .png version.

    Raises:
      MissingDataError: images are missing; the message counts them and names the first.
      DataError: a link points outside the folder.
    """
    outside = [link for link in links if leads_outside(link)]
    if outside:
        raise DataError(
            f"{len(outside)} of {len(links)} images point outside {folder}: "
            f"{name_first(outside)}. Download the list again from its original source."
        )
    file_of: dict[str, str | None] = {}
    for link in dict.fromkeys(links):
        candidates = (link, *(str(Path(link).with_suffix(end)) for end in (".png", ".PNG")))
        file_of[link] = next((name for name in candidates if (folder / name).is_file()), None)
    missing = [link for link, name in file_of.items() if name is None]
    if missing:
        raise MissingDataError(
            f"{len(missing)} of {len(file_of)} images are listed but not below {folder}: "
            f"{name_first(missing)}. Download them, or give the folder that the links "
            "are relative to."
        )
    return [file_of[link] for link in links]


def _central_square(width: int, height: int) -> tuple[float, float, float, float]:
    top, left = max(0, height - width) / 2, max(0, width - height) / 2
    size = min(width, height)
    return top, top + size, left, left + size


def _count_tasks(folder: Path) -> int:
    if not folder.is_dir():
        raise MissingDataError(
            f"{folder} is not a folder. Give a split's folder, with B1_facts.csv."
        )
    matches = (re.fullmatch(r"B(\d+)_facts\.csv", path.name) for path in folder.iterdir())
    numbers = sorted(int(match[1]) for match in matches if match)
    if not numbers or numbers != list(range(1, len(numbers) + 1)):
        raise MissingDataError(
            f"{folder} has B<k>_facts.csv for k in {numbers}; number the tasks 1, 2, ..."
        )
    return len(numbers)


def _number(text: str, path: Path) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise DataError(
            f"{path} has the id {one_line(text)!r}; an id must be an integer"
        ) from error


def _read_facts(path: Path) -> dict[int, Fact]:
    table: dict[int, Fact] = {}
    for text, *pieces in read_columns(path, ("id", "S", "P", "O"), _REMEDY):
        number = _number(text, path)
        if number in table:
            raise DataError(f"{path} has the id {number} twice; give each fact a different id")
        table[number] = Fact(*pieces)
    return table


def _refuse_shared(folder: Path, tables: Sequence[dict[int, Fact]]) -> None:
    """Refuse ids or facts that occur in more than one task."""
    for kind, sets in (("id", tables), ("fact", [set(table.values()) for table in tables])):
        for (i, first), (j, second) in itertools.combinations(enumerate(sets, 1), 2):
            shared = [tuple(one) if kind == "fact" else one for one in first if one in second]
            if shared:
                raise DataError(
                    f"{folder}: tasks {i} and {j} share {len(shared)} {kind}s: "
                    f"{name_first(shared)}. Tasks must be disjoint; keep each in one of them."
                )


def _check_facts(facts: Sequence[Fact], name: str) -> None:
    odd = [
        tuple(fact) for fact in facts if not fact.subject or (fact.object and not fact.predicate)
    ]
    if odd:
        raise DataError(
            f"{name} has {len(odd)} facts that are not S, SP or SPO: {name_first(odd)}. {_CORRECT}"
        )
    twice = [tuple(fact) for fact, count in Counter(facts).items() if count > 1]
    if twice:
        raise DataError(
            f"{name} has {len(twice)} facts more than once: {name_first(twice)}. {_CORRECT}"
        )


def _read_samples(
    folder: Path, task: int, part: str, table: dict[int, Fact]
) -> tuple[list[str], list[int]]:
    path = folder / f"B{task}_{part}.csv"
    replaced = folder / f"B{task}_BD_complete_{part}.csv"
    if replaced.exists() and not path.exists():
        path = replaced
    rows = read_numbered_columns(path, ("image_links", "id"), _REMEDY)
    numbers = [_number(text, path) for _, (_, text) in rows]
    strange = [number for number in dict.fromkeys(numbers) if number not in table]
    if strange:
        raise DataError(
            f"{path} has ids that are not in B{task}_facts.csv: {name_first(strange)}. {_CORRECT}"
        )
    # Some of the authors' links stand in single quotes, which their loader takes away.
    links = [link.strip("'") for _, (link, _) in rows]
    for (line, _), link in zip(rows, links, strict=True):
        if not Path(link).name:
            raise DataError(f"{path}, line {line} names no image: {link!a}. {_CORRECT}")
    return links, numbers


def _join(
    parts: Sequence[tuple[list[str], list[int]]], places: dict[int, int]
) -> tuple[tuple[str, ...], Int[np.ndarray, "n"]]:
    links = tuple(itertools.chain.from_iterable(links for links, _ in parts))
    numbers = itertools.chain.from_iterable(numbers for _, numbers in parts)
    return links, np.fromiter((places[number] for number in numbers), np.int32, len(links))
