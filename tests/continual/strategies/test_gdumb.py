"""GDumb: the sampler against algorithm 1 by hand, and training on the memory in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight.base import Samples
from everlight.continual.strategies.gdumb import BalancedMemory, add_greedily, gdumb, rate_factor
from everlight.continual.strategies.parts.memory import empty_buffer
from tests.continual import small_net as net
from tests.continual.draw_frequencies import assert_equal_chances
from tests.continual.small_net import CLASSES, LABELS, RATE, START

CAPACITY = 7


@functools.partial(jax.jit, static_argnums=3)
def histories(labels, local, keys, buffer_size=CAPACITY):
    """Return the memory after every arrival of a stream of samples 0, 1, 2, ..."""

    def arrive(memory, one):
        sample, key = one
        memory = add_greedily(memory, sample, key)
        return memory, memory

    start = BalancedMemory(empty_buffer(buffer_size, 1), jnp.zeros(CLASSES, bool))
    stream = Samples(jnp.arange(labels.shape[0]), labels[:, None], local)
    return jax.lax.scan(arrive, start, (stream, keys))[1]


def history(labels, local=None, seed=0, buffer_size=CAPACITY):
    """Return memories of streams of any length up to 30, by one program."""
    labels = np.asarray(labels)
    local = np.ones(len(labels), bool) if local is None else np.asarray(local, bool)
    rest = 30 - len(labels)
    padded = histories(
        jnp.asarray(np.pad(labels, (0, rest))),
        jnp.asarray(np.pad(local, (0, rest))),
        jax.random.split(jax.random.key(seed), 30),
        buffer_size,
    )
    return jax.tree.map(lambda leaf: np.asarray(leaf[: len(labels)]), padded)


def algorithm_1(labels, capacity):
    """Return the number of samples of each class after every arrival."""
    counts, after = {}, []
    for label in labels:
        if label not in counts or counts[label] < capacity / len(counts):
            if sum(counts.values()) >= capacity:
                # The first of the largest shrinks; Python keeps classes in the order of numbers.
                largest = max(sorted(counts), key=counts.get)
                counts[largest] -= 1
            counts[label] = counts.get(label, 0) + 1
        after.append(dict(counts))
    return after


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=30),
    st.integers(0, 5),
    st.sampled_from([6, 7]),
)
def test_every_arrival_is_treated_as_in_algorithm_1(labels, seed, capacity):
    """The cases include whole-number shares of the classes, at which none may take more."""
    memories = history(labels, seed=seed, buffer_size=capacity)
    for arrived, counts in enumerate(algorithm_1(labels, capacity)):
        mask = memories.samples.mask[arrived]
        index, label = memories.samples.index[arrived][mask], memories.samples.labels[arrived][mask]
        result = {c: int(np.sum(label == c)) for c in counts}
        assert result == counts
        # Every stored sample has arrived, under its label, and once.
        assert len(set(index.tolist())) == len(index)
        assert np.all(index <= arrived)
        np.testing.assert_array_equal(label[:, 0], np.asarray(labels)[index])
        assert set(np.flatnonzero(memories.seen[arrived])) == set(labels[: arrived + 1])


def test_counts_of_three_classes_in_seven_places_by_hand():
    """Seven of class 0 fill the memory; class 1 takes three of its places, 7/2 for each.

    Then class 2 takes one of class 0 (4 > 3), since 2 < 7/3 two more of the largest, and no
    fourth.
    """
    memories = history([0] * 9 + [1] * 6 + [2] * 6)
    counts = [
        [int(np.sum(m & (lab[:, 0] == c))) for c in range(3)]
        for m, lab in zip(memories.samples.mask, memories.samples.labels, strict=True)
    ]
    assert counts[8] == [7, 0, 0]
    assert set(memories.samples.index[8].tolist()) == set(range(7))
    assert counts[9:15] == [[6, 1, 0], [5, 2, 0], [4, 3, 0], [3, 4, 0], [3, 4, 0], [3, 4, 0]]
    assert counts[15:] == [[3, 3, 1], [2, 3, 2], [2, 2, 3], [2, 2, 3], [2, 2, 3], [2, 2, 3]]


def test_replaced_samples_are_drawn_evenly_from_the_largest_class():
    """One of seven is replaced in 4,000 streams of seven of class 0 and one of class 1."""
    labels = jnp.asarray([0] * 7 + [1])
    keys = jax.random.split(jax.random.key(0), 4000)
    after = jax.jit(
        jax.vmap(lambda key: histories(labels, jnp.ones(8, bool), jax.random.split(key, 8)))
    )(keys)
    last = np.asarray(after.samples.index[:, -1])
    removed = [4000 - np.sum(last == member) for member in range(7)]
    assert_equal_chances(removed, 4000, 1 / 7)


def test_masked_samples_change_nothing_and_repeated_ones_are_held_once():
    labels, local = [0, 5, 1, 5, 0], [1, 0, 1, 0, 1]
    memories = history(labels, local)
    for leaf in jax.tree.leaves(memories):
        np.testing.assert_array_equal(leaf[1], leaf[0])
        np.testing.assert_array_equal(leaf[3], leaf[2])
    assert not memories.seen[-1][5]
    memory = BalancedMemory(empty_buffer(CAPACITY, 1), jnp.zeros(CLASSES, bool))
    for index in (6, 6, 12, 6):
        sample = Samples(jnp.array(index), jnp.asarray(LABELS[[index]]), jnp.array(True))
        memory = add_greedily(memory, sample, jax.random.key(index))
    held = memory.samples
    assert sorted(np.asarray(held.index)[np.asarray(held.mask)].tolist()) == [6, 12]


def test_the_rate_follows_cosine_cycles_that_double():
    """Rates are 0.1; then 0.01 + 0.99 (1 + cos(π p)) / 2 for p = 0; 0, 1/2; 0, 1/4, 1/2, 3/4; 0."""
    factors = [0.1, 1, 1, 0.505, 1, 0.855018, 0.505, 0.154982, 1]
    np.testing.assert_allclose(jax.vmap(rate_factor)(jnp.arange(9)), factors, rtol=1e-5)


def test_a_step_takes_no_gradient_and_never_calls_the_net():
    def refuse(*arguments):
        raise AssertionError("the net was called")

    setup = net.small_setup()
    strategy = net.compiled(gdumb(setup._replace(apply=refuse), buffer_size=CAPACITY))
    learner = net.small_learner(setup, [0, 1])
    memory = strategy.init(jax.random.key(0), learner)
    batch = net.filled(setup, net.batch_of([0, 6, 1]))
    task = net.task_of(0, [0, 1], [0, 6, 1])
    gradient, info = strategy.grads(memory, learner, batch, task, jax.random.key(0))
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(gradient))
    assert info.loss == 0
    assert info.batch_stats == learner.batch_stats


def test_the_net_is_trained_from_scratch_on_the_memory_alone():
    """Four epochs of one batch are plain descent in float64 at rates 0.1, 1, 1 and 0.505.

    It begins from initial parameters, not from those that the learner has.
    """
    setup = net.small_setup()
    strategy = net.compiled(gdumb(setup, buffer_size=CAPACITY, epochs=4, batch_size=8))
    stream = [0, 6, 1, 12, 7, 18, 24, 30, 2, 13]
    task = net.task_of(0, [0, 1, 2], stream)
    # The last batch is filled up at weight 0.
    batches = [
        net.batch_of(stream[:4]),
        net.batch_of(stream[4:8]),
        net.batch_of([2, 13, 3, 9], [1, 1, 0, 0]),
    ]
    ((memory, learner),) = net.run_tasks(setup, strategy, [(task, batches)])
    net.assert_trees_close(learner.params, START)
    mask = np.asarray(memory.samples.mask)
    held = np.asarray(memory.samples.index)[mask]
    assert strategy.stored_samples(memory, task) == CAPACITY
    assert set(LABELS[held]) == {0, 1, 2}

    moved = learner._replace(params=jax.tree.map(lambda leaf: leaf + 3, learner.params))
    again, trained = strategy.before_evaluation(memory, moved, jax.random.key(5))
    params = START
    for factor in (0.1, 1, 1, 0.505):
        slope = net.batch_gradient(params, held, np.arange(CLASSES) < 3)
        params = {name: params[name] - RATE * factor * slope[name] for name in params}
    net.assert_trees_close(trained.params, params, atol=1e-5)
    assert trained.step == learner.step + 4
    assert trained.schedule.factor == learner.schedule.factor
    for before, after in zip(jax.tree.leaves(memory), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(before, after)
