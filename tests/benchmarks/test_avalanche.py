"""The comparison with Avalanche: its arithmetic by hand, and the steps where Avalanche is there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.avalanche import runs
from benchmarks.avalanche.__main__ import main
from benchmarks.avalanche.cases import NAIVE, cases_of
from benchmarks.avalanche.comparison import accuracies, compare_steps, pair
from benchmarks.avalanche.equations import TheirPasses, TheirTurns, their_agem, their_replay
from benchmarks.avalanche.inputs import (
    BATCH,
    CLASSES,
    INPUTS,
    TASKS,
    Inputs,
    fixed_samples,
    over_seeds,
    task_order,
)
from everlight.base import Batch, Samples, Task
from everlight.models import MLP
from everlight_data.errors import DataError

WITHIN = 1e-5
NO_EFFECT = {"naive", "SI", "streaming LDA"}
"""Methods that leave Avalanche's net where plain finetuning does, or do not train it."""
SAME_AS_SHIPPED = {"naive", "LwF", "A-GEM", "ER", "streaming LDA"}


@pytest.fixture(scope="module")
def seeded():
    """Return noise of ten classes, 10 training images and 2 test images of each."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.repeat(np.arange(CLASSES), 10), np.repeat(np.arange(CLASSES), 2)])
    images = rng.normal(size=(len(labels), 4)).astype(np.float32)
    return over_seeds(Inputs(images, labels, 10 * CLASSES, MLP(CLASSES, (3,))), 2)[1]


@pytest.fixture(scope="module")
def steps():
    """Run every case step by step, where Avalanche is installed."""
    python = runs.avalanche_python()
    if python is None:
        pytest.skip(
            f"avalanche-lib is missing: install '.[bench]', or name a Python in {runs.VARIABLE}"
        )
    rows = compare_steps(python, INPUTS["digits"](), cases_of("steps"))
    return {row.case.name: row for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", [case.name for case in cases_of("steps")])
def test_with_avalanches_equation_the_weights_are_avalanches(steps, name):
    row = steps[name]
    assert row.with_equation < WITHIN
    if name not in NO_EFFECT:
        assert row.effect > 1_000 * WITHIN
    # Otherwise the equation explains nothing.
    assert (row.as_shipped < WITHIN) == (name in SAME_AS_SHIPPED)


@pytest.mark.slow
def test_avalanches_si_is_plain_finetuning_on_a_cpu(steps):
    assert steps["SI"].effect == 0


def test_accuracies_of_scores_that_know_the_task_alone_or_the_class(seeded):
    labels, order = seeded.inputs.labels[seeded.inputs.trained :], task_order(seeded.seed)
    right = np.eye(CLASSES)[labels]
    assert accuracies(right, seeded) == (1, 1)
    # The first class of the own task is right for half of the samples, masked or not.
    first = np.eye(CLASSES)[[row[0] for label in labels for row in order if label in row]]
    assert accuracies(first, seeded) == (0.5, 0.5)
    # One class wins all: masked to another task, its scores tie and half of the samples are right.
    constant = np.tile(np.arange(CLASSES) == order[0, 0], (len(labels), 1)).astype(float)
    assert accuracies(constant, seeded) == pytest.approx((0.5, 0.1))


def test_differences_are_paired_by_seed():
    actual, reference = np.array([0.5, 0.7, 0.9]), np.array([0.4, 0.7, 0.8])
    result = pair(np.array([actual, reference, reference]))
    assert result.means == pytest.approx([0.7, 1.9 / 3, 1.9 / 3])
    assert result.above == pytest.approx([0.2 / 3, 0])
    # The differences 0.1, 0, 0.1 have the deviation sqrt(0.01 / 3), over sqrt(3).
    assert result.errors == pytest.approx([0.1 / 3, 0])


def test_batches_are_cut_and_padded():
    batches = runs.cut([np.arange(20), np.arange(3)], epochs=1)
    assert batches.shape == (2, 1, 2, BATCH)
    assert batches[0].ravel().tolist() == [*range(20), *[-1] * 12]
    assert batches[1].ravel().tolist() == [0, 1, 2, *[-1] * 29]


@pytest.mark.slow
def test_the_batches_are_those_that_the_engine_takes(seeded):
    taken = runs.Trainer(NAIVE, epochs=2).batches(seeded)
    np.testing.assert_array_equal(runs.plain_batches(seeded, 2), taken)
    # Two classes have ten samples: sixteen per step, each sample once per epoch.
    assert taken.shape == (TASKS, 2, 2, BATCH)
    labels = seeded.inputs.labels[taken[3, 1][taken[3, 1] >= 0]]
    assert np.bincount(labels, minlength=CLASSES)[task_order(seeded.seed)[3]].tolist() == [10, 10]


def test_replayed_samples_belong_to_earlier_tasks():
    labels = np.repeat(np.arange(CLASSES), 20)
    inputs = Inputs(np.zeros((200, 1), np.float32), labels, 200, MLP(CLASSES, ()))
    fixed, order = fixed_samples(inputs, seed=3), task_order(3)
    assert fixed.replay.shape == (TASKS, 200, BATCH)
    for task in range(1, TASKS):
        assert set(labels[np.asarray(fixed.replay[task]).ravel()]) <= set(order[:task].ravel())
        assert set(labels[np.asarray(fixed.held[task])]) <= set(order[task])


def fourth_task():
    none = Samples(jnp.zeros(1, int), jnp.zeros((1, 1), int), jnp.ones(1, bool))
    return Task(none, none, jnp.zeros(CLASSES, bool), jnp.asarray(3))


def given_batch(size):
    index = jnp.zeros(size, int)
    return Batch(index, index[:, None], jnp.ones(size), jnp.zeros(size, bool))


def test_avalanches_reference_takes_the_earlier_tasks_in_turn(seeded):
    """Three tasks give 16 // 3 = 5 each, in four steps through 20 samples, then from the first."""
    setup, _ = runs.Trainer(NAIVE, epochs=1).build(seeded.inputs.net)(seeded.data)
    strategy = their_agem(setup, TASKS, 20)
    index = jnp.arange(TASKS * 20).reshape(TASKS, 20)
    complete = Samples(index, index[..., None], jnp.ones(index.shape, bool))
    for step in range(5):
        memory = TheirTurns(complete, jnp.asarray(step))
        result = strategy.draw(memory, given_batch(BATCH), fourth_task(), jax.random.key(0))
        taken = np.asarray(result.index)[np.asarray(result.weight) > 0]
        first = 5 * (step % 4)
        expected = np.concatenate([task * 20 + np.arange(first, first + 5) for task in range(3)])
        np.testing.assert_array_equal(np.sort(taken), expected)


@pytest.mark.parametrize(
    ("at_beginning", "sizes"), [(False, [16] * 6 + [4, 16, 16]), (True, [16] * 9)]
)
def test_avalanches_replay_goes_through_its_memory(seeded, at_beginning, sizes):
    """The memory has 100 samples: replay's seventh batch has the four that are left.

    The eighth and the ninth restart, the ninth with the next epoch; ER-ACE leaves four out of
    every pass.
    """
    setup, _ = runs.Trainer(NAIVE, epochs=1).build(seeded.inputs.net)(seeded.data)
    strategy = their_replay(setup, 100, 2, 8, at_beginning)
    index = jnp.arange(200)
    complete = Samples(index, index[:, None], index % 2 == 0)
    results = []
    for step in range(9):
        memory = TheirPasses(complete, jnp.asarray(step), jax.random.key(1))
        drawn = strategy.draw(memory, given_batch(16), fourth_task(), jax.random.key(step))
        results.append(np.asarray(drawn.index)[np.asarray(drawn.weight) > 0])
    assert [len(item) for item in results] == sizes
    full = np.concatenate(results[: 6 if at_beginning else 7])
    assert len(set(full)) == len(full) == (96 if at_beginning else 100)
    assert np.all(full % 2 == 0)
    # Another pass has another order.
    assert not np.array_equal(results[0], results[6 if at_beginning else 7])


def test_a_case_that_does_not_exist_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["EWD"])
    assert "no case 'EWD'; there are naive, EWC" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "1"], "--seeds 1 has no spread; give 2 or more, or 0 for no means"),
        (["ER"], "EVERLIGHT_AVALANCHE names nowhere/python, which does not exist"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_trained(
    words, message, monkeypatch, capsys
):
    monkeypatch.setenv(runs.VARIABLE, "nowhere/python")
    with pytest.raises(SystemExit):
        main(words)
    assert message in capsys.readouterr().err


def test_an_environment_without_avalanche_is_named_with_the_remedy(seeded):
    question = runs.Question(NAIVE, seeded, runs.plain_batches(seeded, 2), False)
    with pytest.raises(DataError, match=rf"false could not run Avalanche.*{runs.VARIABLE}"):
        runs.ask("false", [question])
