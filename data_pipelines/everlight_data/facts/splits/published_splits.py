"""The authors' files of lifelong fact learning: tasks as published, photographs in a folder.

`splits/4tasks_random`, `4tasks_semantic`, `8tasks_random` and `8tasks_semantic` hold the files that
`facts.parts.split_files.read_split` reads. Photographs are read when a step needs them.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Int

from everlight_data.errors import DataError, MissingDataError
from everlight_data.facts.parts.split_files import Fact, FactSamples, find_images, read_split
from everlight_data.facts.parts.word_vectors import load_word_vectors
from everlight_data.facts.splits.fact_splits import (
    SPLITS,
    Part,
    Size,
    Split,
    SplitFacts,
    WordFile,
    number_pieces,
    spaced_examples,
)
from everlight_data.images.inputs.jpeg_store import JpegStore


def split_folders(splits: Path, tasks: int) -> dict[Split, Path]:
    """Return the folders of both splits into a number of tasks."""
    return {split: splits / f"{tasks}tasks_{split}" for split in SPLITS}


def published_scales(splits: Path, tasks: Mapping[str, int]) -> list[str]:
    """Return the benchmarks of the paper of which both splits exist.

    Args:
      splits: the authors' folder.
      tasks: number of tasks by benchmark.

    Raises:
      MissingDataError: there is none.
    """
    folders = {name: split_folders(splits, count).values() for name, count in tasks.items()}
    complete = [name for name, both in folders.items() if all(folder.is_dir() for folder in both)]
    if not complete:
        name, both = next(iter(folders.items()))
        needed = " and ".join(map(str, both))
        raise MissingDataError(f"{needed}: {name} needs both folders, and at least one is missing")
    return complete


def read_published(splits: Path, size: Size, words: WordFile) -> SplitFacts:
    """Return the facts of both splits; the random one lists the images.

    Args:
      splits: the authors' folder.
      size: number of tasks and largest number of examples per fact; all facts are taken.
      words: file of word vectors.

    Raises:
      MissingDataError: there is no file of word vectors, or a file is missing.
      DataError: a file cannot be read, or the two splits differ in their facts.
    """
    if words.path is None:
        raise MissingDataError("--splits needs --words, a file of word vectors (word2vec, GloVe)")
    folders = split_folders(splits, size.tasks)
    split, semantic = read_split(folders["random"]), read_split(folders["semantic"])
    random = split.facts
    semantic_task = dict(zip(semantic.facts.facts, semantic.task, strict=True))
    fact_task = {
        "random": split.task,
        "semantic": _same_order(random.facts, semantic_task),
    }
    pieces, vocabulary = number_pieces(random.facts)
    parts = (
        _published_part(random.train, len(random.facts), size.per_fact.train),
        _published_part(random.test, len(random.facts), size.per_fact.test),
    )
    vectors = load_word_vectors(words.path, vocabulary, words.unknown)
    return SplitFacts(random.facts, pieces, vectors, *parts, fact_task, None)


def open_photographs(facts: SplitFacts, folder: Path, side: int, memory_limit: int) -> JpegStore:
    """Return a reader of the images, training first.

    Raises:
      MissingDataError: some are missing; the message counts and names them.
    """
    names = find_images(folder, (*facts.train.links, *facts.test.links))
    return JpegStore(folder, np.array([name.encode() for name in names]), side, memory_limit)


def _same_order(facts: tuple[Fact, ...], task: Mapping[Fact, int]) -> Int[np.ndarray, "f"]:
    """Return the facts' tasks in another split."""
    apart = set(facts) ^ task.keys()
    if apart:
        named = ", ".join(str(tuple(fact)) for fact in sorted(apart)[:3])
        raise DataError(
            f"the random and the semantic split differ in {len(apart)} facts, such as {named}; "
            "give two splits of the same facts"
        )
    return np.array([task[fact] for fact in facts])


def _published_part(samples: FactSamples, facts: int, most: int) -> Part:
    rows = spaced_examples(samples.facts, np.arange(facts), most)
    links = tuple(samples.images[row] for row in rows)
    _, scene = np.unique(links, return_inverse=True)
    return Part(samples.facts[rows], links, scene, None)
