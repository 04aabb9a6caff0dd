"""Word2vec's vectors (Mikolov et al. 2013) of the words of Visual Relationship Detection."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from everlight_data.facts.parts.word_vectors import WordVectors, load_word_vectors
from everlight_data.facts.vrd import FOLDER, PREDICATES, vrd_object_names
from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.preparing import Files, Source, npz

FILE = "vrd_word_embeddings.npz"


def load_vrd_vectors(phrases: Sequence[str]) -> WordVectors:
    """Return the vectors of VRD's phrases.

    Raises:
      MissingDataError: `vrd_spo_facts/vrd_word_embeddings.npz` below EVERLIGHT_DATA is missing.
      DataError: as for `load_word_vectors`.
    """
    return load_word_vectors(DATA_SETS["vrd-vectors"].locate(FILE), phrases)


def vrd_vectors_file(source: Source) -> Files:
    """Return the recipe of unit vectors for the names of objects and predicates.

    A name's vector is the normalized sum of its words' unit vectors. Words without a vector, such
    as "of", are left out. The release is `GoogleNews-vectors-negative300.bin`, compressed with
    gzip.
    """

    def vectors(names: list[str]) -> Float[np.ndarray, "n d"]:
        words = sorted({word for name in names for word in name.split()})
        values = load_word_vectors(source.path, words, unknown="zeros").vectors
        lengths = np.linalg.norm(values, axis=1, keepdims=True)
        unit = dict(zip(words, values / np.where(lengths > 0, lengths, 1), strict=True))
        sums = np.stack([sum(unit[word] for word in name.split()) for name in names])
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        if not lengths.all():
            raise ValueError(f"no vector for any word of {names[lengths[:, 0].argmin()]!r}")
        return (sums / lengths).astype(np.float32)

    def make() -> bytes:
        objects, predicates = vrd_object_names(), list(PREDICATES)
        return npz(
            objects=np.array(objects),
            objects_gnews=vectors(objects),
            predicates=np.array(predicates),
            predicates_gnews=vectors(predicates),
        )

    return {FILE: make}


DATA_SETS = {
    "vrd-vectors": DataSet(
        "word2vec vectors of VRD's words; prepare vrd first",
        files=(f"{FOLDER}/{FILE}",),
        owner="Mikolov et al. 2013 (code.google.com/archive/p/word2vec)",
        source="GoogleNews-vectors-negative300.bin, unpacked",
        size_bytes=350_000,
        prepare=file_by_file(vrd_vectors_file),
    )
}
