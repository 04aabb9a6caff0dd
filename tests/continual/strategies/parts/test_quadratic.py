"""EWC, online EWC, MAS, L2 Init: the penalty, and trainings done again in float64 NumPy.

The NumPy side stores every task's importance and anchor and adds the penalties up. Implicit steps
are also tried where explicit ones diverge, on a quadratic loss whose minimizer is known.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlight.base import Outputs, Setup
from everlight.continual.engine.tasks import init_learner
from everlight.continual.engine.updates import train_step
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies import ewc, l2_init, mas, naive
from everlight.continual.strategies.parts import quadratic
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, RATE, START

TASKS = [[0, 1], [2, 3], [4, 5]]
# Each task has training samples, one slot of padding, and batches; in the second batch the
# last two slots are filling, one of them a sample of another task.
TRAIN = [np.array([0, 1, 6, 7, 12, 13, 18, 19]) + 2 * t for t in range(3)]
BATCHES = [
    [
        net.batch_of(t[:4]),
        net.batch_of(np.array([t[4], t[5], t[0], 39]), [1, 1, 0, 0]),
        net.batch_of(t[[1, 7, 6, 2]]),
        net.batch_of(t[[3, 3, 5, 4]]),
    ]
    for t in TRAIN
]
MASK = np.array([1, 1, 1, 0, 1, 1, 1, 1], bool)
SEQUENCE = [
    (net.task_of(t, classes, net.samples_of(TRAIN[t], MASK)), BATCHES[t])
    for t, classes in enumerate(TASKS)
]
LIMIT = 6


seen_after = functools.partial(net.seen_after, TASKS)


def fisher_of(params, task):
    index = TRAIN[task][MASK][:LIMIT]
    contribution = net.cross_entropy_gradients(params, index, seen_after(task))
    return {name: np.mean(leaf**2, axis=0) for name, leaf in contribution.items()}


def output_sensitivity_of(params, task):
    index = TRAIN[task][MASK][:LIMIT]
    logits = np.where(seen_after(task), net.forward(params, index)[2], 0.0)
    contribution = net.backward(params, index, 2 * logits)
    return {name: np.mean(np.abs(leaf), axis=0) for name, leaf in contribution.items()}


def train_by_hand(regularization, importance_of, keep, implicit=False):
    """Return parameters after each task; anchors have the penalty regularization Σ ω (θ − θ*)².

    `keep(kept, importance, params)` gives the `(ω, θ*)` that are kept from now on. `implicit`:
    steps are on the task's gradient alone, each followed by the penalty's proximal point.
    """
    params, stored, after = START, [], []
    for task, batches in enumerate(BATCHES):

        def penalty(theta, remaining=tuple(stored)):
            total = net.no_penalty(theta)
            for importance, anchor in remaining:
                for name in theta:
                    moved = theta[name] - anchor[name]
                    total[name] = total[name] + 2 * regularization * importance[name] * moved
            return total

        if implicit:
            settle = net.proximal_point(regularization, stored)
            params, _ = net.descend(params, batches, seen_after(task), net.no_penalty, settle)
        else:
            params, _ = net.descend(params, batches, seen_after(task), penalty)
        stored = keep(stored, importance_of(params, task), params)
        after.append((params, stored))
    return after


def keep_all(remaining, importance, params):
    return [*remaining, (importance, params)]


def keep_last(decay):
    """Return a rule that stores the last anchor alone, with decayed importances."""

    def keep(remaining, importance, params):
        if remaining:
            old = remaining[0][0]
            importance = {name: decay * old[name] + importance[name] for name in old}
        return [(importance, params)]

    return keep


# Name: strategy of a setup, then the regularization of Σ ω (θ − θ*)², the importance, what is
# kept, and whether steps are implicit.
CASES = {
    "ewc": (
        lambda s: ewc(s, regularization=20.0, importance_samples=LIMIT),
        (10.0, fisher_of, keep_all),
    ),
    "online ewc": (
        lambda s: ewc(s, regularization=20.0, online=True, decay=0.6, importance_samples=LIMIT),
        (10.0, fisher_of, keep_last(0.6)),
    ),
    "mas": (
        lambda s: mas(s, regularization=0.6, importance_samples=LIMIT),
        (0.6, output_sensitivity_of, keep_last(1.0)),
    ),
    "implicit ewc": (
        lambda s: ewc(s, regularization=20.0, importance_samples=LIMIT, implicit_rate=RATE),
        (10.0, fisher_of, keep_all, True),
    ),
    "implicit mas": (
        lambda s: mas(s, regularization=0.6, importance_samples=LIMIT, implicit_rate=RATE),
        (0.6, output_sensitivity_of, keep_last(1.0), True),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_three_tasks_done_again_in_float64(name):
    """Parameters, importances and anchors agree after every task, to 12 steps' rounding."""
    strategy, by_hand = CASES[name]
    setup = net.small_setup()
    after = net.run_tasks(setup, strategy(setup), SEQUENCE)
    expected = train_by_hand(*by_hand)
    for (memory, learner), (params, stored) in zip(after, expected, strict=True):
        net.assert_trees_close(learner.params, params, rtol=1e-4, atol=1e-5)
        sums = {n: sum(importance[n] for importance, _ in stored) for n in params}
        weighted = {
            n: sum(importance[n] * theta[n] for importance, theta in stored) for n in params
        }
        net.assert_trees_close(memory.importance, sums, rtol=1e-3, atol=1e-6)
        net.assert_trees_close(memory.weighted_anchor, weighted, rtol=1e-3, atol=1e-6)
    # The agreement is of trainings in which the penalty mattered.
    free = train_by_hand(0.0, *by_hand[1:])
    assert np.max(np.abs(free[-1][0]["head"] - expected[-1][0]["head"])) > 0.03


def test_naive_training_done_again_in_float64():
    setup = net.small_setup()
    after = net.run_tasks(setup, naive(setup), SEQUENCE)
    params = START
    for task, (_, learner) in enumerate(after):
        params, _ = net.descend(params, BATCHES[task], seen_after(task), net.no_penalty)
        net.assert_trees_close(learner.params, params, rtol=1e-4, atol=1e-5)
    assert after[-1][1].batch_stats["passes"] == 12
    assert after[-1][1].step == 12


def random_trees(seed, count):
    """Draw positive importances, and anchors near the start."""
    rng = np.random.default_rng(seed)
    importances, anchors = [], []
    for _ in range(count):
        importances.append({n: rng.gamma(0.5, size=leaf.shape) for n, leaf in START.items()})
        anchors.append({n: leaf + rng.normal(size=leaf.shape) for n, leaf in START.items()})
    return importances, anchors


def penalty_value(theta, importances, anchors):
    pairs = zip(importances, anchors, strict=True)
    return sum(np.sum(w[n] * (theta[n] - a[n]) ** 2) for w, a in pairs for n in theta)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_running_sums_have_the_gradient_of_all_stored_anchors(count):
    importances, anchors = random_trees(count, count)
    sums = quadratic.no_anchors(net.as_float32(START))
    for importance, anchor in zip(importances, anchors, strict=True):
        sums = quadratic.add_anchor(sums, net.as_float32(importance), net.as_float32(anchor))
    expected = net.finite_differences(lambda p: penalty_value(p, importances, anchors), START)
    computed = quadratic.penalty_gradient(sums, net.as_float32(START))
    net.assert_trees_close(computed, expected, rtol=1e-4, atol=1e-4)


REGULARIZATIONS = {
    # Each paper's loss has this factor of Σ ω (θ − θ*)².
    "ewc": (lambda s: ewc(s, regularization=5.0), 2.5),
    "online ewc": (lambda s: ewc(s, regularization=5.0, online=True), 2.5),
    "mas": (lambda s: mas(s, regularization=5.0), 5.0),
}


@pytest.mark.parametrize("name", REGULARIZATIONS)
def test_the_gradient_is_that_of_the_written_loss(name):
    """The reference is finite differences of mean cross-entropy plus the penalty, in float64."""
    strategy, factor = REGULARIZATIONS[name]
    setup = net.small_setup()
    learner = net.small_learner(setup, [0, 1, 2, 3])
    (importance,), (anchor,) = random_trees(9, 1)
    memory = quadratic.single_anchor(net.as_float32(importance), net.as_float32(anchor))
    task, (batch, *_) = SEQUENCE[1]
    batch = net.filled(setup, batch)
    total, info = jax.jit(strategy(setup).grads)(memory, learner, batch, task, jax.random.key(0))

    def task_loss(params):
        logits = net.forward(params, batch.index, train=True)[2][:, :4]
        chosen = logits[np.arange(4), np.asarray(batch.labels[:, 0])]
        return np.mean(np.log(np.exp(logits).sum(axis=1)) - chosen)

    def written(params):
        return task_loss(params) + factor * penalty_value(params, [importance], [anchor])

    net.assert_trees_close(total, net.finite_differences(written, START), rtol=1e-4, atol=1e-4)
    # SI's integrand and the logged loss remain those of the task.
    net.assert_trees_close(info.task_gradient, net.finite_differences(task_loss, START), atol=1e-5)
    np.testing.assert_allclose(info.loss, task_loss(START), rtol=1e-5)
    assert jnp.all(info.batch_stats["passes"] == 1)


# A task loss ½ Σ a (θ − t)² of five parameters and two anchors whose importances span decades; to
# the last parameter they leave the task alone.
CURVATURE, TARGET = np.array([1.0, 0.5, 2.0, 1.0, 1.5]), np.array([1.0, -2.0, 0.5, 3.0, -1.0])
IMPORTANCES = np.array([[100.0, 1.0, 0.01, 30.0, 0.0], [0.0, 10.0, 0.05, 50.0, 0.0]])
ANCHORS = np.array([[-1.0, 2.0, 1.0, 0.0, 5.0], [3.0, 1.0, -1.0, 2.0, -5.0]])
STEP = 0.1


def stiff_setup(momentum=0.0, rate=STEP):
    """Return a setup with the loss above, which does not depend on the batch."""

    def loss(outputs, labels, seen):
        return jnp.sum(CURVATURE * (outputs.logits - TARGET) ** 2, axis=1) / 2

    def apply(params, batch_stats, inputs, train, key):
        logits = jnp.broadcast_to(params["theta"], (len(inputs), 5))
        return Outputs(logits, inputs), batch_stats

    return Setup(
        init=lambda key: ({"theta": jnp.zeros(5)}, {}),
        apply=apply,
        objective=softmax_objective()._replace(loss=loss),
        optimizer=optax.sgd(rate, momentum=momentum or None),
        gather=lambda index, key: jnp.zeros((len(index), 1)),
    )


def stiff_anchors():
    sums = quadratic.no_anchors({"theta": jnp.zeros(5)})
    for importance, anchor in zip(IMPORTANCES, ANCHORS, strict=True):
        sums = quadratic.add_anchor(
            sums, net.as_float32({"theta": importance}), net.as_float32({"theta": anchor})
        )
    return sums


def minimizer(regularization):
    """Return the minimum of the task's loss and regularization Σ ω (θ − θ*)², in float64."""
    pull = 2 * regularization * np.sum(IMPORTANCES * ANCHORS, axis=0)
    weight = 2 * regularization * np.sum(IMPORTANCES, axis=0)
    return (CURVATURE * TARGET + pull) / (CURVATURE + weight)


@functools.cache
def stiff_program(momentum, implicit_rate, rate=STEP, factor=1.0):
    """Return a program from regularization and number of steps to the parameters."""
    setup = stiff_setup(momentum, rate)
    learner = init_learner(setup, CLASSES, jax.random.key(0))
    learner = learner._replace(schedule=learner.schedule._replace(factor=jnp.float32(factor)))
    task, batch, key = net.task_of(1, [0], [0]), net.batch_of([0]), jax.random.key(1)

    def run(regularization, steps):
        strategy = quadratic.penalized(
            setup, naive(setup), regularization, lambda memory: memory, implicit_rate
        )

        def step(_, carry):
            return train_step(setup, strategy, *carry, batch, task, key)[:2]

        return jax.lax.fori_loop(0, steps, step, (stiff_anchors(), learner))[1].params["theta"]

    return jax.jit(run)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("regularization", [1e-3, 1.0, 100.0, 1e6])
def test_implicit_steps_lead_to_the_minimizer_at_any_regularization(regularization, momentum):
    """Momentum carries a constant gradient 1 / (1 − m) as far, which the rate of the penalty is."""
    result = stiff_program(momentum, STEP / (1 - momentum))(regularization, 600)
    np.testing.assert_allclose(result, minimizer(regularization), rtol=1e-4, atol=1e-5)


def test_the_rate_of_the_implicit_step_follows_the_schedule():
    """One float64 step at a quarter of the rate is the task's step, then the proximal point."""
    result = stiff_program(0.0, STEP, factor=0.25)(3.0, 1)
    theta = 0.25 * STEP * CURVATURE * TARGET
    scale = 2 * 0.25 * STEP * 3.0
    pull, weight = np.sum(IMPORTANCES * ANCHORS, axis=0), np.sum(IMPORTANCES, axis=0)
    np.testing.assert_allclose(result, (theta + scale * pull) / (1 + scale * weight), rtol=1e-5)


numbers = st.floats(-100, 100, width=32)
positive = st.floats(1e-6, 1e12)


@settings(max_examples=200)
@given(numbers, numbers, positive, st.floats(1e-6, 1e3))
def test_the_proximal_point_is_between_the_parameter_and_its_anchor(theta, anchor, scale, weight):
    """The point is (θ + 2ηcω θ*) / (1 + 2ηcω), to float32's rounding of the greater of the two.

    A product below float32's least normal number is 0, also one that the scale multiplies.
    """
    sums = quadratic.single_anchor({"p": jnp.float32(weight)}, {"p": jnp.float32(anchor)})
    moved = (
        theta + quadratic.proximal_change(sums, {"p": jnp.float32(theta)}, jnp.float32(scale))["p"]
    )
    expected = (theta + 2 * scale * weight * anchor) / (1 + 2 * scale * weight)
    rounding = 1e-6 * max(abs(theta), abs(anchor)) + (4 + 2 * scale) * np.finfo(np.float32).tiny
    np.testing.assert_allclose(moved, expected, rtol=0, atol=rounding)


def test_implicit_steps_leave_frozen_parameters_bit_for_bit():
    """Two parameters are far from their anchors, and one of them is frozen."""
    start = net.as_float32({"frozen": np.array([0.3, -7.1]), "free": np.array([0.3, -7.1])})
    setup = stiff_setup()._replace(
        trainable=lambda params: {"frozen": False, "free": True},
        apply=lambda params, batch_stats, inputs, train, key: (
            Outputs(jnp.zeros((len(inputs), 5)) + params["free"][0], inputs),
            batch_stats,
        ),
        init=lambda key: (start, {}),
    )
    strategy = quadratic.penalized(setup, naive(setup), 5.0, lambda memory: memory, STEP)
    importance, anchor = ({name: jnp.full(2, value) for name in start} for value in (2.0, 4.0))
    sums = quadratic.single_anchor(importance, anchor)
    learner = init_learner(setup, CLASSES, jax.random.key(0))
    task = net.task_of(1, [0], [0])
    step = jax.jit(functools.partial(train_step, setup, strategy))
    _, learner, _ = step(sums, learner, net.batch_of([0]), task, jax.random.key(1))
    np.testing.assert_array_equal(learner.params["frozen"], start["frozen"])
    assert np.all(np.abs(learner.params["free"] - 4) < np.abs(start["free"] - 4))


@pytest.mark.parametrize("implicit", [False, True])
def test_two_tasks_stay_near_the_initial_parameters(implicit):
    batches = [net.batch_of([0, 6, 12]), net.batch_of([1, 7, 13]), net.batch_of([2, 8])]
    setup = net.small_setup()
    strategy = l2_init(setup, 0.4, RATE if implicit else None)
    tasks = [
        (net.task_of(0, [0, 1], [0, 1]), batches[:2]),
        (net.task_of(1, [2, 3], [2]), batches[2:]),
    ]
    *_, (_, learner) = net.run_tasks(setup, strategy, tasks)
    ones = {name: np.ones_like(leaf) for name, leaf in START.items()}

    def pull(params):
        return {name: 2 * 0.4 * (params[name] - START[name]) for name in params}

    inputs = (net.no_penalty, net.proximal_point(0.4, [(ones, START)])) if implicit else (pull,)
    params, _ = net.descend(START, batches[:2], np.arange(CLASSES) < 2, *inputs)
    params, _ = net.descend(params, batches[2:], np.arange(CLASSES) < 4, *inputs)
    net.assert_trees_close(learner.params, params, rtol=2e-4, atol=2e-5)
