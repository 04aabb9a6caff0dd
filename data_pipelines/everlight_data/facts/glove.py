"""GloVe's vectors of the 60,000 most frequent words (Pennington et al. 2014)."""

import io
from collections.abc import Sequence

import numpy as np

from everlight_data.errors import MissingDataError
from everlight_data.facts.parts.word_vectors import (
    WordVectors,
    load_word_vectors,
    random_word_vectors,
)
from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.preparing import Files, Source, find, npz

FILE = "glove6b_50d_subset.npz"
TEXT = "glove.6B.50d.txt"
WORDS, NUMBERS = 60_000, 50
MAX_BYTES = 250_000_000
"""Limit on the size of the text file, which has 171 MB."""


def default_word_vectors(phrases: Sequence[str]) -> WordVectors:
    """Return GloVe vectors if `glove_6b_50d_60k` exists below EVERLIGHT_DATA, else random ones.

    `source` names the choice and must appear in reports: with random vectors, facts without a
    common word have no similarity.

    Raises:
      DataError: GloVe lacks a word, or there is no phrase.
    """
    try:
        path = DATA_SETS["glove"].locate(FILE)
    except MissingDataError:
        return random_word_vectors(phrases)
    return load_word_vectors(path, phrases)


def glove_file(source: Source) -> Files:
    """Return the recipe of the 60,000 most frequent words and their vectors, in half precision.

    The release `glove.6B.zip` holds `glove.6B.50d.txt`, with a word and its numbers per line.
    """

    def make() -> bytes:
        content = source.read(find(source, TEXT), MAX_BYTES)
        words, numbers = [], []
        for line in io.BytesIO(content):
            word, *values = line.decode("utf-8").split(" ")
            if len(values) != NUMBERS:
                raise ValueError(f"line {len(words) + 1} has {len(values)} numbers, not {NUMBERS}")
            words.append(word)
            numbers.append(np.array(values, np.float32))
            if len(words) == WORDS:
                break
        return npz(words=np.array(words), vectors=np.stack(numbers).astype(np.float16))

    return {FILE: make}


DATA_SETS = {
    "glove": DataSet(
        "GloVe 6B word vectors of 50 dimensions, for the procedural facts",
        files=(f"glove_6b_50d_60k/{FILE}",),
        owner="Stanford NLP (nlp.stanford.edu/projects/glove), PDDL",
        source=f"glove.6B.zip, or {TEXT} from it",
        size_bytes=6_100_000,
        prepare=file_by_file(glove_file),
    )
}
