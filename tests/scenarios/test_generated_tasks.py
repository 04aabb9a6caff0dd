"""Tasks drawn over stored images: which rows, which labels, how often."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.scenarios import class_pair_tasks, label_permuted_tasks, permuted_tasks

TRAIN = np.array([0, 1, 2, 0, 1, 2, 3, 4, 4, 4])
TEST = np.array([4, 3, 2, 1, 0, 0])


def states(generator, count, seed=0):
    state, results = generator.begin(jax.random.key(seed)), []
    for number in range(count):
        state = generator.next_task(state, jax.random.fold_in(jax.random.key(seed + 1), number))
        results.append(state)
    return results


def drawn(generator, state, count=4000):
    samples = generator.draw(state, count, jax.random.key(5))
    assert samples.mask.all()
    return np.asarray(samples.index), np.asarray(samples.labels[:, 0])


def test_permuted_tasks_have_all_images_at_indices_of_their_own():
    generator = permuted_tasks(TRAIN, 5, 16)
    for task, state in enumerate(states(generator, 3)):
        index, labels = drawn(generator, state)
        assert set(index) == set(range(16 * task, 16 * task + 10))
        np.testing.assert_array_equal(labels, TRAIN[index % 16])
        # Each of ten images has a tenth of 4,000 draws, within five standard deviations.
        assert abs(np.bincount(index % 16, minlength=10) - 400).max() < 5 * np.sqrt(360)


def test_permuted_labels_are_one_new_name_per_class_and_task():
    generator = label_permuted_tasks(TRAIN, 5)
    names = []
    for state in states(generator, 4):
        index, labels = drawn(generator, state)
        by_class = [set(labels[TRAIN[index] == number]) for number in range(5)]
        assert all(len(item) == 1 for item in by_class)
        assert set.union(*by_class) == set(range(5))
        names.append(tuple(np.asarray(state).tolist()))
    assert len(set(names)) == 4


def test_pairs_take_every_class_once_before_a_new_order_begins():
    """Five classes are two pairs per order; the fifth is left out of it."""
    generator = class_pair_tasks(TRAIN, TEST)
    pairs = []
    for state in states(generator, 6):
        index, labels = drawn(generator, state)
        pair = [np.unique(TRAIN[index[labels == label]]) for label in (0, 1)]
        assert [len(item) for item in pair] == [1, 1]
        pairs.append(tuple(int(item[0]) for item in pair))
        # Both labels and all images of a class are equally likely.
        assert abs(labels.mean() - 0.5) < 5 * np.sqrt(0.25 / 4000)
        for label, number in enumerate(pairs[-1]):
            assert set(index[labels == label]) == set(np.flatnonzero(number == TRAIN))
        tested = generator.test(state)
        rows, mask = np.asarray(tested.index) - 10, np.asarray(tested.mask)
        for label, number in enumerate(pairs[-1]):
            of_label = mask & (np.asarray(tested.labels[:, 0]) == label)
            np.testing.assert_array_equal(rows[of_label], np.flatnonzero(number == TEST))
    for first in (0, 2, 4):
        assert len({*pairs[first], *pairs[first + 1]}) == 4
    assert len(set(pairs)) > 2


def test_a_head_of_another_meaning_is_set_to_0():
    params = {"hidden": {"kernel": jnp.ones(2)}, "head": {"kernel": jnp.ones(3)}}
    renewed = class_pair_tasks(TRAIN, TEST).renew(params)
    assert not renewed["head"]["kernel"].any()
    assert renewed["hidden"]["kernel"].all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: class_pair_tasks(np.array([0, 0]), np.array([0])), "has only one"),
        (lambda: class_pair_tasks(np.array([0, 2]), np.array([0, 2])), "train_labels leaves out"),
        (lambda: class_pair_tasks(np.array([0, 1]), np.array([0])), "test_labels has other"),
        (lambda: permuted_tasks(TRAIN, 4, 16), "labels"),
        (lambda: permuted_tasks(TRAIN, 5, 9), "count is 9"),
        (lambda: label_permuted_tasks(TRAIN, 4), "labels"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
