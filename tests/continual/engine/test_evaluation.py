"""Validation, scores and accuracy rows against float64 NumPy and hand-made scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import Predictions, Samples, Task, TaskSequence
from everlight.continual.engine import evaluate, predict_samples, sample_features, validate
from everlight.continual.objectives.multilabel import label_scores
from everlight.continual.objectives.softmax import accuracy_per_sample, accuracy_row
from everlight.continual.strategies.naive import naive
from tests.continual import small_net as net
from tests.continual.many_labels import PAIRS, binary_setup
from tests.continual.small_net import CLASSES, HIDDEN, LABELS, START, STORED

KEY = jax.random.key(0)
SEEN = [0, 1, 3, 4]
# Nine samples have seen classes, with padding before, between and after them.
VALID_INDEX = np.array([5, 0, 1, 3, 2, 4, 6, 8, 7, 9, 10, 12, 11, 5])
VALID_MASK = np.isin(VALID_INDEX % 6, SEEN)
VALID = VALID_INDEX[VALID_MASK]


def label_score(setup):
    """Return a setup whose metric is the label's score, so that no error is rounded away."""

    def metric(scores, labels, seen):
        return jnp.take_along_axis(scores, labels, axis=1)[:, 0]

    return setup._replace(objective=setup.objective._replace(metric=metric))


@pytest.mark.parametrize("size", [4, 64])
def test_validation_is_the_mean_metric_in_evaluation_mode(size):
    plain = net.small_setup()
    learner = net.small_learner(plain, SEEN)
    ruined = net.samples_of(VALID_INDEX, VALID_MASK)._replace(
        index=jnp.where(VALID_MASK, VALID_INDEX, STORED + 50)
    )
    logits = net.forward(START, VALID)[2]
    guess = np.argmax(np.where(net.classes_mask(SEEN), logits, -np.inf), axis=1)
    hits = np.mean(guess == LABELS[VALID])
    assert 0 < hits < 1
    correct_scores = logits[np.arange(len(VALID)), LABELS[VALID]].mean()
    for setup, expected in ((plain, hits), (label_score(plain), correct_scores)):
        program = jax.jit(
            lambda learner, samples, setup=setup: validate(
                setup, naive(setup), (), learner, samples, size, KEY
            )
        )
        for samples in (net.samples_of(VALID_INDEX, VALID_MASK), ruined):
            result = program(learner, samples)
            np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("size", [5, 64])
def test_scores_are_the_network_s_for_every_sample(size):
    setup = net.small_setup()
    learner = net.small_learner(setup, SEEN)
    samples = net.samples_of(VALID_INDEX, VALID_MASK)
    program = jax.jit(lambda s: predict_samples(setup, naive(setup), (), learner, s, size))
    result = program(samples)
    assert result.shape == (len(VALID_INDEX), CLASSES)
    np.testing.assert_allclose(
        result[VALID_MASK], net.forward(START, VALID)[2], rtol=1e-4, atol=1e-6
    )


def counting_passes(setup):
    """Return the setup, and a list that grows with every forward pass in evaluation."""
    passes = []

    def gather(index, key):
        jax.debug.callback(lambda: passes.append(1))
        return setup.gather(index, key)

    return setup._replace(gather=gather), passes


@pytest.mark.parametrize("size", [5, 64, None])
def test_features_are_the_network_s_in_evaluation_mode(size):
    """The content and the place of the padding have no effect, and no pass is spent on it."""
    counted, passes = counting_passes(net.small_setup())
    index = np.append(VALID_INDEX, [STORED + 9] * 11)
    mask = np.append(VALID_MASK, [False] * 11)
    ruined = net.samples_of(np.where(mask, index, 0), mask)
    ruined = ruined._replace(index=jnp.where(mask, index, STORED + 9))
    learner = net.small_learner(counted, SEEN)
    size = {} if size is None else {"size": size}
    result = jax.jit(lambda s: sample_features(counted, learner, s, **size))(ruined)
    jax.effects_barrier()
    assert result.shape == (25, HIDDEN)
    np.testing.assert_allclose(result[mask], net.forward(START, VALID)[1], rtol=1e-4, atol=1e-6)
    # Nine samples.
    assert len(passes) == {5: 2, 64: 1}.get(size.get("size"), 1)


def three_tasks():
    """Return classes 0 and 2 in task 0, 1 and 3 in task 1, and a task 2 without test samples."""
    classes = jnp.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]], bool)
    test = Samples(
        jnp.arange(6), jnp.array([0, 2, 2, 1, 3, 0])[:, None], jnp.array([1, 1, 1, 1, 1, 0], bool)
    )
    train = jax.tree.map(lambda leaf: jnp.zeros((3, *leaf.shape), leaf.dtype), test)
    return TaskSequence(
        Task(train, train, classes, jnp.arange(3)),
        test,
        jnp.array([0, 0, 0, 1, 1, 0]) == jnp.arange(3)[:, None],
        jnp.array([0, 1, 0, 1]),
        jnp.array([0, 1, 0, 1]) == jnp.arange(3)[:, None],
    )


def test_rows_of_both_accuracies_by_hand():
    sequence = three_tasks()
    scores = jnp.array(
        [
            # Columns: label; guess among all, among the first task's 0 and 2, among the own task's.
            [0.5, 0.9, 0.1, 0.0],  # 0: 1, 0, 0
            [0.1, 0.2, 0.3, 0.0],  # 2: 2, 2, 2
            [0.4, 0.0, 0.3, 0.0],  # 2: 0, 0, 0
            [0.9, 0.5, 0.0, 0.1],  # 1: 0, 0, 1
            [0.0, 0.1, 0.2, 0.9],  # 3: 3, 2, 3
            [9.0, 0.0, 0.0, 0.0],  # Padding that would be right.
        ]
    )

    @jax.jit
    def row_of(seen):
        correct_scores = jnp.argmax(sequence.test_member, axis=0)
        masks = sequence.test_classes[correct_scores]
        predictions = Predictions(
            scores, scores, sequence.test.labels, correct_scores, sequence.class_task, masks
        )
        return accuracy_row(sequence, accuracy_per_sample(predictions, seen), seen)

    row = row_of(jnp.ones(4, bool))
    np.testing.assert_allclose(row.class_incremental, [1 / 3, 1 / 2, 0], rtol=1e-6)
    np.testing.assert_allclose(row.task_masked, [2 / 3, 1, 0], rtol=1e-6)
    row = row_of(jnp.array([True, False, True, False]))
    np.testing.assert_allclose(row.class_incremental, [2 / 3, 0, 0], rtol=1e-6)
    np.testing.assert_allclose(row.task_masked, [2 / 3, 1, 0], rtol=1e-6)


# Tasks to come. Of eight IIRC test samples some belong to two tasks; the last one is padding.

STARTS = jnp.array([[1, 1, 0, 1, 0, 0, 1, 0], [0, 1, 1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 1, 1, 0, 0]])


def refined_tasks():
    test = Samples(jnp.arange(8), jnp.asarray(PAIRS[:8]), jnp.array([1, 1, 1, 1, 1, 1, 1, 0], bool))
    classes = jnp.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]], bool)
    train = jax.tree.map(lambda leaf: jnp.zeros((3, *leaf.shape), leaf.dtype), test)
    return TaskSequence(
        Task(train, train, classes, jnp.arange(3)),
        test,
        STARTS.astype(bool),
        jnp.array([0, 0, 1, 1, 2, 2]),
        jnp.array([0, 0, 1, 1, 2, 2]) == jnp.arange(3)[:, None],
    )


def evaluations(setup, size):
    """Return the result of every task's evaluation, and its number of passes."""
    counted, passes = counting_passes(setup)
    sequence, rows, taken = refined_tasks(), [], []
    program = jax.jit(
        lambda learner: evaluate(counted, naive(counted), (), learner, sequence, size)
    )
    for number in range(3):
        learner = net.small_learner(setup, range(2 * number + 2))
        rows.append(np.asarray(program(learner)))
        jax.effects_barrier()
        taken.append(len(passes) - sum(taken))
    return np.stack(rows), taken


@pytest.mark.parametrize(
    ("size", "with_future", "without"), [(1, [7, 7, 7], [4, 5, 7]), (3, [3] * 3, [2, 2, 3])]
)
def test_no_pass_is_spent_on_tasks_to_come(size, with_future, without):
    """The first task has four of the seven samples, and the second brings one."""
    setup = binary_setup()
    assert not setup.objective.evaluates_unseen_classes
    full = setup._replace(objective=setup.objective._replace(evaluates_unseen_classes=True))
    complete, taken = evaluations(full, size)
    assert taken == with_future
    stored, taken = evaluations(setup, size)
    assert taken == without
    reached = np.cumsum(STARTS, axis=0) > 0
    np.testing.assert_array_equal(stored, np.where(reached[:, :, None], complete, 0))
    assert np.any(stored != complete)


def test_iirc_s_scores_read_nothing_of_tasks_to_come():
    """All scores, and the report's, are the same to the bit."""
    sequence, setup = refined_tasks(), binary_setup()
    full = setup._replace(objective=setup.objective._replace(evaluates_unseen_classes=True))
    outcomes = []
    for evaluated in (setup, full):
        predicted, _ = evaluations(evaluated, 4)
        superclass = np.full(sequence.class_task.shape, -1)
        outcomes.append(label_scores(sequence, predicted, superclass))
    jax.tree.map(np.testing.assert_array_equal, *outcomes)
    assert np.nanmax(outcomes[0].means.by_task.precision_weighted_jaccard) > 0
