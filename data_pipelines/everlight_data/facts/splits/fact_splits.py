"""Facts that are chosen from a data set and split into tasks in two ways, with their images.

A test image may show a fact that is not in training; the facts of both are one label space.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, UInt8

from everlight.continual import TaskSequence
from everlight.metrics.ranking import Facts
from everlight.scenarios.facts import Examples, fact_sequence
from everlight.scenarios.facts_splits import SemanticSplit, random_split, semantic_split
from everlight_data.errors import DataError
from everlight_data.facts.glove import default_word_vectors
from everlight_data.facts.parts.boxes import BoxedFacts, BoxedSamples, squares
from everlight_data.facts.parts.fact_renderer import render_facts
from everlight_data.facts.parts.procedural_facts import procedural_facts
from everlight_data.facts.parts.split_files import Fact, read_images
from everlight_data.facts.parts.word_vectors import WordVectors, load_word_vectors
from everlight_data.facts.vrd import load_vrd
from everlight_data.facts.vrd_vectors import load_vrd_vectors
from everlight_data.sets.image_set import ImageSet, equal_steps
from everlight_data.sets.loading import loaded_once

FactsName = Literal["procedural", "vrd"]
"""Name of a set of facts with boxes."""
Split = Literal["random", "semantic"]
SPLITS: tuple[Split, ...] = ("random", "semantic")
HELD_OUT = 10
"""One in this many training scenes selects hyper-parameters, with all its facts."""


class PerFact(NamedTuple):
    """Largest numbers of images per fact, evenly spaced in their order."""

    train: int
    test: int


class Size(NamedTuple):
    """Number of facts, tasks and examples to choose."""

    facts: int | None
    """The facts with the most training images and a test image; None is all."""
    tasks: int
    per_fact: PerFact


class WordFile(NamedTuple):
    """Source of the word vectors."""

    path: Path | None = None
    """None is the data set's own."""
    unknown: Literal["refuse", "zeros"] = "refuse"
    """Action for words without a vector."""


OWN_WORDS = WordFile()
BLOCK = 1 << 13
"""Images that are made at once."""


class Part(NamedTuple):
    """Training or test examples, each with its own image."""

    fact: Int[np.ndarray, "n"]
    links: tuple[str, ...]
    """Photographs, relative to their folder."""
    scene: Int[np.ndarray, "n"]
    """Number of each example's photograph."""
    samples: BoxedSamples | None
    """Boxes; None where there are none."""


class SplitFacts(NamedTuple):
    """Label space with its examples, split into tasks in two ways."""

    facts: tuple[Fact, ...]
    pieces: Int[np.ndarray, "f 3"]
    """Index in `words` of every fact's components, -1 where undefined."""
    words: WordVectors
    train: Part
    test: Part
    fact_task: Mapping[Split, Int[np.ndarray, "f"]]
    semantic: SemanticSplit | None
    """None where the tasks were read from files."""

    @property
    def train_counts(self) -> Int[np.ndarray, "f"]:
        """Number of chosen training examples of every fact."""
        return np.bincount(self.train.fact, minlength=len(self.facts))

    @property
    def train_examples(self) -> Examples:
        """Training examples, whose images come first on the device."""
        return Examples(np.arange(len(self.train.fact)), self.train.fact)

    @property
    def test_examples(self) -> Examples:
        """Test examples, whose images follow those of training."""
        return Examples(len(self.train.fact) + np.arange(len(self.test.fact)), self.test.fact)

    @property
    def held_out(self) -> Bool[np.ndarray, "n"]:
        """Training examples that select hyper-parameters: whole scenes with all their facts."""
        return self.train.scene % HELD_OUT == HELD_OUT - 1

    @property
    def tasks(self) -> int:
        """Number of tasks of either split."""
        return int(self.fact_task["random"].max()) + 1

    @property
    def label_space(self) -> Facts:
        """Pieces of all facts and word vectors, on the device."""
        return Facts(jnp.asarray(self.pieces), jnp.asarray(self.words.vectors))

    def sequence(self, split: Split, held_out: bool = False) -> TaskSequence:
        """Return the tasks of a split.

        Args:
          split: random or semantic.
          held_out: True tests on training scenes that are then not trained on. The order of the
            tasks is the same: if another task came last, forgetting could be selected.
        """
        train, tested = self.train_examples, self.test_examples
        if held_out:
            rows = self.held_out
            train, tested = (Examples(*(part[mask] for part in train)) for mask in (~rows, rows))
        nothing = Examples(np.zeros(0, int), np.zeros(0, int))
        return fact_sequence(self.fact_task[split], train, nothing, tested)


@loaded_once
def load_source(data: FactsName, train_scenes: int, test_scenes: int, seed: int) -> BoxedFacts:
    """Return a data set's facts with their boxes.

    Args:
      data: name of the set.
      train_scenes: training scenes of the procedural world.
      test_scenes: test scenes of the procedural world.
      seed: seed of the procedural world.
    """
    return load_vrd() if data == "vrd" else procedural_facts(train_scenes, test_scenes, seed)


def split_facts(
    source: BoxedFacts, data: FactsName, size: Size, seed: int, words: WordFile = OWN_WORDS
) -> SplitFacts:
    """Choose facts and examples, and split them into tasks.

    Args:
      source: facts of the data set.
      data: name of the set, which has word vectors of its own.
      size: facts, tasks and examples to choose.
      seed: seed of the random split.
      words: source of the word vectors.

    Raises:
      DataError: fewer facts than `size.facts` have training and test images, or a file of word
        vectors cannot be read.
    """
    train, test = source.facts.train, source.facts.test
    everything = len(source.facts.facts)
    counts = [np.bincount(part.facts, minlength=everything) for part in (train, test)]
    chosen = np.arange(everything)
    if size.facts is not None:
        usable = np.count_nonzero((counts[0] > 0) & (counts[1] > 0))
        if size.facts > usable:
            raise DataError(
                f"facts={size.facts:,}, but {usable:,} facts of {data} have training and test "
                f"images; give at most so many, or None for all {everything:,}"
            )
        chosen = np.sort(np.argsort(-counts[0] * (counts[1] > 0), kind="stable")[: size.facts])
    facts = tuple(source.facts.facts[number] for number in chosen)
    pieces, vocabulary = number_pieces(facts)
    vectors = _word_vectors(data, vocabulary, words)
    parts = (
        _chosen_part(source.train, train.facts, train.images, chosen, size.per_fact.train),
        _chosen_part(source.test, test.facts, test.images, chosen, size.per_fact.test),
    )
    counts = [np.bincount(part.fact, minlength=len(facts)) for part in parts]
    semantic = semantic_split(pieces, vectors.vectors, size.tasks)
    fact_task = {"random": random_split(*counts, size.tasks, seed), "semantic": semantic.fact_task}
    return SplitFacts(facts, pieces, vectors, *parts, fact_task, semantic)


def number_pieces(facts: Sequence[Fact]) -> tuple[Int[np.ndarray, "f 3"], list[str]]:
    """Return the facts' components as indices, -1 where undefined, and their vocabulary."""
    vocabulary = sorted({piece for fact in facts for piece in fact if piece})
    place = {word: number for number, word in enumerate(vocabulary)} | {"": -1}
    return np.array([[place[piece] for piece in fact] for fact in facts]), vocabulary


def spaced_examples(
    fact: Int[np.ndarray, "n"], chosen: Int[np.ndarray, "f"], most: int
) -> Int[np.ndarray, "k"]:
    """Return at most `most` examples of each chosen fact, evenly spaced in their order."""
    _, first = np.unique(equal_steps(fact, most), return_index=True)
    return np.sort(first[np.isin(fact[first], chosen)])


def _chosen_part(
    samples: BoxedSamples,
    fact: Int[np.ndarray, "n"],
    links: tuple[str, ...],
    chosen: Int[np.ndarray, "f"],
    most: int,
) -> Part:
    rows = spaced_examples(fact, chosen, most)
    shown = samples.take(rows)
    return Part(
        np.searchsorted(chosen, fact[rows]),
        tuple(links[row] for row in rows),
        shown.scenes.image[shown.subject],
        shown,
    )


def _word_vectors(data: FactsName, vocabulary: list[str], words: WordFile) -> WordVectors:
    if words.path is not None:
        return load_word_vectors(words.path, vocabulary, words.unknown)
    if data == "vrd":
        return load_vrd_vectors(vocabulary)
    return default_word_vectors(vocabulary)


def make_images(divided: SplitFacts, side: int, photographs: Path | None) -> ImageSet:
    """Return the images of all examples, training first, whose labels are facts.

    Args:
      divided: facts with boxes.
      side: side of the images in pixels.
      photographs: folder of the data set's photographs; None renders the annotated boxes.
    """
    train, test = divided.train, divided.test
    images = np.empty((len(train.fact) + len(test.fact), side, side, 3), np.uint8)
    for offset, part in ((0, train), (len(train.fact), test)):
        for start in range(0, len(part.fact), BLOCK):
            rows = np.arange(start, min(start + BLOCK, len(part.fact)))
            images[offset + rows] = part_images(part, rows, side, photographs)
    names = tuple(f"fact {number}" for number in range(len(divided.facts)))
    return ImageSet("facts", images, train.fact, test.fact, names)


def part_images(
    part: Part, rows: Int[np.ndarray, "n"], side: int, photographs: Path | None
) -> UInt8[np.ndarray, "n h w 3"]:
    """Return images of some examples: rendered, or squares of the photographs.

    Args:
      part: training or test examples with boxes.
      rows: the examples.
      side: side of the images in pixels.
      photographs: folder of the data set's photographs; None renders the annotated boxes.
    """
    shown = part.samples.take(rows)
    if photographs is None:
        return render_facts(shown, side)
    return read_images(photographs, [part.links[row] for row in rows], side, squares(shown))
