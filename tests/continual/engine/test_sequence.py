"""Both drivers: the rhythm of evaluation, streams without boundaries, what is refused."""

import chex
import jax
import numpy as np
import pytest

from everlight.continual.engine import Run, StoredImages, operations_per_step, run_sequence
from everlight.continual.engine.protocol import Protocol, fixed_steps_protocol, online_protocol
from everlight.continual.strategies import ewc, expert_gate, gdumb, gem, joint, naive
from everlight.continual.strategies.balanced_replay import balanced_replay
from everlight.continual.strategies.experience_replay import experience_replay
from everlight.scenarios import class_incremental, online_stream
from tests.continual.engine.linear_net import (
    CLASSES,
    DATA,
    KEY,
    TEST,
    TRAIN,
    build_naive,
    built,
)
from tests.refusals import refused
from tests.single_run import drive_run

TASKS = [[0, 1], [2, 3], [4, 5]]
STREAM = online_stream(TRAIN, TEST, TASKS, CLASSES, pieces=2)


def both_drivers(build, protocol, sequence):
    compiled = jax.jit(lambda s: run_sequence(Run(build, protocol, DATA, s, KEY)))(sequence)
    *_, state = drive_run(Run(build, protocol, DATA, sequence, KEY))
    chex.assert_trees_all_close(compiled.losses, state.result.losses, atol=1e-4)
    chex.assert_trees_all_close(compiled.evaluation, state.result.evaluation, atol=0.04)
    return compiled


def test_evaluation_every_so_many_tasks_and_after_the_last():
    """The rows between are NaN; those measured are what an evaluation after every task gives."""
    labels = np.repeat(np.arange(CLASSES), 10)
    sequence = class_incremental(labels, TEST, [[c] for c in range(CLASSES - 1)] + [[5]], CLASSES)
    complete = both_drivers(build_naive, Protocol(epochs=1, batch_size=5), sequence)
    some = both_drivers(build_naive, Protocol(epochs=1, batch_size=5, evaluate_every=4), sequence)
    matrix = np.asarray(some.evaluation.class_incremental)
    np.testing.assert_array_equal(np.isfinite(matrix).all(axis=1), [0, 0, 0, 1, 0, 1])
    full = np.asarray(complete.evaluation.class_incremental)
    np.testing.assert_allclose(matrix[[3, 5]], full[[3, 5]])
    np.testing.assert_array_equal(some.usage.steps, complete.usage.steps)


def test_a_stream_without_boundaries_is_one_pass():
    """Six pieces of ten samples are learned in steps of five; three accuracies follow each."""
    result = both_drivers(build_naive, online_protocol(5), STREAM)
    np.testing.assert_array_equal(result.usage.steps, [2, 4, 6, 8, 10, 12])
    assert result.evaluation.class_incremental.shape == (6, 3)
    assert np.isnan(result.validation).all()
    assert np.diag(result.evaluation.task_masked[1::2]).min() > 0.9


def test_a_run_refuses_samples_beyond_its_images():
    """A compiled program would gather other images in their place."""
    stored = StoredImages.of(np.zeros((60, 2, 2, 1), np.uint8), np.zeros(1), np.ones(1))
    with pytest.raises(ValueError, match=r"sequence\.test\.index holds 60; give 0 to 59"):
        Run(build_naive, online_protocol(5), stored, STREAM, KEY)


def test_a_run_refuses_another_build_or_key():
    """Errors of JAX and Python from within a compiled program would not name them."""
    protocol = online_protocol(5)
    single = Run(lambda data: build_naive(data)[0], protocol, DATA, STREAM, KEY)
    refused(r"build returns Setup; .* the pair \(setup, strategy\)", single.setup_and_strategy)
    message = r"key=0; give a random key, such as jax\.random\.key\(0\)"
    refused(message, lambda: Run(build_naive, protocol, DATA, STREAM, 0))


def test_a_strategy_of_boundaries_is_refused_on_a_stream_without_boundaries():
    build = built(lambda setup: ewc(setup, 1.0))
    with pytest.raises(ValueError, match="the protocol has no boundaries"):
        run_sequence(Run(build, online_protocol(), DATA, STREAM, KEY))


@pytest.mark.parametrize(
    ("strategy", "stored"),
    [
        # There are twelve places, all taken within the first task of twenty samples.
        (lambda setup: experience_replay(setup, 12), [0, 12, 12]),
        (lambda setup: gdumb(setup, 12, epochs=1), [0, 12, 12]),
        # Two of every class are chosen at a task's end.
        (lambda setup: balanced_replay(setup, 2), [0, 4, 8]),
        (lambda setup: joint(setup, 3), [0, 20, 40]),
        (naive, [0, 0, 0]),
    ],
    ids=["reservoir", "GDumb", "replay", "joint", "naive"],
)
def test_stored_samples_are_of_earlier_tasks_alone(strategy, stored):
    sequence = class_incremental(TRAIN, TEST, TASKS, CLASSES, valid_fraction=0.0)
    protocol = Protocol(epochs=1, batch_size=5, select="last")
    *_, driven = drive_run(Run(built(strategy), protocol, DATA, sequence, KEY))
    compiled = jax.jit(lambda s: run_sequence(Run(built(strategy), protocol, DATA, s, KEY)))(
        sequence
    )
    np.testing.assert_array_equal(driven.result.usage.stored_samples, stored)
    np.testing.assert_array_equal(compiled.usage.stored_samples, stored)


def test_steps_on_memory_are_counted_and_cost_as_much_as_naive_s():
    """GDumb's two epochs on twelve samples are six steps of four, after each of three tasks."""
    build = built(lambda setup: gdumb(setup, 12, epochs=2, batch_size=4))
    sequence = class_incremental(TRAIN, TEST, TASKS, CLASSES, valid_fraction=0.0)
    protocol = Protocol(epochs=1, batch_size=10, select="last")
    *_, state = drive_run(Run(build, protocol, DATA, sequence, KEY))
    np.testing.assert_array_equal(state.result.usage.steps, [6, 12, 18])
    inputs = DATA, sequence, KEY
    of_naive = operations_per_step(Run(build_naive, Protocol(batch_size=4), *inputs))
    assert operations_per_step(Run(build, protocol, *inputs)) == of_naive


@pytest.mark.parametrize(
    "strategy",
    [
        lambda setup: joint(setup, 2),
        lambda setup: gem(setup, 2, 4),
        lambda setup: expert_gate(setup, 2, lambda inputs: inputs, hidden=2),
    ],
    ids=["joint", "GEM", "ExpertGate"],
)
def test_a_strategy_made_for_another_number_of_tasks_is_refused(strategy):
    sequence = class_incremental(TRAIN, TEST, TASKS, CLASSES)
    protocol = Protocol(epochs=1, select="last")
    refused = pytest.raises(ValueError, match="made with tasks=2, the sequence has 3; give tasks=3")
    with refused:
        run_sequence(Run(built(strategy), protocol, DATA, sequence, KEY))
    with refused:
        next(drive_run(Run(built(strategy), protocol, DATA, sequence, KEY)))


def test_the_first_task_and_later_tasks_have_fixed_steps():
    protocol = fixed_steps_protocol(12, 8, batch_size=4)
    assert [protocol.epochs_of(task) * protocol.epoch_steps for task in range(3)] == [12, 8, 8]
    assert (protocol.batch_size, protocol.select) == (4, "last")
