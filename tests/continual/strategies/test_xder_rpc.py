"""X-DER with a polytope head against a loop in float64 NumPy, over three tasks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import StepInfo
from everlight.continual.strategies.parts.memory import batch_at
from everlight.continual.strategies.parts.polytope import simplex
from everlight.continual.strategies.xder_rpc import (
    ExtendedMemory,
    SlotDraw,
    balanced_choice,
    transplant_logits,
    xder_rpc,
)
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, LABELS, RATE, START

SETUP = net.small_setup()
ALPHA, BETA, GAMMA, ETA, MARGIN, BUFFER = 0.7, 0.6, 0.8, 0.5, 0.2, 6
CLASSES_OF = np.array([[4, 0], [1, 5], [2, 3]])
"""Classes of the tasks, in another order than that of their numbers."""
TASK_OF = np.argsort(CLASSES_OF.ravel()) // 2
STREAM = [[[0, 4, 6], [10, 12]], [[1, 7, 5], [11, 13]], [[2, 8, 3], [9, 15]]]
COUNTS = [[2, 3, 0, 0, 0, 0], [1, 1, 2, 2, 0, 0], [1, 1, 1, 1, 1, 1]]
"""Samples of each class that six slots hold after each task, in the order of `CLASSES_OF`."""
ROWS = np.eye(CLASSES)


def vertices(classes):
    """Return the code's simplex in closed form: the last vertex has equal coordinates."""
    size = classes - 1
    first = np.sqrt(1 + 1 / size) * np.eye(size) - (np.sqrt(classes) - 1) * size**-1.5
    return np.hstack([first, np.full((size, 1), -(size**-0.5))])


HEAD = vertices(CLASSES)


def test_the_polytope_is_the_authors_centered_regular_simplex():
    for classes in (2, 3, CLASSES):
        head = simplex(classes)
        np.testing.assert_allclose(head, vertices(classes), rtol=0, atol=1e-12)
        np.testing.assert_allclose(head.sum(axis=1), 0, atol=1e-12)
        gram = np.full((classes, classes), -1 / (classes - 1))
        np.fill_diagonal(gram, 1)
        np.testing.assert_allclose(head.T @ head, gram, atol=1e-12)
    with pytest.raises(ValueError, match="at least 2 classes"):
        simplex(1)


def logits_of(params, index):
    return net.forward(params, index, train=True)[2][:, :-1] @ HEAD


def slope(params, index, logit_gradient):
    """Return the gradient summed over samples, from those of the head's logits."""
    below = np.pad(logit_gradient @ HEAD.T, ((0, 0), (0, 1)))
    contribution = net.backward(params, index, below, train=True)
    return {name: leaf.sum(axis=0) for name, leaf in contribution.items()}


def entropy_slope(params, index, among):
    probability = net.softmax(logits_of(params, index), among)
    return slope(params, index, (probability - ROWS[LABELS[index]]) / len(index))


def constraint_slope(params, index, future):
    """Return the gradient of the mean positive excess, and the number of samples with one."""
    logits = logits_of(params, index)
    selected = TASK_OF[LABELS[index]][:, None] == TASK_OF
    above, below = (
        np.argmax(np.where(part, logits, -np.inf), axis=1) for part in (future[None], selected)
    )
    rows = np.arange(len(index))
    positive = logits[rows, above] + MARGIN - logits[rows, below] > 0
    signs = (ROWS[above] - ROWS[below]) * positive[:, None]
    return slope(params, index, signs / max(positive.sum(), 1)), positive.sum()


def past_slope(params, index, past, present):
    """Return the gradient of the mean positive excess of past classes, and its sample count."""
    probability = net.softmax(logits_of(params, index), past | present)
    above = np.where(past, probability, -np.inf).max(axis=1)
    below = np.argmax(np.where(present, probability, -np.inf), axis=1)
    rows = probability[np.arange(len(index)), below]
    positive = above + MARGIN - rows > 0
    item = -(rows * positive)[:, None] * (ROWS[below] - probability)
    return slope(params, index, item / max(positive.sum(), 1)), positive.sum()


def update(old, new, label, among):
    """Return stored logits after an update, and whether they were scaled."""
    current, most = old[label], new[among].max()
    factor = GAMMA * current / most if most > current else 1
    return np.where(among, factor * new, old), most > current


def step_by_hand(params, batch, held, stored, past, present, constrained):
    """Take one step that draws the whole memory twice."""
    future = ~(past | present)
    terms = [(1, entropy_slope(params, batch, present))]
    if held:
        away = logits_of(params, held) - stored
        terms += [
            (ALPHA, slope(params, held, 2 * away / away.size)),
            (BETA, entropy_slope(params, held, past)),
        ]
    violated, lagging = None, (0, 0)
    if constrained and past.any():
        constraint, number = past_slope(params, batch, past, present)
        terms.append((ETA, constraint))
        lagging = number, len(batch)
    if future.any():
        constraint, violated = constraint_slope(params, [*batch, *held], future)
        terms.append((ETA, constraint))
    moved = {
        name: params[name] - RATE * sum(weight * term[name] for weight, term in terms)
        for name in params
    }
    return moved, violated, np.array(lagging)


@pytest.mark.parametrize("constrained", [True, False])
def test_three_tasks_are_the_loop_in_float64(constrained):
    """A task has two steps; the samples that the memory chooses are read from it.

    The first step of a task updates the logits of all drawn samples, the second one a random half,
    which the end of the task replaces again.
    """
    strategy = xder_rpc(SETUP, BUFFER, ALPHA, BETA, GAMMA, ETA, MARGIN, constrained, 1, BUFFER)
    tasks = [
        (net.task_of(number, part, np.concatenate(batches)), batches)
        for number, (part, batches) in enumerate(zip(CLASSES_OF, STREAM, strict=True))
    ]
    after = net.run_tasks(SETUP, strategy, tasks)
    params, held, stored, violations, scaled, lagging = START, [], {}, [], [], 0
    for number, (memory, learner) in enumerate(after):
        past, present = number > TASK_OF, number == TASK_OF
        for batch in STREAM[number]:
            rows = np.array([stored[index] for index in held])
            before = params
            params, violated, behind = step_by_hand(
                params, batch, held, rows, past, present, constrained
            )
            lagging = lagging + behind
            violations += [(violated, len(batch) + len(held))] if number < 2 else []
            if batch is STREAM[number][0]:
                for index in held:
                    new = logits_of(before, [index])[0]
                    stored[index], _ = update(stored[index], new, LABELS[index], ~past)
        net.assert_trees_close(learner.params, params, rtol=5e-4, atol=5e-5)

        remaining = np.asarray(memory.samples.index)[np.asarray(memory.samples.mask)].tolist()
        counts = np.bincount(LABELS[remaining], minlength=CLASSES)
        np.testing.assert_array_equal(counts[CLASSES_OF.ravel()], COUNTS[number])
        assert len(set(remaining)) == len(remaining)
        assert set(remaining) <= {*held, *np.concatenate(STREAM[number]).tolist()}
        for index in remaining:
            label, now = LABELS[index], logits_of(params, [index])[0]
            old, among = (stored[index], ~past) if past[label] else (now, past)
            stored[index], was_scaled = update(old, now, label, among) if number else (now, False)
            scaled.append(was_scaled)
        held = remaining
        expected = np.array([stored[index] for index in held])
        np.testing.assert_allclose(memory.logits[: len(held)], expected, rtol=2e-3, atol=2e-4)
        assert np.all(memory.draws == 0)
    # Some samples exceed the margin and some do not, some logits are scaled and some are not.
    excess, counted = np.sum(violations, axis=0)
    assert 0 < excess < counted
    assert not constrained or lagging[0] > 0
    assert set(scaled) == {True, False}
    assert learner.batch_stats["passes"] == 6


def test_a_sample_drawn_k_times_is_updated_with_probability_one_over_k():
    """Slots 0 to 3 were drawn 0, 1, 2 and 9 times; slot 1 is in both draws and counts once."""
    strategy = xder_rpc(SETUP, 5)
    logits = jnp.zeros((5, CLASSES))
    held = net.samples_of(range(5), [1, 1, 1, 1, 0])
    draws = jnp.array([0, 1, 2, 9, 0])
    memory = ExtendedMemory(held, logits, draws, jnp.zeros(CLASSES, jnp.int32))

    def drawn(slots, weight):
        batch = batch_at(held, jnp.array(slots), jnp.array(weight, jnp.float32))
        return SlotDraw(batch, jnp.array(slots), logits[jnp.array(slots)])

    replay = drawn([0, 1, 4], [1, 1, 0]), drawn([1, 2, 3], [1, 1, 1])
    new = jnp.ones((3, CLASSES)), 2 * jnp.ones((3, CLASSES))
    info = StepInfo({}, {}, jnp.float32(0), new, net.batch_of([6])._replace(replay=replay))
    learner = net.small_learner(SETUP, [0])
    step = jax.jit(jax.vmap(lambda key: strategy.after_step(memory, learner, info, key)[0]))
    result = step(jax.random.split(jax.random.key(0), 4000))
    np.testing.assert_array_equal(result.draws, np.broadcast_to([1, 2, 3, 10, 0], (4000, 5)))
    assert set(np.unique(result.logits[:, 1]).tolist()) == {0, 1}
    shares = np.mean(np.asarray(result.logits[:, :, 0]) > 0, axis=0)
    expected = np.array([1, 1 / 2, 1 / 3, 1 / 10, 0])
    # The bound is five standard deviations.
    assert np.all(np.abs(shares - expected) <= 5 * np.sqrt(expected * (1 - expected) / 4000))


def test_classes_of_a_task_divide_the_free_slots_and_earlier_ones_keep_their_share():
    """Ten slots have four classes: two of each earlier one, but class 1 has one sample alone.

    Seven slots are free: one class of the task gets four, the other three, either way round.
    """
    stored = net.samples_of([0, 6, 12, 18, 1, 0, 0, 0, 0, 0], np.arange(10) < 5)
    new = [2, 8, 14, 20, 26, 3, 9, 15, 21, 27]
    complete = net.samples_of([*new, *stored.index.tolist()], [*[1] * 10, *stored.mask.tolist()])
    past, present = (jnp.isin(jnp.arange(CLASSES), jnp.array(pair)) for pair in ([0, 1], [2, 3]))
    choose = jax.jit(jax.vmap(lambda key: balanced_choice(complete, stored, past, present, key)))
    chosen = np.asarray(choose(jax.random.split(jax.random.key(0), 2000)))
    counts = np.stack(
        [chosen[:, LABELS[complete.index] == c].sum(axis=1) for c in range(4)], axis=1
    )
    assert {tuple(row) for row in counts.tolist()} == {(2, 1, 3, 4), (2, 1, 4, 3)}
    shares = chosen.mean(axis=0)
    np.testing.assert_allclose(shares, [0.7] * 10 + [0.5] * 4 + [1] + [0] * 5, atol=0.06)


def test_logits_of_zero_stay_zero_where_the_label_is_below_them():
    """A network whose features are all 0 has these logits; the factor would be infinite."""
    old, new = jnp.array([[-0.5, 0.2, 0.1]]), jnp.zeros((1, 3))
    among = jnp.array([False, True, True])
    updated = transplant_logits(old, new, jnp.array([0]), among, 0.85)
    np.testing.assert_array_equal(updated, [[-0.5, 0, 0]])
