"""Uneven streams: counts of the definitions, every sample once, and test sets as they were."""

import chex
import numpy as np
import pytest

from everlight.scenarios import (
    class_incremental,
    long_tailed_counts,
    long_tailed_samples,
    online_stream,
    with_blurry_boundaries,
    with_recurring_classes,
)

TASKS = [[3, 0], [1, 2], [5, 4]]
TRAIN, TEST = np.arange(600) % 6, np.arange(30) % 6
SHARP = class_incremental(TRAIN, TEST, TASKS, 6, valid_fraction=0.1)
LEARNED = 540


def samples_of(sequence):
    """Return the indices of each task's training samples."""
    train = sequence.tasks.train
    return [np.asarray(i)[np.asarray(m)] for i, m in zip(train.index, train.mask, strict=True)]


def classes_in(sequence):
    """Return the number of training samples of each class in each task."""
    return np.array([np.bincount(TRAIN[index], minlength=6) for index in samples_of(sequence)])


def check_all_but_training(sequence):
    """Check that samples come once with their labels, and nothing else differs from `SHARP`."""
    index = np.concatenate(samples_of(sequence))
    assert sorted(index.tolist()) == sorted(np.concatenate(samples_of(SHARP)).tolist())
    train = sequence.tasks.train
    labels = np.asarray(train.labels[..., 0])[np.asarray(train.mask)]
    np.testing.assert_array_equal(labels, TRAIN[index])
    left = {"train": SHARP.tasks.train, "classes": SHARP.tasks.classes}
    chex.assert_trees_all_equal(sequence._replace(tasks=sequence.tasks._replace(**left)), SHARP)
    present = classes_in(sequence) > 0
    first = present & (np.cumsum(present, axis=0) == 1)
    np.testing.assert_array_equal(sequence.tasks.classes, first)


@pytest.mark.parametrize(("images", "imbalance"), [(5000, 100.0), (5000, 10.0), (500, 50.0)])
def test_counts_of_equal_classes_are_the_published_profile(images, imbalance):
    """Cao et al. 2019: the integer part of images · (1 / ratio)^(class / (classes − 1))."""
    expected = [int(images * (1 / imbalance) ** (number / 9) + 1e-6) for number in range(10)]
    counts = long_tailed_counts(np.full(10, images), imbalance)
    np.testing.assert_array_equal(counts, expected)
    assert counts[0] / counts[-1] == imbalance


def test_the_profile_of_unequal_classes_is_as_large_as_they_allow():
    """Class 1 of 12 allows 12 · 2 = 24 of class 0 and 6 of class 2, whatever else there is."""
    counts = long_tailed_counts(np.array([100, 12, 50]), 4.0)
    np.testing.assert_array_equal(counts, [24, 12, 6])
    np.testing.assert_array_equal(long_tailed_counts(np.array([9, 5, 7]), 1.0), [5, 5, 5])
    np.testing.assert_array_equal(long_tailed_counts(np.array([9]), 3.0), [9])


@pytest.mark.parametrize(
    ("counts", "fewest", "largest"), [([50] * 10, 1, 50), ([50] * 10, 2, 25), ([90, 4, 70], 1, 16)]
)
def test_a_refused_ratio_names_the_largest_possible_one(counts, fewest, largest):
    assert long_tailed_counts(np.array(counts), float(largest), fewest)[-1] == fewest
    with pytest.raises(ValueError, match=rf"imbalance=.*; give {largest} or less$"):
        long_tailed_counts(np.array(counts), largest + 1.0, fewest)


def test_samples_of_a_long_tail_are_drawn_by_seed():
    first, again, other = (long_tailed_samples(TRAIN, 6, 20.0, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    for chosen in (first, other):
        np.testing.assert_array_equal(
            np.bincount(TRAIN[chosen]), [int(100 * 20 ** (-k / 5) + 1e-9) for k in range(6)]
        )
    with pytest.raises(ValueError, match="no sample of class 6"):
        long_tailed_samples(TRAIN, 7, 2.0)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_each_blurry_task_has_a_share_of_the_other_tasks(share):
    """A share of the 180 samples per task comes in the two other tasks, half in each."""
    sequence = with_blurry_boundaries(SHARP, share, 3)
    check_all_but_training(sequence)
    counts = classes_in(sequence)
    moved = int(share * 180)
    for task, classes in enumerate(TASKS):
        assert counts[task, classes].sum() == 180 - moved
        for other in {0, 1, 2} - {task}:
            assert counts[other, classes].sum() == moved / 2
    assert counts.sum() == LEARNED


def test_blurry_boundaries_are_those_of_an_online_stream():
    """The class and seed of a moved sample may differ, the number per pair of tasks may not."""
    sharp = class_incremental(TRAIN, TEST, [[0, 1, 2], [3, 4, 5]], 6, valid_fraction=0.0)
    blurry = with_blurry_boundaries(sharp, 0.3, 5)
    stream = online_stream(TRAIN, TEST, [[0, 1, 2], [3, 4, 5]], 6, blurry=0.3, seed=8)
    for mine, other in zip(samples_of(blurry), samples_of(stream), strict=True):
        same = [np.bincount(TRAIN[rows] // 3).tolist() for rows in (mine, other)]
        assert same[0] == same[1]


def test_a_share_of_0_changes_no_task_and_1_is_refused():
    counts = classes_in(with_blurry_boundaries(SHARP, 0.0))
    np.testing.assert_array_equal(counts, classes_in(SHARP))
    with pytest.raises(ValueError, match=r"share=1\.0; give less than 1"):
        with_blurry_boundaries(SHARP, 1.0)


def test_classes_that_all_recur_are_divided_equally():
    """Classes of the first task come three times, with 30 of 90 samples; of the second, twice."""
    sequence = with_recurring_classes(SHARP, 1.0)
    check_all_but_training(sequence)
    parts = {0: [30, 30, 30], 1: [0, 45, 45], 2: [0, 0, 90]}
    for task, classes in enumerate(TASKS):
        np.testing.assert_array_equal(
            classes_in(sequence)[:, classes], np.transpose([parts[task]] * 2)
        )


def test_classes_recur_with_the_probability():
    """Two classes have two later tasks and two have one, which makes 6 chances per seed."""
    returned = 0
    for seed in range(200):
        counts = classes_in(with_recurring_classes(SHARP, 0.3, seed))
        returned += (counts > 0).sum() - 6
    deviation = (1200 * 0.3 * 0.7) ** 0.5
    assert abs(returned - 1200 * 0.3) < 4 * deviation


def test_recurring_classes_may_have_blurry_boundaries():
    recurring = with_recurring_classes(SHARP, 0.5, 2)
    sequence = with_blurry_boundaries(recurring, 0.2, 2)
    check_all_but_training(sequence)
    sizes = [len(rows) for rows in samples_of(recurring)]
    stayed = [
        len({*a} & {*b}) for a, b in zip(*map(samples_of, (recurring, sequence)), strict=True)
    ]
    assert [size - count for size, count in zip(sizes, stayed, strict=True)] == [
        int(0.2 * size) for size in sizes
    ]
