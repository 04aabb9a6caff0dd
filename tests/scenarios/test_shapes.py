"""Sequences of common shapes hold the same samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.scenarios import class_incremental, same_shapes

TRAIN, TEST = np.array([0] * 10 + [1] * 20 + [2] * 30), np.array([0, 1, 2])


def test_the_shorter_is_padded_and_nothing_else_changes():
    first = class_incremental(TRAIN, TEST, [[0, 1], [2]], 3)
    second = class_incremental(TRAIN, TEST, [[1, 2], [0]], 3)
    found = same_shapes([first, second])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)
    assert stacked.tasks.train.mask.shape == (2, 2, 45)
    for before, after in zip((first, second), found, strict=True):
        for part in ("train", "valid"):
            old, new = getattr(before.tasks, part), getattr(after.tasks, part)
            slots = old.mask.shape[1]
            np.testing.assert_array_equal(new.index[:, :slots], old.index)
            np.testing.assert_array_equal(new.mask.sum(axis=1), old.mask.sum(axis=1))
        np.testing.assert_array_equal(after.test.index, before.test.index)


def test_other_numbers_of_tasks_are_refused():
    first = class_incremental(TRAIN, TEST, [[0, 1], [2]], 3)
    second = class_incremental(TRAIN, TEST, [[0], [1], [2]], 3)
    with pytest.raises(ValueError, match=r"sequences of \[2, 3\] tasks"):
        same_shapes([first, second])
