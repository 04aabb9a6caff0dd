"""Facts split into tasks: chosen examples, held-out scenes, and sequences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from everlight_data.errors import DataError, MissingDataError
from everlight_data.facts.parts.word_vectors import MAX_NAMED, WordVectors, vectors_note
from everlight_data.facts.splits.fact_splits import (
    PerFact,
    Size,
    load_source,
    part_images,
    spaced_examples,
    split_facts,
)
from everlight_data.facts.splits.published_splits import published_scales
from tests.data_pipelines.facts.splits.small_split import small_split
from tests.refusals import refused


@pytest.fixture(scope="module")
def divided():
    return small_split()


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60).map(np.array),
    st.sets(st.integers(0, 3), min_size=1),
    st.integers(1, 9),
)
def test_kept_examples_are_spaced_evenly(fact, chosen, most):
    stored = spaced_examples(fact, np.array(sorted(chosen)), most)
    assert set(fact[stored].tolist()) == chosen & set(fact.tolist())
    for number in chosen & set(fact.tolist()):
        places = np.flatnonzero(fact == number)
        selected = np.flatnonzero(np.isin(places, stored))
        assert len(selected) == min(most, len(places))
        # Steps are the two whole numbers around the mean.
        assert np.ptp(np.diff(selected, append=len(places))) <= 1


def test_scenes_that_choose_hyperparameters_are_held_out_whole():
    source = load_source("procedural", 60, 20, 0)
    divided = split_facts(source, "procedural", Size(None, 2, PerFact(100, 100)), 0)
    samples = divided.train.samples
    scene = samples.scenes.image[samples.subject]
    assert set(scene[divided.held_out]) == {9, 19, 29, 39, 49, 59}
    assert not set(scene[divided.held_out]) & set(scene[~divided.held_out])
    # Every scene states one triple, one pair and two singles.
    assert divided.held_out.sum() == 6 * 4
    assert len(divided.train.fact) == 60 * 4
    words = [source.facts.facts[number] for number in source.facts.train.facts]
    assert [divided.facts[number] for number in divided.train.fact] == words


def test_more_facts_than_have_training_and_test_images_are_refused():
    source = load_source("procedural", 60, 20, 0)
    usable = len({*source.facts.train.facts.tolist()} & {*source.facts.test.facts.tolist()})
    size = Size(usable, 2, PerFact(100, 100))
    divided = split_facts(source, "procedural", size, 0)
    assert set(divided.train.fact) == set(divided.test.fact) == set(range(usable))
    message = rf"facts={usable + 1}, but {usable} facts of procedural have .*; give at most so many"
    larger = size._replace(facts=usable + 1)
    refused(message, lambda: split_facts(source, "procedural", larger, 0), DataError)


def test_photographs_take_the_place_of_rendered_images(tmp_path):
    source = load_source("procedural", 3, 1, 0)
    divided = split_facts(source, "procedural", Size(None, 1, PerFact(100, 100)), 0)
    for number in range(3):
        path = tmp_path / f"{divided.train.samples.scenes.images[number]}.png"
        Image.new("RGB", (256, 256), (50 * number, 7, 9)).save(path)
    scene = divided.train.samples.scenes.image[divided.train.samples.subject]
    rows = np.array([11, 0, 4])
    assert scene[rows].tolist() == [2, 0, 1]
    result = part_images(divided.train, rows, 8, tmp_path)
    # A square may leave its scene, but not with most of its pixels.
    middle = np.median(result.reshape(3, -1, 3), axis=1)
    np.testing.assert_array_equal(middle, [[100, 7, 9], [0, 7, 9], [50, 7, 9]])


@pytest.mark.parametrize("split", ["random", "semantic"])
def test_a_sequence_for_validation_tests_the_held_out_examples_alone(divided, split):
    plain, held = divided.sequence(split), divided.sequence(split, held_out=True)
    assert plain.tasks.id.shape == held.tasks.id.shape == (divided.tasks,)
    np.testing.assert_array_equal(plain.class_task, divided.fact_task[split])
    np.testing.assert_array_equal(plain.test.index, divided.test_examples.image)
    np.testing.assert_array_equal(held.test.index, np.flatnonzero(divided.held_out))
    trained = np.asarray(held.tasks.train.index)[np.asarray(held.tasks.train.mask)]
    assert not set(trained.tolist()) & set(np.flatnonzero(divided.held_out).tolist())
    assert not np.asarray(held.tasks.valid.mask).any()


def test_words_without_a_vector_are_counted_and_some_are_named():
    vectors = np.zeros((1, 2), np.float32)
    known = WordVectors(vectors, (), "vectors.txt")
    assert vectors_note([known, known]) == "vectors.txt"
    lost = known._replace(unknown=tuple(f"word{place:02}" for place in range(MAX_NAMED + 1)))
    note = vectors_note([known, lost])
    assert note.startswith("vectors.txt; 21 words without one count as zeros: word00, ")
    assert note.endswith("word19, ...")


def test_the_scales_of_the_authors_files_have_both_divisions(tmp_path):
    for name in ("4tasks_random", "4tasks_semantic", "8tasks_random"):
        (tmp_path / name).mkdir()
    tasks = {"mid-scale": 4, "large-scale": 8}
    assert published_scales(tmp_path, tasks) == ["mid-scale"]
    (tmp_path / "4tasks_random").rmdir()
    with pytest.raises(MissingDataError, match="4tasks_semantic: mid-scale needs both folders"):
        published_scales(tmp_path, tasks)
