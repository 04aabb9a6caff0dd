"""Tasks over stored images that are drawn inside the program, for the study of plasticity.

A generator has thousands of tasks of one data set and holds its labels once. Samples are drawn with
replacement; Dohare et al. 2024 pass over each task's images in epochs instead.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from everlight.base import Samples, TaskGenerator
from everlight.checks import Between, NotEmpty, PositiveInt, check_range, checked
from everlight.errors import ArgumentError
from everlight.scenarios.experiences import MAX_SAMPLES

Labels = Annotated[Int[np.ndarray, "n"], Between(0), NotEmpty]
TestLabels = Annotated[Int[np.ndarray, "m"], Between(0), NotEmpty]


@checked
def permuted_tasks(labels: Labels, classes: PositiveInt, count: PositiveInt) -> TaskGenerator:
    """Return tasks with all images, each with its own order of the pixels.

    Sample i of task t has the index t · count + i, which `transform_inputs` with `permuted_pixels`
    turns into the image (Goodfellow et al. 2014).

    Args:
      labels: class of each training image, `[n]`; the images are the first n of the data set.
      classes: number of classes.
      count: number of stored images, at least n. Times the number of tasks it is at most 2^31, the
        number of samples that indices of 32 bits count (`TaskGenerator.most_tasks`).

    Raises:
      ValueError: a label is not below `classes`, or `count` is below n.
    """
    check_range("labels", labels, 0, classes - 1)
    if count < len(labels):
        raise ArgumentError(
            f"count is {count}; there are {len(labels)} labels, give as many or more"
        )
    image_labels = jnp.asarray(labels, jnp.int32)

    def draw(number: Int[Array, ""], size: int, key: PRNGKeyArray) -> Samples:
        row = jax.random.randint(key, (size,), 0, len(labels))
        return _samples(number * count + row, image_labels[row])

    return TaskGenerator(
        lambda key: jnp.int32(-1),
        lambda number, key: number + 1,
        draw,
        most_tasks=MAX_SAMPLES // count,
    )


@checked
def label_permuted_tasks(labels: Labels, classes: PositiveInt) -> TaskGenerator:
    """Return tasks with all images, each with its own permutation of the labels.

    Args:
      labels: class of each training image, `[n]`; the images are the first n of the data set.
      classes: number of classes.

    Raises:
      ValueError: a label is not below `classes`.
    """
    check_range("labels", labels, 0, classes - 1)
    image_labels = jnp.asarray(labels, jnp.int32)

    def draw(names: Int[Array, "c"], size: int, key: PRNGKeyArray) -> Samples:
        row = jax.random.randint(key, (size,), 0, len(labels))
        return _samples(row, names[image_labels[row]])

    return TaskGenerator(
        lambda key: jnp.arange(classes, dtype=jnp.int32),
        lambda names, key: jax.random.permutation(key, names),
        draw,
    )


class PairState(NamedTuple):
    """State of tasks of two classes."""

    order: Int[Array, "c"]
    """Random order of the classes."""
    position: Int[Array, ""]
    """Place of the task's first class in the order."""


@checked
def class_pair_tasks(train_labels: Labels, test_labels: TestLabels) -> TaskGenerator:
    """Return tasks of two classes each, labelled 0 and 1 (continual ImageNet, Dohare et al. 2024).

    Pairs follow a random order of the classes; when fewer than two are left, a new order begins.
    Both classes of a task are drawn with equal probability. Before every task the layer named head
    is set to 0, as in that paper, because its outputs get another meaning.

    Args:
      train_labels: class of each training image, `[n]`; the images are the first of the data set.
      test_labels: class of each test image, `[m]`; the images follow the training images.

    Raises:
      ValueError: there is one class, or a class has no training or no test image.
    """
    trained_classes, tested_classes = np.unique(train_labels), np.unique(test_labels)
    classes = len(trained_classes)
    if trained_classes[-1] != classes - 1 or classes < 2:
        raise ArgumentError("train_labels leaves out a class or has only one; number them from 0")
    if not np.array_equal(trained_classes, tested_classes):
        raise ArgumentError("test_labels has other classes than train_labels; give the same ones")
    train, train_sizes = _rows_by_class(train_labels, 0)
    test, test_sizes = _rows_by_class(test_labels, len(train_labels))

    def begin(key: PRNGKeyArray) -> PairState:
        return PairState(jax.random.permutation(key, classes).astype(jnp.int32), jnp.int32(-2))

    def next_task(state: PairState, key: PRNGKeyArray) -> PairState:
        position = state.position + 2
        over = position + 2 > classes
        renewed = jax.random.permutation(key, classes).astype(jnp.int32)
        return PairState(jnp.where(over, renewed, state.order), jnp.where(over, 0, position))

    def pair(state: PairState) -> Int[Array, "2"]:
        return jax.lax.dynamic_slice(state.order, (state.position,), (2,))

    def draw(state: PairState, size: int, key: PRNGKeyArray) -> Samples:
        key_label, key_row = jax.random.split(key)
        label = jax.random.bernoulli(key_label, shape=(size,)).astype(jnp.int32)
        drawn = pair(state)[label]
        row = jax.random.randint(key_row, (size,), 0, train_sizes[drawn])
        return _samples(train[drawn, row], label)

    def test_samples(state: PairState) -> Samples:
        both = pair(state)
        label = jnp.repeat(jnp.arange(2, dtype=jnp.int32), test.shape[1])
        mask = jnp.arange(test.shape[1]) < test_sizes[both][:, None]
        return _samples(test[both].reshape(-1), label)._replace(mask=mask.reshape(-1))

    def without_head(params: dict) -> dict:
        return {**params, "head": jax.tree.map(jnp.zeros_like, params["head"])}

    return TaskGenerator(begin, next_task, draw, test_samples, without_head)


def _samples(index: Int[Array, "b"], label: Int[Array, "b"]) -> Samples:
    mask: Bool[Array, "b"] = jnp.ones(index.shape, bool)
    return Samples(index.astype(jnp.int32), label[:, None].astype(jnp.int32), mask)


def _rows_by_class(
    labels: Int[np.ndarray, "n"], start: int
) -> tuple[Int[Array, "c m"], Int[Array, "c"]]:
    """Return the rows of each class, padded with its first one, and how many there are."""
    sizes = np.bincount(labels)
    rows = np.empty((len(sizes), sizes.max()), np.int32)
    for number, size in enumerate(sizes):
        members = np.flatnonzero(labels == number)
        rows[number] = members[0]
        rows[number, :size] = members
    return jnp.asarray(rows + start), jnp.asarray(sizes, jnp.int32)
