"""Files are written here byte by byte, as their formats describe them."""

import struct

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.facts.glove import default_word_vectors
from everlight_data.facts.parts.word_vectors import (
    load_word_vectors,
    random_word_vectors,
)

WORDS = {"dog": [1.0, 2.0, -3.0], "traffic": [0.5, 0.0, 4.0], "light": [1.5, -2.0, 0.25]}


def binary(words, header=None, end=b""):
    lines = [
        word.encode() + b" " + struct.pack("<3f", *vector) + end for word, vector in words.items()
    ]
    return (header or f"{len(words)} 3\n".encode()) + b"".join(lines)


def text(words, header=""):
    rows = (" ".join([word, *map(str, vector)]) for word, vector in words.items())
    return (header + "\n".join(rows) + "\n").encode()


FILES = {
    "google.bin": binary(WORDS),
    "with_breaks.bin": binary(WORDS, end=b"\n"),
    "glove.txt": text(WORDS),
    "word2vec.txt": text(WORDS, "3 3\n"),
}


@pytest.mark.parametrize("name", [*FILES, "words.npz"])
def test_every_format_gives_the_vectors_in_the_requested_order(tmp_path, name):
    path = tmp_path / name
    if name.endswith("npz"):
        np.savez(path, words=np.array(list(WORDS)), vectors=np.array(list(WORDS.values()), "f2"))
    else:
        path.write_bytes(FILES[name])
    result = load_word_vectors(path, ["traffic light", "dog", "traffic_light", "light"])
    assert result.vectors.dtype == np.float32
    mean = [1.0, -1.0, 2.125]
    np.testing.assert_array_equal(result.vectors, [mean, WORDS["dog"], mean, WORDS["light"]])
    assert result.unknown == ()
    assert result.source == name


def test_a_phrase_takes_its_own_vector_where_there_is_one(tmp_path):
    """GloVe's largest set has words with spaces; a line's numbers count from its end."""
    path = tmp_path / "glove.txt"
    path.write_bytes(text(WORDS | {"traffic light": [7, 8, 9], "dog days": [4, 4, 4]}))
    result = load_word_vectors(path, ["traffic light", "dog"])
    np.testing.assert_array_equal(result.vectors, [[7, 8, 9], WORDS["dog"]])


def test_the_first_of_two_vectors_counts(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_bytes(text(WORDS) + text({"dog": [0, 0, 0]}))
    np.testing.assert_array_equal(load_word_vectors(path, ["dog"]).vectors, [WORDS["dog"]])


def test_unknown_words_are_refused_counted_and_named_or_become_zeros(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_bytes(text(WORDS))
    phrases = ["liger", "light of", "dog"]
    with pytest.raises(DataError, match=r"no vector for 2 of 3 words: liger, of\. "):
        load_word_vectors(path, phrases)
    result = load_word_vectors(path, phrases, unknown="zeros")
    assert result.unknown == ("liger", "of")
    expected = [[0, 0, 0], np.divide(WORDS["light"], 2), WORDS["dog"]]
    np.testing.assert_array_equal(result.vectors, expected)
    with pytest.raises(DataError, match="no vector for 1 of 1 words"):
        load_word_vectors(path, ["liger"], unknown="zeros")
    many = [f"strange{i:02}" for i in range(30)]
    with pytest.raises(DataError, match=r"for 30 of 30 words: .*strange19 and 10 more"):
        load_word_vectors(path, many)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.bin", binary(WORDS)[:-1]),
        ("count.bin", binary(WORDS, b"4 3\n")),
        ("header.bin", binary(WORDS, b"three 3\n")),
        ("empty.bin", b""),
        ("short.txt", text(WORDS)[:-6]),
        ("letters.txt", text(WORDS | {"light": ["a", "b", "c"]})),
        ("infinite.txt", text(WORDS | {"light": [1, 2, "nan"]})),
        ("no.npz", b"PK"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name} is damaged"):
        load_word_vectors(tmp_path / name, ["dog", "light", "traffic"])


def test_arrays_that_do_not_belong_together_are_named(tmp_path):
    path = tmp_path / "words.npz"
    np.savez(path, words=np.array(["dog", "cat"]), vectors=np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"words\.npz is damaged"):
        load_word_vectors(path, ["dog"])
    np.savez(path, words=np.array(["dog", "cat"]))
    with pytest.raises(DataError, match="vectors"):
        load_word_vectors(path, ["dog"])


def test_missing_words_are_named(tmp_path):
    for phrases in ([], ["dog", " "]):
        with pytest.raises(DataError, match="none empty"):
            load_word_vectors(tmp_path / "none.bin", phrases)


def test_vrd_words_have_unit_google_vectors_of_their_own(real_data):
    path = real_data("vrd_spo_facts/vrd_word_embeddings.npz")
    with np.load(path) as arrays:
        names = [*arrays["objects"], *arrays["predicates"]]
        last = arrays["predicates_gnews"][-1]
    result = load_word_vectors(path, [str(name) for name in names])
    assert result.vectors.shape == (170, 300)
    np.testing.assert_allclose(np.linalg.norm(result.vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(result.vectors[-1], last)
    similar = result.vectors @ result.vectors.T
    dog, cat, road = (names.index(name) for name in ("dog", "cat", "road"))
    assert similar[dog, cat] > 0.6 > similar[dog, road]


def test_the_default_is_glove_where_it_is_and_random_elsewhere(real_data, monkeypatch, tmp_path):
    real_data("glove_6b_50d_60k/glove6b_50d_subset.npz")
    result = default_word_vectors(["the", "left of"])
    # The first numbers that the published glove.6B.50d.txt has for "the".
    np.testing.assert_allclose(result.vectors[0, :3], [0.418, 0.24968, -0.41242], rtol=1e-3)
    assert "glove" in result.source
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    assert default_word_vectors(["the"]).source == "random unit vectors"


def test_random_vectors_are_fixed_unit_vectors_and_phrases_their_means():
    first, second, both, again = random_word_vectors(["left", "of", "left of", "left"]).vectors
    np.testing.assert_allclose(np.linalg.norm([first, second], axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(both, (first + second) / 2, atol=1e-7)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(random_word_vectors(["of"]).vectors[0], second)
    many = random_word_vectors([f"word{i}" for i in range(200)]).vectors
    # The cosines of random directions have mean 0 and variance 1 / 50.
    cosines = (many @ many.T)[np.triu_indices(200, 1)]
    assert abs(cosines.mean()) < 0.01
    assert cosines.var() == pytest.approx(1 / 50, rel=0.05)
    assert random_word_vectors(["left"]).vectors[0, 0] == pytest.approx(-0.20409434, rel=1e-6)
