"""AR1 and AR1*: heads, sums over steps, importances and penalty done again in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import StepInfo
from everlight.continual.objectives.fixed_test_set import fixed_test_objective
from everlight.continual.strategies.ar1 import ar1, protected_leaves
from everlight.continual.strategies.cwr import cwr
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, LABELS, RATE, START

REGULARIZATION, DAMPING, LIMIT = 10.0, 1e-3, 0.3
# Classes 0 and 1 come again in other numbers; class 5 never comes.
RECURRING = [[0, 6, 12, 18, 1, 7, 2], [0, 6, 1, 7, 13, 19, 25, 3], [24, 1, 7, 4, 10]]
STEPS = 4
ALL = np.ones(CLASSES, bool)


def sequence():
    tasks = []
    for number, index in enumerate(RECURRING):
        train = net.samples_of([*index, 5], [True] * len(index) + [False])
        tasks.append((net.task_of(number, np.unique(LABELS[index]), train), [index] * STEPS))
    return tasks


def train_by_hand(form, implicit=False):
    """Return parameters, consolidated head, sum over the task's steps and total after each task."""
    params, below = START, ("hidden", "hidden_bias")
    head = {name: np.zeros_like(START[name]) for name in ("head", "head_bias")}
    total = {name: np.zeros_like(START[name]) for name in below}
    past, after = np.zeros(CLASSES), []
    for index in RECURRING:
        count = np.bincount(LABELS[index], minlength=CLASSES)
        again = (count > 0) & (past > 0) & (form == "star")
        params = params | {name: np.where(again, leaf, 0) for name, leaf in head.items()}
        start, path = params, {name: np.zeros_like(START[name]) for name in below}
        stiff = {name: REGULARIZATION * np.clip(total[name], 0, LIMIT) for name in below}
        for _ in range(STEPS):
            gradient = net.batch_gradient(params, index, ALL)
            slope = {n: gradient[n] + stiff[n] * (params[n] - start[n]) for n in below}
            moved = {name: params[name] - RATE * leaf for name, leaf in gradient.items()}
            for name in below:
                if implicit:
                    pull = moved[name] + RATE * stiff[name] * start[name]
                    moved[name] = pull / (1 + RATE * stiff[name])
                else:
                    moved[name] = params[name] - RATE * slope[name]
                path[name] = path[name] - slope[name] * (moved[name] - params[name])
            params = moved
        total = {n: total[n] + path[n] / ((params[n] - start[n]) ** 2 + DAMPING) for n in below}
        head = {
            name: consolidate(old, params[name], count, past, form) for name, old in head.items()
        }
        past = past + (count if form == "star" else count > 0)
        after.append((params, head, path, total))
    return after


def consolidate(old, new, count, past, form):
    """Return the rows of a head after a task, one by one."""
    rows, mean = np.where(past > 0, old, new), np.mean(new[..., count > 0])
    for row in np.flatnonzero(count):
        weight = np.sqrt(past[row] / count[row]) if form == "star" else past[row]
        rows[..., row] = (weight * old[..., row] + new[..., row] - mean) / (weight + 1)
    return rows


def setup_of_all_outputs():
    return net.layered_setup()._replace(objective=fixed_test_objective(CLASSES))


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize("form", ["plus", "star"])
def test_three_tasks_done_again_in_float64(form, implicit):
    setup, rate = setup_of_all_outputs(), RATE if implicit else None
    strategy = net.compiled(ar1(setup, REGULARIZATION, form, DAMPING, LIMIT, rate))
    after, expected = net.run_tasks(setup, strategy, sequence()), train_by_hand(form, implicit)
    limited = [np.mean(leaf > LIMIT) for *_, total in expected for leaf in total.values()]
    assert 0 < np.mean(limited) < 1
    for (memory, learner), (params, head, path, total) in zip(after, expected, strict=True):
        close = functools.partial(net.assert_trees_close, rtol=1e-3, atol=2e-5)
        close(net.flat(learner.params), params)
        close(memory.head.head, {"kernel": head["head"], "bias": head["head_bias"]})
        close(memory.total["hidden"], {"kernel": total["hidden"], "bias": total["hidden_bias"]})
        close(memory.path["hidden"], {"kernel": path["hidden"], "bias": path["hidden_bias"]})
        assert not any(leaf.any() for leaf in memory.total["head"].values())
        inputs = net.as_float32(net.DATA[:7])
        predicted = strategy.predict(memory, learner, inputs)
        _, bent, _ = net.forward(params, np.arange(7))
        scores = bent @ head["head"] + head["head_bias"]
        np.testing.assert_allclose(predicted, scores, rtol=1e-3, atol=2e-5)


def test_a_step_against_the_gradient_lowers_the_importance_at_most_to_0():
    """Sums of both signs are added up as in the authors' code; there a negative sum stays."""
    setup, key, task = setup_of_all_outputs(), jax.random.key(0), sequence()[0][0]
    strategy = ar1(setup, 1.0, damping=0.5, importance_limit=1.0)
    memory, learner = net.untrained(setup, strategy)
    sums, penalties = [], []
    for gradient, change in ((-2.0, 0.5), (2.0, 0.2), (4.0, 1.0), (0.0, 0.25)):
        memory, learner = strategy.begin_task(memory, learner, task, key)
        slope, step = (
            jax.tree.map(lambda leaf, value=value: jnp.full_like(leaf, value), learner.params)
            for value in (gradient, change)
        )
        learner = learner._replace(params=jax.tree.map(jnp.add, learner.params, step))
        batch = net.filled(setup, net.batch_of([0, 1]))
        descent, info = strategy.grads(memory, learner, batch, task, key)
        penalties.append((descent["hidden"]["bias"] - info.task_gradient["hidden"]["bias"])[0])
        info = StepInfo(slope, learner.batch_stats, jnp.array(0.0), (slope, ()), update=step)
        memory, learner = strategy.after_step(memory, learner, info, key)
        memory, learner = strategy.end_task(memory, learner, task, key)
        sums.append(memory.total["hidden"]["bias"][0])
    expected = np.cumsum([1 / 0.75, -0.4 / 0.54, -4 / 1.5, 0])
    np.testing.assert_allclose(sums, expected, rtol=1e-5)
    importance = np.clip([0, *expected[:-1]], 0, 1)
    np.testing.assert_allclose(penalties, importance * [0.5, 0.2, 1, 0.25], rtol=1e-5)


def test_the_head_and_normalization_are_free():
    params = {
        "stem": {"conv": {"kernel": 1.0, "bias": 1.0}, "norm": {"scale": 1.0, "bias": 1.0}},
        "plain": 1.0,
        "scaled": {"kernel": 1.0, "scale": 1.0},
        "head": {"kernel": 1.0, "bias": 1.0},
    }
    assert protected_leaves(params) == {
        "stem": {"conv": {"kernel": 1, "bias": 1}, "norm": {"scale": 0, "bias": 0}},
        "plain": 1,
        "scaled": {"kernel": 1, "scale": 1},
        "head": {"kernel": 0, "bias": 0},
    }


def test_without_a_penalty_the_head_is_that_of_cwr():
    """AR1* without a penalty is CWR* on a network that learns."""

    setup = setup_of_all_outputs()
    free, head_alone = ar1(setup, 0.0, "star"), cwr(setup, form="star")
    (memory, learner), (head, other) = (
        net.run_tasks(setup, strategy, sequence())[-1] for strategy in (free, head_alone)
    )
    jax.tree.map(np.testing.assert_array_equal, memory.head, head)
    jax.tree.map(np.testing.assert_array_equal, learner.params, other.params)
