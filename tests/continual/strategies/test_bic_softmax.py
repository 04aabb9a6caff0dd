"""BiC with softmax, as Wu et al. coded it, against float64 NumPy and SciPy's minimizer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from everlight.base import Outputs
from everlight.continual.strategies.bic import bic
from everlight.continual.strategies.parts.bias_correction import fit_pair
from everlight.continual.strategies.parts.distillation import label_softmax
from tests.continual import small_net as net
from tests.continual.many_labels import OLD, labelled, mean_gradient, teacher_logits
from tests.continual.small_net import CLASSES, LABELS, START
from tests.continual.strategies.references.bic_second_task import (
    CORRECTION,
    IDENTITY,
    INDEX,
    KEY,
    KNOWN,
    NEW,
    SCALE,
    SEEN,
    SHIFT,
    STORED,
    memory_with,
)

SINGLE = net.small_setup()
NEW_SAMPLES = net.samples_of([2, 8, 3, 9])
SECOND = net.task_of(1, [2, 3], NEW_SAMPLES)


def log_softmax(logits, among):
    return logits - logsumexp(logits[:, among], axis=1, keepdims=True)


def second_task(strategy, train=NEW_SAMPLES):
    """Return the memory in the second task; the network before it is OLD, after correction."""
    learner = net.small_learner(SINGLE, np.flatnonzero(SEEN), OLD)
    memory = strategy.init(KEY, learner)._replace(correction=CORRECTION)
    task = net.task_of(1, [2, 3], train)
    return strategy.begin_task(memory, learner, task, KEY)[0], task


@pytest.mark.parametrize(("arguments", "current"), [({}, 0), ({"corrections": "all"}, 1)])
def test_stage_1_with_softmax(arguments, current):
    """The old network is corrected in both forms, the one that learns in FACIL's alone.

    Samples have one label; the old network's softmax runs over the classes it knew.
    """
    strategy = net.compiled(bic(SINGLE, exemplars_per_class=2, **arguments))
    scale, shift = (SCALE, SHIFT) if current else (1.0, 0.0)
    learner = net.small_learner(SINGLE, np.flatnonzero(SEEN))
    index = STORED[STORED % CLASSES != 5]
    batch = net.filled(SINGLE, net.batch_of([*index, 8], [1] * len(index) + [0]))
    memory, task = second_task(strategy)
    gradient, info = strategy.grads(memory, learner, batch, task, KEY)
    logits = scale * net.forward(START, index, train=True)[2] + shift
    soft = softmax((SCALE * teacher_logits(OLD, index) + SHIFT)[:, KNOWN] / 2, axis=1)
    current = np.eye(CLASSES)[LABELS[index]]
    entropy = -np.sum(current * log_softmax(logits, SEEN), axis=1)
    stored = -np.sum(soft * log_softmax(logits / 2, KNOWN)[:, KNOWN], axis=1)
    np.testing.assert_allclose(info.loss, np.mean(0.4 * entropy + 0.6 * stored), rtol=1e-5)
    slope = 0.4 * (SEEN * np.exp(log_softmax(logits, SEEN)) - current)
    slope[:, KNOWN] += 0.6 * (softmax(logits[:, KNOWN] / 2, axis=1) - soft) / 2
    net.assert_trees_close(gradient, mean_gradient(START, index, scale * slope), atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "penalty"),
    [
        ({}, (0, 0.05)),
        ({"ridge": 0.2}, (0, 0.2)),
        ({"corrections": "all"}, (1e-3, 1e-3)),
        ({"corrections": "all", "ridge": 0.01}, (0.01, 0.01)),
    ],
)
def test_stage_2_with_softmax_weighs_new_classes_against_old_ones(arguments, penalty):
    """Old classes' logits stay, or are corrected in FACIL's form; only the shift is penalized."""
    # No scale and shift of two classes separates these labels.
    index = np.array([0, 1, 2, 3, 4, 8, 9, 12, 14, 18, 39, 39])
    held_out = net.samples_of(index, np.arange(12) < 10)
    strategy = net.compiled(bic(SINGLE, exemplars_per_class=20, **arguments))
    memory, task = second_task(strategy)
    memory = memory._replace(held_out=held_out)
    learner = net.small_learner(SINGLE, np.flatnonzero(SEEN), OLD)
    after, _ = strategy.end_task(memory, learner, task, KEY)
    logits, one_hot = net.forward(OLD, index[:10])[2], np.eye(CLASSES)[LABELS[index[:10]]]
    complete = "corrections" in arguments
    scales, shifts = (SCALE, SHIFT) if complete else (np.ones(CLASSES), np.zeros(CLASSES))

    def objective(pair):
        z = np.where(NEW, pair[0] * logits + pair[1], scales * logits + shifts)
        entropy = -np.mean(np.sum(one_hot * log_softmax(z, SEEN), axis=1))
        return entropy + penalty[0] * (pair[0] - 1) ** 2 + penalty[1] * pair[1] ** 2

    result = minimize(objective, [1.0, 0.0], method="BFGS", options={"gtol": 1e-9})
    scale, shift = result.x
    assert abs(scale - 1) > 0.1
    np.testing.assert_allclose(after.correction.scale[NEW], scale, rtol=2e-3)
    np.testing.assert_allclose(after.correction.shift[NEW], shift, rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(after.correction.scale[~NEW], np.float32(scales[~NEW]))
    np.testing.assert_allclose(after.correction.shift[~NEW], np.float32(shifts[~NEW]))
    inputs = SINGLE.gather(jnp.asarray(index), None)
    expected = np.where(NEW, scale, scales) * net.forward(OLD, index)[2] + np.where(
        NEW, shift, shifts
    )
    np.testing.assert_allclose(
        strategy.predict(after, learner, inputs), expected, rtol=5e-3, atol=5e-3
    )


def test_with_softmax_only_the_last_task_s_classes_are_corrected():
    """The earlier correction goes to the old network, and is then dropped."""
    parts = [([0, 1], [0, 6, 12, 18, 1, 7, 13, 19]), ([2, 3], [2, 8, 14, 20, 3, 9, 15, 21])]
    parts.append(([4], [4, 10, 16, 22, 28, 34]))
    tasks = [
        (net.task_of(number, classes, index), [index] * 2)
        for number, (classes, index) in enumerate(parts)
    ]
    strategy = net.compiled(bic(SINGLE, exemplars_per_class=20))
    first, second, third = (memory for memory, _ in net.run_tasks(SINGLE, strategy, tasks))
    scales = [np.asarray(memory.correction.scale) for memory in (first, second, third)]
    assert [np.flatnonzero(row != 1).tolist() for row in scales] == [[], [2, 3], [4]]
    for actual, expected in zip(third.old_correction, second.correction, strict=True):
        np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(second.old_correction.scale, 1)


def test_the_loss_is_that_of_the_number_of_labels():
    """One label takes the softmax (Wu et al.); a gradient shows which loss it is."""
    learner = net.small_learner(SINGLE, np.flatnonzero(SEEN))
    batch = net.filled(SINGLE, net.batch_of(STORED[STORED % CLASSES != 5]))

    def gradient(strategy):
        memory, task = second_task(strategy)
        return strategy.grads(memory, learner, batch, task, KEY)[0]

    by_default, binary = gradient(bic(SINGLE)), gradient(bic(SINGLE, loss="binary"))
    net.assert_trees_close(by_default, gradient(bic(SINGLE, loss="softmax")), rtol=0.0, atol=0.0)
    assert not np.allclose(by_default["head"], binary["head"])
    two = batch._replace(labels=jnp.pad(batch.labels, ((0, 0), (0, 1)), constant_values=-1))
    memory, task = second_task(bic(SINGLE, labels=2), labelled([2, 8, 3, 9]))
    result = bic(SINGLE, labels=2).grads(memory, learner, two, task, KEY)[0]
    net.assert_trees_close(result, binary, rtol=1e-6, atol=1e-7)


def test_the_first_task_with_softmax_is_cross_entropy():
    logits, labels = jnp.asarray(net.forward(START, INDEX)[2], jnp.float32), LABELS[INDEX][:, None]
    strategy = net.compiled(bic(SINGLE, exemplars_per_class=2, loss="softmax"))
    learner = net.small_learner(SINGLE, range(CLASSES))
    memory = memory_with(strategy, OLD, np.zeros(CLASSES, bool), IDENTITY)
    batch = net.filled(SINGLE, net.batch_of(INDEX))
    gradient, _ = strategy.grads(memory, learner, batch, SECOND, KEY)
    net.assert_trees_close(
        gradient, net.batch_gradient(START, INDEX, np.ones(CLASSES, bool)), atol=1e-6
    )
    expected = SINGLE.objective.loss(Outputs(logits, logits), jnp.asarray(labels), learner.seen)
    result = label_softmax(logits, jnp.asarray(labels), learner.seen)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("gap", [0.5, 5.0, 40.0])
def test_samples_that_a_scale_separates_leave_it_finite(gap):
    """Without a penalty on it there is no minimum; it grows until the loss is as good as 0."""
    sign = jnp.array([1.0, -1.0, 1.0, -1.0])
    with jax.debug_nans(True):
        scale, shift = fit_pair(
            lambda pair: jnp.mean(jax.nn.softplus(-sign * (pair[0] * gap * sign + pair[1]))),
            jnp.array([0.0, 0.05]),
        )
    assert 1 <= scale < max(40 / gap, 1.5)
    assert np.log1p(np.exp(-scale * gap)) < 1e-3
    np.testing.assert_allclose(shift, 0, atol=1e-5)


def test_without_samples_the_scale_stays_at_one():
    """The curvature of a scale without penalty is 0 there."""
    with jax.debug_nans(True):
        pair = fit_pair(lambda pair: 0 * jnp.sum(pair), jnp.array([0.0, 0.05]))
    np.testing.assert_array_equal(pair, [1, 0])
