"""The procedural world in CORe50's structure: what changes with session, object and time."""

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.images.core50.prepared import object_category
from everlight_data.procedural.core50 import WORLD, load_procedural_core50

FRAMES = 4
TEST_SESSIONS = (2, 6, 9)
# One worker renders the frames for all of these tests.
pytestmark = pytest.mark.xdist_group("procedural CORe50")


@pytest.fixture(scope="module")
def world():
    return load_procedural_core50(FRAMES)


def recordings(result):
    """Return images by session, object and frame."""
    return result.images.reshape(11, 50, -1, *result.images.shape[1:]).astype(np.float32)


def test_frames_come_as_those_of_the_release(world):
    assert world.images.shape == (2200, 32, 32, 3)
    assert world.images.dtype == np.uint8
    ids = np.stack([world.session, world.object, world.frame], axis=1)
    expected = [(s, o, f) for s in range(11) for o in range(50) for f in (0, 75, 150, 225)]
    np.testing.assert_array_equal(ids, expected)
    assert {world.session.dtype, world.object.dtype, world.frame.dtype} == {np.dtype(np.int32)}


def test_a_category_is_a_shape_and_its_objects_differ_in_texture_and_palette(world):
    assert len(set(world.object_names)) == 50
    assert len(set(world.category_names)) == 10
    names = [name.split() for name in world.object_names]
    for number, (_, _, shape) in enumerate(names):
        assert shape == world.category_names[object_category(np.array(number))]
    for start in range(0, 50, 5):
        for part in (0, 1):
            assert len({name[part] for name in names[start : start + 5]}) == 5


def test_any_number_of_frames_shows_the_same_recordings(world):
    few = load_procedural_core50(2)
    np.testing.assert_array_equal(recordings(few), recordings(world)[:, :, ::2])


def test_a_linear_fit_generalizes_to_the_test_sessions_far_above_chance_and_not_wholly(world):
    """Ridge regression reached 48% of the objects (chance 2%) and 41% of the categories (10%)."""
    held_out = np.isin(world.session, TEST_SESSIONS)
    means = world.images.reshape(-1, 16, 2, 16, 2, 3).mean(axis=(2, 4), dtype=np.float32)
    inputs = means.reshape(len(means), -1) / 255
    inputs -= inputs[~held_out].mean(axis=0)
    train, test = inputs[~held_out], inputs[held_out]
    gram = train.T @ train + 30 * np.eye(train.shape[1], dtype=np.float32)
    for labels, classes, low in ((world.object, 50, 0.3), (object_category(world.object), 10, 0.3)):
        targets = np.eye(classes, dtype=np.float32)[labels[~held_out]] - 1 / classes
        scores = test @ np.linalg.solve(gram, train.T @ targets)
        accuracy = (scores.argmax(axis=1) == labels[held_out]).mean()
        assert low < accuracy < 0.95


def test_settings_of_the_world_reach_its_frames(world):
    other = load_procedural_core50(1, WORLD._replace(seed=1))
    assert other.object_names != world.object_names
    assert np.abs(recordings(other) - recordings(world)[:, :, :1]).mean() > 20


@pytest.mark.parametrize("frames", [0, 301, 2.0, -1])
def test_a_number_of_frames_out_of_range_is_named(frames):
    with pytest.raises(DataError, match=f"frames={frames}; give an integer from 1 to 300"):
        load_procedural_core50(frames)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("superclasses", 9, "World of 9 superclasses of 5 subclasses; CORe50 has 10 categories"),
        ("subclasses", 4, "World of 10 superclasses of 4 subclasses"),
    ],
)
def test_another_structure_or_a_setting_out_of_range_is_refused(name, value, message):
    with pytest.raises(DataError, match=message):
        load_procedural_core50(1, WORLD._replace(**{name: value}))
