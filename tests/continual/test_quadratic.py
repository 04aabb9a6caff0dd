"""EWC, online EWC and MAS: the penalty, and whole trainings done again in float64 NumPy.

The NumPy side stores every task's importance and anchor and adds the penalties up.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.ewc import ewc
from everlight.continual.mas import mas
from everlight.continual.naive import naive
from everlight.continual.quadratic import (
    add_anchor,
    no_anchors,
    penalty_gradient,
    single_anchor,
)
from tests.continual.small_net import (
    START,
    as_float32,
    assert_trees_close,
    backward,
    batch_of,
    classes_mask,
    cross_entropy_gradients,
    descend,
    finite_differences,
    forward,
    no_penalty,
    run_tasks,
    samples_of,
    small_learner,
    small_setup,
    task_of,
)

TASKS = [[0, 1], [2, 3], [4, 5]]
# Training samples of each task with one slot of padding, and its batches; in the second batch the
# last two slots are filling, one of them a sample of another task.
TRAIN = [np.array([0, 1, 6, 7, 12, 13, 18, 19]) + 2 * t for t in range(3)]
BATCHES = [
    [
        batch_of(t[:4]),
        batch_of(np.array([t[4], t[5], t[0], 39]), [1, 1, 0, 0]),
        batch_of(t[[1, 7, 6, 2]]),
        batch_of(t[[3, 3, 5, 4]]),
    ]
    for t in TRAIN
]
MASK = np.array([1, 1, 1, 0, 1, 1, 1, 1], bool)
SEQUENCE = [
    (task_of(t, classes, samples_of(TRAIN[t], MASK)), BATCHES[t]) for t, classes in enumerate(TASKS)
]
LIMIT = 6


def seen_after(task):
    return classes_mask([c for classes in TASKS[: task + 1] for c in classes])


def fisher_of(params, task):
    index = TRAIN[task][MASK][:LIMIT]
    each = cross_entropy_gradients(params, index, seen_after(task))
    return {name: np.mean(leaf**2, axis=0) for name, leaf in each.items()}


def output_sensitivity_of(params, task):
    index = TRAIN[task][MASK][:LIMIT]
    logits = np.where(seen_after(task), forward(params, index)[2], 0.0)
    each = backward(params, index, 2 * logits)
    return {name: np.mean(np.abs(leaf), axis=0) for name, leaf in each.items()}


def train_by_hand(strength, importance_of, keep):
    """Parameters after each task, the penalty being strength Σ ω (θ − θ*)² over the kept anchors.

    `keep(kept, importance, params)` gives the `(ω, θ*)` that are kept from now on.
    """
    params, kept, after = START, [], []
    for task, batches in enumerate(BATCHES):

        def penalty(theta, kept=tuple(kept)):
            total = no_penalty(theta)
            for importance, anchor in kept:
                for name in theta:
                    moved = theta[name] - anchor[name]
                    total[name] = total[name] + 2 * strength * importance[name] * moved
            return total

        params, _ = descend(params, batches, seen_after(task), penalty)
        kept = keep(kept, importance_of(params, task), params)
        after.append((params, kept))
    return after


def keep_all(kept, importance, params):
    return [*kept, (importance, params)]


def keep_last(decay):
    """Only the last anchor, with decayed importances."""

    def keep(kept, importance, params):
        if kept:
            old = kept[0][0]
            importance = {name: decay * old[name] + importance[name] for name in old}
        return [(importance, params)]

    return keep


# Name: strategy of a setup, then the strength of Σ ω (θ − θ*)², the importance, what is kept.
CASES = {
    "ewc": (
        lambda s: ewc(s, strength=20.0, fisher_samples=LIMIT),
        (10.0, fisher_of, keep_all),
    ),
    "online ewc": (
        lambda s: ewc(s, strength=20.0, online=True, decay=0.6, fisher_samples=LIMIT),
        (10.0, fisher_of, keep_last(0.6)),
    ),
    "mas": (
        lambda s: mas(s, strength=0.6, importance_samples=LIMIT),
        (0.6, output_sensitivity_of, keep_last(1.0)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_three_tasks_done_again_in_float64(name):
    """Parameters, importances and anchors after every task, to float32's rounding in 12 steps."""
    strategy, by_hand = CASES[name]
    setup = small_setup()
    after = run_tasks(setup, strategy(setup), SEQUENCE)
    expected = train_by_hand(*by_hand)
    for (memory, learner), (params, kept) in zip(after, expected, strict=True):
        assert_trees_close(learner.params, params, rtol=1e-4, atol=1e-5)
        sums = {n: sum(importance[n] for importance, _ in kept) for n in params}
        weighted = {n: sum(importance[n] * theta[n] for importance, theta in kept) for n in params}
        assert_trees_close(memory.importance, sums, rtol=1e-3, atol=1e-6)
        assert_trees_close(memory.weighted_anchor, weighted, rtol=1e-3, atol=1e-6)
    # The agreement is of trainings in which the penalty mattered.
    free = train_by_hand(0.0, *by_hand[1:])
    assert np.max(np.abs(free[-1][0]["head"] - expected[-1][0]["head"])) > 0.03


def test_naive_training_done_again_in_float64():
    setup = small_setup()
    after = run_tasks(setup, naive(setup), SEQUENCE)
    params = START
    for task, (_, learner) in enumerate(after):
        params, _ = descend(params, BATCHES[task], seen_after(task), no_penalty)
        assert_trees_close(learner.params, params, rtol=1e-4, atol=1e-5)
    assert after[-1][1].batch_stats["passes"] == 12
    assert after[-1][1].step == 12


def random_trees(seed, count):
    """Positive importances and anchors near the start."""
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
    sums = no_anchors(as_float32(START))
    for importance, anchor in zip(importances, anchors, strict=True):
        sums = add_anchor(sums, as_float32(importance), as_float32(anchor))
    expected = finite_differences(lambda p: penalty_value(p, importances, anchors), START)
    found = penalty_gradient(sums, as_float32(START))
    assert_trees_close(found, expected, rtol=1e-4, atol=1e-4)


def test_one_anchor_pulls_nothing_at_itself_and_none_pulls_nothing_anywhere():
    (importance,), (anchor,) = random_trees(5, 1)
    sums = single_anchor(as_float32(importance), as_float32(anchor))
    zero = {name: np.zeros_like(leaf) for name, leaf in START.items()}
    assert_trees_close(penalty_gradient(sums, as_float32(anchor)), zero, atol=1e-5)
    nowhere = penalty_gradient(no_anchors(as_float32(START)), as_float32(START))
    assert_trees_close(nowhere, zero, atol=0.0)


STRENGTHS = {
    # The factor of Σ ω (θ − θ*)² in each paper's loss.
    "ewc": (lambda s: ewc(s, strength=5.0), 2.5),
    "online ewc": (lambda s: ewc(s, strength=5.0, online=True), 2.5),
    "mas": (lambda s: mas(s, strength=5.0), 5.0),
}


@pytest.mark.parametrize("name", STRENGTHS)
def test_the_gradient_is_that_of_the_written_loss(name):
    """Finite differences of the mean cross-entropy plus the penalty, in float64."""
    strategy, factor = STRENGTHS[name]
    setup = small_setup()
    learner = small_learner(setup, [0, 1, 2, 3])
    (importance,), (anchor,) = random_trees(9, 1)
    memory = single_anchor(as_float32(importance), as_float32(anchor))
    task, (batch, *_) = SEQUENCE[1]
    total, info = jax.jit(strategy(setup).grads)(memory, learner, batch, task, jax.random.key(0))

    def task_loss(params):
        logits = forward(params, batch.index, train=True)[2][:, :4]
        chosen = logits[np.arange(4), np.asarray(batch.labels[:, 0])]
        return np.mean(np.log(np.exp(logits).sum(axis=1)) - chosen)

    def written(params):
        return task_loss(params) + factor * penalty_value(params, [importance], [anchor])

    assert_trees_close(total, finite_differences(written, START), rtol=1e-4, atol=1e-4)
    # What SI integrates and what is logged stay the task's own.
    assert_trees_close(info.task_gradient, finite_differences(task_loss, START), atol=1e-5)
    np.testing.assert_allclose(info.loss, task_loss(START), rtol=1e-5)
    assert jnp.all(info.batch_stats["passes"] == 1)
