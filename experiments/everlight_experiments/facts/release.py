"""The authors' files as a benchmark: their divisions into tasks, photographs in a folder.

`splits/4tasks_random`, `4tasks_semantic`, `8tasks_random` and `8tasks_semantic` hold the files that
`everlight_data.facts.splits.read_split` reads. Photographs are read when a step asks for them.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int

from everlight_data.errors import DataError, MissingDataError
from everlight_data.facts.splits import Fact, FactSamples, find_images, read_split
from everlight_data.facts.word_vectors import load_word_vectors
from everlight_data.images.jpeg_store import JpegStore
from everlight_experiments.facts.benchmarks import (
    SPLITS,
    FactSet,
    Part,
    Size,
    Split,
    WordFile,
    number_pieces,
    spaced_examples,
)


def split_folders(splits: Path, tasks: int) -> dict[Split, Path]:
    """Where the divisions into so many tasks are."""
    return {split: splits / f"{tasks}tasks_{split}" for split in SPLITS}


def there_are(splits: Path, tasks: int) -> bool:
    """Whether both divisions into so many tasks are there."""
    return all(folder.is_dir() for folder in split_folders(splits, tasks).values())


def read_benchmark(splits: Path, size: Size, words: WordFile) -> FactSet:
    """A label space with both divisions; images are those that the random one lists.

    Args:
      splits: the authors' folder.
      size: its number of tasks, and the most examples of each fact; all facts are taken.
      words: the file of word vectors.

    Raises:
      MissingDataError, DataError: as `read_split` and `load_word_vectors`; no file of word vectors
        was given, or the two divisions are not of the same facts; named.
    """
    if words.path is None:
        raise MissingDataError("--splits needs --words, a file of word vectors (word2vec, GloVe)")
    folders = split_folders(splits, size.tasks)
    whole, random_task = read_split(folders["random"])
    other, other_task = read_split(folders["semantic"])
    fact_task = {
        "random": random_task,
        "semantic": _same_order(whole.facts, dict(zip(other.facts, other_task, strict=True))),
    }
    pieces, vocabulary = number_pieces(whole.facts)
    parts = [
        _part(samples, len(whole.facts), most)
        for samples, most in zip((whole.train, whole.test), size.per_fact, strict=True)
    ]
    counts = np.bincount(whole.train.facts, minlength=len(whole.facts))
    vectors = load_word_vectors(words.path, vocabulary, words.unknown)
    return FactSet(whole.facts, pieces, vectors, counts, *parts, fact_task, None)


def open_photographs(benchmark: FactSet, folder: Path, side: int, memory_limit: int) -> JpegStore:
    """The benchmark's images, training first, to be read when they are asked for.

    Raises:
      MissingDataError: some are missing; counted and named.
    """
    names = find_images(folder, (*benchmark.train.links, *benchmark.test.links))
    return JpegStore(folder, np.array([name.encode() for name in names]), side, memory_limit)


def _same_order(facts: tuple[Fact, ...], task: Mapping[Fact, int]) -> Int[np.ndarray, "f"]:
    """Their tasks in another division."""
    apart = set(facts) ^ task.keys()
    if apart:
        named = ", ".join(str(tuple(fact)) for fact in sorted(apart)[:3])
        raise DataError(
            f"the random and the semantic split differ in {len(apart)} facts, such as {named}; "
            "give two divisions of the same facts"
        )
    return np.array([task[fact] for fact in facts])


def _part(samples: FactSamples, facts: int, most: int) -> Part:
    rows = spaced_examples(samples.facts, np.arange(facts), most)
    links = tuple(samples.images[row] for row in rows)
    _, scene = np.unique(links, return_inverse=True)
    return Part(samples.facts[rows], links, scene, None)
