"""Orders of classes from seeds: their tasks, one shape for all, and validation of every class."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everlight.scenarios as scenarios
from everlight.continual.training.labelled_images import channel_statistics
from everlight.scenarios import (
    class_incremental,
    class_incremental_by_seed,
    divide_classes,
    pad_sequences,
    seeded_class_incremental,
    validation_fractions,
    without_validation,
)
from tests.refusals import refused

# Training samples of each class.
SIZES = (20, 4, 12, 2, 8)
TRAIN, TEST = np.repeat(np.arange(5), SIZES), np.arange(10) % 5


def test_the_order_of_classes_is_the_seeds():
    order = np.random.default_rng(7).permutation(5)
    by_hand = class_incremental(TRAIN, TEST, [order[:3].tolist(), order[3:].tolist()], 5, 0.25)
    result = seeded_class_incremental(TRAIN, TEST, 2, 5, 7, 0.25)
    jax.tree.map(np.testing.assert_array_equal, result, by_hand)
    with pytest.raises(ValueError, match="task 5 has no samples"):
        seeded_class_incremental(TRAIN, TEST, 6, 5, 7)


@pytest.mark.parametrize("natural", [False, True])
@pytest.mark.parametrize("tasks", [2, (1, 4), (2, 3)])
@pytest.mark.parametrize(
    "uneven", [{}, {"recurring": 0.5}, {"blurry": 0.3}, {"recurring": 1.0, "blurry": 0.6}]
)
def test_sequences_of_all_seeds_have_one_shape(natural, tasks, uneven):
    """In every order the largest task is no larger, with tasks of unequal sizes too."""
    sequence = class_incremental_by_seed(TRAIN, TEST, tasks, 5, natural, 0.25, **uneven)
    complete = [sequence(seed, use) for seed in range(8) for use in (False, True)]
    assert len({tuple(leaf.shape for leaf in jax.tree.leaves(item)) for item in complete}) == 1


@pytest.mark.parametrize("cycles", [1, 2])
def test_sequences_have_one_shape_where_small_classes_validate_more(cycles):
    """All orders of classes with 5, 8, 4, 7, 4 and 4 training samples, two per task."""
    labels = np.repeat(np.arange(6), [10, 9, 8, 8, 7, 7])
    fractions = np.array([0.5, 0.2, 0.5, 0.2, 0.5, 0.5])
    sequence = class_incremental_by_seed(labels, np.arange(6), 3, 6, False, fractions, cycles)
    complete = [sequence(seed, use) for seed in range(12) for use in (False, True)]
    shape = complete[0].tasks
    # The largest task trains on classes 1 and 3, and validates on 0 and 2.
    assert (shape.train.mask.shape[1], shape.valid.mask.shape[1]) == (-(-15 // cycles), 9)
    assert len({tuple(leaf.shape for leaf in jax.tree.leaves(item)) for item in complete}) == 1


@pytest.mark.parametrize("uneven", [{"recurring": 0.5}, {"blurry": 0.3}])
@pytest.mark.parametrize("other", [{"cycles": 2}, {"within_tasks": True}])
def test_uneven_tasks_have_no_cycles_and_no_labels_of_their_own(uneven, other):
    with pytest.raises(ValueError, match="leave the former or the latter out"):
        class_incremental_by_seed(TRAIN, TEST, (2, 3), 5, **uneven, **other)


@pytest.mark.parametrize("natural", [False, True])
def test_sequences_by_seed_have_one_shape_and_test_on_validation_samples(natural):
    fraction = validation_fractions(TRAIN, 5, 0.1)
    sequence = class_incremental_by_seed(TRAIN, TEST, 2, 5, natural, fraction)
    complete = [sequence(seed, use) for seed in range(4) for use in (False, True)]
    assert len({tuple(leaf.shape for leaf in jax.tree.leaves(item)) for item in complete}) == 1
    orders = {tuple(np.asarray(item.class_task).tolist()) for item in complete}
    assert len(orders) > 1 or natural
    if natural:
        assert orders == {(0, 0, 0, 1, 1)}
    drawn = seeded_class_incremental(TRAIN, TEST, 2, 5, 3, fraction)
    if not natural:
        np.testing.assert_array_equal(sequence(3, False).class_task, drawn.class_task)
        test, expected = sequence(3, True).test, scenarios.replace_test_with_validation(drawn).test
        np.testing.assert_array_equal(test.index[test.mask], expected.index[expected.mask])


def test_every_class_has_a_validation_sample():
    fraction = validation_fractions(TRAIN, 5, 0.1)
    np.testing.assert_allclose(fraction, [0.1, 0.25, 0.1, 0.5, 0.125], rtol=1e-5)
    valid = seeded_class_incremental(TRAIN, TEST, 2, 5, 0, fraction).tasks.valid
    labels = np.asarray(valid.labels)[np.asarray(valid.mask)].ravel()
    np.testing.assert_array_equal(np.bincount(labels), [2, 1, 1, 1, 1])


@pytest.mark.parametrize("count", [0, 1])
def test_a_class_that_cannot_train_and_validate_is_named(count):
    message = f"^train_labels has {count} samples of class 1; give two or more, one to train and"
    refused(message, lambda: validation_fractions(np.repeat([0, 1], [5, count]), 2, 0.1))


def test_without_validation_nothing_else_changes():
    sequence = seeded_class_incremental(TRAIN, TEST, 2, 5, 0, 0.25)
    result = without_validation(sequence)
    assert not result.tasks.valid.mask.any()
    valid = sequence.tasks.valid
    back = result._replace(tasks=result.tasks._replace(valid=valid))
    jax.tree.map(np.testing.assert_array_equal, back, sequence)
    with pytest.raises(ValueError, match="task 0 has no validation sample"):
        scenarios.replace_test_with_validation(result)


@pytest.mark.parametrize("shape", [(30, 4, 5, 3), (30, 7), (30, 4, 5)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_images_are_normalized_by_channel_and_features_by_column(rng, shape, dtype):
    images = rng.integers(0, 256, shape).astype(dtype)
    axes = {4: (0, 1, 2), 3: None, 2: 0}[len(shape)]
    mean, deviation = channel_statistics(images)
    np.testing.assert_allclose(mean, images.astype(float).mean(axes), rtol=1e-12)
    np.testing.assert_allclose(deviation, images.astype(float).std(axes), rtol=1e-12)
    images[..., 0] = 9
    if len(shape) != 3:
        assert [item[0] for item in channel_statistics(images)] == [9, 1]


@pytest.mark.parametrize(
    ("order", "tasks", "expected"),
    [
        ([3, 1, 4, 0, 2], 2, [[3, 1, 4], [0, 2]]),
        (range(4), 4, [[0], [1], [2], [3]]),
        (range(10), 3, [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]),
        (range(10), (5, 2, 3), [[0, 1, 2, 3, 4], [5, 6], [7, 8, 9]]),
    ],
)
def test_tasks_keep_the_order_and_are_of_equal_or_of_given_sizes(order, tasks, expected):
    """The first tasks are larger where sizes cannot be equal."""
    assert divide_classes(order, tasks) == expected


@pytest.mark.parametrize("tasks", [np.int64(4), np.array(4), jnp.array(4)])
def test_the_number_of_tasks_may_be_an_array(tasks):
    assert divide_classes(range(10), tasks) == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]


def test_sizes_of_tasks_sum_to_the_number_of_classes():
    with pytest.raises(ValueError, match="sum to 9, not to 10"):
        divide_classes(range(10), (5, 4))


@pytest.mark.parametrize("natural", [False, True])
def test_repeated_tasks_have_the_same_classes_and_other_samples(natural):
    sequence = class_incremental_by_seed(TRAIN, TEST, 2, 5, natural, 0.25, cycles=2)
    result = [sequence(seed, on_validation) for seed in (0, 3) for on_validation in (False, True)]
    chex.assert_trees_all_equal_shapes(*result)
    once = class_incremental_by_seed(TRAIN, TEST, 2, 5, natural, 0.25)(3)
    train = result[2].tasks.train
    held = [
        set(np.asarray(index)[np.asarray(mask)].tolist())
        for index, mask in zip(train.index, train.mask, strict=True)
    ]
    for task in (0, 1):
        classes = [set(TRAIN[sorted(held[number])].tolist()) for number in (task, task + 2)]
        assert classes[0] == classes[1]
        assert not held[task] & held[task + 2]
        full = np.asarray(once.tasks.train.index[task])[np.asarray(once.tasks.train.mask[task])]
        assert held[task] | held[task + 2] == set(full.tolist())


def test_the_shorter_is_padded_and_nothing_else_changes():
    labels = np.repeat(np.arange(3), [10, 20, 30])
    first = class_incremental(labels, np.arange(3), [[0, 1], [2]], 3)
    second = class_incremental(labels, np.arange(3), [[1, 2], [0]], 3)
    result = pad_sequences([first, second])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *result)
    assert stacked.tasks.train.mask.shape == (2, 2, 45)
    for before, after in zip((first, second), result, strict=True):
        for part in ("train", "valid"):
            old, new = getattr(before.tasks, part), getattr(after.tasks, part)
            slots = old.mask.shape[1]
            np.testing.assert_array_equal(new.index[:, :slots], old.index)
            np.testing.assert_array_equal(new.mask.sum(axis=1), old.mask.sum(axis=1))
        np.testing.assert_array_equal(after.test.index, before.test.index)


def test_other_numbers_of_tasks_are_refused():
    labels = np.repeat(np.arange(3), [10, 20, 30])
    first = class_incremental(labels, np.arange(3), [[0, 1], [2]], 3)
    second = class_incremental(labels, np.arange(3), [[0], [1], [2]], 3)
    with pytest.raises(ValueError, match=r"sequences of \[2, 3\] tasks"):
        pad_sequences([first, second])
