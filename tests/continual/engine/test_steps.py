"""The engine's parts one by one: order, batches, step, best epoch, schedule, past."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Epoch, Samples, StepInfo, Task, TaskSequence
from everlight.continual.engine import Protocol, train_step
from everlight.continual.engine.epochs import count_steps, end_epoch, shuffle, take_batch
from everlight.continual.engine.run import Run, with_learned
from everlight.continual.engine.tasks import (
    begin_state,
    begin_task,
    end_task,
    learn_epochs,
    with_past,
)
from everlight.continual.strategies.naive import naive
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, RATE, START

KEY = jax.random.key(0)
shuffle_compiled = jax.jit(shuffle)


def epoch_of(index, label, mask, memory_mask=None):
    memory_mask = np.zeros(len(index), bool) if memory_mask is None else memory_mask
    samples = Samples(np.asarray(index), np.asarray(label)[:, None], np.asarray(mask, bool))
    return jax.tree.map(jnp.asarray, Epoch(samples, np.asarray(memory_mask)))


# Eight samples; sample 4 is there three times, with two labels, as replay does. 90s are padding.
INDEX = np.array([3, 90, 4, 5, 91, 92, 4, 4, 8, 9, 93, 2])
LABEL = np.array([3, 0, 4, 5, 1, 2, 1, 4, 2, 3, 0, 2])
EPOCH = epoch_of(INDEX, LABEL, INDEX < 90, LABEL == 3)


def ordered(epoch, key):
    """Return (index, label) in the order of learning."""
    order = shuffle_compiled(epoch, key)
    slots = np.asarray(order.slots)[: int(order.count)]
    return list(
        zip(
            *(np.asarray(a)[slots] for a in (epoch.samples.index, epoch.samples.labels[:, 0])),
            strict=True,
        )
    )


@pytest.mark.parametrize("seed", range(4))
def test_padding_never_changes_the_order(seed):
    """The place, the amount and the content of padding have no effect."""
    rng = np.random.default_rng(seed)
    place = np.sort(rng.choice(20, 8, replace=False))
    index, label, mask = rng.integers(0, 20, 20), rng.integers(0, 6, 20), np.zeros(20, bool)
    index[place], label[place], mask[place] = INDEX[INDEX < 90], LABEL[INDEX < 90], True
    key = jax.random.key(seed)
    assert ordered(epoch_of(index, label, mask), key) == ordered(EPOCH, key)


def test_every_order_is_as_likely():
    """In 4,000 keys each of 8 slots has each place 500 times, to 5 standard deviations of 21."""
    keys = jax.random.split(KEY, 4000)
    slots = np.asarray(jax.jit(jax.vmap(lambda key: shuffle(EPOCH, key).slots[:8]))(keys))
    for slot in np.flatnonzero(INDEX < 90):
        assert np.all(np.abs(np.sum(slots == slot, axis=0) - 500) < 105)


@pytest.mark.parametrize("size", [3, 8, 30])
def test_batches_hold_every_sample_once_at_weight_1(size):
    epoch = shuffle_compiled(EPOCH, KEY)
    steps = -(-8 // size)
    take = jax.jit(lambda step: take_batch(epoch, step, size))
    batches = [take(jnp.array(step)) for step in range(steps)]
    index, label, weight, memory = map(np.concatenate, zip(*(b[:4] for b in batches), strict=True))
    assert len(index) == steps * size
    np.testing.assert_array_equal(weight, np.arange(steps * size) < 8)
    pairs = list(zip(index.tolist(), label[:, 0].tolist(), strict=True))
    assert pairs[:8] == ordered(EPOCH, KEY)
    # The filling is samples of the epoch, for layers that normalize over the batch.
    assert set(pairs) == set(pairs[:8])
    np.testing.assert_array_equal(memory, label[:, 0] == 3)


def test_epochs_of_a_fixed_number_of_steps_go_round_and_round():
    """Three steps of 6 from 8 samples take the order once, again, and its first two."""
    protocol = Protocol(epoch_steps=3, batch_size=6)
    epoch = shuffle_compiled(EPOCH, KEY)
    assert count_steps(epoch, protocol) == 3
    take = jax.jit(lambda step: take_batch(epoch, step, 6, rounds=True))
    batches = [take(jnp.array(step)) for step in range(3)]
    index, label, weight = map(np.concatenate, zip(*(b[:3] for b in batches), strict=True))
    once = ordered(EPOCH, KEY)
    assert list(zip(index.tolist(), label[:, 0].tolist(), strict=True)) == [*once, *once, *once[:2]]
    assert np.all(weight == 1)
    # A task without samples has no step.
    assert count_steps(epoch._replace(count=jnp.array(0)), protocol) == 0


def test_a_step_is_the_optimizer_s_times_the_schedule_s_factor():
    """The reference is descent at half the rate in float64; the strategy receives the change."""
    setup = net.small_setup()
    strategy = naive(setup)._replace(
        after_step=lambda memory, learner, info, key: (info.update, learner)
    )
    learner = net.small_learner(setup, [0, 1])
    learner = learner._replace(schedule=learner.schedule._replace(factor=jnp.array(0.5)))
    batch = net.batch_of([0, 1, 6, 20], [1, 1, 1, 0])
    task = net.task_of(0, [0, 1], [0, 1])
    step = jax.jit(functools.partial(train_step, setup, strategy))
    nothing = jax.tree.map(jnp.zeros_like, learner.params)
    update, after, _ = step(nothing, learner, batch, task, KEY)
    gradient = net.batch_gradient(START, batch.index, net.classes_mask([0, 1]), batch.weight)
    expected = {name: -0.5 * RATE * leaf for name, leaf in gradient.items()}
    net.assert_trees_close(update, expected, rtol=1e-4, atol=1e-7)
    moved = {name: START[name] + expected[name] for name in START}
    net.assert_trees_close(after.params, moved, rtol=1e-5)
    assert after.step == 1


def numbered(learner, number):
    """Replace the learner's parameters and statistics by the number of the epoch."""
    params = jax.tree.map(lambda leaf: jnp.full_like(leaf, number), learner.params)
    return learner._replace(params=params, batch_stats={"passes": jnp.array(number)})


FIRST, SECOND = (net.task_of(t, c, [0, 1]) for t, c in enumerate(([0, 1], [2, 5])))


def run_of(protocol, strategy=None, setup=None, tasks=(FIRST, SECOND)):
    setup = setup or net.small_setup()
    created = setup, strategy or naive(setup)
    member, complete = jnp.ones((len(tasks), 1), bool), jnp.ones((len(tasks), CLASSES), bool)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *tasks)
    sequence = TaskSequence(
        stacked, net.samples_of([0]), member, jnp.zeros(CLASSES, int), test_classes=complete
    )
    return Run(lambda data: created, protocol, (), sequence, KEY)


def started(protocol, strategy=None, setup=None):
    """Return the state before the first task."""
    return begin_state(run_of(protocol, strategy, setup))


def test_best_epoch_and_plateau_by_hand():
    """The patience is 1 and the threshold 0.1: two epochs without such a gain halve the rate.

    Of equally good epochs the last is kept.
    """
    protocol = Protocol(plateau_factor=0.5, plateau_patience=1, plateau_threshold=0.1)
    strategy, state = naive(net.small_setup()), started(protocol)
    table = [
        # score, best epoch, landmark, stale epochs, factor
        (0.50, 0, 0.50, 0, 1.0),
        (0.55, 1, 0.50, 1, 1.0),
        (0.62, 2, 0.62, 0, 1.0),
        (0.62, 3, 0.62, 1, 1.0),
        (0.60, 3, 0.62, 0, 0.5),
        (0.75, 5, 0.75, 0, 0.5),
        (0.70, 5, 0.75, 1, 0.5),
        (0.70, 5, 0.75, 0, 0.25),
        (0.70, 5, 0.75, 1, 0.25),
        (-np.inf, 5, 0.75, 1, 0.25),  # Without validation.
        (np.nan, 5, 0.75, 1, 0.25),
    ]
    for number, (score, best, landmark, stale, factor) in enumerate(table):
        state = with_learned(state, (), numbered(state.result.learner, number))
        state = end_epoch(strategy, protocol, state, jnp.array(score, jnp.float32))
        learner, stored = state.result.learner, state.best
        assert np.all(stored.params["head"] == best)
        assert stored.batch_stats["passes"] == best
        np.testing.assert_allclose(stored.score, table[best][0], rtol=1e-6)
        np.testing.assert_allclose(learner.schedule.best, landmark, rtol=1e-6)
        assert learner.schedule.stale_epochs == stale
        assert learner.schedule.factor == factor
        # Learning continues from the present parameters, not from the best.
        assert np.all(learner.params["head"] == number)


def test_the_rate_falls_at_milestones():
    """The rate falls after the second and the fourth epoch of each task."""
    protocol = Protocol(select="last", milestones=(2, 4), milestone_factor=0.5)
    run = run_of(protocol)
    state = begin_state(run)
    for factors in ([1.0, 0.5, 0.5, 0.25, 0.25],) * 2:
        for epoch, factor in enumerate(factors):
            state = state._replace(epoch=jnp.int32(epoch))
            state = end_epoch(naive(net.small_setup()), protocol, state, jnp.float32(0.5))
            assert state.result.learner.schedule.factor == factor
        state = begin_task(run, state._replace(task=jnp.int32(1)))


@pytest.mark.parametrize("setting", ["new_optimizer", "boundaries"])
def test_milestones_need_a_schedule_per_task(setting):
    with pytest.raises(ValueError, match="milestones count the epochs of a task; give new_optim"):
        Protocol(select="last", milestones=(2,), **{setting: False})


def test_by_default_the_rate_stays():
    state = started(Protocol())
    for _ in range(30):
        state = end_epoch(naive(net.small_setup()), Protocol(), state, jnp.array(0.5))
    assert state.result.learner.schedule.factor == 1


def counting_epochs(setup, recorded=None):
    """Return a strategy that counts its steps and records the arguments of its end of task."""
    recorded = [] if recorded is None else recorded

    def end_task(memory, learner, task, key):
        recorded.append((memory, learner.params))
        return memory, learner

    return naive(setup)._replace(
        init=lambda key, learner: jnp.float32(0),
        after_step=lambda memory, learner, info, key: (memory + 1, learner),
        end_task=end_task,
    )


@pytest.mark.parametrize(("select", "stored"), [("best", 1), ("last", 2)])
def test_a_task_ends_at_the_selected_epoch(select, stored):
    """Parameters, statistics and the strategy's memory are those of the selected epoch."""
    setup, recorded = net.small_setup(), []
    strategy, protocol = counting_epochs(setup, recorded), Protocol(select=select)
    run = run_of(protocol, strategy, setup)
    state = begin_state(run)
    for number, score in enumerate((0.2, 0.9, 0.4)):
        learner = numbered(state.result.learner, number)
        state = with_learned(state, jnp.float32(number), learner)
        state = end_epoch(strategy, protocol, state, jnp.array(score))
    result = end_task(run, state).result
    memory, learner = result.memory, result.learner
    assert memory == stored
    assert np.all(learner.params["head"] == stored)
    assert learner.batch_stats["passes"] == stored
    # The strategy's importances are of the kept parameters.
    assert recorded[0][0] == stored
    assert np.all(recorded[0][1]["head"] == stored)


def test_parameters_are_held_once_if_the_last_epoch_is_kept():
    assert started(Protocol(select="last")).best is None
    # A memory that steps do not change has no copy either.
    assert started(Protocol()).best.memory == ()


def test_without_validation_samples_the_last_epoch_is_kept():
    setup, protocol = net.small_setup(), Protocol()
    strategy = counting_epochs(setup)
    task = net.task_of(0, [0], [0])._replace(valid=net.samples_of([0], [0]))
    run = run_of(protocol, strategy, setup, [task])
    last = learn_epochs(run, begin_task(run, begin_state(run)), 3)
    assert np.all(np.isneginf(last.result.validation[0, :3]))
    result = end_task(run, last).result
    assert result.memory == 3
    net.assert_trees_close(result.learner.params, last.result.learner.params, rtol=0.0, atol=0.0)


def after_a_task(setup, protocol):
    """Return a run after its first task, with momentum and the rate at a quarter."""
    run = run_of(protocol, setup=setup)
    setup, strategy = run.build(())
    state = begin_task(run, begin_state(run))
    begun = state.result
    np.testing.assert_array_equal(begun.learner.seen, net.classes_mask([0, 1]))
    step = jax.jit(functools.partial(train_step, setup, strategy))
    memory, learner, _ = step(begun.memory, begun.learner, net.batch_of([0, 1]), FIRST, KEY)
    state = with_learned(state, memory, learner)
    for _ in range(3):
        state = end_epoch(strategy, protocol, state, jnp.array(0.9))
    learner = state.result.learner
    assert learner.schedule.factor == 0.25
    assert any(np.any(leaf != 0) for leaf in jax.tree.leaves(learner.opt_state))
    return run, state._replace(task=jnp.int32(1))


MOMENTUM = net.small_setup()._replace(optimizer=optax.sgd(0.1, momentum=0.9))


def test_a_task_begins_with_its_classes_and_a_new_optimizer_schedule_and_best_epoch():
    protocol = Protocol(plateau_factor=0.5, plateau_patience=0)
    run, state = after_a_task(MOMENTUM, protocol)
    before, begun = state.result.learner, begin_task(run, state)
    after, best = begun.result.learner, begun.best
    np.testing.assert_array_equal(after.seen, net.classes_mask([0, 1, 2, 5]))
    assert after.schedule == (1, -np.inf, 0)
    assert best.score == -np.inf
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(after.opt_state))
    net.assert_trees_close(after.params, before.params, rtol=0.0, atol=0.0)
    net.assert_trees_close(best.params, before.params, rtol=0.0, atol=0.0)
    assert after.step == 1


def test_the_optimizer_may_go_on_over_the_boundary():
    protocol = Protocol(plateau_factor=0.5, plateau_patience=0, new_optimizer=False)
    run, state = after_a_task(MOMENTUM, protocol)
    before, begun = state.result.learner, begin_task(run, state)
    after, best = begun.result.learner, begun.best
    np.testing.assert_array_equal(after.seen, net.classes_mask([0, 1, 2, 5]))
    assert after.schedule == before.schedule
    jax.tree.map(np.testing.assert_array_equal, after.opt_state, before.opt_state)
    assert best.score == -np.inf


def test_a_task_may_begin_with_a_rate_of_its_own():
    setup = net.small_setup()._replace(task_rate=lambda number: jnp.where(number == 0, 1.0, 0.25))
    tasks = [net.task_of(number, [number], [number]) for number in range(3)]
    run = run_of(Protocol(), setup=setup, tasks=tasks)
    for number, factor in ((0, 1.0), (1, 0.25), (2, 0.25)):
        begun = begin_task(run, begin_state(run)._replace(task=jnp.int32(number)))
        assert begun.result.learner.schedule == (factor, -np.inf, 0)


TRAIN = Samples(
    jnp.array([[11, 12, 13], [21, 99, 99], [31, 32, 99]]),
    jnp.array([[0, 2, 0], [1, 0, 0], [3, 3, 0]])[..., None],
    jnp.array([[1, 1, 1], [1, 0, 0], [1, 1, 0]], bool),
)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epochs": 0}, "epochs=0; give 1 or more"),
        ({"first_epochs": 0}, "first_epochs=0; give 1 or more"),
        ({"batch_size": -1}, "batch_size=-1; give 1 or more"),
        ({"evaluate_every": 0}, "evaluate_every=0; give 1 or more"),
        ({"boundaries": False}, "select='best' needs boundaries"),
    ],
)
def test_a_protocol_that_cannot_be_followed_is_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        Protocol(**setting)


@pytest.mark.parametrize(
    ("number", "held"), [(0, [11, 12, 13]), (1, [11, 12, 13, 21]), (2, [11, 12, 13, 21, 31, 32])]
)
def test_the_past_is_the_training_samples_up_to_the_task(number, held):
    classes, test = jnp.zeros((3, CLASSES), bool), net.samples_of([0])
    tasks = Task(TRAIN, TRAIN, classes, jnp.arange(3))
    sequence = TaskSequence(tasks, test, jnp.ones((3, 1), bool), jnp.zeros(CLASSES, int))
    task = jax.tree.map(lambda leaf: leaf[number], sequence.tasks)
    result = jax.jit(with_past)(sequence, task)
    mask = np.asarray(result.past.mask)
    assert result.past.index[mask].tolist() == held
    # Here the validation samples are the same.
    jax.tree.map(np.testing.assert_array_equal, result.past_valid, result.past)
    labels = dict(zip(TRAIN.index.ravel().tolist(), TRAIN.labels.ravel().tolist(), strict=True))
    assert result.past.labels[mask, 0].tolist() == [labels[index] for index in held]
    np.testing.assert_array_equal(result.train.index, TRAIN.index[number])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"grads": lambda memory, learner, batch, task, key: learner.params},
            r"grads returned dict; it must return \(gradient, StepInfo\)",
        ),
        (
            {"grads": lambda *arguments: (0.0, StepInfo((), (), 0.0))},
            r"grads must return a gradient with .* of the parameters, .*; it returned \{'': \(\)\}",
        ),
        (
            {"after_step": lambda memory, learner, info, key: memory},
            r"after_step must return \(memory, learner\) with .* arguments; it returned",
        ),
        (
            {"after_step": lambda memory, learner, info, key: (memory + 0.5, learner)},
            r"memory was int32\[\], is float32\[\]",
        ),
        ({"draw": lambda *arguments: net.samples_of([0, 1])}, "draw returned no Batch"),
    ],
)
def test_wrong_returns_of_a_strategy_are_refused(changed, message):
    setup = net.small_setup()
    strategy = naive(setup)._replace(init=lambda key, learner: jnp.int32(0), **changed)
    learner, task = net.small_learner(setup, [0, 1]), net.task_of(0, [0, 1], [0, 1])
    with pytest.raises(TypeError, match=message):
        train_step(setup, strategy, jnp.int32(0), learner, net.batch_of([0, 1]), task, KEY)


@pytest.mark.parametrize("hook", ["begin_task", "end_task"])
def test_boundary_hooks_keep_the_memory_s_structure(hook):
    setup, protocol = net.small_setup(), Protocol(select="last")
    strategy = naive(setup)._replace(**{hook: lambda memory, learner, task, key: learner})
    run = run_of(protocol, strategy, setup)

    def boundaries():
        end_task(run, begin_task(run, begin_state(run)))

    with pytest.raises(TypeError, match=f"{hook} must return"):
        boundaries()
