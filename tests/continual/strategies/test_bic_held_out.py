"""BiC's held-out samples: who leaves training, and how many of each class."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import Samples
from everlight.continual.strategies.bic import bic, hold_out
from everlight.continual.strategies.parts.exemplars import ExemplarBuffer
from tests.continual.many_labels import labelled
from tests.continual.small_net import CLASSES, classes_mask, compiled, small_learner, task_of
from tests.continual.strategies.references.bic_second_task import KEY, SETUP

# Two of 20 samples leave training, at least one of fewer, and none of one.

TWENTY = compiled(bic(SETUP, exemplars_per_class=20, labels=2))
NINETY = compiled(bic(SETUP, buffer_size=90, labels=2))
# Classes 0 and 1 have been learned. Class 0 holds one image and class 1 five and a second label.
HELD = {0: [6], 1: [1, 7, 13, 19, 25]}
# Image 6 comes again as class 2, and image 1 as classes 1 and 3: other samples.
TRAIN = labelled([*range(20), 3, 9, 15, 21, 1, 39], [2] * 20 + [3] * 4 + [1, 0])
TRAIN = TRAIN._replace(
    labels=TRAIN.labels.at[24].set(jnp.array([1, 3])), mask=TRAIN.mask.at[25].set(False)
)
SECOND = task_of(1, [2, 3], TRAIN)


def buffer_of(held):
    """Return 20 slots per class; empty ones contain a sample that is in training."""
    index, labels = np.full((CLASSES, 20), 12), np.full((CLASSES, 20, 2), [2, -1])
    mask = np.zeros((CLASSES, 20), bool)
    for label, members in held.items():
        part = (label, slice(0, len(members)))
        index[part], labels[part], mask[part] = members, [label, -1], True
    samples = Samples(index.ravel(), labels.reshape(-1, 2), mask.ravel())
    label, rank = np.divmod(np.arange(CLASSES * 20), 20)
    return jax.tree.map(jnp.asarray, ExemplarBuffer(samples, label, rank))


def rows_of(samples):
    """Return (image, labels) of every sample."""
    rows = zip(*(np.asarray(leaf).tolist() for leaf in samples), strict=True)
    return [(index, *labels) for index, labels, real in rows if real]


@jax.jit
def opened(key, buffer):
    """Begin the second task; return its memory and epoch."""
    learner = small_learner(SETUP, [0, 1, 2, 3])
    memory = TWENTY.init(KEY, learner)._replace(buffer=buffer)
    memory, learner = TWENTY.begin_task(memory, learner, SECOND, key)
    return memory, TWENTY.epoch_data(memory, SECOND)


@jax.jit
def left_of(samples, key):
    """Return the samples held out for classes 2, 3 and 4, which may keep 20 samples each."""
    return hold_out(samples, classes_mask([2, 3, 4]), 20, CLASSES * 2, None, key)


ALL_SAMPLES = sorted([*rows_of(TRAIN), *rows_of(buffer_of(HELD).samples)])


@pytest.mark.parametrize("seed", range(6))
def test_a_tenth_of_every_seen_class_leaves_training_and_no_others(seed):
    memory, epoch = opened(jax.random.key(seed), buffer_of(HELD))
    slots = np.asarray(memory.held_out.mask).reshape(CLASSES, 2)
    np.testing.assert_array_equal(slots.sum(axis=1), [0, 1, 2, 1, 0, 0])
    labels = np.asarray(memory.held_out.labels).reshape(CLASSES, 2, 2)
    for label in range(4):
        assert np.all(np.any(labels[label] == label, axis=1)[slots[label]])
    left = set(rows_of(memory.held_out))
    assert left <= set(ALL_SAMPLES)
    assert sorted(rows_of(epoch.samples)) == [
        sample for sample in ALL_SAMPLES if sample not in left
    ]
    # Remaining samples are still known as replayed or new.
    replayed = epoch.samples._replace(mask=epoch.samples.mask & epoch.memory_mask)
    assert set(rows_of(replayed)) == set(rows_of(buffer_of(HELD).samples)) - left


def test_without_a_held_out_old_class_nothing_leaves_training():
    """New classes alone would fit a bias that favours them more."""
    memory, epoch = opened(KEY, buffer_of({0: [6]}))
    assert not np.any(memory.held_out.mask)
    assert sorted(rows_of(epoch.samples)) == sorted([*rows_of(TRAIN), (6, 0, -1)])


def per_item(samples):
    """Return `rows_of` of every row, as sets."""
    return [set(rows_of(row)) for row in zip(*map(np.asarray, samples), strict=True)]


def test_held_out_samples_are_drawn_and_the_same_image_with_other_labels_stays():
    keys = jax.random.split(KEY, 400)
    memories, epochs = jax.jit(jax.vmap(opened, in_axes=(0, None)))(keys, buffer_of(HELD))
    left, stays = per_item(memories.held_out), per_item(epochs.samples)
    counts = {sample: sum(sample in one for one in left) for sample in ALL_SAMPLES}
    # 2 of 20 samples of class 2 leave 40 times each, to 5 standard deviations of 6, and 1 of
    # 6 of class 1, of which image 1 with two labels may leave for class 3 too.
    assert all(abs(counts[i, 2, -1] - 40) < 30 for i in range(20))
    assert all(abs(counts[i, 1, -1] - 400 / 6) < 37 for i in HELD[1])
    assert any((1, 1, -1) in one and (1, 1, 3) not in one for one in left)
    for one, rest in zip(left, stays, strict=True):
        assert one | rest == set(ALL_SAMPLES)
        assert not one & rest
        # Some sample of every class stays.
        assert all(any(label in sample[1:] for sample in rest) for label in range(4))


@pytest.mark.parametrize(
    ("counts", "leave"),
    [((1, 2, 9), (0, 1, 1)), ((19, 20, 21), (1, 2, 2)), ((0, 30, 39), (0, 2, 2))],
)
def test_a_class_gives_a_tenth_of_what_it_has_and_keeps_one(counts, leave):
    """An old class may keep 20; classes of one or two samples were formerly left with none."""
    # There are 40 places per class, so that all cases are one program.
    index, label = np.tile(np.arange(40), 3), np.repeat([2, 3, 4], 40)
    samples = labelled(index, label, mask=index < np.repeat(counts, 40))
    out = left_of(samples, KEY)
    result = np.asarray(out.mask).reshape(CLASSES, 2).sum(axis=1)
    np.testing.assert_array_equal(result, [0, 0, *leave, 0])


@pytest.mark.parametrize("seed", range(20))
def test_held_out_samples_of_a_class_are_never_all_of_another_class(seed):
    """Samples have two classes: those that class 2 gives may be the last that class 3 has."""
    pairs = np.array([[2, 3], [3, 2], [2, 4], [4, 3]])
    samples = Samples(jnp.arange(4), jnp.asarray(pairs), jnp.ones(4, bool))
    out = left_of(samples, jax.random.key(seed))
    rest = set(range(4)) - {row[0] for row in rows_of(out)}
    assert {label for row in rest for label in pairs[row]} == {2, 3, 4}


@pytest.mark.parametrize(("per_class", "leave"), [(20, 2), (3, 1), (50, 5)])
def test_as_many_slots_for_what_leaves_as_a_tenth_of_the_exemplars(per_class, leave):
    memory = bic(SETUP, per_class).init(KEY, small_learner(SETUP, []))
    assert memory.held_out.mask.shape == (leave * CLASSES,)
    assert memory.buffer.samples.mask.shape == (per_class * CLASSES,)
    assert not np.any(memory.held_out.mask)


@pytest.mark.parametrize("known", [[0], [0, 1], [0, 1, 2, 3]])
def test_with_a_fixed_total_a_new_class_gives_a_tenth_of_what_an_old_one_keeps(known):
    """The old classes store 40, 40 and 22 of a total of 90, and a tenth of these leaves."""
    new = len(known)
    rng = np.random.default_rng(0)
    old = [(i, label) for label in known for i in range(90 // len(known)) if i < 40]
    index, label = np.pad(np.array(old), ((0, 90 - len(old)), (0, 0))).T
    held = labelled(index, label, mask=np.arange(90) < len(old))
    learner = small_learner(SETUP, [*known, new])
    memory = NINETY.init(KEY, learner)
    memory = memory._replace(buffer=memory.buffer._replace(samples=held))
    task = task_of(1, [new], labelled(rng.permutation(40), [new] * 40))
    memory, _ = NINETY.begin_task(memory, learner, task, KEY)
    removed = np.array([row[1] for row in rows_of(memory.held_out)])
    item = {1: 4, 2: 4, 4: 2}[len(known)]
    expected = np.where(np.isin(np.arange(CLASSES), [*known, new]), item, 0)
    np.testing.assert_array_equal(np.bincount(removed, minlength=CLASSES), expected)
