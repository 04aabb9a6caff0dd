"""Streams without task boundaries: the softmax runs over the classes that have arrived."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax, softmax

from everlight.continual.engine import Run, Runs, drive_runs, online_protocol, run_sequence
from everlight.continual.engine.tasks import begin_state
from everlight.continual.strategies.naive import naive
from everlight.scenarios import class_incremental, pad_sequences
from tests.continual.engine.linear_net import (
    CLASSES,
    DATA,
    KEY,
    TEST,
    TRAIN,
    build_naive,
    linear_setup,
)
from tests.continual.engine.many_runs import ORDERS, copied
from tests.single_run import drive_run

# Tasks have four and two classes in batches of three: the first batch lacks one of them.
TASKS, BATCH = [[0, 1, 2, 3], [4, 5]], 3
PROTOCOL = online_protocol(BATCH)


def observed(learned):
    """Return a build whose steps append samples, labels, seen classes, task identity and loss."""

    def build(data):
        setup = linear_setup(data)
        strategy = naive(setup)

        def grads(memory, learner, batch, task, key):
            gradient, info = strategy.grads(memory, learner, batch, task, key)
            jax.debug.callback(
                lambda *step: learned.append(tuple(map(np.array, step))),
                *(batch.index, batch.labels[:, 0], batch.weight > 0, learner.seen),
                *(task.classes, task.id, info.loss),
                ordered=True,
            )
            return gradient, info

        return setup, strategy._replace(grads=grads)

    return build


def cross_entropy(logits, labels, seen):
    """Return the mean loss over the seen classes and its gradient by the logits."""
    among = np.where(seen, logits, -np.inf)
    rows = np.arange(len(labels))
    loss = -log_softmax(among, axis=1)[rows, labels].mean()
    return loss, (softmax(among, axis=1) - np.eye(CLASSES)[labels]) / len(labels)


def test_a_stream_without_boundaries_is_the_loop_in_float64():
    """Momentum descent is computed by hand; the first loss has the first batch's classes alone."""
    learned = []
    sequence = class_incremental(TRAIN, TEST, TASKS, CLASSES)
    *_, state = drive_run(Run(observed(learned), PROTOCOL, DATA, sequence, KEY))
    jax.effects_barrier()
    start = begin_state(Run(build_naive, PROTOCOL, DATA, sequence, KEY)).result.learner.params
    start = np.asarray(start["kernel"], float)
    inputs, kernel, velocity = np.asarray(DATA, float), start, np.zeros_like(start)
    so_far: set[int] = set()
    losses = []
    for index, labels, real, seen, known_boundary, number, loss in learned:
        assert not known_boundary.any()
        assert number == 0
        so_far |= set(labels[real].tolist())
        assert set(np.flatnonzero(seen)) == so_far
        by_hand, slope = cross_entropy(inputs[index[real]] @ kernel, labels[real], seen)
        np.testing.assert_allclose(loss, by_hand, rtol=1e-4, atol=1e-6)
        velocity = 0.9 * velocity + inputs[index[real]].T @ slope
        kernel = kernel - 0.05 * velocity
        losses.append(by_hand)
    np.testing.assert_allclose(state.result.learner.params["kernel"], kernel, atol=1e-4)
    steps = np.asarray(state.result.usage.steps)
    means = [np.mean(part) for part in np.split(losses, steps[:-1])]
    np.testing.assert_allclose(state.result.losses[:, 0], means, rtol=1e-4)
    # At the first step two or three of the task's four classes are in the softmax.
    index, labels, *_ = learned[0]
    logits = inputs[index] @ start
    classes = sorted(set(labels.tolist()))
    assert len(classes) < len(TASKS[0])
    by_hand = np.mean(
        [np.log(np.exp(row[classes]).sum()) - row[c] for row, c in zip(logits, labels, strict=True)]
    )
    np.testing.assert_allclose(learned[0][-1], by_hand, rtol=1e-5)


def some_runs():
    sequences = pad_sequences([class_incremental(TRAIN, TEST, order, CLASSES) for order in ORDERS])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *sequences)
    return Runs(build_naive, PROTOCOL, DATA, stacked, jax.random.split(jax.random.key(4), 3))


def test_driven_and_vmapped_runs_equal_single_runs():
    runs = some_runs()
    *_, driven = map(copied, drive_runs(runs, 1))
    program = jax.jit(lambda s, k: run_sequence(Run(build_naive, PROTOCOL, DATA, s, k)))
    single = [
        program(*jax.tree.map(lambda leaf, n=number: leaf[n], (runs.sequence, runs.key)))
        for number in range(3)
    ]
    single = jax.tree.map(lambda *leaves: jnp.stack(leaves), *single)
    vmapped = jax.jit(jax.vmap(program))(runs.sequence, runs.key)
    for actual in (driven.result, vmapped):
        np.testing.assert_allclose(actual.losses, single.losses, atol=1e-5)
        chex.assert_trees_all_close(actual.learner.params, single.learner.params, atol=1e-4)
        chex.assert_trees_all_equal(actual.learner.seen, single.learner.seen)


def test_seen_classes_are_part_of_the_state_that_resumes():
    """Only the first task's two classes are seen after it, and the rest has the same bits."""
    states = list(map(copied, drive_runs(some_runs(), 1)))
    first = np.asarray(states[0].result.learner.seen)
    for seen, order in zip(first, ORDERS, strict=True):
        np.testing.assert_array_equal(np.flatnonzero(seen), np.sort(order[0]))
    *_, again = map(copied, drive_runs(some_runs(), 1, None, copied(states[0])))
    chex.assert_trees_all_equal(again, states[-1])
