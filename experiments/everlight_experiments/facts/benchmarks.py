"""The benchmarks: facts chosen from a data set, divided into tasks in two ways, with their images.

A test image may show a fact that is not in training; the facts of both are one label space.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt8

from everlight.continual.engine.flax_setup import StoredImages
from everlight.scenarios.facts import Examples
from everlight.scenarios.facts_splits import SemanticSplit, random_split, semantic_split
from everlight_data.facts.render import procedural_facts, render_facts
from everlight_data.facts.splits import Fact, read_images
from everlight_data.facts.vrd import BoxedFacts, BoxedSamples, load_vrd, squares
from everlight_data.facts.word_vectors import (
    WordVectors,
    default_word_vectors,
    load_word_vectors,
)
from everlight_data.images.image_set import ImageSet
from everlight_data.locations import locate
from everlight_experiments.common.sequences import store_images

DataSet = Literal["procedural", "vrd"]
Split = Literal["random", "semantic"]
SPLITS: tuple[Split, ...] = ("random", "semantic")
VRD_VECTORS = "vrd_spo_facts/vrd_word_embeddings.npz"
VRD_SOURCE = "word2vec's GoogleNews vectors of Visual Relationship Detection's words"
TOP = 5
"""A fact is found where it is among the nearest so many; 5 in the paper."""
CHUNK = 1 << 13
"""Images that are made at once and then laid into the device's array."""
HELD_OUT = 10
"""Every so many-th training scene chooses hyperparameters, with all its facts."""


@dataclass(frozen=True)
class Size:
    """How large a benchmark is."""

    facts: int | None
    """Those with the most training images, and a test image; None is all."""
    tasks: int
    per_fact: tuple[int, int]
    """At most so many training and test images of each fact, evenly spaced in their order."""


class WordFile(NamedTuple):
    """Where words' vectors are read."""

    path: Path | None = None
    """None is the data set's own."""
    unknown: Literal["refuse", "zeros"] = "refuse"
    """What to do about words without one."""


OWN_WORDS = WordFile()


class Part(NamedTuple):
    """Training or test examples; an example's image is its own, at its place here."""

    fact: Int[np.ndarray, "n"]
    links: tuple[str, ...]
    """Of the photographs, below their folder."""
    scene: Int[np.ndarray, "n"]
    """Which photograph."""
    samples: BoxedSamples | None
    """None where it is not annotated what is where."""


class FactSet(NamedTuple):
    """A label space with its examples, divided twice."""

    facts: tuple[Fact, ...]
    pieces: Int[np.ndarray, "f 3"]
    """Of every fact, places in `words`, -1 where undefined."""
    words: WordVectors
    all_counts: Int[np.ndarray, "f"]
    """Training examples of every fact in the data set."""
    train: Part
    test: Part
    fact_task: Mapping[Split, Int[np.ndarray, "f"]]
    semantic: SemanticSplit | None
    """None where the division was made elsewhere."""

    @property
    def train_counts(self) -> Int[np.ndarray, "f"]:
        """Training examples of every fact in the benchmark."""
        return np.bincount(self.train.fact, minlength=len(self.facts))

    @property
    def train_examples(self) -> Examples:
        """Their images come first on the device."""
        return Examples(np.arange(len(self.train.fact)), self.train.fact)

    @property
    def test_examples(self) -> Examples:
        """Their images follow those of training."""
        return Examples(len(self.train.fact) + np.arange(len(self.test.fact)), self.test.fact)

    @property
    def held_out(self) -> Bool[np.ndarray, "n"]:
        """Training examples that choose hyperparameters: whole scenes with all their facts."""
        return self.train.scene % HELD_OUT == HELD_OUT - 1


def load_source(data: DataSet, scenes: tuple[int, int], seed: int) -> BoxedFacts:
    """A data set's facts with their boxes; `scenes` and `seed` are of the procedural world."""
    return load_vrd() if data == "vrd" else procedural_facts(*scenes, seed)


def make_benchmark(
    source: BoxedFacts, data: DataSet, size: Size, seed: int, words: WordFile = OWN_WORDS
) -> FactSet:
    """Chooses facts and examples, and divides them into tasks."""
    train, test = source.facts.train, source.facts.test
    everything = len(source.facts.facts)
    counts = [np.bincount(part.facts, minlength=everything) for part in (train, test)]
    chosen = np.arange(everything)
    if size.facts is not None:
        chosen = np.sort(np.argsort(-counts[0] * (counts[1] > 0), kind="stable")[: size.facts])
    facts = tuple(source.facts.facts[number] for number in chosen)
    pieces, vocabulary = number_pieces(facts)
    vectors = _word_vectors(data, vocabulary, words)
    parts = [
        _part(samples, part.facts, part.images, chosen, most)
        for samples, part, most in zip(
            (source.train, source.test), (train, test), size.per_fact, strict=True
        )
    ]
    kept = [np.bincount(part.fact, minlength=len(facts)) for part in parts]
    semantic = semantic_split(pieces, vectors.vectors, size.tasks)
    fact_task = {
        "random": random_split(*kept, size.tasks, seed),
        "semantic": semantic.fact_task,
    }
    return FactSet(facts, pieces, vectors, counts[0][chosen], *parts, fact_task, semantic)


def number_pieces(facts: Sequence[Fact]) -> tuple[Int[np.ndarray, "f 3"], list[str]]:
    """The pieces of facts as places in their vocabulary, -1 where undefined."""
    vocabulary = sorted({piece for fact in facts for piece in fact if piece})
    place = {word: number for number, word in enumerate(vocabulary)} | {"": -1}
    return np.array([[place[piece] for piece in fact] for fact in facts]), vocabulary


def spaced_examples(
    fact: Int[np.ndarray, "n"], chosen: Int[np.ndarray, "f"], most: int
) -> Int[np.ndarray, "k"]:
    """Places of at most `most` examples of each chosen fact, evenly spaced in their order."""
    order = np.argsort(fact, kind="stable")
    counts = np.bincount(fact)[fact[order]]
    first = np.searchsorted(fact[order], fact[order])
    position = np.arange(len(fact)) - first
    # The place in the shortened list grows by at most one a step; each growth keeps an example.
    grows = position * most // counts > (position - 1) * most // counts
    kept = order[(grows | (counts <= most)) & np.isin(fact[order], chosen)]
    return np.sort(kept)


def _part(
    samples: BoxedSamples,
    fact: Int[np.ndarray, "n"],
    links: tuple[str, ...],
    chosen: Int[np.ndarray, "f"],
    most: int,
) -> Part:
    rows = spaced_examples(fact, chosen, most)
    shown = samples._replace(subject=samples.subject[rows], other=samples.other[rows])
    return Part(
        np.searchsorted(chosen, fact[rows]),
        tuple(links[row] for row in rows),
        shown.scenes.image[shown.subject],
        shown,
    )


def _word_vectors(data: DataSet, vocabulary: list[str], words: WordFile) -> WordVectors:
    if words.path is not None:
        return load_word_vectors(words.path, vocabulary, words.unknown)
    if data == "vrd":
        return load_word_vectors(locate(VRD_VECTORS, VRD_SOURCE, "0.2 MB"), vocabulary)
    return default_word_vectors(vocabulary)


def load_images(benchmark: FactSet, side: int, photographs: Path | None) -> StoredImages:
    """All images of a benchmark on the device, made in chunks; training first.

    They are normalised by the channels of the first chunk of training images.

    Args:
      benchmark: whose.
      side: in pixels.
      photographs: the folder of the data set's photographs; None renders the annotated boxes.
    """
    train, test = benchmark.train, benchmark.test
    first = None
    for offset, part in ((0, train), (len(train.fact), test)):
        for start in range(0, len(part.fact), CHUNK):
            made = make_images(
                part, np.arange(start, min(start + CHUNK, len(part.fact))), side, photographs
            )
            if first is None:
                labels = part.fact[: len(made)]
                first = store_images(ImageSet("", made, labels, labels[:0], ()))
                one = first.pieces.shape[1:]
                pieces = jnp.zeros((len(train.fact) + len(test.fact), *one), jnp.uint8)
            pieces = _lay_in(pieces, jnp.asarray(made.reshape(-1, *one)), offset + start)
    return dataclasses.replace(first, pieces=pieces)


def make_images(
    part: Part, rows: Int[np.ndarray, "n"], side: int, photographs: Path | None
) -> UInt8[np.ndarray, "n h w 3"]:
    """Images of some examples: rendered, or cut out of the photographs."""
    samples = part.samples
    shown = samples._replace(subject=samples.subject[rows], other=samples.other[rows])
    if photographs is None:
        return render_facts(shown, side)
    return read_images(photographs, [part.links[row] for row in rows], side, squares(shown))


_lay_in: Callable[[Array, Array, int], Array] = jax.jit(
    lambda stored, made, start: jax.lax.dynamic_update_slice_in_dim(stored, made, start, 0),
    donate_argnums=0,
)
