"""Selection of the best epoch where there is nothing to select it by, in both drivers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.engine import Protocol, Run, run_sequence
from everlight.continual.strategies.naive import naive
from everlight.scenarios.class_incremental import class_incremental
from tests.continual.small_net import CLASSES, LABELS, assert_trees_close, small_setup
from tests.single_run import drive_run

TASKS = ((0, 1, 2), (3, 4, 5))
KEY = jax.random.key(0)


@functools.cache
def sequence_with(fraction):
    """Return a sequence that trains on the first 30 samples, 5 per class, and tests the others."""
    return class_incremental(LABELS[:30], LABELS[30:], TASKS, CLASSES, valid_fraction=fraction)


def build(data):
    setup = small_setup()
    return setup, naive(setup)


def without_first_validation(sequence):
    valid = sequence.tasks.valid
    masked = valid._replace(mask=valid.mask.at[1].set(False))
    return sequence._replace(tasks=sequence.tasks._replace(valid=masked))


def run(protocol, sequence):
    return run_sequence(Run(build, protocol, (), sequence, KEY))


def drive(protocol, sequence):
    return list(drive_run(Run(build, protocol, (), sequence, KEY)))[-1].result


@pytest.mark.parametrize("driver", [run, drive])
def test_the_best_epoch_of_tasks_without_validation_is_refused(driver):
    best = Protocol(epochs=2, batch_size=8, select="best")
    with pytest.raises(ValueError, match="select='best', and task 0 has no validation samples"):
        driver(best, sequence_with(0.0))
    with pytest.raises(ValueError, match=r"and task 1 has no validation .* or select='last'"):
        driver(best, without_first_validation(sequence_with(0.2)))


@pytest.mark.parametrize("driver", [run, drive])
def test_a_rate_that_falls_by_validation_is_refused_without_validation(driver):
    falling = Protocol(epochs=2, batch_size=8, select="last", plateau_factor=0.1)
    with pytest.raises(ValueError, match=r"plateau_factor=0.1, and task 1 .* or plateau_factor=1"):
        driver(falling, without_first_validation(sequence_with(0.2)))


def test_a_rate_that_falls_by_validation_stays_where_nothing_is_validated():
    """The second task has no validation; the first one's rate falls after every epoch but one."""
    falling = Protocol(
        epochs=3,
        batch_size=8,
        select="last",
        plateau_factor=0.5,
        plateau_patience=0,
        plateau_threshold=2.0,
        new_optimizer=False,
    )
    sequence = sequence_with(0.2)
    program = jax.jit(functools.partial(run, falling))
    # No accuracy is an improvement by 2 but the first one, over minus infinity.
    assert program(sequence).learner.schedule.factor == 0.5**5
    assert program(without_first_validation(sequence)).learner.schedule.factor == 0.5**2
    assert program(sequence_with(0.0)).learner.schedule.factor == 1


def test_a_traced_sequence_without_validation_warns_and_keeps_the_last_epoch():
    """The task without validation keeps its last epoch; the other task's epoch is selected."""

    def trained(select, sequence):
        protocol = Protocol(epochs=3, batch_size=8, select=select)
        return jax.jit(functools.partial(run, protocol))(sequence)

    nothing = sequence_with(0.0)
    stored, last = trained("best", nothing), trained("last", nothing)
    assert np.all(np.isnan(stored.validation))
    assert_trees_close(stored.learner.params, last.learner.params, rtol=1e-6)
    half = trained("best", without_first_validation(sequence_with(0.2)))
    np.testing.assert_array_equal(np.isnan(half.validation), [[False] * 3, [True] * 3])
    assert jnp.all(jnp.isfinite(half.losses))
