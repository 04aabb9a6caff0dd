"""Class-incremental sequences: samples, shares, padding and refusals."""

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.metrics.ranking import mean_hits
from everlight.scenarios import experience_sequence
from everlight.scenarios import replace_test_with_validation as on_validation
from everlight.scenarios.class_incremental import (
    class_incremental,
    equal_tasks,
    relabel_within_tasks,
)
from everlight.scenarios.streams import recurring_classes
from tests.refusals import refused

TRAIN = np.array([0, 1, 2, 3] * 10)
TEST = np.array([3, 2, 1, 0])


def test_every_sample_is_in_its_class_s_task_once():
    sequence = class_incremental(TRAIN, TEST, [[2, 0], [1, 3]], 4, valid_fraction=0.2)
    train, valid = sequence.tasks.train, sequence.tasks.valid
    for task, classes in enumerate(([2, 0], [1, 3])):
        for part, count in ((train, 16), (valid, 4)):
            index = np.asarray(part.index[task])[np.asarray(part.mask[task])]
            assert len(index) == count
            assert set(TRAIN[index]) == set(classes)
            np.testing.assert_array_equal(TRAIN[index], part.labels[task, : len(index), 0])
    # The first two of class 1's samples, at 1 and 5, validate.
    assert {1, 5} < set(np.asarray(valid.index[1]).tolist())
    used = np.concatenate([np.asarray(p.index)[np.asarray(p.mask)] for p in (train, valid)])
    assert sorted(used) == list(range(40))
    np.testing.assert_array_equal(sequence.test.index, [40, 41, 42, 43])
    np.testing.assert_array_equal(sequence.test_member, [[0, 1, 0, 1], [1, 0, 1, 0]])
    np.testing.assert_array_equal(sequence.class_task, [0, 1, 0, 1])


def test_each_class_may_have_a_share_of_its_own():
    """Classes of ten samples give a tenth, none, a half and two tenths."""
    shares = np.array([0.1, 0, 0.5, 0.2])
    sequence = class_incremental(TRAIN, TEST, [[0], [1], [2], [3]], 4, shares)
    np.testing.assert_array_equal(sequence.tasks.valid.mask.sum(axis=1), [1, 0, 5, 2])


def test_unequal_tasks_are_padded_with_mask_0():
    sequence = class_incremental(TRAIN, TEST, [[0], [1, 2, 3]], 4, valid_fraction=0.0)
    np.testing.assert_array_equal(sequence.tasks.train.mask.sum(axis=1), [10, 30])
    assert not np.any(sequence.tasks.valid.mask)


def test_labels_within_tasks_are_the_places_of_classes_in_their_task():
    """In tasks (2, 0) and (1, 3), classes 2 and 1 come first, 0 and 3 second."""
    tasks, place = [[2, 0], [1, 3]], np.array([1, 0, 0, 1])
    by_class = class_incremental(TRAIN, TEST, tasks, 4, valid_fraction=0.2)
    sequence = relabel_within_tasks(by_class, tasks)
    for samples, before in (
        (sequence.tasks.train, by_class.tasks.train),
        (sequence.tasks.valid, by_class.tasks.valid),
        (sequence.test, by_class.test),
    ):
        mask, index = np.asarray(samples.mask), np.asarray(samples.index)
        np.testing.assert_array_equal(index, before.index)
        labels = np.asarray(samples.labels)[..., 0]
        np.testing.assert_array_equal(labels[mask], place[np.append(TRAIN, TEST)[index[mask]]])
    np.testing.assert_array_equal(sequence.tasks.classes, [[True, True], [False, False]])
    np.testing.assert_array_equal(sequence.test_member, by_class.test_member)
    assert np.all(sequence.test_classes)
    validated = on_validation(sequence)
    assert set(np.asarray(validated.test.labels)[np.asarray(validated.test.mask), 0]) == {0, 1}


def test_padding_has_no_label_within_tasks():
    unequal = np.array([0] * 9 + [1, 2, 3])
    sequence = relabel_within_tasks(
        class_incremental(unequal, TEST, [[0, 1], [2, 3]], 4, 0.0), [[0, 1], [2, 3]]
    )
    np.testing.assert_array_equal(sequence.tasks.train.labels[1, :, 0], [0, 1] + [-1] * 8)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([[0, 1, 2], [3]], r"tasks have \[1, 3\] classes; give equally many in every task"),
        ([[0, 1], [2, 2]], "tasks do not have the 4 classes of the sequence once"),
        ([], "tasks do not have the 4 classes of the sequence once"),
        ([[1, 2], [3, 0]], "^tasks have class 2 in task 0, the sequence in task 1; give the tasks"),
    ],
)
def test_labels_within_tasks_need_the_tasks_of_the_sequence_of_one_size(tasks, message):
    sequence = class_incremental(TRAIN, TEST, [[0, 1], [2, 3]], 4)
    with pytest.raises(ValueError, match=message):
        relabel_within_tasks(sequence, tasks)


def test_a_task_without_validation_samples_is_not_tested_on_them():
    """A tenth of ten samples is one, and of nine it is none."""
    nine = class_incremental(TRAIN[1:], TEST, [[1, 2], [0], [3]], 4, valid_fraction=0.1)
    with pytest.raises(ValueError, match=r"^task 1 has no validation sample to test on; give a"):
        on_validation(nine)
    ten = class_incremental(TRAIN, TEST, [[1, 2], [0], [3]], 4, valid_fraction=0.1)
    tested = on_validation(ten)
    np.testing.assert_array_equal((tested.test_member & tested.test.mask).sum(axis=1), [2, 1, 1])


def test_padding_of_validation_samples_is_in_no_test_set():
    """Classes of ten and of three samples give five and one."""
    uneven = np.repeat([0, 1], [10, 3])
    tested = on_validation(class_incremental(uneven, np.array([0, 1]), [[0], [1]], 2, 0.5))
    np.testing.assert_array_equal(tested.test_member.sum(axis=1), [5, 1])
    hits = mean_hits(jnp.asarray(tested.test.labels[:, 0] >= 0), tested.test_member)
    np.testing.assert_array_equal(hits.by_task, [1, 1])


def common_test_set(tests=1, tasks=2):
    """Return tasks of one class each, with two training samples and a validation sample."""
    train, labels = np.arange(2 * tasks).reshape(tasks, 2), np.arange(tasks)[:, None]
    return experience_sequence(
        list(train),
        list(np.repeat(labels, 2, axis=1)),
        [np.array([30, 31])] * tests,
        [np.array([0, 1])] * tests,
        tasks + 1,
        list(20 + labels),
        list(labels),
    )


def test_validation_samples_replace_a_common_test_set_by_one_per_task():
    """The third class is never trained."""
    tested = on_validation(common_test_set())
    np.testing.assert_array_equal(tested.test_member, np.eye(2, dtype=bool))
    np.testing.assert_array_equal(tested.test_classes, [[True, True, False]] * 2)
    np.testing.assert_array_equal(tested.class_task, [0, 1, 1])


def test_validation_samples_do_not_replace_the_test_sets_of_several_tasks_each():
    three = common_test_set(3, 3)
    two = three._replace(test_member=three.test_member[:2], test_classes=three.test_classes[:2])
    with pytest.raises(ValueError, match=r"^sequence has 3 tasks and 2 test sets; give one per"):
        on_validation(two)


@pytest.mark.parametrize(
    ("labels", "tasks", "message"),
    [
        (TRAIN, [[0, 1], [2]], "class 3 is in no task"),
        (TRAIN, [[0, 1], [1, 2, 3]], "class 1 is in task 0 and 1"),
        (TRAIN, [[0, 1], [2, 3, 4]], "task 1 has class 4; classes are 0 to 3"),
        (np.append(TRAIN, 7), [[0, 1], [2, 3]], "train_labels holds 7; give 0 to 3"),
        (TRAIN[TRAIN < 2], [[0, 1], [2, 3]], "task 1 has no samples in train_labels"),
    ],
)
def test_bad_input_is_named(labels, tasks, message):
    with pytest.raises(ValueError, match=message):
        class_incremental(labels, TEST, tasks, 4)
    for fraction in (1.0, -0.5):
        with pytest.raises(ValueError, match=f"valid_fraction={fraction}; give 0 or more"):
            class_incremental(TRAIN, TEST, [[0, 1], [2, 3]], 4, fraction)


@pytest.mark.parametrize("build", [class_incremental, recurring_classes])
def test_fractions_are_as_many_as_classes(build):
    message = "^valid_fraction has 3 values for 4 classes; give one per class, or a single number$"
    fractions = np.full(3, 0.1)
    refused(message, lambda: build(TRAIN, TEST, [[0, 1], [2, 3]], 4, valid_fraction=fractions))


def test_an_order_is_cut_into_equal_tasks():
    assert equal_tasks([3, 1, 0, 2], 2) == [[3, 1], [0, 2]]
    with pytest.raises(ValueError, match="4 classes do not divide into 3 equal tasks"):
        equal_tasks([3, 1, 0, 2], 3)
    for order in ([], [1, -1]):
        with pytest.raises(ValueError, match="give at least one, from 0 on"):
            equal_tasks(order, 2)
