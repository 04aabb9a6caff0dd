"""A task at the end of a sequence: the same as a sequence built with it."""

import jax
import numpy as np
import pytest

from everlight.errors import ArgumentError
from everlight.scenarios import append_task, experience_sequence

# Samples of three tasks; test samples follow the training samples, and class 0 recurs.
TRAIN = [np.array([0, 1, 2, 3]), np.array([4, 5, 6]), np.array([7, 8, 9, 10])]
LABELS = [np.array([0, 1, 0, 1]), np.array([2, 2, 2]), np.array([3, 3, 0, 3])]
TEST = [np.array([12, 13]), np.array([14]), np.array([15, 16])]
TEST_LABELS = [np.array([0, 1]), np.array([2]), np.array([3, 0])]


def sequence(first, last, classes):
    parts = (part[first:last] for part in (TRAIN, LABELS, TEST, TEST_LABELS))
    return experience_sequence(*parts, classes)


def test_appended_task_equals_the_sequence_built_with_it():
    appended = append_task(sequence(0, 2, 3), sequence(2, 3, 4))
    expected = sequence(0, 3, 4)
    for a, b in zip(*map(jax.tree.leaves, (appended, expected)), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("classes", [3, 4, 5])
def test_classes_before_their_training_have_the_test_set_of_a_sequence_built_with_them(classes):
    """The head has room for class 3, which the appended task trains, and for an untrained one."""
    total = max(classes, 4)
    appended = append_task(sequence(0, 2, classes), sequence(2, 3, total))
    np.testing.assert_array_equal(appended.class_task, sequence(0, 3, total).class_task)
    np.testing.assert_array_equal(appended.class_task[:4], [0, 0, 1, 2])


def test_classes_keep_their_numbers_and_known_ones_are_not_introduced_again():
    appended = append_task(sequence(0, 2, 3), sequence(2, 3, 4))
    np.testing.assert_array_equal(appended.class_task, [0, 0, 1, 2])
    np.testing.assert_array_equal(appended.tasks.classes[2], [False, False, False, True])


def test_a_task_of_fewer_classes_and_several_tasks_are_refused():
    with pytest.raises(ArgumentError, match="2 classes, sequence 3"):
        append_task(sequence(0, 2, 3), sequence(0, 1, 2))
    with pytest.raises(ArgumentError, match="task has 2 tasks"):
        append_task(sequence(0, 1, 3), sequence(0, 2, 3))
    two = sequence(2, 3, 4)
    labels = np.repeat(two.test.labels, 2, axis=1)
    two = two._replace(test=two.test._replace(labels=jax.numpy.asarray(labels)))
    with pytest.raises(ArgumentError, match=r"^task has 2 labels per sample; give one$"):
        append_task(sequence(0, 2, 3), two)
    tests = experience_sequence(TRAIN[:2], LABELS[:2], TEST[:1], TEST_LABELS[:1], 3)
    with pytest.raises(ArgumentError, match="2 tasks and 1 test sets"):
        append_task(tests, sequence(2, 3, 4))
