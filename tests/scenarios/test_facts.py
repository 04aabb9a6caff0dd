"""Label spaces, sequences and statistics of facts, counted by hand."""

import re

import numpy as np
import pytest

from everlight.scenarios import Examples, check_facts, fact_sequence, join_tasks, split_statistics

PIECES = np.array([[0, -1, -1], [0, 2, -1], [0, 2, 1], [1, -1, -1]])
TASK = np.array([1, 0, 0, 1])


def examples(*pairs):
    image, fact = np.array(pairs, int).reshape(-1, 2).T
    return Examples(image, fact)


TRAIN = examples((7, 0), (7, 2), (3, 1), (9, 3), (4, 2))
VALID, TEST = examples((5, 2)), examples((11, 3), (12, 1), (12, 0))


def test_every_example_is_in_its_fact_s_task():
    sequence = fact_sequence(TASK, TRAIN, VALID, TEST)
    train, valid = sequence.tasks.train, sequence.tasks.valid
    result = [
        list(zip(*(np.asarray(a)[m] for a in (i, f[:, 0])), strict=True))
        for i, f, m in zip(train.index, train.labels, np.asarray(train.mask), strict=True)
    ]
    # Samples are in source order; image 7 shows two facts, which two tasks bring.
    assert result == [[(7, 2), (3, 1), (4, 2)], [(7, 0), (9, 3)]]
    np.testing.assert_array_equal(valid.mask, [[True], [False]])
    assert (valid.index[0, 0], valid.labels[0, 0, 0]) == (5, 2)
    np.testing.assert_array_equal(sequence.test.index, [11, 12, 12])
    np.testing.assert_array_equal(sequence.test.labels[:, 0], [3, 1, 0])
    np.testing.assert_array_equal(sequence.test_member, [[0, 1, 0], [1, 0, 1]])
    np.testing.assert_array_equal(sequence.tasks.classes, [[0, 1, 1, 0], [1, 0, 0, 1]])
    np.testing.assert_array_equal(sequence.class_task, TASK)


def test_without_validation_there_is_a_slot_of_padding():
    sequence = fact_sequence(TASK, TRAIN, examples(), TEST)
    assert sequence.tasks.valid.mask.shape == (2, 1)
    assert not np.any(sequence.tasks.valid.mask)


@pytest.mark.parametrize(
    ("task", "train", "test", "message"),
    [
        ([0, 0, 2, 2], TRAIN, TEST, "task 1 has no facts"),
        (TASK, examples((0, 4)), TEST, "train.fact holds 4; give 0 to 3"),
        (TASK, TRAIN, examples((0, -1)), "test.fact holds -1"),
        (TASK, examples((0, 1)), TEST, "task 1 has no examples in train"),
        (TASK, TRAIN, examples((0, 0)), "task 0 has no examples in test"),
    ],
)
def test_a_sequence_that_cannot_be_is_named(task, train, test, message):
    with pytest.raises(ValueError, match=message):
        fact_sequence(np.array(task), train, VALID, test)


def test_statistics_by_hand():
    result = split_statistics(PIECES, TASK, TRAIN)
    np.testing.assert_array_equal(result.facts, [[0, 1, 1], [2, 0, 0]])
    np.testing.assert_array_equal(result.examples, [[0, 1, 2], [2, 0, 0]])


@pytest.mark.parametrize(
    ("fact", "fault"),
    [([-1, -1, -1], "no subject"), ([0, -1, 1], "an object and no predicate")],
)
def test_statistics_refuse_a_fact_without_a_type(fact, fault):
    """Such a fact would count in the task before, or as another type."""
    message = f"^pieces: fact 1, {re.escape(str(fact))}, has {fault}; leave it out$"
    with pytest.raises(ValueError, match=message):
        split_statistics(np.array([[0, 1, 2], fact]), np.array([0, 1]), examples((0, 0)))


def test_tasks_that_list_their_facts_are_joined():
    pieces, task = join_tasks([PIECES[1:3], PIECES[[3, 0]]])
    np.testing.assert_array_equal(pieces, PIECES[[1, 2, 3, 0]])
    np.testing.assert_array_equal(task, [0, 0, 1, 1])


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([[0, 1], [2, 1]], r"fact \[0, 2, -1\] is in task 0 and in task 1"),
        ([[0, 0], [2, 1]], r"fact \[0, -1, -1\] is twice in task 0"),
        ([[0, 1], []], "task 1 has no facts"),
    ],
)
def test_tasks_that_share_a_fact_are_refused(tasks, message):
    with pytest.raises(ValueError, match=message):
        join_tasks([PIECES[np.array(task, int)] for task in tasks])


def test_a_label_space_is_accepted():
    check_facts(PIECES, 3)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([[0, -1, -1], [0, 3, -1]], r"fact 1, \[0, 3, -1\], has a piece outside -1 to 2"),
        ([[0, -2, -1]], "fact 0.* has a piece outside"),
        ([[0, -1, -1], [-1, -1, -1]], "fact 1.* has no subject"),
        ([[0, -1, 1]], "fact 0.* has an object and no predicate"),
        ([[0, 1, -1], [1, 1, -1], [0, 1, -1]], "fact 2.* is the same as fact 0"),
        (np.zeros((0, 3), int), "pieces has no facts"),
    ],
)
def test_invalid_label_spaces_are_named(pieces, message):
    with pytest.raises(ValueError, match=message):
        check_facts(np.array(pieces), 3)
