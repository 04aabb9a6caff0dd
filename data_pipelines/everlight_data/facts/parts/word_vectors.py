"""Reader of word vectors for a vocabulary, from the files in which they are published.

| file | content |
|---|---|
| `*.bin` | word2vec's binary format: a line "words dimension", then word, space, float32 numbers |
| `*.npz` | `words` and `vectors`, or VRD's `objects`, `objects_gnews`, `predicates`, ... |
| any other | a word and its numbers per line: GloVe's, or word2vec's with a first line as above |

Files may hold millions of words; only the requested ones are kept.
"""

import mmap
import re
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from everlight_data.errors import DataError
from everlight_data.formats.arrays import dtype_and_shape, read_npz, take
from everlight_data.formats.files import opened, refusing
from everlight_data.names import name_first

RANDOM_DIMENSION = 50
REMEDY = "Give a file of word2vec or GloVe; `everlight data list` says where they are published."
MAX_BYTES = 20_000_000_000
"""Limit on the size of a file; the largest published one has 11 GB."""
MAX_LINE_BYTES = 1_000_000
"""Limit on the bytes of a line of text."""
MAX_DIMENSIONS = 10_000
MAX_NAMED = 20
"""Limit on the unknown words that a message or a note names."""


class WordVectors(NamedTuple):
    """Vectors of phrases, in the given order of the phrases."""

    vectors: Float[np.ndarray, "n d"]
    unknown: tuple[str, ...]
    """Words without a vector, replaced by zeros."""
    source: str
    """Source of the vectors, for reports."""


def load_word_vectors(
    path: Path, phrases: Sequence[str], unknown: Literal["refuse", "zeros"] = "refuse"
) -> WordVectors:
    """Return float32 vectors of phrases: the phrase's own vector, else the mean of its words'.

    Words are separated by spaces or underscores and matched exactly. If a file has a word twice,
    the first vector counts.

    Args:
      path: a file of one of the module's formats.
      phrases: the vocabulary, such as "dog" and "traffic light".
      unknown: handling of words without a vector: "refuse" raises an error, "zeros" uses zeros.

    Raises:
      MissingDataError: the file does not exist.
      DataError: words have no vector (the message counts and names them), a phrase is empty, or the
        file is damaged.
    """
    words = _words_of_phrases(phrases)
    with refusing(path, REMEDY):
        known = _read_vectors(path, {*words, *(word for parts in words.values() for word in parts)})
    needed = {word for phrase, parts in words.items() if phrase not in known for word in parts}
    missing = tuple(sorted(needed - set(known)))
    if missing and (unknown == "refuse" or not known):
        raise DataError(
            f"{path} has no vector for {len(missing)} of {len(needed)} words: "
            f"{name_first(missing, MAX_NAMED)}. Rename them, or use other vectors or "
            'unknown="zeros".'
        )
    nothing = np.zeros_like(next(iter(known.values())))
    vectors = {
        phrase: known.get(phrase, np.mean([known.get(word, nothing) for word in parts], axis=0))
        for phrase, parts in words.items()
    }
    return WordVectors(np.stack([vectors[phrase] for phrase in phrases]), missing, path.name)


def random_word_vectors(phrases: Sequence[str]) -> WordVectors:
    """Return random unit vectors of 50 numbers, fixed for each word; phrases average their words.

    They capture words that phrases share, but no other meaning.

    Raises:
      DataError: there is no phrase, or one is empty.
    """
    words = _words_of_phrases(phrases)
    drawn = [
        np.mean([_random_vector(word) for word in words[phrase]], axis=0) for phrase in phrases
    ]
    return WordVectors(np.stack(drawn).astype(np.float32), (), "random unit vectors")


def _words_of_phrases(phrases: Sequence[str]) -> dict[str, list[str]]:
    words = {phrase: re.split(r"[\s_]+", phrase.strip(" _")) for phrase in phrases}
    if not words or [""] in words.values():
        raise DataError(f"phrases: {len(words)} distinct; give at least one, and none empty")
    return words


def _random_vector(word: str) -> Float[np.ndarray, "d"]:
    drawn = np.random.default_rng(zlib.crc32(word.encode())).standard_normal(RANDOM_DIMENSION)
    return drawn / np.linalg.norm(drawn)


def _read_vectors(path: Path, vocabulary: set[str]) -> dict[str, np.ndarray]:
    readers = {".npz": _npz_entries, ".bin": _binary_entries}
    vectors: dict[str, np.ndarray] = {}
    for word, vector in readers.get(path.suffix, _text_entries)(path, vocabulary):
        # A zero vector carries no meaning and has no direction.
        if vector.any():
            vectors.setdefault(word, vector)
    shapes = {vector.shape for vector in vectors.values()}
    if len(shapes) > 1 or not all(np.isfinite(vector).all() for vector in vectors.values()):
        raise ValueError(f"vectors of shapes {shapes}, or numbers that are not finite")
    return vectors


def _npz_entries(path: Path, vocabulary: set[str]) -> Iterator[tuple[str, np.ndarray]]:
    arrays = read_npz(path, REMEDY)
    pairs = [("words", "vectors")]
    if "objects" in arrays:
        pairs = [(kind, f"{kind}_gnews") for kind in ("objects", "predicates")]
    for pair in pairs:
        names, table = take(arrays, path, pair, REMEDY)
        if table.ndim != 2 or table.dtype.kind not in "fiu" or names.dtype.kind != "U":
            raise ValueError(f"{pair[1]} has {dtype_and_shape(table)}, not a vector per word")
        for word, vector in zip(names.tolist(), table, strict=True):
            if word in vocabulary:
                yield word, vector.astype(np.float32)


def _binary_entries(path: Path, vocabulary: set[str]) -> Iterator[tuple[str, np.ndarray]]:
    encoded = {word.encode(): word for word in vocabulary}
    with (
        opened(path, MAX_BYTES, REMEDY) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        place = content.find(b"\n", 0, MAX_LINE_BYTES) + 1
        count, dimension = map(int, content[:place].split())
        # A word takes a letter and a space beside its numbers.
        most = len(content) // (4 * _check_dimension(dimension) + 2)
        if not 0 < count <= most:
            raise ValueError(
                f"{count} words of {dimension} numbers, where at most {most} have room"
            )
        for number in range(count):
            space = content.find(b" ", place)
            end = space + 1 + 4 * dimension
            if space < 0 or end > len(content):
                raise ValueError(f"ends in word {number + 1} of {count}")
            # Some writers end a vector with a line break.
            word = encoded.get(content[place:space].lstrip(b"\n"))
            if word is not None:
                yield word, np.frombuffer(content[space + 1 : end], "<f4").astype(np.float32)
            place = end


def _text_entries(path: Path, vocabulary: set[str]) -> Iterator[tuple[str, np.ndarray]]:
    encoded = {word.encode(): word for word in vocabulary}
    with opened(path, MAX_BYTES, REMEDY) as lines:
        first = lines.readline(MAX_LINE_BYTES).split()
        # word2vec's first line counts words and numbers; GloVe has none.
        counted = len(first) == 2
        dimension = _check_dimension(int(first[1]) if counted else len(first) - 1)
        if not counted:
            lines.seek(0)
        for number, line in enumerate(
            iter(partial(lines.readline, MAX_LINE_BYTES), b""), 1 + counted
        ):
            if len(line) == MAX_LINE_BYTES:
                raise ValueError(f"line {number} has {MAX_LINE_BYTES:,} bytes or more")
            if line.split(b" ", 1)[0] not in encoded:
                continue
            # GloVe's largest set has words with spaces in them, so that numbers count from the end.
            word, *numbers = line.rstrip().rsplit(b" ", dimension)
            if len(numbers) != dimension:
                raise ValueError(f"line {number} has {len(numbers)} numbers, not {dimension}")
            if word in encoded:
                yield encoded[word], np.array(numbers, np.float32)


def _check_dimension(dimension: int) -> int:
    if not 1 <= dimension <= MAX_DIMENSIONS:
        raise ValueError(f"vectors of {dimension} numbers")
    return dimension


def vectors_note(words: Sequence[WordVectors]) -> str:
    """Return the source of the vectors and the words without one, for reports.

    Args:
      words: word vectors of one source.
    """
    unknown = sorted({word for part in words for word in part.unknown})
    if not unknown:
        return words[0].source
    more = ", ..." if len(unknown) > MAX_NAMED else ""
    return (
        f"{words[0].source}; {len(unknown)} words without one count as zeros: "
        f"{', '.join(unknown[:MAX_NAMED])}{more}"
    )
