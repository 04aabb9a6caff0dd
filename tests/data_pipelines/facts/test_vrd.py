"""VRD's relations as facts: the release's counts, its boxes and its predicates."""

import collections
import json
import zipfile

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.facts import vrd as vrd_reader
from everlight_data.facts.parts.boxes import (
    AnnotatedScenes,
    BoxedSamples,
    Relations,
    box_features,
    boxed_facts,
    squares,
)
from everlight_data.facts.parts.split_files import Fact
from everlight_data.facts.vrd import ACTIONS, PREDICATES, load_vrd


@pytest.fixture(scope="module")
def vrd(real_data):
    real_data("vrd_spo_facts/vrd_annotations.zip")
    return load_vrd()


@pytest.fixture(scope="module")
def annotations(real_data):
    """Read relations as (image, subject, predicate, object) with (name, box) for both."""
    with zipfile.ZipFile(real_data("vrd_spo_facts/vrd_annotations.zip")) as archive:
        names, *parts = (
            json.loads(archive.read(f"{file}.json"))
            for file in ("all/objects", "annotations_train", "annotations_test")
        )

    def role(item):
        return names[item["category"]], tuple(item["bbox"])

    return [
        [
            (image, role(one["subject"]), PREDICATES[one["predicate"]], role(one["object"]))
            for image, relations in part.items()
            for one in relations
        ]
        for part in parts
    ]


def counts(facts, samples):
    types = [facts.facts[number].type for number in samples.facts]
    return collections.Counter(types)


def test_the_counts_are_those_of_the_release(vrd):
    facts = vrd.facts
    assert counts(facts, facts.train) == {"SPO": 30_355, "SP": 6_074, "S": 26_430}
    assert counts(facts, facts.test) == {"SPO": 7_638, "SP": 1_460, "S": 6_735}
    assert [len(part.scenes.images) for part in (vrd.train, vrd.test)] == [4_000, 1_000]
    seen = np.unique(facts.train.facts)
    np.testing.assert_array_equal(seen, np.arange(len(seen)))
    types = [fact.type for fact in facts.facts]
    assert collections.Counter(types[: len(seen)]) == {"SPO": 6_672, "SP": 135, "S": 100}
    assert collections.Counter(types[len(seen) :]) == {"SPO": 1_029, "SP": 20}
    assert len(set(facts.facts)) == len(facts.facts)
    assert len(vrd.categories) == 100
    assert {fact.predicate for fact in facts.facts if fact.type == "SP"} == set(ACTIONS)


def test_every_sample_is_annotated_so(vrd, annotations):
    for number, part in enumerate(("train", "test")):
        samples, roles, stated = getattr(vrd.facts, part), vrd[number + 2], annotations[number]
        boxes = [tuple(box) for box in roles.scenes.box.tolist()]
        result = collections.Counter()
        for link, fact, subject, other in zip(
            samples.images, samples.facts, roles.subject, roles.other, strict=True
        ):
            folder, image = link.split("/")
            assert folder == f"sg_{part}_images"
            result[image, vrd.facts.facts[fact], boxes[subject], boxes[other]] += 1
        expected = collections.Counter()
        for image, (subject, box), predicate, (other, other_box) in stated:
            triple = Fact(subject, predicate, other)
            expected[image, triple, box, other_box] += 1
            expected[image, Fact(subject, predicate), box, other_box] += predicate in ACTIONS
        objects = {(one[0], *role) for one in stated for role in (one[1], one[3])}
        for image, name, box in objects:
            expected[image, Fact(name), box, boxes[-1]] += 1
        assert result == +expected


def test_predicates_mean_what_the_boxes_show(vrd):
    """The archive's own order of the names would not fit the boxes."""
    features, facts = box_features(vrd.train), vrd.facts
    predicates = np.array([fact.predicate for fact in facts.facts])[facts.train.facts]
    lower, righter = features[:, 4] > features[:, 0], features[:, 5] > features[:, 1]
    for predicate, holds in (
        *(("above", lower), ("over", lower), ("below", ~lower), ("under", ~lower)),
        *(("on the left of", righter), ("on the right of", ~righter), ("ride", lower)),
    ):
        assert holds[predicates == predicate].mean() > 0.9, predicate
    partners = collections.defaultdict(collections.Counter)
    for number in facts.train.facts:
        fact = facts.facts[number]
        if fact.type == "SPO" and fact.subject == "person":
            partners[fact.predicate][fact.object] += 1
    for predicate, thing in (
        *(("wear", "shirt"), ("hold", "umbrella"), ("eat", "pizza"), ("fly", "kite")),
        *(("kick", "ball"), ("hit", "ball"), ("use", "phone"), ("lying on", "bed")),
    ):
        assert partners[predicate].most_common(1)[0][0] == thing


def test_the_archive_has_the_same_predicates(real_data):
    with zipfile.ZipFile(real_data("vrd_spo_facts/vrd_annotations.zip")) as archive:
        assert sorted(json.loads(archive.read("all/predicates.json"))) == sorted(PREDICATES)


# ---- Made by hand


DOG, TREE = 0, 1
SCENES = AnnotatedScenes(
    ("one", "none", "two"),
    np.array([0, 0, 2, 2]),
    np.array([DOG, TREE, TREE, DOG]),
    np.array([[10, 30, 0, 40], [0, 100, 40, 60], [0, 10, 0, 20], [5, 10, 0, 20]]),
)
NEAR, BITES = 0, 1


def test_facts_follow_from_relations_and_objects():
    train = Relations(SCENES, np.array([[0, BITES, 1], [3, NEAR, 2], [0, BITES, 1]]))
    test = Relations(SCENES, np.array([[2, BITES, 3]]))
    result = boxed_facts("mine", ["dog", "tree"], ["near", "bites"], ["bites"], train, test)
    assert result.facts.name == "mine"
    words = [("dog", "bites", "tree"), ("dog", "near", "tree"), ("dog", "bites"), ("dog",)]
    words += [("tree",), ("tree", "bites", "dog"), ("tree", "bites")]
    assert result.facts.facts == tuple(Fact(*item) for item in words)
    np.testing.assert_array_equal(result.facts.train.facts, [0, 1, 0, 2, 2, 3, 4, 4, 3])
    np.testing.assert_array_equal(result.train.subject, [0, 3, 0, 0, 0, 0, 1, 2, 3])
    np.testing.assert_array_equal(result.train.other, [1, 2, 1, 1, 1, -1, -1, -1, -1])
    assert result.facts.train.images == ("one", "two", *["one"] * 5, "two", "two")
    np.testing.assert_array_equal(result.facts.test.facts, [5, 6, 3, 4, 4, 3])
    assert result.categories == ("dog", "tree")


def test_squares_hold_the_boxes_and_a_margin():
    samples = BoxedSamples(SCENES, np.array([0, 1, 2]), np.array([1, -1, 3]))
    # The boxes span rows 0 to 100 and columns 0 to 60; 0 to 100 and 40 to 60; 0 to 10 and 0 to 20.
    expected = [[-10, 110, -30, 90], [-10, 110, -10, 110], [-7, 17, -2, 22]]
    np.testing.assert_allclose(squares(samples), expected)


def test_box_features_are_places_sizes_and_their_relation():
    samples = BoxedSamples(SCENES, np.array([0, 1]), np.array([1, -1]))
    first, second = box_features(samples)
    # Middles are (20, 20) and (50, 50), sizes 20 x 40 and 100 x 20, the square's middle (50, 30).
    subject, other = [-30 / 60, -10 / 60, 10 / 60, 20 / 60], [0, 20 / 60, 50 / 60, 10 / 60]
    relation = [30 / 20, 30 / 40, np.log(100 / 20), np.log(20 / 40)]
    np.testing.assert_allclose(first, [*subject, *other, *relation, 1], atol=1e-6)
    np.testing.assert_allclose(second, [0, 0, 50 / 60, 10 / 60] + 9 * [0], atol=1e-6)
    assert first.dtype == np.float32


def test_box_features_of_real_facts_are_finite_and_mark_facts_without_an_object(vrd):
    features = box_features(vrd.train)
    assert np.isfinite(features).all()
    single = np.array([fact.type == "S" for fact in vrd.facts.facts])[vrd.facts.train.facts]
    np.testing.assert_array_equal(features[:, -1], ~single)


# ---- Faulty files


PARTS = ("annotations_train.json", "annotations_test.json")
RELATION = {
    "predicate": PREDICATES.index("hold"),
    "subject": {"category": 0, "bbox": [1, 5, 1, 9]},
    "object": {"category": 1, "bbox": [2, 4, 3, 8]},
}


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """Return a writer of archives of one training and one test relation, with changes."""
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    (tmp_path / "vrd_spo_facts").mkdir()

    def write(**changes):
        contents = {
            "all/objects.json": '["dog", "tree"]',
            **dict.fromkeys(PARTS, json.dumps({"a.jpg": [RELATION], "b.jpg": []})),
        }
        path = tmp_path / "vrd_spo_facts" / "vrd_annotations.zip"
        with zipfile.ZipFile(path, "w") as file:
            for name, content in (contents | changes).items():
                if content is not None:
                    file.writestr(name, content)
        return path

    return write


def test_a_small_archive_is_read(archive):
    archive()
    result = load_vrd().facts
    words = [("dog", "hold", "tree"), ("dog", "hold"), ("dog",), ("tree",)]
    assert result.facts == tuple(Fact(*item) for item in words)
    assert result.test.images == ("sg_test_images/a.jpg",) * 4


@pytest.mark.parametrize("file", ["all/objects.json", *PARTS])
@pytest.mark.parametrize("content", [None, "{", "[1]", "{}"])
def test_a_missing_or_faulty_file_inside_is_named(archive, file, content):
    archive(**{file: content})
    message = r"vrd_annotations\.zip (is damaged or not the expected file|does not contain )"
    with pytest.raises(DataError, match=message):
        load_vrd()


@pytest.mark.parametrize(
    ("role", "change"),
    [
        *(("subject", {"category": value}) for value in (2, -1, True)),
        *(("object", {"bbox": box}) for box in ([5, 5, 1, 9], [1, 5, 9, 1], [1, 5, 9])),
        *(("subject", {"bbox": box}) for box in (None, [1, 5, 1, 1e300], [1, 5, 1, 10**30])),
        *(("predicate", value) for value in (70, -1, 1.7, "3", True)),
    ],
)
def test_annotations_that_make_no_sense_are_refused(archive, role, change):
    faulty = RELATION | {role: change if role == "predicate" else RELATION[role] | change}
    archive(**{PARTS[1]: json.dumps({"a.jpg": [RELATION, faulty]})})
    with pytest.raises(DataError, match="is damaged or not the expected file"):
        load_vrd()


def test_a_fault_of_the_program_is_not_blamed_on_the_archive(archive, monkeypatch):
    archive()
    monkeypatch.setattr(vrd_reader, "boxed_facts", lambda *arguments: {}["missing"])
    with pytest.raises(KeyError, match="missing"):
        load_vrd()
