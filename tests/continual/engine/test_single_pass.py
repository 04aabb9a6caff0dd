"""Strategies that only collect statistics count every sample once, whatever the protocol."""

from dataclasses import replace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual import strategies
from everlight.continual.engine import Protocol, Runs, run_sequence
from everlight.scenarios.class_incremental import class_incremental
from tests.continual.engine.short_runs import SIZES, TASKS, run_of, trained
from tests.continual.small_net import CLASSES, LABELS, START, forward
from tests.contracts.strategies import COUNTING, DATA, STRATEGIES, build_with
from tests.single_run import drive_run

ONCE = Protocol(epochs=1, batch_size=4, select="last", evaluation_batch=32)
PASS = -(-SIZES // 4)
"""Steps of one pass over each task."""
COLLECT = {
    "streaming LDA": strategies.streaming_lda,
    "nearest mean": strategies.nearest_mean,
    "SimpleCIL": strategies.simple_cil,
    "FeCAM": strategies.fecam,
    "RanDumb": lambda setup: strategies.randumb(setup, width=6),
    "RanPAC": lambda setup: strategies.ranpac(setup, width=6),
    "RanPAC, validated": lambda setup: strategies.ranpac(setup, width=6, ridge="validated"),
    "ACIL": lambda setup: strategies.acil(setup, width=6),
    "DS-AL": lambda setup: strategies.ds_al(setup, width=6),
}


def test_strategies_without_training_take_a_single_pass():
    result = {name for name in STRATEGIES if build_with(f"{name}, pass", name)(DATA)[1].single_pass}
    assert result == COUNTING


@pytest.mark.parametrize("name", COLLECT)
def test_memory_after_five_epochs_equals_memory_after_one(name):
    once, often = (trained(COLLECT[name], replace(ONCE, epochs=n)) for n in (1, 5))
    chex.assert_trees_all_equal(often.memory, once.memory)
    chex.assert_trees_all_equal(often.evaluation, once.evaluation)
    chex.assert_trees_all_equal(often.learner.params, once.learner.params)
    np.testing.assert_array_equal(often.usage.steps, np.cumsum(PASS))
    np.testing.assert_array_equal(often.losses, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 3},
        {"epochs": 2, "first_epochs": 5},
        {"epochs": 3, "updates_per_batch": 3},
        {"epochs": 2, "boundaries": False},
        {"epochs": 2, "evaluate_steps": 1},
        {"epochs": 2, "prequential": True},
        # The numbers of steps exceed a pass in all, in pieces shorter and longer than it.
        {"epochs": 9, "epoch_steps": 1},
        {"epochs": 2, "first_epochs": 1, "epoch_steps": 50},
    ],
    ids=str,
)
def test_means_count_every_sample_once(changes):
    """The reference is float64, from features in evaluation mode of what training sees."""
    memory = trained(strategies.nearest_mean, replace(ONCE, **changes)).memory
    np.testing.assert_array_equal(memory.count, np.bincount(LABELS, minlength=CLASSES))
    features = forward(START, np.arange(len(LABELS)), train=True)[1]
    means = np.stack([features[label == LABELS].mean(axis=0) for label in range(CLASSES)])
    np.testing.assert_allclose(memory.mean, means, rtol=1e-4, atol=1e-5)


def test_a_pass_has_no_more_steps_than_the_protocol_gives_a_task():
    """Two epochs of two steps give four batches of one sample; tasks have six samples or more."""
    protocol = replace(ONCE, batch_size=1, epochs=2, first_epochs=1, epoch_steps=2)
    result = trained(strategies.nearest_mean, protocol)
    np.testing.assert_array_equal(result.usage.steps, [2, 6, 10])
    assert result.memory.count.sum() == 10


def test_epochs_without_a_step_have_no_evaluation_and_no_prequential_metric():
    protocol = replace(ONCE, epochs=3, evaluate_steps=2, prequential=True, epoch_steps=1)
    result = trained(strategies.nearest_mean, protocol)
    assert np.isfinite(result.prequential[:, 0]).all()
    assert np.isnan(result.prequential[:, 1:]).all()
    assert not result.within_tasks.steps[:, 1:].any()
    np.testing.assert_array_equal((result.within_tasks.steps[:, 0] > 0).sum(axis=1), -(-3 // 2))
    first = trained(strategies.nearest_mean, replace(protocol, epochs=1, epoch_steps=3))
    np.testing.assert_array_equal(result.prequential[:, 0], first.prequential[:, 0])


@pytest.mark.parametrize("chunk", [1, 2])
def test_a_stopped_run_goes_on_without_counting_again(chunk):
    run = run_of(strategies.streaming_lda, replace(ONCE, epochs=3, prequential=True))
    full = jax.jit(run_sequence)(run)
    states = list(drive_run(run, chunk=chunk))
    assert [int(state.epoch) for state in states][:2] == ([1, 2] if chunk == 1 else [2, 0])
    for state in states[:-1]:
        *_, last = drive_run(run, state, chunk=chunk)
        chex.assert_trees_all_equal(last.result.memory, states[-1].result.memory)
        np.testing.assert_array_equal(last.result.prequential, states[-1].result.prequential)
    chex.assert_trees_all_close(states[-1].result.memory, full.memory, rtol=1e-5)
    np.testing.assert_array_equal(states[-1].result.losses, 0)


def test_only_samples_that_a_step_reads_are_announced():
    """Images that are read ahead for later epochs would never be fetched."""
    read = []
    run = run_of(strategies.nearest_mean, replace(ONCE, epochs=3))
    list(drive_run(run, announce=read.append))
    assert [len(item) for item in read] == [n for size in SIZES for n in (size, 0, 0)]


def test_the_best_epoch_keeps_the_statistics():
    sequence = class_incremental(LABELS, LABELS[:33], TASKS, CLASSES, 0.2, test_offset=0)
    once, often = (
        trained(strategies.nearest_mean, replace(ONCE, epochs=epochs, select="best"), sequence)
        for epochs in (1, 4)
    )
    chex.assert_trees_all_equal(often.memory, once.memory)
    np.testing.assert_array_equal(often.validation[:, 3], once.validation[:, 0])


def test_methods_that_train_take_all_their_epochs():
    result = trained(strategies.naive, replace(ONCE, epochs=3))
    np.testing.assert_array_equal(result.usage.steps, np.cumsum(3 * PASS))
    assert Runs.of(run_of(strategies.naive, ONCE)).protocol.epochs == 1
    assert jnp.all(result.losses > 0)
