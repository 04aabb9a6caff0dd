"""Sequences from places and labels, as other libraries' benchmarks hold them."""

import jax
import numpy as np
import pytest

from everlight.scenarios import class_incremental, experience_sequence
from tests.refusals import refused

TRAIN = [np.array([3, 0, 5]), np.array([7, 1, 0, 4])]
TRAIN_LABELS = [np.array([2, 0, 2]), np.array([1, 2, 0, 1])]
TEST = [np.array([10, 12]), np.array([12, 11])]
TEST_LABELS = [np.array([0, 2]), np.array([2, 1])]


def test_new_classes_are_the_class_incremental_sequence(rng):
    train, test = rng.integers(0, 6, 60), rng.integers(0, 6, 30)
    tasks = [[4, 1], [0, 5], [2, 3]]
    expected = class_incremental(train, test, tasks, 6, valid_fraction=0.2)
    current = expected.tasks
    groups = {
        name: [np.asarray(part.index)[row][np.asarray(part.mask)[row]] for row in range(len(tasks))]
        for name, part in (("train", current.train), ("valid", current.valid))
    }
    tests = [60 + np.flatnonzero(np.isin(test, members)) for members in tasks]
    result = experience_sequence(
        groups["train"],
        [train[places] for places in groups["train"]],
        tests,
        [test[places - 60] for places in tests],
        6,
        groups["valid"],
        [train[places] for places in groups["valid"]],
    )
    for one, other in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def test_classes_and_samples_may_come_again():
    result = experience_sequence(TRAIN, TRAIN_LABELS, TEST, TEST_LABELS, 4)
    assert result.tasks.train.index.tolist() == [[3, 0, 5, 0], [7, 1, 0, 4]]
    assert result.tasks.train.mask.sum(axis=1).tolist() == [3, 4]
    assert result.tasks.classes.tolist() == [
        [True, False, True, False],
        [False, True, False, False],
    ]
    # The class that no task trains on counts as of the last.
    assert result.class_task.tolist() == [0, 1, 0, 1]
    # Place 12 stands in both test sets, among other classes in each.
    assert result.test.index.tolist() == [10, 11, 12, 12]
    assert result.test.labels[:, 0].tolist() == [0, 1, 2, 2]
    member = np.asarray(result.test_member)
    assert sorted(result.test.index[member[0]].tolist()) == [10, 12]
    assert sorted(result.test.index[member[1]].tolist()) == [11, 12]
    assert member.sum(axis=0).tolist() == [1, 1, 1, 1]
    assert np.flatnonzero(result.test_classes[0]).tolist() == sorted({*TRAIN_LABELS[0], 0, 2})


def test_one_test_set_serves_all():
    result = experience_sequence(TRAIN, TRAIN_LABELS, TEST[:1], TEST_LABELS[:1], 4)
    assert result.test_member.tolist() == [[True, True]]
    assert result.class_task.tolist() == [0, 0, 0, 0]


def parts(dtype=int):
    return {
        "train": [item.astype(dtype) for item in TRAIN],
        "train_labels": [item.astype(dtype) for item in TRAIN_LABELS],
        "test": [item.astype(dtype) for item in TEST],
        "test_labels": [item.astype(dtype) for item in TEST_LABELS],
        "classes": 4,
    }


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64, np.int8])
def test_indices_and_labels_may_be_integers_of_any_size(dtype):
    result, expected = experience_sequence(**parts(dtype)), experience_sequence(**parts())
    jax.tree.map(np.testing.assert_array_equal, result, expected)
    assert result.test.labels.dtype == expected.test.labels.dtype


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test": [*TEST, TEST[0]]}, "test has 3 experiences and test_labels 2; give 1 or 2"),
        (
            {"train": [TRAIN[0], TRAIN[1][:2]]},
            r"train\[1\] has 2 indices and train_labels\[1\] has 4",
        ),
        ({"train": [TRAIN[0], -TRAIN[1]]}, r"train\[1\] holds -7; give 0 or more"),
        ({"classes": 2}, r"train_labels\[0\] holds 2; give 0 to 1"),
        ({"test_labels": [np.array([0, 1]), TEST_LABELS[1]]}, "two labels to sample 12"),
        (
            {"test": [TEST[0], TEST[1][:0]], "test_labels": [TEST_LABELS[0], TEST[1][:0]]},
            r"test\[1\] has no sample",
        ),
        # Counted in the test set itself: samples 0 and 1, which train too.
        (
            {"test": [np.array([0, 2]), np.array([2, 1])]},
            r"test\[0\] holds sample 0, which train holds too, as 2 of 4 in test; all indices",
        ),
        (
            {"valid": [np.array([6]), np.array([3])], "valid_labels": [np.array([0])] * 2},
            r"valid\[1\] holds sample 3, which train holds too, as 1 of 2 in valid",
        ),
        (
            {"valid": [np.array([6]), np.array([11])], "valid_labels": [np.array([0])] * 2},
            r"test\[1\] holds sample 11, which valid holds too, as 1 of 4 in test",
        ),
        (
            {"train": [[3, 0, 5], TRAIN[1]]},
            r"train\[0\] is of type list; give an array of integers",
        ),
        (
            {"test": [TEST[0], np.array([9, 2**32])]},
            r"test\[1\] holds 4294967296; give 0 to 2147483647$",
        ),
        ({"valid": [np.array([6]), np.array([13])]}, r"valid and valid_labels belong together"),
        ({"valid_labels": [np.array([0])] * 2}, r"valid and valid_labels belong together"),
        ({"train": [], "train_labels": []}, r"train has no experience; give one or more"),
        ({"train": [TRAIN[0], TRAIN[1] * 1.0]}, r"train\[1\] is float64\[4\]; give integers"),
        ({"test": [np.ones(2, bool), TEST[1]]}, r"test\[0\] is bool\[2\]; give integers"),
    ],
)
def test_inconsistent_experiences_are_refused(changes, message):
    refused(message, lambda: experience_sequence(**parts() | changes))
