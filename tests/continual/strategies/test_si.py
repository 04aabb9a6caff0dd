"""Synaptic intelligence: training, path integral and importances done again in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import StepInfo
from everlight.continual.engine import Protocol, train_step
from everlight.continual.engine.epochs import best_candidate, end_epoch
from everlight.continual.engine.run import SequenceResult, SequenceState, with_learned
from everlight.continual.engine.tasks import selected_epoch
from everlight.continual.strategies.si import si
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, RATE, START

REGULARIZATION, DAMPING = 2.0, 0.1
TRAIN = [np.array([0, 1, 6, 7, 12, 13]) + 2 * t for t in range(3)]
BATCHES = [
    [
        net.batch_of(t[:3]),
        net.batch_of(np.array([t[3], t[4], 20]), [1, 1, 0]),
        net.batch_of(t[[5, 0, 2]]),
        net.batch_of(t[[1, 3, 2]]),
        net.batch_of(t[3:]),
    ]
    for t in TRAIN
]
SEQUENCE = [(net.task_of(t, [2 * t, 2 * t + 1], TRAIN[t]), BATCHES[t]) for t in range(3)]


def train_by_hand(regularization, implicit=False, steps=(5, 5, 5)):
    """Return parameters, path integral and Ω after every task, which takes so many steps."""
    params, importance, anchor, after = START, net.no_penalty(START), START, []
    for task, taken in enumerate(steps):

        def penalty(theta, importance=importance, anchor=anchor):
            return {n: 2 * regularization * importance[n] * (theta[n] - anchor[n]) for n in theta}

        seen = np.arange(CLASSES) < 2 * (task + 1)
        start = params
        batches = BATCHES[task][:taken]
        if implicit:
            settle = net.proximal_point(regularization, [(importance, anchor)])
            params, path = net.descend(params, batches, seen, net.no_penalty, settle)
        else:
            params, path = net.descend(params, batches, seen, penalty)
        for name in params:
            gain = np.maximum(path[name], 0) / ((params[name] - start[name]) ** 2 + DAMPING)
            importance = {**importance, name: importance[name] + gain}
        anchor = params
        after.append((params, path, importance))
    return after


@pytest.mark.parametrize("implicit", [False, True])
def test_three_tasks_done_again_in_float64(implicit):
    """The path is along the whole change of the parameters, however the penalty moved them."""
    setup = net.small_setup()
    rate = RATE if implicit else None
    strategy = net.compiled(
        si(setup, regularization=REGULARIZATION, damping=DAMPING, implicit_rate=rate)
    )
    compare(net.run_tasks(setup, strategy, SEQUENCE), train_by_hand(REGULARIZATION, implicit))


@pytest.mark.parametrize("implicit", [False, True])
def test_the_path_goes_back_with_the_best_epoch(implicit):
    """Every epoch is one step; Ω covers the path up to the best epoch and nothing after it."""
    setup, protocol, key = net.small_setup(), Protocol(select="best"), jax.random.key(0)
    rate = RATE if implicit else None
    strategy = net.compiled(
        si(setup, regularization=REGULARIZATION, damping=DAMPING, implicit_rate=rate)
    )
    step = jax.jit(functools.partial(train_step, setup, strategy))
    (memory, learner), after, best = net.untrained(setup, strategy), [], (1, 3, 5)
    for (task, batches), stored in zip(SEQUENCE, best, strict=True):
        memory, learner = net.begin(setup, strategy, memory, learner, task)
        none = best_candidate(strategy, jnp.float32(-jnp.inf), memory, learner)
        result = SequenceResult(*[None] * 4, memory, learner)
        state = SequenceState(result, jnp.int32(0), jnp.int32(0), none)
        for number, batch in enumerate(batches, start=1):
            memory, learner, _ = step(memory, learner, batch, task, key)
            score = jnp.float32(1 - abs(number - stored) / 10)
            state = with_learned(state, memory, learner)
            state = end_epoch(strategy, protocol, state, score)
            memory, learner = state.result.memory, state.result.learner
        memory, learner = strategy.end_task(*selected_epoch(strategy, state), task, key)
        after.append((memory, learner))
    compare(after, train_by_hand(REGULARIZATION, implicit, best))


def compare(after, expected):
    """Compare memory and learner after every task with the results of `train_by_hand`."""
    for (memory, learner), (params, path, importance) in zip(after, expected, strict=True):
        net.assert_trees_close(learner.params, params, rtol=1e-4, atol=1e-5)
        net.assert_trees_close(memory.path, path, rtol=1e-3, atol=1e-6)
        net.assert_trees_close(memory.sums.importance, importance, rtol=1e-3, atol=1e-5)
        weighted = {name: importance[name] * params[name] for name in params}
        net.assert_trees_close(memory.sums.weighted_anchor, weighted, rtol=1e-3, atol=1e-5)


def test_small_steps_integrate_the_drop_of_the_loss():
    """Σ_k ω_k is the decrease of the loss, equation 3, in the limit of small steps."""
    setup = net.small_setup()
    strategy = net.compiled(si(setup, regularization=0.0))
    batch, task = net.filled(setup, net.batch_of(TRAIN[0])), SEQUENCE[0][0]
    learner = net.small_learner(setup, [0, 1])
    memory, learner = strategy.begin_task(
        strategy.init(jax.random.key(0), learner), learner, task, jax.random.key(0)
    )

    def one_step(carry, _):
        memory, learner = carry
        gradient, info = strategy.grads(memory, learner, batch, task, jax.random.key(0))
        update = jax.tree.map(lambda g: -0.002 * g, gradient)
        learner = learner._replace(params=jax.tree.map(jnp.add, learner.params, update))
        info = info._replace(update=update)
        return strategy.after_step(memory, learner, info, jax.random.key(0)), info.loss

    (memory, _), losses = jax.lax.scan(one_step, (memory, learner), length=400)
    total = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(memory.path))
    assert losses[0] - losses[-1] > 0.1
    np.testing.assert_allclose(total, losses[0] - losses[-1], rtol=0.01)


@pytest.mark.parametrize(("second", "same"), [((-2.0, 0.5), True), ((2.0, 0.2), False)])
def test_omega_is_the_official_one_unless_a_path_is_negative(second, same):
    """Two tasks have one step; the authors' relu is of the sum, so that a task can subtract."""
    setup = net.small_setup()
    strategy = net.compiled(si(setup, regularization=1.0, damping=0.5))
    learner = net.small_learner(setup, [0, 1])
    start = net.as_float32({name: np.ones(leaf.shape) for name, leaf in START.items()})
    learner = learner._replace(params=start)
    memory, official = strategy.init(jax.random.key(0), learner), 0.0
    for gradient, update in ((-2.0, 0.5), second):
        key, task = jax.random.key(0), SEQUENCE[0][0]
        memory, learner = strategy.begin_task(memory, learner, task, key)
        slope, change = (
            jax.tree.map(lambda leaf, value=value: jnp.full_like(leaf, value), start)
            for value in (gradient, update)
        )
        learner = learner._replace(params=jax.tree.map(jnp.add, learner.params, change))
        info = StepInfo(slope, learner.batch_stats, jnp.array(0.0), update=change)
        memory, learner = strategy.after_step(memory, learner, info, key)
        memory, learner = strategy.end_task(memory, learner, task, key)
        official = max(official - gradient * update / (update**2 + 0.5), 0)
    result = np.unique(np.concatenate([np.ravel(x) for x in jax.tree.leaves(memory.sums[0])]))
    assert np.allclose(result, official, rtol=1e-5) == same
    # The first task adds 1 / 0.75, a negative path nothing.
    np.testing.assert_allclose(result, (2 if same else 1) / 0.75, rtol=1e-5)
