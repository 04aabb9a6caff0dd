"""The comparison with Avalanche: its arithmetic by hand, and the steps where Avalanche is there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.base import Batch, Samples, Task
from everlight.models import MLP
from everlight_data.errors import DataError
from everlight_experiments.bench.agreement import (
    MATERIALS,
    STEP_PLAN,
    accuracies,
    compare,
    compare_steps,
    pair,
)
from everlight_experiments.bench.agreement_cases import NAIVE, STEP_CASES
from everlight_experiments.bench.agreement_material import (
    BATCH,
    CLASSES,
    TASKS,
    Material,
    draws_of,
    order_of,
)
from everlight_experiments.bench.agreement_runs import (
    VARIABLE,
    Asked,
    Plan,
    Trainer,
    ask,
    avalanche_python,
    build_of,
    cut,
    places_of,
    plain_batches,
)
from everlight_experiments.bench.avalanche_equations import (
    TheirPasses,
    TheirTurns,
    their_agem,
    their_replay,
)

WITHIN = 1e-5
NO_EFFECT = {"naive", "SI", "streaming LDA"}
"""Methods that leave Avalanche's net where plain finetuning does, or do not train it."""
SAME_AS_SHIPPED = {
    "naive",
    "LwF",
    "A-GEM, the same reference",
    "ER, the same replay",
    "streaming LDA",
}


@pytest.fixture(scope="module")
def place():
    """Noise of ten classes, 10 training images and 2 test images of each."""
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.repeat(np.arange(CLASSES), 10), np.repeat(np.arange(CLASSES), 2)])
    images = rng.normal(size=(len(labels), 4)).astype(np.float32)
    material = Material(images, labels, 10 * CLASSES, MLP(CLASSES, (3,)))
    return places_of(material, Plan(epochs=2, batch_size=5), 2)[1]


@pytest.fixture(scope="module")
def steps():
    """Every case step by step, where there is an Avalanche."""
    python = avalanche_python()
    if python is None:
        pytest.skip(f"avalanche-lib is missing: install '.[bench]', or name a Python in {VARIABLE}")
    rows = compare_steps(python, MATERIALS["digits"](), STEP_PLAN, STEP_CASES)
    return {row.name: row for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", [case.name for case in STEP_CASES])
def test_with_avalanches_equation_the_weights_are_avalanches(steps, name):
    row = steps[name]
    assert row.equated < WITHIN
    if name not in NO_EFFECT:
        assert row.effect > 1_000 * WITHIN
    # Else what is put in explains nothing.
    assert (row.as_shipped < WITHIN) == (name in SAME_AS_SHIPPED)


@pytest.mark.slow
def test_avalanches_si_is_plain_finetuning_on_a_cpu(steps):
    assert steps["SI"].effect == 0


def test_accuracies_of_scores_that_know_the_task_alone_or_the_class(place):
    labels, order = place.material.labels[place.material.trained :], order_of(place.seed)
    right = np.eye(CLASSES)[labels]
    assert accuracies(right, place) == (1, 1)
    # The first class of the own task: half of the samples, told or not.
    first = np.eye(CLASSES)[[row[0] for label in labels for row in order if label in row]]
    assert accuracies(first, place) == (0.5, 0.5)
    # One class for all: without it a task's scores tie, and half of its samples are right.
    constant = np.tile(np.arange(CLASSES) == order[0, 0], (len(labels), 1)).astype(float)
    assert accuracies(constant, place) == pytest.approx((0.5, 0.1))


def test_differences_are_paired_by_seed():
    ours, theirs = np.array([0.5, 0.7, 0.9]), np.array([0.4, 0.7, 0.8])
    found = pair(ours, theirs, theirs)
    assert found[:3] == pytest.approx((0.7, 1.9 / 3, 1.9 / 3))
    # Differences .1, 0, .1: deviation sqrt(.01 / 3), over sqrt(3).
    assert (found.above, found.error) == pytest.approx((0.2 / 3, 0.1 / 3))
    assert (found.equated_above, found.equated_error) == (0, 0)


def test_batches_are_cut_and_filled_up():
    orders = [np.arange(5), np.arange(3)]
    batches = cut(orders, epochs=1, size=4)
    assert batches.tolist() == [[[[0, 1, 2, 3], [4, -1, -1, -1]]], [[[0, 1, 2, -1], [-1] * 4]]]


@pytest.mark.slow
def test_the_batches_are_those_that_the_engine_takes(place):
    trainer = Trainer(NAIVE, place.material.net, place.plan)
    taken = trainer.batches(place)
    np.testing.assert_array_equal(plain_batches(place, place.plan.epochs), taken)
    # Two classes of ten at five a step, each sample once an epoch.
    assert taken.shape == (TASKS, 2, 4, 5)
    labels = place.material.labels[taken[3, 1][taken[3, 1] >= 0]]
    assert np.bincount(labels, minlength=CLASSES)[order_of(place.seed)[3]].tolist() == [10, 10]


def test_what_is_replayed_is_of_earlier_tasks():
    labels = np.repeat(np.arange(CLASSES), 20)
    material = Material(np.zeros((200, 1), np.float32), labels, 200, MLP(CLASSES, ()))
    fed, order = draws_of(material, seed=3), order_of(3)
    assert fed.replay.shape == (TASKS, 200, BATCH)
    for task in range(1, TASKS):
        assert set(labels[np.asarray(fed.replay[task]).ravel()]) <= set(order[:task].ravel())
        assert set(labels[np.asarray(fed.held[task])]) <= set(order[task])


def fourth_task():
    none = Samples(jnp.zeros(1, int), jnp.zeros((1, 1), int), jnp.ones(1, bool))
    return Task(none, none, jnp.zeros(CLASSES, bool), jnp.asarray(3))


def given_batch(size):
    index = jnp.zeros(size, int)
    return Batch(index, index[:, None], jnp.ones(size), jnp.zeros(size, bool))


def test_avalanches_reference_takes_the_earlier_tasks_in_turn(place):
    """Of three tasks 16 // 3 = 5 each, four steps through 20 samples, then from the first again."""
    setup, _ = build_of(NAIVE, place.material.net)(place.data)
    strategy = their_agem(setup, TASKS, 20)
    index = jnp.arange(TASKS * 20).reshape(TASKS, 20)
    every = Samples(index, index[..., None], jnp.ones(index.shape, bool))
    for step in range(5):
        memory = TheirTurns(every, jnp.asarray(step))
        found = strategy.draw(memory, given_batch(BATCH), fourth_task(), jax.random.key(0))
        taken = np.asarray(found.index)[np.asarray(found.weight) > 0]
        first = 5 * (step % 4)
        wanted = np.concatenate([task * 20 + np.arange(first, first + 5) for task in range(3)])
        np.testing.assert_array_equal(np.sort(taken), wanted)


@pytest.mark.parametrize(
    ("at_beginning", "sizes"), [(False, [16] * 6 + [4, 16, 16]), (True, [16] * 9)]
)
def test_avalanches_replay_goes_through_its_memory(place, at_beginning, sizes):
    """A hundred samples: replay's seventh batch has the four that are left and its eighth and
    ninth begin anew, the ninth with the next epoch; ER-ACE leaves four out of every pass."""
    setup, _ = build_of(NAIVE, place.material.net)(place.data)
    strategy = their_replay(setup, 100, 2, 8, at_beginning)
    index = jnp.arange(200)
    every = Samples(index, index[:, None], index % 2 == 0)
    found = []
    for step in range(9):
        memory = TheirPasses(every, jnp.asarray(step), jax.random.key(1))
        drawn = strategy.draw(memory, given_batch(16), fourth_task(), jax.random.key(step))
        found.append(np.asarray(drawn.index)[np.asarray(drawn.weight) > 0])
    assert [len(each) for each in found] == sizes
    whole = np.concatenate(found[: 6 if at_beginning else 7])
    assert len(set(whole)) == len(whole) == (96 if at_beginning else 100)
    assert np.all(whole % 2 == 0)
    # Another pass has another order.
    assert not np.array_equal(found[0], found[6 if at_beginning else 7])


def test_a_case_that_there_is_not_is_named():
    with pytest.raises(DataError, match="no case 'EWD' to compare; there are naive, EWC"):
        compare("false", "digits", ["EWD"])


def test_an_environment_without_avalanche_is_named_with_the_way_out(place):
    asked = Asked(NAIVE, place, plain_batches(place, 2), False)
    with pytest.raises(DataError, match=rf"false could not run Avalanche.*{VARIABLE}"):
        ask("false", [asked])
