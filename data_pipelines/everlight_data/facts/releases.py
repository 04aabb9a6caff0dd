"""Recipes that turn VRD's annotations, word2vec and GloVe into the files that loaders read."""

import io
import json
import zipfile

import numpy as np
from jaxtyping import Float

from everlight_data.facts.vrd import (
    ARCHIVE,
    MAX_BYTES,
    OBJECTS,
    PARTS,
    PREDICATES,
    SOURCE,
    object_names,
)
from everlight_data.facts.word_vectors import GLOVE, load_word_vectors
from everlight_data.formats.files import opened_archive
from everlight_data.locations import locate
from everlight_data.preparing import Files, Source, find, npz

VECTORS = "vrd_word_embeddings.npz"
GLOVE_TEXT = "glove.6B.50d.txt"
GLOVE_WORDS, GLOVE_NUMBERS = 60_000, 50
MAX_GLOVE_BYTES = 250_000_000
"""Limit on the size of GloVe's text file, which has 171 MB."""


def vrd_annotations(source: Source) -> Files:
    """Return the recipe of one zip with both parts' annotations and the object names.

    The release `json_dataset.zip` holds `annotations_train.json`, `annotations_test.json`,
    `objects.json` and `predicates.json`.
    """

    def make() -> bytes:
        predicates = json.loads(source.read(find(source, "predicates.json"), MAX_BYTES))
        if sorted(predicates) != sorted(PREDICATES):
            raise ValueError("predicates.json does not list the 70 predicates of VRD")
        members = {OBJECTS: "objects.json"}
        members |= {name: name for name in (f"annotations_{part}.json" for part in PARTS)}
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for name, published in members.items():
                # With a date of its own every call would make other bytes.
                info = zipfile.ZipInfo(name)
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, source.read(find(source, published), MAX_BYTES))
        return stream.getvalue()

    return {ARCHIVE.rpartition("/")[2]: make}


def vrd_vectors(source: Source) -> Files:
    """Return the recipe of unit vectors for the names of objects and predicates.

    A name's vector is the normalized sum of its words' unit vectors. Words without a vector, such
    as "of", are left out. The release is `GoogleNews-vectors-negative300.bin`, compressed with
    gzip.
    """

    def vectors(names: list[str]) -> Float[np.ndarray, "n d"]:
        words = sorted({word for name in names for word in name.split()})
        found = load_word_vectors(source.path, words, unknown="zeros").vectors
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        unit = dict(zip(words, found / np.where(lengths > 0, lengths, 1), strict=True))
        sums = np.stack([sum(unit[word] for word in name.split()) for name in names])
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        if not lengths.all():
            raise ValueError(f"no vector for any word of {names[lengths[:, 0].argmin()]!r}")
        return (sums / lengths).astype(np.float32)

    def make() -> bytes:
        path = locate(ARCHIVE, f"{SOURCE}; prepare vrd first", "0.6 MB")
        with opened_archive(path, f"Download it again: {SOURCE}.") as archive:
            objects = object_names(archive)
        predicates = list(PREDICATES)
        return npz(
            objects=np.array(objects),
            objects_gnews=vectors(objects),
            predicates=np.array(predicates),
            predicates_gnews=vectors(predicates),
        )

    return {VECTORS: make}


def glove(source: Source) -> Files:
    """Return the recipe of the 60,000 most frequent words and their vectors, in half precision.

    The release `glove.6B.zip` holds `glove.6B.50d.txt`, with a word and its numbers per line.
    """

    def make() -> bytes:
        content = source.read(find(source, GLOVE_TEXT), MAX_GLOVE_BYTES)
        words, numbers = [], []
        for line in io.BytesIO(content):
            word, *values = line.decode("utf-8").split(" ")
            if len(values) != GLOVE_NUMBERS:
                raise ValueError(f"line {len(words) + 1} has {len(values)} numbers, not 50")
            words.append(word)
            numbers.append(np.array(values, np.float32))
            if len(words) == GLOVE_WORDS:
                break
        return npz(words=np.array(words), vectors=np.stack(numbers).astype(np.float16))

    return {GLOVE.rpartition("/")[2]: make}
