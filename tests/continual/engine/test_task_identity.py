"""Task-aware scoring takes `predict_task` with the sample's task; nothing else does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.engine import Protocol, Run, evaluate, run_sequence
from everlight.continual.strategies.naive import naive
from everlight.scenarios import class_incremental, experience_sequence
from tests.continual.engine.short_runs import SEQUENCE, TASKS
from tests.continual.small_net import CLASSES, LABELS, small_learner, small_setup

# Classes 0, 1 and 2 have a test sample more than the others.
TEST = LABELS[:33]
# The answer with the task identity is the rarer class of the task; another task's answer is
# none of its classes, so the first would be taken. Without it the answer is always class 1.
ANSWERS, CLASS_INCREMENTAL_ANSWER = jnp.array([4, 5, 3]), 1
COUNTS = np.bincount(TEST, minlength=CLASSES)
TESTS = len(LABELS) + np.arange(len(TEST))


def answer(setup):
    """Return a strategy that predicts its task's class, or a constant without the task identity."""

    def task_aware(memory, learner, inputs, task):
        return jnp.broadcast_to(jax.nn.one_hot(ANSWERS[task], CLASSES), (len(inputs), CLASSES))

    def class_incremental_scores(memory, learner, inputs):
        return jnp.broadcast_to(
            jax.nn.one_hot(CLASS_INCREMENTAL_ANSWER, CLASSES), (len(inputs), CLASSES)
        )

    return naive(setup)._replace(predict=class_incremental_scores, predict_task=task_aware)


def share(task, label):
    """Return the share of a class among the task's test samples."""
    return COUNTS[label] / COUNTS[TASKS[task]].sum()


def row_of(sequence, size):
    setup = small_setup()
    learner = small_learner(setup, range(CLASSES))
    return jax.jit(lambda: evaluate(setup, answer(setup), (), learner, sequence, size))()


@pytest.mark.parametrize("size", [4, 7, 64])
def test_predictions_use_the_task_of_the_sample(size):
    row = row_of(SEQUENCE, size)
    expected = [share(0, 4), share(1, 5), share(2, 3)]
    np.testing.assert_allclose(row.task_masked, expected, rtol=1e-6)
    np.testing.assert_allclose(
        row.class_incremental, [share(0, CLASS_INCREMENTAL_ANSWER), 0, 0], rtol=1e-6
    )


def test_without_predict_task_both_scores_are_predict_s():
    setup = small_setup()
    learner = small_learner(setup, range(CLASSES))
    strategy = answer(setup)._replace(predict_task=None)
    row = evaluate(setup, strategy, (), learner, SEQUENCE, 7)
    # Among classes that all have score 0 the first is taken.
    expected = [share(0, CLASS_INCREMENTAL_ANSWER), share(1, 0), share(2, 2)]
    np.testing.assert_allclose(row.task_masked, expected, rtol=1e-6)


def test_sequences_have_the_task_identity_in_every_row_and_in_no_validation():
    """Validation is class-incremental: the answer without the task identity is used."""
    validated = class_incremental(LABELS, TEST, TASKS, CLASSES, 0.4, test_offset=0)

    def build(_):
        setup = small_setup()
        return setup, answer(setup)

    protocol = Protocol(epochs=1, batch_size=8, evaluation_batch=5)
    result = jax.jit(
        lambda: run_sequence(Run(build, protocol, None, validated, jax.random.key(0)))
    )()
    task_aware = [share(0, 4), share(1, 5), share(2, 3)]
    np.testing.assert_allclose(result.evaluation.task_masked, [task_aware] * 3, rtol=1e-6)
    without_identity = [share(0, CLASS_INCREMENTAL_ANSWER), 0, 0]
    np.testing.assert_allclose(
        result.evaluation.class_incremental, [without_identity] * 3, rtol=1e-6
    )
    valid = validated.tasks.valid
    right = np.sum(
        np.asarray(valid.mask) & (np.asarray(valid.labels)[..., 0] == CLASS_INCREMENTAL_ANSWER),
        axis=1,
    )
    expected = right / np.asarray(valid.mask).sum(axis=1)
    assert 0 < expected[0] < 1
    np.testing.assert_allclose(result.validation[:, 0], expected, rtol=1e-6)


def test_a_test_set_of_several_tasks_has_no_task_identity():
    """The number of the test set, 0, is no task identity, with which HAT would use one task."""
    train = [np.flatnonzero(np.isin(LABELS, task)) for task in TASKS]
    sequence = experience_sequence(
        train, [LABELS[places] for places in train], [TESTS], [TEST], CLASSES
    )
    row = row_of(sequence, 7)
    assert COUNTS[CLASS_INCREMENTAL_ANSWER] != COUNTS[ANSWERS[0]]
    np.testing.assert_allclose(row.task_masked, [COUNTS[CLASS_INCREMENTAL_ANSWER] / 33], rtol=1e-6)
    np.testing.assert_array_equal(row.task_masked, row.class_incremental)


def test_a_sample_of_two_tasks_test_sets_has_no_task_identity():
    """Its first task would be the wrong identity where it counts for the other task."""
    train = [np.flatnonzero(np.isin(LABELS, task)) for task in TASKS]
    # All train and test all classes of the first two tasks; the third has its own.
    both = np.flatnonzero(np.isin(TEST, [4, 1, 0, 5]))
    train = [np.concatenate(train[:2])] * 2 + [train[2]]
    test = [both, both, np.flatnonzero(np.isin(TEST, TASKS[2]))]
    labels = [LABELS[places] for places in train], [TEST[places] for places in test]
    test = [TESTS[places] for places in test]
    sequence = experience_sequence(train, labels[0], test, labels[1], CLASSES)
    row = row_of(sequence, 7)
    without_identity = COUNTS[CLASS_INCREMENTAL_ANSWER] / len(both)
    np.testing.assert_allclose(
        row.task_masked, [without_identity, without_identity, share(2, 3)], rtol=1e-6
    )
