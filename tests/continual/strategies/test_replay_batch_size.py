"""Replay batches of another size than the incoming batch: what is drawn, and float64 training."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import StepInfo
from everlight.continual.engine.updates import complete_batch
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies import agem, der_plus_plus, er_ace
from everlight.continual.strategies.balanced_replay import Exemplars
from everlight.continual.strategies.der import DarkReservoir
from everlight.continual.strategies.experience_replay import Reservoir, experience_replay
from tests.continual import small_net as net
from tests.continual.draw_frequencies import assert_equal_chances
from tests.continual.small_net import CLASSES, LABELS, RATE, START

SETUP = net.small_setup()
TASK = net.task_of(0, range(CLASSES), range(6))
BATCH = 4
SEEN = [0, 1, 2, 3, 5]
ALPHA, BETA = 0.7, 0.4
ALL = np.ones(CLASSES, bool)

# 16 of 20 slots are held; the others hold sample 39.
HELD = np.arange(16)
CONTENT = net.samples_of(np.append(HELD, [39] * 4), np.arange(20) < 16)
MEMORIES = {
    "ER": Reservoir(CONTENT, jnp.int32(16)),
    "DER++": DarkReservoir(CONTENT, jnp.tile(jnp.arange(20.0)[:, None], CLASSES), jnp.int32(16)),
    "ER-ACE": Reservoir(CONTENT, jnp.int32(16)),
    "A-GEM": Exemplars(CONTENT, jax.random.key_data(jax.random.key(0))),
}
MAKE = {
    "ER": functools.partial(experience_replay, buffer_size=20),
    "DER++": functools.partial(der_plus_plus, buffer_size=20, alpha=ALPHA, beta=BETA),
    "ER-ACE": functools.partial(er_ace, buffer_size=20),
    "A-GEM": functools.partial(agem, exemplars_per_class=20),
}


@functools.cache
def many_draws(name, size, keys=3000):
    """Return the batches that a strategy draws beside a batch of four, one per key."""
    strategy = MAKE[name](SETUP, replay_batch_size=size)
    batch = net.batch_of([30, 31, 32, 33])
    draw = jax.jit(jax.vmap(lambda key: strategy.draw(MEMORIES[name], batch, TASK, key)))
    drawn = draw(jax.random.split(jax.random.key(3), keys))
    if name == "DER++":
        # Each sample has the logits of its own slot.
        selected = np.asarray(drawn.matched.weight) > 0
        np.testing.assert_array_equal(drawn.logits[selected, 0], drawn.matched.index[selected])
        return [drawn.matched, drawn.labelled]
    return [drawn]


@pytest.mark.parametrize("size", [2, 12])
@pytest.mark.parametrize("name", MAKE)
def test_a_draw_has_the_size_that_is_set_and_every_held_sample_with_equal_chance(name, size):
    """The sizes are half of the batch and three times it; no sample is drawn twice."""
    complete = many_draws(name, size)
    if name == "DER++":
        # Two draws are equal by chance once in 120 or in 1,820.
        first, second = (np.sort(drawn.index, axis=1) for drawn in complete)
        assert np.all(first == second, axis=1).mean() < 0.05
    for drawn in complete:
        assert drawn.index.shape == (3000, size)
        assert np.all(drawn.weight == 1)
        assert np.all(drawn.memory_mask)
        ordered = np.sort(drawn.index, axis=1)
        assert np.all(np.diff(ordered, axis=1) > 0)
        np.testing.assert_array_equal(drawn.labels[..., 0], LABELS[np.asarray(drawn.index)])
        counts = np.bincount(np.ravel(drawn.index), minlength=16)
        assert len(counts) == 16
        assert_equal_chances(counts, 3000, size / 16)


@pytest.mark.parametrize("name", MAKE)
def test_a_size_above_the_memory_draws_all_of_it_once(name):
    """A memory of 20 slots gives 20 of the requested 40, and the 16 held samples have weight 1."""
    for drawn in many_draws(name, 40, keys=5):
        assert drawn.index.shape == (5, 20)
        for index, weight in zip(np.asarray(drawn.index), np.asarray(drawn.weight), strict=True):
            np.testing.assert_array_equal(np.sort(index[weight > 0]), HELD)
            assert np.all(weight[weight > 0] == 1)


def joint_mean(params, current, drawn, stored):
    """Return the gradient of ER: one mean over the samples of both batches."""
    return net.batch_gradient(
        params, [*current, *drawn["index"]], np.isin(np.arange(CLASSES), SEEN)
    )


def three_terms(params, current, drawn, stored, active):
    """Return that of DER++: three means, the second of squared distances to stored logits."""
    total = net.batch_gradient(params, current, active)
    if drawn["index"]:
        matched = drawn["matched"]
        away = net.forward(params, matched, train=True)[2] - np.stack([stored[i] for i in matched])
        contribution = net.backward(params, matched, 2 * away / CLASSES, train=True)
        labelled = net.batch_gradient(params, drawn["index"], active)
        for name in total:
            total[name] = (
                total[name] + ALPHA * contribution[name].mean(axis=0) + BETA * labelled[name]
            )
    return total


def two_softmaxes(params, current, drawn, stored, unseen, active):
    """Return that of ER-ACE: the batch among its and `unseen` classes, the rest among `active`."""
    present = np.isin(np.arange(CLASSES), LABELS[current]) | unseen
    total = net.batch_gradient(params, current, present)
    if drawn["index"]:
        replayed = net.batch_gradient(params, drawn["index"], active)
        total = {name: total[name] + replayed[name] for name in total}
    return total


AMONG = np.isin(np.arange(CLASSES), SEEN)
PASSES = {"ER": 0, "DER++": 2, "ER-ACE": 1}
"""Training passes of a step beside the first; without a held sample there is none of them."""
TRAININGS = {
    "ER": ("ER", {}, joint_mean),
    "DER++": ("DER++", {}, functools.partial(three_terms, active=ALL)),
    "DER++, seen outputs": (
        "DER++",
        {"loss_over": "seen"},
        functools.partial(three_terms, active=AMONG),
    ),
    "ER-ACE": ("ER-ACE", {}, functools.partial(two_softmaxes, unseen=~ALL, active=AMONG)),
    "ER-ACE, all outputs": (
        "ER-ACE",
        {"loss_over": "all"},
        functools.partial(two_softmaxes, unseen=~AMONG, active=ALL),
    ),
}
# Samples have seen classes, none twice; the last batch has three and one that fills up.
STREAM = np.array([i for i in range(40) if LABELS[i] in SEEN])[:24].reshape(6, BATCH)


@pytest.mark.parametrize(
    ("name", "size"),
    # The classes of a loss are the same whatever the size.
    [(n, size) for n in TRAININGS for size in (None, 2, 12) if size == 2 or "outputs" not in n],
)
def test_six_steps_done_again_in_float64(name, size):
    """The memory begins empty; while it has fewer samples than requested, all of it is drawn.

    The random draws are read from the step; all else is NumPy's.
    """
    method, settings, gradient_of = TRAININGS[name]
    strategy = MAKE[method](SETUP, **{"buffer_size": 24} | settings, replay_batch_size=size)

    @jax.jit
    def step(memory, learner, batch, key):
        keys = jax.random.split(key, 3)
        batch = complete_batch(SETUP, strategy, memory, batch, TASK, keys[0])
        gradient, info = strategy.grads(memory, learner, batch, TASK, keys[1])
        update = jax.tree.map(lambda g: -RATE * g, gradient)
        learner = learner._replace(
            params=optax.apply_updates(learner.params, update), batch_stats=info.batch_stats
        )
        info: StepInfo = info._replace(batch=batch, update=update)
        return batch, *strategy.after_step(memory, learner, info, keys[2])

    learner = net.small_learner(SETUP, SEEN)
    memory = strategy.init(jax.random.key(0), learner)
    params, stored, expected = START, {}, BATCH if size is None else size
    for number, index in enumerate(STREAM):
        weight = np.ones(BATCH) if number < 5 else [1, 1, 1, 0]
        selected = index[np.asarray(weight) > 0]
        batch, memory, learner = step(
            memory, learner, net.batch_of(index, weight), jax.random.key(number)
        )
        replay = batch.replay
        parts = {"index": replay}
        if method == "DER++":
            parts = {"matched": replay.matched, "index": replay.labelled}
        drawn = {}
        for part, actual in parts.items():
            assert actual.index.shape == (expected,)
            drawn[part] = np.asarray(actual.index)[np.asarray(actual.weight) > 0].tolist()
            assert len(set(drawn[part])) == len(drawn[part]) == min(expected, BATCH * number)
            assert set(drawn[part]) <= set(STREAM[:number].ravel().tolist())
        slope = gradient_of(params, selected, drawn, stored)
        logits = net.forward(params, selected, train=True)[2]
        stored |= dict(zip(selected.tolist(), logits, strict=True))
        params = {leaf: params[leaf] - RATE * slope[leaf] for leaf in params}
        net.assert_trees_close(learner.params, params, rtol=1e-4, atol=1e-5)
        assert learner.batch_stats["passes"] == 1 + number * (1 + PASSES[method])


@pytest.mark.parametrize("size", [2, 12])
def test_a_gem_projects_on_the_mean_of_the_reference_batch(size):
    """The drawn samples are read from the step; NumPy computes the rest."""
    strategy, rows = MAKE["A-GEM"](SETUP, replay_batch_size=size), [2, 8, 3, 9]
    old = [index for index in range(40) if LABELS[index] < 2]
    memory = MEMORIES["A-GEM"]._replace(buffer=net.samples_of(old))

    @jax.jit
    def step(key):
        keys = jax.random.split(key)
        batch = complete_batch(SETUP, strategy, memory, net.batch_of(rows), TASK, keys[0])
        learner = net.small_learner(SETUP, range(CLASSES))
        return batch, strategy.grads(memory, learner, batch, TASK, keys[1])[0]

    conflicts = 0
    for number in range(8):
        batch, result = step(jax.random.key(number))
        drawn = np.asarray(batch.replay.index)
        assert len(set(drawn.tolist())) == size
        task, reference = (
            net.joined(net.batch_gradient(START, part, ALL)) for part in (rows, drawn)
        )
        along = min(task @ reference, 0)
        conflicts += along < 0
        expected = task - along / (reference @ reference) * reference
        np.testing.assert_allclose(net.joined(result), expected, rtol=1e-4, atol=1e-6)
    assert conflicts > 0


def test_a_larger_draw_is_filled_up_by_repeating_the_batch():
    """The draw has ten samples beside a batch of four; three samples are stored."""
    three = CONTENT._replace(mask=jnp.arange(20) < 3)
    memory = MEMORIES["ER"]._replace(samples=three, arrived=jnp.int32(3))
    strategy = MAKE["ER"](SETUP, replay_batch_size=10)
    batch = net.batch_of([30, 31, 32, 33])
    drawn = strategy.draw(memory, batch, TASK, jax.random.key(0))
    assert sorted(drawn.index[:3].tolist()) == [0, 1, 2]
    np.testing.assert_array_equal(drawn.index[3:], [33, 30, 31, 32, 33, 30, 31])
    np.testing.assert_array_equal(drawn.labels[3:, 0], LABELS[np.asarray(drawn.index[3:])])
    np.testing.assert_array_equal(drawn.weight, [1] * 3 + [0] * 7)


def test_er_takes_the_loss_over_all_outputs_where_the_objective_has_one_group():
    """`softmax_objective` has one group of all classes, seen or not."""
    setup = SETUP._replace(objective=softmax_objective(jnp.zeros(CLASSES, int)))
    strategy = net.compiled(experience_replay(setup, buffer_size=20))
    rows = [0, 1, 8]

    @jax.jit
    def gradient():
        batch = complete_batch(
            setup, strategy, MEMORIES["ER"], net.batch_of(rows), TASK, jax.random.key(0)
        )
        learner = net.small_learner(setup, [0, 1, 2])
        return batch, strategy.grads(MEMORIES["ER"], learner, batch, TASK, jax.random.key(1))[0]

    batch, computed = gradient()
    drawn = np.asarray(batch.replay.index).tolist()
    net.assert_trees_close(computed, net.batch_gradient(START, rows + drawn, ALL), atol=1e-6)


def authors_mask(present, seen):
    """Return the incoming softmax's classes in ER-ACE's code, numbered by their first arrival.

    Those of the batch, and all from the greatest number seen on, that one included.
    """
    mask = np.isin(np.arange(CLASSES), list(present))
    mask[max(seen) :] = True
    return mask


@pytest.mark.parametrize(
    ("current", "same"), [([3, 9, 2], True), ([3, 15, 3], True), ([2, 8, 14], False)]
)
def test_er_ace_s_unseen_classes_are_the_authors_but_for_the_last_seen(current, same):
    """Classes 0 to 3 are seen; where class 3 is not in the batch, the authors leave it in."""
    strategy = net.compiled(er_ace(SETUP, buffer_size=20, loss_over="all"))
    nothing = CONTENT._replace(mask=jnp.zeros(20, bool))
    empty = MEMORIES["ER"]._replace(samples=nothing, arrived=jnp.int32(0))
    batch = complete_batch(SETUP, strategy, empty, net.batch_of(current), TASK, jax.random.key(0))
    learner = net.small_learner(SETUP, [0, 1, 2, 3])
    result, _ = strategy.grads(empty, learner, batch, TASK, jax.random.key(1))
    official = authors_mask(LABELS[current], {0, 1, 2, 3})
    if not same:
        official[3] = False
    net.assert_trees_close(result, net.batch_gradient(START, current, official), atol=1e-6)
    # The outputs with a gradient show the same classes.
    np.testing.assert_array_equal(np.asarray(result["head_bias"]) != 0, official)
