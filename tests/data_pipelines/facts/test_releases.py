"""Facts and word vectors, prepared from what their owners publish."""

import json
import zipfile

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.facts import glove
from everlight_data.facts.parts.word_vectors import load_word_vectors
from everlight_data.facts.vrd import PREDICATES
from tests.data_pipelines.prepared import arrays, prepare, zipped


def test_the_owners_annotations_give_the_same_facts(root, tmp_path, real_data):
    path = real_data("vrd_spo_facts/vrd_annotations.zip")
    with zipfile.ZipFile(path) as archive:
        members = {
            f"json_dataset/{name.split('/')[-1]}": archive.read(name)
            for name in archive.namelist()
            if "annotations_" in name or name.startswith("all/")
        }
    prepare(root, "vrd", zipped(tmp_path / "json_dataset.zip", members))
    result = root / "vrd_spo_facts" / path.name
    with zipfile.ZipFile(result) as one, zipfile.ZipFile(path) as other:
        for name in one.namelist():
            assert json.loads(one.read(name)) == json.loads(other.read(name))
        assert len(one.namelist()) == 3


ANNOTATIONS = {
    **dict.fromkeys(("annotations_train.json", "annotations_test.json"), "{}"),
    "objects.json": json.dumps(["traffic light", "dog"]),
    "predicates.json": json.dumps(PREDICATES),
}


def word2vec(path, vectors):
    content = f"{len(vectors)} {len(next(iter(vectors.values())))}\n".encode()
    for word, vector in vectors.items():
        content += word.encode() + b" " + np.asarray(vector, "<f4").tobytes()
    path.write_bytes(content)
    return path


def test_other_predicates_are_refused(root, tmp_path):
    source = zipped(tmp_path / "a.zip", ANNOTATIONS | {"predicates.json": '["on"]'})
    with pytest.raises(DataError, match="does not list the 70 predicates"):
        prepare(root, "vrd", source)


def test_names_of_several_words_lie_between_them(root, tmp_path, rng):
    prepare(root, "vrd", zipped(tmp_path / "json_dataset.zip", ANNOTATIONS))
    words = {word for name in PREDICATES for word in name.split()} - {"of", "to"}
    vectors = {word: rng.normal(size=4) * rng.uniform(1, 5) for word in {*words, "light", "dog"}}
    vectors["traffic"] = 7 * np.array([1.0, 0, 0, 0])
    vectors["light"] = 3 * np.array([0, 1.0, 0, 0])
    source = word2vec(tmp_path / "news.bin", vectors)
    path = prepare(root, "vrd-vectors", source) / "vrd_word_embeddings.npz"
    names = ["traffic light", "dog", "adjacent to"]
    result = load_word_vectors(path, names).vectors
    np.testing.assert_allclose(result[0], [np.sqrt(0.5), np.sqrt(0.5), 0, 0], rtol=1e-6)
    for row, word in ((1, "dog"), (2, "adjacent")):
        expected = vectors[word] / np.linalg.norm(vectors[word])
        np.testing.assert_allclose(result[row], expected, rtol=1e-5)


def test_names_of_available_words_have_the_available_vectors(root, tmp_path, real_data):
    table = arrays(real_data("vrd_spo_facts/vrd_word_embeddings.npz"))
    current = {
        name: vector
        for kind in ("objects", "predicates")
        for name, vector in zip(table[kind].tolist(), table[f"{kind}_gnews"], strict=True)
    }
    names = [
        name for name in current if " " in name and all(word in current for word in name.split())
    ]
    assert len(names) >= 2
    objects = {"objects.json": json.dumps(table["objects"].tolist())}
    prepare(root, "vrd", zipped(tmp_path / "a.zip", ANNOTATIONS | objects))
    # Words that only names of several words have get any vector.
    missing = {word for name in current for word in name.split()} - set(current)
    scaled = {name: 2.5 * vector for name, vector in current.items() if " " not in name}
    source = word2vec(tmp_path / "n.bin", scaled | dict.fromkeys(missing, current["dog"]))
    path = prepare(root, "vrd-vectors", source) / "vrd_word_embeddings.npz"
    result = load_word_vectors(path, names).vectors
    np.testing.assert_allclose(result, [current[name] for name in names], atol=2e-7)


def test_glove_keeps_the_most_frequent_words(root, tmp_path, rng, monkeypatch):
    monkeypatch.setattr(glove, "WORDS", 3)
    vectors = rng.normal(size=(4, 50)).round(5)
    lines = [
        " ".join([word, *map(str, row)])
        for word, row in zip(("the", ",", "naïve", "rare"), vectors, strict=True)
    ]
    source = zipped(tmp_path / "glove.6B.zip", {"glove.6B.50d.txt": "\n".join(lines), "b.txt": ""})
    path = prepare(root, "glove", source) / "glove6b_50d_subset.npz"
    result = load_word_vectors(path, ["naïve", "the"])
    np.testing.assert_array_equal(result.vectors, vectors[[2, 0]].astype(np.float16))
    assert arrays(path)["words"].tolist() == ["the", ",", "naïve"]
