"""A-GEM's projection against its closed form, and its gradient on the small net."""

import collections
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight.base import Samples
from everlight.continual.engine.updates import complete_batch
from everlight.continual.methods.method import StrategyArguments
from everlight.continual.methods.registry import METHODS
from everlight.continual.strategies.agem import agem, project
from everlight.continual.strategies.balanced_replay import Exemplars
from tests.continual import many_labels as many
from tests.continual import small_net as net
from tests.continual.draw_frequencies import assert_equal_chances
from tests.continual.many_labels import PAIRS
from tests.continual.small_net import CLASSES, LABELS, START, STORED


def tree(values):
    """Return a vector of 6 as a tree of two leaves."""
    values = jnp.float32(values)
    return {"matrix": values[:4].reshape(2, 2), "vector": values[4:]}


def flat(tree):
    return np.concatenate([np.ravel(tree["matrix"]), tree["vector"]]).astype(np.float64)


def closed_form(gradient, reference):
    along = gradient @ reference
    return gradient - along / (reference @ reference) * reference if along < 0 else gradient


def test_a_conflict_by_hand():
    """g·g_ref = -1 + 2 - 4 = -3 and g_ref·g_ref = 3, so g̃ = g + g_ref."""
    result = project(tree([1, 2, 4, 0, 5, -7]), tree([-1, 1, -1, 0, 0, 0]))
    np.testing.assert_allclose(flat(result), [0, 3, 3, 0, 5, -7], rtol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_random_gradients(seed):
    gradient, reference = np.random.default_rng(seed).normal(size=(2, 6)).astype(np.float32)
    conflict = reference if gradient @ reference < 0 else -reference
    computed = flat(project(tree(gradient), tree(conflict)))
    expected = closed_form(gradient.astype(np.float64), conflict.astype(np.float64))
    np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-6)
    assert abs(computed @ conflict) < 1e-5
    # The gradient passes bit for bit if they agree.
    np.testing.assert_array_equal(flat(project(tree(gradient), tree(-conflict))), gradient)


@pytest.mark.parametrize("reference", [np.zeros(6), [0, 0, 0, 0, 3, 0]])
def test_a_zero_or_orthogonal_reference_changes_nothing(reference):
    gradient = [1.0, -2.0, 0.5, 3.0, 0.0, -1.0]
    np.testing.assert_array_equal(flat(project(tree(gradient), tree(reference))), gradient)


project_compiled = jax.jit(project)
numbers = st.floats(-1e3, 1e3, width=32)
vectors = st.lists(numbers, min_size=6, max_size=6).map(np.array)


@settings(max_examples=200)
@given(vectors, vectors)
def test_the_projection_never_opposes_the_reference_nor_grows(gradient, reference):
    computed = flat(project_compiled(tree(gradient), tree(reference)))
    bound = 1e-5 * np.linalg.norm(gradient) * np.linalg.norm(reference)
    assert computed @ reference >= -bound - 1e-30
    assert np.linalg.norm(computed) <= np.linalg.norm(gradient) * (1 + 1e-5) + 1e-30


TASK = net.task_of(1, [2, 3], [2, 3])
BATCH = net.batch_of([2, 8, 3, 20], [1, 1, 1, 0])


def memory_of(index, slots=8):
    """Return a buffer of stored samples, whose slots of mask 0 contain others."""
    place = 2 * np.arange(len(index)) + 1
    assert slots >= 2 * len(index)
    content, mask = np.full(slots, 39), np.zeros(slots, bool)
    content[place], mask[place] = index, True
    return net.samples_of(content, mask)


KEY = jax.random.key(7)
KEY_DATA = jax.random.key_data(KEY)
SETUP = net.small_setup()
STRATEGY = net.compiled(agem(SETUP, exemplars_per_class=2))


@jax.jit
def gradient_of_agem(buffer, batch=BATCH, key=KEY):
    learner, memory = net.small_learner(SETUP, [0, 1, 2, 3]), Exemplars(buffer, KEY_DATA)
    batch = complete_batch(SETUP, STRATEGY, memory, batch, TASK, key)
    return STRATEGY.grads(memory, learner, batch, TASK, jax.random.key(0))


ACTIVE = np.arange(CLASSES) < 4
CURRENT = net.batch_gradient(START, BATCH.index, ACTIVE, BATCH.weight)


def test_a_reference_batch_beyond_the_memory_is_all_of_it():
    """The registry's 256 of three stored samples give their mean, whatever the key."""
    arguments = StrategyArguments(tasks=2, classes=CLASSES, exemplars_per_class=2)
    inputs = METHODS["A-GEM"].arguments(arguments)
    assert inputs["replay_batch_size"] == 256
    strategy = net.compiled(agem(SETUP, **inputs))
    held = [0, 1, 7]
    memory = Exemplars(memory_of(held), KEY_DATA)

    @jax.jit
    def step(key):
        batch = complete_batch(SETUP, strategy, memory, BATCH, TASK, key)
        learner = net.small_learner(SETUP, [0, 1, 2, 3])
        return batch.replay, strategy.grads(memory, learner, batch, TASK, key)[0]

    expected = closed_form(net.joined(CURRENT), net.joined(net.batch_gradient(START, held, ACTIVE)))
    for seed in range(3):
        replay, gradient = step(jax.random.key(seed))
        assert sorted(np.asarray(replay.index)[np.asarray(replay.weight) > 0]) == held
        np.testing.assert_allclose(net.joined(gradient), expected, rtol=1e-4, atol=1e-6)


def test_the_registry_has_the_task_s_size_in_iirc_s_form_and_what_is_given():
    several = StrategyArguments(tasks=2, classes=CLASSES, exemplars_per_class=2, labels=2)
    inputs = METHODS["A-GEM"].row_arguments(several)
    assert (inputs["replay_batch_size"], inputs["separate_classes"]) == (None, True)
    for arguments in (several, several._replace(labels=1)):
        current = METHODS["A-GEM"].row_arguments(arguments._replace(replay_batch_size=10))
        assert current["replay_batch_size"] == 10


def test_every_held_sample_projects_as_its_closed_form():
    """A memory of one sample makes the random reference batch known."""
    conflicts = 0
    held_samples = (0, 1, 6, 7, 2, 8)
    for held in held_samples:
        reference = net.batch_gradient(START, [held], ACTIVE)
        conflicts += net.joined(CURRENT) @ net.joined(reference) < 0
        gradient, info = gradient_of_agem(memory_of([held]))
        expected = closed_form(net.joined(CURRENT), net.joined(reference))
        np.testing.assert_allclose(net.joined(gradient), expected, rtol=1e-4, atol=1e-6)
        net.assert_trees_close(info.task_gradient, CURRENT, atol=1e-6)
        # The reference's training pass comes first and moves batch statistics.
        assert info.batch_stats["passes"] == 2
    assert 0 < conflicts < len(held_samples)


def test_the_reference_batch_is_as_large_as_the_task_s_and_drawn_without_replacement():
    """A batch of two from four samples is one of six equally frequent pairs, by chi-square."""
    held = [0, 6, 7, 1]
    memory = Exemplars(memory_of(held), KEY_DATA)
    pair = net.batch_of([2, 8])
    draw = jax.jit(jax.vmap(lambda key: STRATEGY.draw(memory, pair, TASK, key)))
    drawn = draw(jax.random.split(KEY, 3000))
    assert drawn.index.shape == (3000, 2)
    assert np.all(drawn.weight == 1)
    result = collections.Counter(tuple(sorted(row)) for row in drawn.index.tolist())
    assert set(result) == set(itertools.combinations(sorted(held), 2))
    assert_equal_chances([*result.values()], 3000, 1 / 6)
    # The gradient is projected on the mean of the pair that was drawn.
    current = net.joined(net.batch_gradient(START, [2, 8], ACTIVE))
    projected = [
        closed_form(current, net.joined(net.batch_gradient(START, two, ACTIVE)))
        for two in itertools.combinations(held, 2)
    ]
    for key in jax.random.split(KEY, 5):
        gradient = net.joined(gradient_of_agem(memory_of(held), pair, key)[0])
        assert min(np.abs(gradient - form).max() for form in projected) < 1e-5


def test_an_empty_memory_leaves_the_gradient():
    """The masked slots' content has no effect."""
    nothing = Samples(jnp.full(8, STORED + 3), jnp.asarray(LABELS[:8, None]), jnp.zeros(8, bool))
    gradient, info = gradient_of_agem(nothing)
    net.assert_trees_close(gradient, CURRENT, atol=1e-6)
    # A reference of no sample moves no batch statistics.
    assert info.batch_stats["passes"] == 1


def test_the_memory_joins_no_epoch_and_fills_when_a_task_ends():
    learner = net.small_learner(SETUP, [2, 3])
    memory = STRATEGY.init(jax.random.key(0), learner)
    task = net.task_of(0, [2, 3], [2, 8, 14, 3])
    memory, _ = STRATEGY.end_task(memory, learner, task, jax.random.key(0))
    assert STRATEGY.stored_samples(memory, task) == 3
    epoch = STRATEGY.epoch_data(memory, task)
    np.testing.assert_array_equal(epoch.samples.index, task.train.index)
    assert not np.any(epoch.memory_mask)


# Classes 0, 1 and 4 were known before, 2 and 3 are new, 5 is still to come; many labels per sample.
BINARY = many.binary_setup()
SEPARATE = net.compiled(agem(BINARY, exemplars_per_class=2, labels=2, separate_classes=True))
NEW, KNOWN = np.isin(np.arange(CLASSES), [2, 3]), np.isin(np.arange(CLASSES), [0, 1, 4])
PAIR_BATCH = many.labelled_batch([2, 3, 9, 27, 33, 5, 8], [1, 1, 1, 1, 1, 1, 0])


@jax.jit
def separate_grads(buffer, learner):
    memory = Exemplars(buffer, KEY_DATA)
    batch = complete_batch(BINARY, SEPARATE, memory, PAIR_BATCH, TASK, KEY)
    return SEPARATE.grads(memory, learner, batch, TASK, jax.random.key(0))


def separate_gradient(held, seen):
    mask = np.arange(12) % 2 > 0
    memory = many.labelled(np.where(mask, held, 39), mask=mask)
    return separate_grads(memory, net.small_learner(BINARY, np.flatnonzero(seen)))


def test_with_separate_classes_the_task_is_its_new_classes_and_the_memory_the_old_ones():
    """Held samples have old labels, or old and new ones; a loss counts only its own labels."""
    index = np.asarray(PAIR_BATCH.index[:-1])
    current = many.binary_gradient(START, index, many.targets_of(PAIRS[index]), NEW)
    conflicts = 0
    for held in (0, 12, 13, 10, 24, 30):
        reference = many.binary_gradient(START, [held], many.targets_of(PAIRS[[held]]), KNOWN)
        conflicts += net.joined(current) @ net.joined(reference) < 0
        gradient, info = separate_gradient(held, NEW | KNOWN)
        expected = closed_form(net.joined(current), net.joined(reference))
        np.testing.assert_allclose(net.joined(gradient), expected, rtol=1e-4, atol=1e-6)
        net.assert_trees_close(info.task_gradient, current, atol=1e-6)
    assert 0 < conflicts < 6


def test_with_separate_classes_and_without_old_classes_the_gradient_is_that_of_the_batch():
    index = np.asarray(PAIR_BATCH.index[:-1])
    current = many.binary_gradient(START, index, many.targets_of(PAIRS[index]), NEW)
    net.assert_trees_close(separate_gradient(0, NEW)[0], current, atol=1e-6)
