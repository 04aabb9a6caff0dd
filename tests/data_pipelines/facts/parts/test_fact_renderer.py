"""Rendered facts: places of objects, distinguishable looks, and the world's facts."""

import collections

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.facts.parts import fact_renderer
from everlight_data.facts.parts.boxes import AnnotatedScenes, BoxedSamples
from everlight_data.facts.parts.fact_renderer import render_facts
from everlight_data.facts.parts.procedural_facts import PREDICATES, procedural_facts

SIDE = 32


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Set blocks of 64 images: the tests' programs, without optimization, are slow on more."""
    monkeypatch.setattr(fact_renderer, "BLOCK_PIXELS", 64 * SIDE**2)


def scenes_of(*scenes, names=None):
    """Return AnnotatedScenes from lists of (category, box)."""
    flat = [(i, *thing) for i, things in enumerate(scenes) for thing in things]
    image, category, box = zip(*flat, strict=True)
    names = names or tuple(f"scene {i}" for i in range(len(scenes)))
    return AnnotatedScenes(names, np.array(image), np.array(category), np.array(box))


def first_alone(scenes):
    """Return a sample for the first object of every scene."""
    first = np.unique(scenes.image, return_index=True)[1]
    return BoxedSamples(scenes, first, np.full_like(first, -1))


def some(samples, chosen):
    return samples._replace(subject=samples.subject[chosen], other=samples.other[chosen])


@pytest.fixture(scope="module")
def world():
    return procedural_facts(400, 100)


# ---- Pixels


def test_an_image_is_the_same_whatever_is_rendered_beside_it(world):
    """150 images are more than two blocks, and show one object or two."""
    chosen = np.arange(0, 1600, 10)[:150]
    together = render_facts(some(world.train, chosen), SIDE)
    assert together.shape == (150, SIDE, SIDE, 3)
    assert together.dtype == np.uint8
    backwards = render_facts(some(world.train, chosen[::-1]), SIDE)
    np.testing.assert_array_equal(backwards[::-1], together)
    single = render_facts(some(world.train, chosen[[70]]), SIDE)
    np.testing.assert_array_equal(single, together[[70]])


def test_an_image_does_not_depend_on_the_other_scenes(world):
    """The last scene looks the same as the only one of a set: name and objects determine it."""
    scenes = world.train.scenes
    last = scenes.image == 399
    only = AnnotatedScenes(
        scenes.images[-1:], scenes.image[last] * 0, scenes.category[last], scenes.box[last]
    )
    result = render_facts(BoxedSamples(only, np.array([0]), np.array([1])), SIDE)
    np.testing.assert_array_equal(result, render_facts(some(world.train, [399]), SIDE))


@pytest.mark.parametrize("half", [(60, 60), (60, 24), (24, 60)])
def test_every_outline_fills_its_box(half):
    """The least box around what is painted over the background is the object's, to 1.6 pixels."""
    box = np.array([[100 - size, 100 + size] for size in half]).ravel()
    # Two far corners make the square, with the object and without it.
    corners = [(9, (0, 1, 0, 1)), (9, (199, 200, 199, 200))]
    names, rows = ("same",) * 10, np.arange(10)
    empty = scenes_of(*[corners] * 10, names=names)
    filled = scenes_of(*[[*corners, (shape, tuple(box))] for shape in range(10)], names=names)
    without = linear(render_facts(BoxedSamples(empty, 2 * rows, 2 * rows + 1), SIDE))
    images = linear(render_facts(BoxedSamples(filled, 3 * rows, 3 * rows + 1), SIDE))
    # A shadow takes the same share, at most 40%, of every channel.
    share = images / without
    painted = (np.ptp(share, axis=-1) > 0.1) | (share.max(axis=-1) < 0.55)
    for shape in range(10):
        row, column = (np.flatnonzero(painted[shape].any(axis=axis)) for axis in (1, 0))
        result = [row[0], row[-1] + 1, column[0], column[-1] + 1]
        # The square goes from -20 to 220.
        expected = (box + 20) / (240 / SIDE)
        np.testing.assert_allclose(result, expected, atol=1.6, err_msg=f"category {shape}")


def linear(images):
    """Invert the gamma of IEC 61966-2-1."""
    part = images / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def test_small_objects_stand_before_large_ones():
    """The order in the list has no effect: the inner object looks as it does alone."""
    small, large = (3, (80, 120, 80, 120)), (5, (0, 200, 0, 200))
    pair, single = scenes_of([small, large]), scenes_of([small])
    np.testing.assert_array_equal(
        *(render_facts(first_alone(s), SIDE)[0, 12:20, 12:20] for s in (pair, single))
    )


def test_the_background_belongs_to_the_scene():
    """Squares of one scene, apart by 10 pixels of theirs, show it shifted by as many."""
    point = [(0, (0, 1, 0, 1)), (0, (199, 200, 199, 200))]
    moved = [(0, (75, 76, 0, 1)), (0, (274, 275, 199, 200))]
    scenes = scenes_of(point, moved, point, names=("same", "same", "other"))
    rows = np.array([0, 2, 4])
    local, below, other = render_facts(BoxedSamples(scenes, rows, rows + 1), SIDE).astype(int)
    middle = slice(6, 26)
    np.testing.assert_allclose(below[6:14, middle], local[16:24, middle], atol=1)
    assert np.abs(other - local)[middle, middle].mean() > 8


def test_no_two_of_a_hundred_categories_look_alike():
    """Even the most similar two differ by 10 of 255 levels where only the category does."""
    scenes = scenes_of(*[[(kind, (0, 100, 0, 100))] for kind in range(100)], names=("same",) * 100)
    images = render_facts(first_alone(scenes), SIDE).reshape(100, -1).astype(np.float32)
    apart = np.array([np.abs(images - image).mean(axis=1) for image in images])
    assert apart[~np.eye(100, dtype=bool)].min() > 10


def test_too_many_categories_are_refused():
    samples = first_alone(scenes_of([(100, (0, 5, 0, 5))]))
    with pytest.raises(DataError, match=r"side=32 and 101 categories; .* at most 100 categories"):
        render_facts(samples, SIDE)
    with pytest.raises(DataError, match="side=0"):
        render_facts(first_alone(scenes_of([(1, (0, 5, 0, 5))])), 0)


# ---- The procedural world's own facts


def test_a_scene_gives_one_triple_one_pair_and_two_single_facts(world):
    for samples, count in ((world.facts.train, 400), (world.facts.test, 100)):
        types = [world.facts.facts[number].type for number in samples.facts]
        assert collections.Counter(types) == {"SPO": count, "SP": count, "S": 2 * count}
    assert len(world.categories) == 9
    assert not set(world.facts.train.images) & set(world.facts.test.images)


def test_layouts_are_those_of_their_predicate_and_of_no_other(world):
    for part in ("train", "test"):
        roles, labels = getattr(world, part), getattr(world.facts, part)
        box = roles.scenes.box.astype(float)
        for number, subject, other in zip(labels.facts, roles.subject, roles.other, strict=True):
            fact = world.facts.facts[number]
            assert fact.subject == world.categories[roles.scenes.category[subject]]
            if fact.type == "S":
                continue
            (top, bottom, left, right), (up, down, west, east) = box[subject], box[other]
            area = (bottom - top) * (right - left) / ((down - up) * (east - west))
            inside = top >= up and bottom <= down and left >= west and right <= east
            alike = 0.5 < area < 2
            holds = {
                "left of": alike and right <= west,
                "above": alike and bottom <= up,
                "inside": inside,
                "larger than": area > 2.5 and not inside,
            }
            assert [name for name, actual in holds.items() if actual] == [fact.predicate]
            object_name = world.categories[roles.scenes.category[other]]
            assert fact.type == "SP" or fact.object == object_name


def test_facts_are_long_tailed():
    """The i-th of 288 triples has a chance of 1 / i over the 288th harmonic number, 6.243."""
    result = procedural_facts(20_000, 1).facts
    triples = [number for number in result.train.facts if result.facts[number].type == "SPO"]
    counts = np.sort(np.bincount(triples))[::-1] / 20_000
    harmonic = (1 / np.arange(1, 289)).sum()
    np.testing.assert_allclose(counts[[0, 1, 2]], 1 / harmonic / np.array([1, 2, 3]), rtol=0.1)
    assert (counts > 0).sum() == 288
    tail = 1 - (1 / np.arange(1, 41)).sum() / harmonic
    assert counts[40:288].sum() == pytest.approx(tail, rel=0.1)


def test_more_scenes_leave_the_earlier_ones_and_another_seed_is_another_world(world):
    more, other = procedural_facts(500, 100), procedural_facts(400, 100, seed=1)
    np.testing.assert_array_equal(more.train.scenes.box[:800], world.train.scenes.box)
    assert more.train.scenes.images[:400] == world.train.scenes.images
    np.testing.assert_array_equal(more.test.scenes.box, world.test.scenes.box)
    assert (other.train.scenes.category != world.train.scenes.category).mean() > 0.5
    for train, test in ((0, 1), (1, 0)):
        with pytest.raises(DataError, match="give at least 1 scene for each"):
            procedural_facts(train, test)
    assert {fact.predicate for fact in world.facts.facts} == {"", *PREDICATES}
