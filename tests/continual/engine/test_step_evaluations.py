"""Evaluations every few steps within tasks, against runs that end there."""

from dataclasses import replace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.engine import Protocol, Run, run_sequence
from everlight.continual.strategies import experience_replay, gdumb, icarl, naive
from everlight.metrics import accuracies_in_order
from tests.continual.engine.short_runs import KEY, SEQUENCE, SIZES, run_of, trained
from tests.single_run import drive_run

INTERVAL = 3
PLAIN = Protocol(epochs=2, batch_size=2, select="last", evaluation_batch=32)
PROTOCOL = replace(PLAIN, evaluate_steps=INTERVAL)


def taken(tree, place):
    return jax.tree.map(lambda leaf: leaf[place], tree)


def test_an_evaluation_within_the_first_task_equals_the_end_of_a_shorter_run():
    within = trained(naive, replace(PROTOCOL, epochs=1)).within_tasks
    places = np.flatnonzero(within.steps[0, 0])
    assert len(places) == -(-SIZES[0] // (2 * INTERVAL)) > 2
    steps = INTERVAL * 2
    assert int(within.steps[0, 0, 1]) == steps
    ended = trained(naive, replace(PLAIN, epochs=1, epoch_steps=steps)).evaluation
    chex.assert_trees_all_close(taken(within.evaluation, (0, 0, 1)), taken(ended, 0), atol=1e-6)


@pytest.mark.parametrize("strategy", [naive, experience_replay])
def test_an_epoch_ends_with_an_evaluation_and_no_evaluation_changes_the_training(strategy):
    result, without = trained(strategy, PROTOCOL), trained(strategy, PLAIN)
    chex.assert_trees_all_equal(result.learner.params, without.learner.params)
    chex.assert_trees_all_equal(result.evaluation, without.evaluation)
    assert without.within_tasks is None
    steps = np.asarray(result.within_tasks.steps)
    # Two epochs per task, each of which evaluates after every third step and its last.
    per_epoch = -(-SIZES // 2)
    np.testing.assert_array_equal(
        (steps > 0).sum(axis=2), np.stack([-(-per_epoch // INTERVAL)] * 2).T
    )
    ends = np.cumsum(np.repeat(per_epoch, 2)).reshape(3, 2)
    np.testing.assert_array_equal(steps.max(axis=2), ends)
    last = (steps[:, 1] > 0).sum(axis=1) - 1
    for task in range(3):
        row = taken(result.within_tasks.evaluation, (task, 1, last[task]))
        chex.assert_trees_all_close(row, taken(result.evaluation, task), atol=1e-6)


def test_epochs_that_repeat_stored_samples_are_evaluated_to_their_end():
    """iCaRL's epochs grow with its exemplars; the shape is that of the longest."""
    result = trained(lambda setup: icarl(setup, buffer_size=12), PROTOCOL)
    steps = np.asarray(result.within_tasks.steps)
    np.testing.assert_array_equal(steps.max(axis=(1, 2)), result.usage.steps)
    assert (steps[0] > 0).sum() < (steps[2] > 0).sum()


def test_every_evaluation_counts_where_the_steps_on_batches_train_nothing():
    """GDumb is evaluated at the same batches as naive; each evaluation trains a new network."""

    def few_epochs(setup):
        return gdumb(setup, buffer_size=12, epochs=2, batch_size=4)

    protocol = replace(PROTOCOL, updates_per_batch=2)
    plain, result = trained(naive, protocol), trained(few_epochs, protocol)
    expected, steps = np.asarray(plain.within_tasks.steps), np.asarray(result.within_tasks.steps)
    np.testing.assert_array_equal(expected.max(axis=(1, 2)), plain.usage.steps)
    np.testing.assert_array_equal(steps[0], expected[0])
    accuracies = np.asarray(result.within_tasks.evaluation.class_incremental)
    after = np.asarray(result.evaluation.class_incremental)
    np.testing.assert_array_equal(np.isfinite(accuracies).all(axis=-1), expected > 0)
    in_order = accuracies_in_order(accuracies, steps, after).reshape(3, -1, 3)
    np.testing.assert_array_equal(in_order[:, -1], after)
    count = np.isfinite(in_order).all(axis=-1).sum(axis=1)
    np.testing.assert_array_equal(count, (expected > 0).sum(axis=(1, 2)))


def test_missing_evaluations_are_nan_in_compiled_driven_and_vmapped_runs():
    states = list(drive_run(run_of(naive, PROTOCOL)))
    compiled = trained(naive, PROTOCOL).within_tasks
    assert np.isnan(states[0].result.within_tasks.evaluation.class_incremental[1:]).all()
    chex.assert_trees_all_equal(states[-1].result.within_tasks.steps, compiled.steps)
    chex.assert_trees_all_close(
        states[-1].result.within_tasks.evaluation, compiled.evaluation, atol=0.02
    )
    took_place = np.asarray(compiled.steps) > 0
    matrix = compiled.evaluation.class_incremental
    np.testing.assert_array_equal(np.isfinite(matrix).all(axis=-1), took_place)
    run = run_of(naive, PROTOCOL)
    keys = jnp.stack([KEY, jax.random.key(5)])
    both = jax.jit(
        jax.vmap(lambda key: run_sequence(Run(run.build, run.protocol, (), SEQUENCE, key)))
    )(keys)
    chex.assert_trees_all_equal(both.within_tasks.steps[0], compiled.steps)
    chex.assert_trees_all_close(
        both.within_tasks.evaluation.class_incremental[0], matrix, atol=0.02
    )


def test_a_diverged_run_has_no_number_after_the_divergence():
    def exploding(setup):
        def loss(outputs, labels, seen):
            usual = setup.objective.loss(outputs, labels, seen)
            # Class 0 is learned in the second task.
            return jnp.where(labels[:, 0] == 0, jnp.inf, usual)

        return naive(setup._replace(objective=setup.objective._replace(loss=loss)))

    within = trained(exploding, PROTOCOL).within_tasks
    took_place = np.asarray(within.steps) > 0
    finite = np.isfinite(within.evaluation.class_incremental).all(axis=-1)
    assert finite[0][took_place[0]].all()
    assert not finite[2].any()
    assert not finite[1, 1].any()
