"""Facts with their images, chosen from a data set or read from the authors' files."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from jaxtyping import Int

from everlight.checks import Between
from everlight_data.errors import DataError, MissingDataError
from everlight_data.facts.splits.fact_splits import (
    FactsName,
    Size,
    SplitFacts,
    WordFile,
    load_source,
    make_images,
    split_facts,
)
from everlight_data.facts.splits.published_splits import open_photographs, read_published
from everlight_data.images.inputs.jpeg_store import JpegStore
from everlight_data.sets.image_set import ImageSet

Count = Annotated[int, Between(1, 1_000_000)]
SHOWN = 48
"""Test samples of different facts, from head to tail, that reports show."""


class PicturedFacts(NamedTuple):
    """Facts, and their images in memory or read when steps need them."""

    split_facts: SplitFacts
    images: ImageSet | JpegStore
    """Images, training first."""

    @property
    def shown(self) -> Int[np.ndarray, "s"]:
        """Return the first test samples of facts that are evenly spaced by training examples."""
        facts, first = np.unique(self.split_facts.test.fact, return_index=True)
        order = np.argsort(-self.split_facts.train_counts[facts], kind="stable")
        spaced = np.unique(np.linspace(0, len(order) - 1, SHOWN).astype(int))
        return first[order[spaced]]

    @property
    def sizes(self) -> str:
        """Return the numbers of facts, tasks and examples in words."""
        divided = self.split_facts
        return (
            f"{len(divided.facts):,} facts in {divided.tasks} tasks, {len(divided.train.fact):,} "
            f"training and {len(divided.test.fact):,} test examples"
        )


@dataclass(frozen=True)
class FactSource:
    """Sources of facts, words and photographs; fields are options of commands."""

    data: FactsName = "vrd"
    """Data set to learn: procedural needs no files, vrd is Visual Relationship Detection."""
    scenes: tuple[Count, Count] = (1500, 400)
    """Training and test scenes of the procedural world."""
    photographs: Path | None = None
    """Folder of VRD's photographs, or of those listed by --splits; None renders VRD's
    annotations."""
    splits: Path | None = None
    """The authors' folder `splits`, which replaces --data; give --photographs and --words too."""
    words: Path | None = None
    """File of word vectors in the format of word2vec or GloVe; None is the data set's own."""
    unknown_words: Literal["refuse", "zeros"] = "refuse"
    """Action for words without a vector; the report counts them."""
    memory_limit: Annotated[int, Between(1, 2**50)] = 2_000_000_000
    """Bytes of decoded photographs held in memory while those of --splits are read."""

    @property
    def title(self) -> str:
        """Return facts and images in a few words."""
        name = f"the splits in {self.splits.name}" if self.splits else self.data
        kind = "rendered images" if self.photographs is None else "photographs"
        return f"{name}, {kind}"

    @property
    def pixels(self) -> str:
        """Return where the images come from, for reports."""
        if self.splits is not None:
            return "centres of the photographs"
        if self.photographs is not None:
            return "squares around annotated boxes, taken from the photographs"
        return (
            "rendered from the annotated boxes, no photographs: a category is an outline, a "
            "texture and a palette, so no number here is about natural images"
        )


def pictured_facts(source: FactSource, side: int, seed: int) -> Callable[[Size], PicturedFacts]:
    """Return the function that chooses facts and images of a given number.

    Args:
      source: data set, words and photographs.
      side: side of the images in pixels.
      seed: random seed of the procedural world and the random split.

    Raises:
      DataError: parts of the source do not fit together.
      MissingDataError: the authors' splits without photographs.
    """
    words = WordFile(source.words, source.unknown_words)
    if source.splits is not None:
        if source.photographs is None:
            raise MissingDataError("--splits needs --photographs, the folder of what it lists")

        def read(size: Size) -> PicturedFacts:
            divided = read_published(source.splits, size, words)
            images = open_photographs(divided, source.photographs, side, source.memory_limit)
            return PicturedFacts(divided, images)

        return read
    if source.photographs is not None and source.data != "vrd":
        raise DataError(f"--photographs: {source.data} has none; give --data vrd or --splits")
    loaded = load_source(source.data, *source.scenes, seed)

    def choose(size: Size) -> PicturedFacts:
        divided = split_facts(loaded, source.data, size, seed, words)
        return PicturedFacts(divided, make_images(divided, side, source.photographs))

    return choose
