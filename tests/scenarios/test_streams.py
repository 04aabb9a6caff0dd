"""Streams against NumPy and SciPy: indices, labels and transformed inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

from everlight.base import Setup
from everlight.scenarios import streams

TRAIN, TEST = np.arange(40) % 4, np.arange(12) % 4
IMAGES = np.random.default_rng(0).uniform(size=(52, 6, 5, 2)).astype(np.float32)
COUNT = 52
ANGLES = np.array([0.0, 60.0, 120.0])


def rows(samples, task):
    """Return index and label of a task's samples."""
    stored = np.asarray(samples.mask[task])
    return np.asarray(samples.index[task])[stored], np.asarray(samples.labels[task])[stored, 0]


def stored_setup(transform):
    unused = dict.fromkeys(Setup._fields[:4])
    setup = Setup(**unused, gather=lambda index, key: jnp.asarray(IMAGES)[index])
    return streams.transform_inputs(setup, COUNT, transform)


def test_every_task_has_all_samples_at_its_own_indices():
    sequence = streams.domain_incremental(TRAIN, TEST, 3, 4)
    for task in range(3):
        index, labels = rows(sequence.tasks.train, task)
        np.testing.assert_array_equal(index, task * COUNT + np.arange(40))
        np.testing.assert_array_equal(labels, TRAIN)
        member = np.asarray(sequence.test_member[task])
        tested = np.asarray(sequence.test.index)[member]
        np.testing.assert_array_equal(np.sort(tested), task * COUNT + 40 + np.arange(12))
    np.testing.assert_array_equal(sequence.tasks.classes, [[True] * 4, [False] * 4, [False] * 4])
    assert np.all(sequence.test_classes)


def test_a_part_of_the_samples_is_redrawn_for_each_task():
    sequence = streams.domain_incremental(
        TRAIN, TEST, 3, 4, train_samples=10, test_samples=5, seed=1
    )
    drawn = [rows(sequence.tasks.train, task) for task in range(3)]
    for task, (index, labels) in enumerate(drawn):
        within_task = index - task * COUNT
        assert len(set(within_task)) == 10
        assert within_task.min() >= 0
        assert within_task.max() < 40
        np.testing.assert_array_equal(labels, TRAIN[within_task])
        assert np.sum(sequence.test_member[task]) == 5
    assert set(drawn[0][0]) != set(drawn[1][0] - COUNT)


def test_labels_are_mapped_in_training_and_test():
    maps = streams.permuted_labels(3, 4, seed=2)
    np.testing.assert_array_equal(maps[0], range(4))
    np.testing.assert_array_equal(np.sort(maps, axis=1), [range(4)] * 3)
    sequence = streams.domain_incremental(TRAIN, TEST, 3, 4, label_maps=maps)
    for task in range(3):
        np.testing.assert_array_equal(rows(sequence.tasks.train, task)[1], maps[task][TRAIN])
        member = np.asarray(sequence.test_member[task])
        index = np.asarray(sequence.test.index)[member] - task * COUNT - 40
        labels = np.asarray(sequence.test.labels)[member, 0]
        np.testing.assert_array_equal(labels, maps[task][TEST[index]])


def test_pixels_are_permuted_by_task_and_channels_stay_together():
    setup = stored_setup(streams.permuted_pixels(3, 30, jax.random.key(0)))
    index = jnp.array([4, COUNT + 4, COUNT + 9, 2 * COUNT + 4])
    result = np.asarray(setup.gather(index, None))
    np.testing.assert_array_equal(result[0], IMAGES[4])
    flat, within_task = result.reshape(4, 30, 2), IMAGES.reshape(COUNT, 30, 2)
    # No two pixels are equal, so the order can be read from one image.
    order = [int(np.flatnonzero(within_task[4, :, 0] == value)[0]) for value in flat[1, :, 0]]
    assert sorted(order) == list(range(30))
    assert order != sorted(order)
    np.testing.assert_array_equal(flat[1], within_task[4][order])
    np.testing.assert_array_equal(flat[2], within_task[9][order])
    assert not np.array_equal(flat[3], flat[1])


@pytest.mark.parametrize("angle", [0.0, 30.0, 90.0, -160.0])
def test_images_are_rotated_as_by_scipy(angle):
    """The image is square, interpolation is bilinear, and 0 is outside."""
    images = IMAGES[:3, :5, :5]
    rotate = streams.rotated(np.array([0.0, angle]))
    result = jax.vmap(rotate, in_axes=(0, None))(jnp.asarray(images), jnp.int32(1))
    for image, turned in zip(images, np.asarray(result), strict=True):
        expected = ndimage.rotate(
            image.astype(float), angle, reshape=False, order=1, mode="constant"
        )
        inside = ndimage.rotate(
            np.ones_like(image, float), angle, reshape=False, order=1, mode="constant"
        )
        # SciPy is 0 as soon as a coordinate leaves the image, JAX fades to 0 over a pixel.
        np.testing.assert_allclose(turned[inside > 0.999], expected[inside > 0.999], atol=1e-5)
        if angle in (0.0, 90.0):
            np.testing.assert_allclose(turned, np.rot90(image, int(angle // 90)), atol=1e-5)


def test_a_stream_by_name_has_the_transform_or_the_labels_of_its_kind():
    key = jax.random.key(7)
    image, task = jnp.asarray(IMAGES[0]), jnp.int32(2)
    for name, same in (
        ("permuted", streams.permuted_pixels(3, 30, key)),
        ("rotated", streams.rotated(ANGLES)),
    ):
        stream = streams.named_stream(name, 3, 4, 30, 7)
        np.testing.assert_array_equal(stream.transform(image, task), same(image, task))
        assert stream.label_maps is None
    relabelled = streams.named_stream("permuted-labels", 3, 4, 30, 7)
    np.testing.assert_array_equal(relabelled.label_maps, streams.permuted_labels(3, 4, 7))
    np.testing.assert_array_equal(relabelled.transform(image, task), image)


def test_drawn_transforms_have_the_permutations_or_uniform_angles_of_their_key():
    key = jax.random.key(7)
    image, tasks = jnp.asarray(IMAGES[0]), jnp.arange(3)
    for name, same in (
        ("permuted", streams.permuted_pixels(3, 30, key)),
        ("rotated", streams.rotated(180 * jax.random.uniform(key, 3))),
        ("permuted-labels", lambda image, task: image),
    ):
        drawn = jax.jit(
            lambda key, task, name=name: streams.draw_transform(name, 3, 30, key)(image, task)
        )
        for task in tasks:
            np.testing.assert_allclose(drawn(key, task), same(image, task), rtol=1e-5, atol=1e-6)
    # The first task keeps its pixels, and is rotated.
    unchanged, turned = (
        streams.draw_transform(name, 3, 30, key)(image, tasks[0])
        for name in ("permuted", "rotated")
    )
    np.testing.assert_array_equal(unchanged, image)
    assert not np.allclose(turned, image)
    with pytest.raises(ValueError, match="'mirrored' is not a stream"):
        streams.draw_transform("mirrored", 3, 30, key)


def test_a_recurring_class_brings_other_samples_each_time():
    tasks = [[0, 1], [2], [0, 2, 3]]
    sequence = streams.recurring_classes(TRAIN, TEST, tasks, 4)
    seen = []
    for number, task in enumerate(tasks):
        index, labels = rows(sequence.tasks.train, number)
        assert set(labels) == set(task)
        np.testing.assert_array_equal(labels, TRAIN[index])
        seen.extend(index.tolist())
        tested = np.asarray(sequence.test.labels)[np.asarray(sequence.test_member[number]), 0]
        assert set(tested) == set(task)
    assert sorted(seen) == list(range(40))
    counts = [len(rows(sequence.tasks.train, number)[0]) for number in range(3)]
    assert counts == [15, 5, 20]
    new = np.asarray(sequence.tasks.classes)
    assert [np.flatnonzero(row).tolist() for row in new] == [[0, 1], [2], [3]]


def test_recurring_tasks_share_the_validation_samples_of_their_classes():
    """A fifth of ten samples per class validates: the first two, which no task trains on."""
    tasks = [[0, 1], [2, 3], [0, 1]]
    sequence = streams.recurring_classes(TRAIN, TEST, tasks, 4, valid_fraction=0.2)
    trained = np.concatenate([rows(sequence.tasks.train, number)[0] for number in range(3)])
    assert sorted(trained) == list(range(8, 40))
    for number, task in enumerate(tasks):
        index, labels = rows(sequence.tasks.valid, number)
        expected = [place for place in range(8) if place % 4 in task]
        assert sorted(index) == expected
        np.testing.assert_array_equal(labels, TRAIN[index])


def test_a_sequence_may_keep_a_few_shots_after_its_first_task():
    """The count per class is the number of shots; no other sample of the sequence changes."""
    full = streams.recurring_classes(TRAIN, TEST, [[0, 1], [2, 0], [3, 2]], 4)
    result = streams.with_shots(full, 3, seed=1)
    counts = [
        np.bincount(rows(result.tasks.train, task)[1], minlength=4).tolist() for task in range(3)
    ]
    assert counts == [[5, 10, 0, 0], [3, 0, 3, 0], [0, 0, 3, 3]]
    for task in range(3):
        assert set(rows(result.tasks.train, task)[0]) <= set(rows(full.tasks.train, task)[0])
    np.testing.assert_array_equal(result.test_member, full.test_member)
    np.testing.assert_array_equal(
        streams.with_shots(full, 50).tasks.train.mask, full.tasks.train.mask
    )


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_noise_changes_the_given_share_to_other_labels_evenly(rate):
    labels = np.arange(9000) % 3
    noisy = streams.noisy_labels(labels, 3, rate, seed=4)
    changed = noisy != labels
    assert changed.sum() == round(rate * 9000)
    shifts = np.bincount((noisy - labels)[changed] % 3, minlength=3)[1:]
    assert abs(shifts[0] - shifts[1]) < 5 * max(changed.sum(), 1) ** 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: streams.domain_incremental(TRAIN, TEST, 2, 4, train_samples=41),
            "train_samples=41",
        ),
        (
            lambda: streams.domain_incremental(TRAIN - 1, TEST, 2, 4),
            "train_labels holds -1; give 0 to 3",
        ),
        (
            lambda: streams.domain_incremental(TRAIN, TEST, 2, 3),
            "train_labels holds 3; give 0 to 2",
        ),
        (
            lambda: streams.domain_incremental(TRAIN, TEST, 2, 4, label_maps=np.eye(4, dtype=int)),
            r"\[2, 4",
        ),
        (
            lambda: streams.named_stream("mirrored", 2, 4, 30, 0),
            "'mirrored' is not a stream; give permuted",
        ),
        (
            lambda: streams.recurring_classes(TRAIN, TEST[:3], [[0], [3]], 4),
            "class 3 is in 1 tasks",
        ),
        (
            lambda: streams.recurring_classes(TRAIN, TEST, [[0, 1], [], [2]], 4),
            "^tasks holds a task without a class; leave it out$",
        ),
        (
            lambda: streams.recurring_classes(
                TRAIN, TEST, [[0, 1]], 4, valid_fraction=np.array([0.2, -0.1, 0, 0])
            ),
            "^valid_fraction=-0.1; give 0 or more, and less than 1$",
        ),
        (
            lambda: streams.domain_incremental(TRAIN, TEST, 2, 4, valid_fraction=1.0),
            "^valid_fraction=1.0; give 0 or more, and less than 1$",
        ),
        (
            lambda: streams.noisy_labels(np.zeros(4, int), 1, 0.5),
            "^rate=0.5 with one class; give 0, or 2 classes or more$",
        ),
        (
            lambda: streams.permuted_pixels(3, 30, jax.random.key(0))(
                jnp.asarray(IMAGES[0]), jnp.int32(3)
            ),
            "^task=3; give 0 to 2$",
        ),
        (
            lambda: streams.rotated(ANGLES)(jnp.asarray(IMAGES[0]), jnp.int32(7)),
            "^task=7; give 0 to 2$",
        ),
    ],
)
def test_invalid_streams_are_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_validation_samples_are_the_first_of_each_class_in_every_task():
    sequence = streams.domain_incremental(TRAIN, TEST, 2, 4, valid_fraction=0.25)
    for task in range(2):
        learned, _ = rows(sequence.tasks.train, task)
        valid, labels = rows(sequence.tasks.valid, task)
        # Each of 4 classes, which take turns, gives 2 of its 10 samples.
        np.testing.assert_array_equal(valid, task * COUNT + np.arange(8))
        np.testing.assert_array_equal(labels, np.arange(8) % 4)
        np.testing.assert_array_equal(learned, task * COUNT + np.arange(8, 40))
