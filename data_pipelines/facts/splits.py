"""Facts as labels of images, the split files of lifelong fact learning, and its images.

Elhoseiny et al., "Exploring the Challenges towards Lifelong Fact Learning" (2018). A task's folder
holds, for task k from 1, `B{k}_facts.csv` with columns id, type, S, P, O and, with columns
image_links and id, `B{k}_train.csv` and `B{k}_test.csv`. The columns are those that the authors'
loader reads; it also reads NLP_links, w_s, w_p and w_o, which follow from the fact.
"""

import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

from data_pipelines.errors import DataError, MissingDataError
from data_pipelines.files import leads_outside, one_line, read_csv
from data_pipelines.pictures import opened_image

MAX_NAMED = 5
"""How many of many faulty items a message names."""


class Fact(NamedTuple):
    """<S,*,*>, <S,P,*> or <S,P,O>, in words; a piece that is not defined is empty."""

    subject: str
    predicate: str = ""
    object: str = ""

    @property
    def type(self) -> str:
        """S, SP or SPO."""
        return "SPO"[: 1 + bool(self.predicate) + bool(self.object)]


class FactSamples(NamedTuple):
    """Images and the fact that each shows; one image may stand for several facts."""

    images: tuple[str, ...]
    """Paths below the folder of images."""
    facts: Int[np.ndarray, "n"]
    """Each sample's fact, its place in `FactSet.facts`."""


class FactSet(NamedTuple):
    """A label space of distinct facts, with training and test samples."""

    name: str
    """How a report calls the set."""
    facts: tuple[Fact, ...]
    train: FactSamples
    test: FactSamples


def write_split(folder: Path, facts: FactSet, task: Int[np.ndarray, "f"]) -> None:
    """Writes the csv files of a division into tasks; a fact's id is its place in `facts.facts`.

    Args:
      folder: the split's own, such as `splits/4tasks_semantic`; made where it is missing.
      facts: what is divided.
      task: the task of each fact, from 0, none without a fact.

    Raises:
      DataError: duplicate facts, or one that is none of S, SP and SPO; `task` is not of that form;
        the folder holds a split already.
    """
    _check_facts(facts.facts, facts.name)
    count = len(np.unique(task))
    if task.shape != (len(facts.facts),) or set(task.tolist()) != set(range(count)):
        raise DataError(f"task: give each of {len(facts.facts)} facts its task, 0, 1, ... in all")
    if any(folder.glob("B*_*.csv")):
        raise DataError(f"{folder} holds a split already; give another folder or empty this one")
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        rows = ((i, facts.facts[i].type, *facts.facts[i]) for i in np.flatnonzero(task == number))
        _write(folder / f"B{number + 1}_facts.csv", ("id", "type", "S", "P", "O"), rows)
        for part, samples in (("train", facts.train), ("test", facts.test)):
            own = np.flatnonzero(task[samples.facts] == number)
            rows = ((samples.images[i], samples.facts[i]) for i in own)
            _write(folder / f"B{number + 1}_{part}.csv", ("image_links", "id"), rows)


def read_split(folder: Path) -> tuple[FactSet, Int[np.ndarray, "f"]]:
    """A split and the task of each fact, from 0.

    Facts come in the order of their ids, samples task by task. Further columns are not read, nor is
    `type`, which follows from the pieces: an undefined one is an empty cell. Where there is no
    `B{k}_train.csv` or `B{k}_test.csv`, the authors' name for their large semantic split is tried,
    `B{k}_BD_complete_train.csv`.

    Raises:
      MissingDataError: no such folder, or one of a task's three files is missing.
      DataError: a column or a cell is missing or cannot be read, a fact is none of S, SP and SPO,
        a fact or an id stands there twice, in one task or in two, or a sample's id is none of its
        task's facts.
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
    samples = (FactSamples(*_joined(part, places)) for part in parts)
    task = np.array([task for _, task in order], np.int32)
    return FactSet(folder.name, facts, *samples), task


def read_images(
    folder: Path,
    links: Sequence[str],
    side: int,
    squares: Float[np.ndarray, "n 4"] | None = None,
) -> UInt8[np.ndarray, "n side side 3"]:
    """Images of a user's folder as RGB; for many images, called with some of the links at a time.

    Args:
      folder: what `links` are relative to; the authors' `images`.
      links: paths as in `FactSamples.images`. Where a file is missing, one that ends in .png
        stands in for it, as in the authors' loader.
      side: of the results, in pixels.
      squares: what to cut out of each image, [ymin, ymax, xmin, xmax] in pixels, black where it
        leaves the image; None is the largest central square.

    Raises:
      MissingDataError: images are missing; says how many, and names the first.
      DataError: a file is no image; named.
    """
    paths = [folder / name for name in find_images(folder, links)]
    images = np.empty((len(paths), side, side, 3), np.uint8)
    for i, path in enumerate(paths):
        with opened_image(path, "Get it again.") as opened:
            image = opened.convert("RGB")
        square = _central_square(*image.size) if squares is None else squares[i]
        top, bottom, left, right = (round(float(edge)) for edge in square)
        cut = image.crop((left, top, max(right, left + 1), max(bottom, top + 1)))
        images[i] = np.asarray(cut.resize((side, side), Image.Resampling.BICUBIC))
    return images


def find_images(folder: Path, links: Sequence[str]) -> list[str]:
    """The files that links name, below the folder; where one is missing, .png stands in for it.

    Raises:
      MissingDataError: images are missing; says how many, and names the first.
      DataError: a link leads out of the folder.
    """
    outside = [link for link in links if leads_outside(link)]
    if outside:
        raise DataError(
            f"{len(outside)} of {len(links)} images lead out of {folder}: {_some(outside)}. Get "
            "the list again, from its original source."
        )
    found: dict[str, str | None] = {}
    for link in dict.fromkeys(links):
        candidates = (link, str(Path(link).with_suffix(".png")))
        found[link] = next((name for name in candidates if (folder / name).is_file()), None)
    missing = [link for link, name in found.items() if name is None]
    if missing:
        raise MissingDataError(
            f"{len(missing)} of {len(found)} images are listed but not below {folder}: "
            f"{_some(missing)}. Get them, or give the folder that the links start from."
        )
    return [found[link] for link in links]


def _central_square(width: int, height: int) -> tuple[float, float, float, float]:
    top, left = max(0, height - width) / 2, max(0, width - height) / 2
    size = min(width, height)
    return top, top + size, left, left + size


def _some(items: Sequence[object]) -> str:
    more = f" and {len(items) - MAX_NAMED} more" if len(items) > MAX_NAMED else ""
    return ", ".join(map(one_line, items[:MAX_NAMED])) + more


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def _rows(path: Path, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """The wanted columns of a csv file."""
    (_, header), *lines = read_csv(path, "Get the split's folder again, whole.") or [(0, [])]
    absent = [name for name in columns if name not in header]
    if absent:
        raise DataError(f"{path} has the columns {one_line(header)}; it lacks {', '.join(absent)}")
    where = [header.index(name) for name in columns]
    rows = []
    for number, line in lines:
        if len(line) != len(header):
            raise DataError(
                f"{path}, line {number} has {len(line)} cells, the header {len(header)}"
            )
        rows.append(tuple(line[i].strip() for i in where))
    return rows


def _count_tasks(folder: Path) -> int:
    if not folder.is_dir():
        raise MissingDataError(f"{folder} is no folder. Give that of a split, with B1_facts.csv.")
    matches = (re.fullmatch(r"B(\d+)_facts\.csv", path.name) for path in folder.iterdir())
    numbers = sorted(int(match[1]) for match in matches if match)
    if not numbers or numbers != list(range(1, len(numbers) + 1)):
        raise MissingDataError(f"{folder} has B<k>_facts.csv for k in {numbers}; give 1, 2, ...")
    return len(numbers)


def _number(text: str, path: Path) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise DataError(f"{path} has the id {one_line(text)!r}; an id is a whole number") from error


def _read_facts(path: Path) -> dict[int, Fact]:
    table: dict[int, Fact] = {}
    for text, *pieces in _rows(path, ("id", "S", "P", "O")):
        number = _number(text, path)
        if number in table:
            raise DataError(f"{path} has the id {number} twice; give each fact one of its own")
        table[number] = Fact(*pieces)
    return table


def _refuse_shared(folder: Path, tables: Sequence[dict[int, Fact]]) -> None:
    """Ids and facts of one task must not stand in another."""
    for kind, sets in (("id", tables), ("fact", [set(table.values()) for table in tables])):
        for (i, first), (j, second) in itertools.combinations(enumerate(sets, 1), 2):
            shared = [tuple(one) if kind == "fact" else one for one in first if one in second]
            if shared:
                raise DataError(
                    f"{folder}: tasks {i} and {j} share {len(shared)} {kind}s: {_some(shared)}. "
                    "Tasks are disjoint; keep each in one of them."
                )


def _check_facts(facts: Sequence[Fact], name: str) -> None:
    odd = [
        tuple(fact) for fact in facts if not fact.subject or (fact.object and not fact.predicate)
    ]
    if odd:
        raise DataError(f"{name} has {len(odd)} facts that are none of S, SP, SPO: {_some(odd)}")
    twice = [tuple(fact) for fact, count in Counter(facts).items() if count > 1]
    if twice:
        raise DataError(f"{name} has {len(twice)} facts more than once: {_some(twice)}")


def _read_samples(
    folder: Path, task: int, part: str, table: dict[int, Fact]
) -> tuple[list[str], list[int]]:
    path = folder / f"B{task}_{part}.csv"
    replaced = folder / f"B{task}_BD_complete_{part}.csv"
    if replaced.exists() and not path.exists():
        path = replaced
    rows = _rows(path, ("image_links", "id"))
    numbers = [_number(text, path) for _, text in rows]
    strange = [number for number in dict.fromkeys(numbers) if number not in table]
    if strange:
        raise DataError(f"{path} has ids that B{task}_facts.csv has not: {_some(strange)}")
    # Some of the authors' links stand in single quotes, which their loader takes away.
    return [link.strip("'") for link, _ in rows], numbers


def _joined(
    parts: Sequence[tuple[list[str], list[int]]], places: dict[int, int]
) -> tuple[tuple[str, ...], Int[np.ndarray, "n"]]:
    links = tuple(itertools.chain.from_iterable(links for links, _ in parts))
    numbers = itertools.chain.from_iterable(numbers for _, numbers in parts)
    return links, np.fromiter((places[number] for number in numbers), np.int32, len(links))
