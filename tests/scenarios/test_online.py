"""Streams in pieces: every sample once, shares by hand, tests as in the tasks they come from."""

import chex
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight.scenarios import class_incremental, online_stream

TASKS = [[3, 0], [1, 2]]
TRAIN = np.repeat(np.arange(4), [40, 30, 20, 10])
TEST = np.repeat(np.arange(4), 5)


def stream(**settings):
    return online_stream(TRAIN, TEST, TASKS, 4, **settings)


def in_pieces(sequence):
    """Return the samples of each piece."""
    train = sequence.tasks.train
    return [np.asarray(i)[np.asarray(m)] for i, m in zip(train.index, train.mask, strict=True)]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.floats(0, 0.9), st.integers(0, 99))
def test_every_sample_comes_once_with_its_label(pieces, blurry, seed):
    sequence = stream(pieces=pieces, blurry=blurry, seed=seed)
    result = in_pieces(sequence)
    assert len(result) == 2 * pieces
    np.testing.assert_array_equal(np.sort(np.concatenate(result)), np.arange(100))
    train = sequence.tasks.train
    labels = np.asarray(train.labels[..., 0])[np.asarray(train.mask)]
    np.testing.assert_array_equal(labels, TRAIN[np.concatenate(result)])
    # Pieces of a task's part are as equal as they go.
    for part in (result[:pieces], result[pieces:]):
        assert np.ptp([len(piece) for piece in part]) <= 1


def test_sharp_streams_bring_a_task_after_the_other():
    result = in_pieces(stream(pieces=2))
    assert [sorted(set(TRAIN[piece])) for piece in result] == [[0, 3], [0, 3], [1, 2], [1, 2]]
    # Task 0 has 40 + 10 samples, task 1 30 + 20.
    assert [len(piece) for piece in result] == [25, 25, 25, 25]


def test_blurry_streams_deal_a_share_to_the_other_tasks():
    """A share of 0.3 of the 50 samples of either task comes with the other task."""
    first, second = in_pieces(stream(blurry=0.3))
    assert np.isin(TRAIN[first], [1, 2]).sum() == 15
    assert np.isin(TRAIN[second], [0, 3]).sum() == 15


def test_a_piece_introduces_what_it_holds_first():
    sequence = stream(pieces=3, blurry=0.1, seed=4)
    labels = [set(TRAIN[piece].tolist()) for piece in in_pieces(sequence)]
    so_far: set[int] = set()
    for held, introduced in zip(labels, np.asarray(sequence.tasks.classes), strict=True):
        assert set(np.flatnonzero(introduced).tolist()) == held - so_far
        so_far |= held
    assert so_far == {0, 1, 2, 3}


def test_the_first_piece_of_its_task_introduces_a_class_without_training_samples():
    train, test = np.array([0, 0, 1, 1]), np.array([0, 1, 2])
    sequence = online_stream(train, test, [[0], [1, 2]], 3, pieces=2)
    np.testing.assert_array_equal(sequence.tasks.classes[0], [True, False, False])
    np.testing.assert_array_equal(sequence.tasks.classes[2], [False, True, True])
    assert sequence.tasks.classes.sum() == 3


def test_the_test_sets_are_those_of_the_tasks():
    sequence, tasks = stream(pieces=3), class_incremental(TRAIN, TEST, TASKS, 4)
    chex.assert_trees_all_equal(sequence.test, tasks.test)
    chex.assert_trees_all_equal(sequence.test_member, tasks.test_member)
    chex.assert_trees_all_equal(sequence.class_task, tasks.class_task)


def test_the_seed_decides_the_order():
    first, again, other = (np.concatenate(in_pieces(stream(seed=s))) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"blurry": 1.0}, "blurry=1.0; give 0 or more, and less than 1"),
        ({"blurry": -0.1}, "blurry=-0.1"),
        ({"pieces": 51}, "task 0 has 50 samples; give at most that many pieces"),
    ],
)
def test_invalid_online_settings_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        stream(**setting)
