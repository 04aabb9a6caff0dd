"""FROMP against its points, kernels and steps in float64 NumPy."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import Samples
from everlight.continual.strategies.fromp import (
    MemorablePast,
    class_probabilities,
    draw_points,
    fromp,
    functional_distance,
    invert_kernel,
    memorable_points,
)
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, LABELS, RATE, START

CLASSES_OF = [[0, 1], [2, 3], [4, 5]]
# Class 1 has a single sample, so that the first task fills three of five slots.
TRAIN = [[0, 6, 12, 18, 1], [2, 8, 14, 3, 9, 15], [4, 10, 5, 11]]
STREAMS = [[part[:3], part[2:], part[1:3]] for part in TRAIN]
SLOTS, TAU, PRIOR, JITTER, CLIP = 5, 0.3, 0.02, 0.004, 0.6
GROUP = np.arange(CLASSES) // 2


def probability_gradients(params, index, active, label):
    """Return each sample's gradient of the probability of a class, joined, `[n, p]`."""
    p = net.softmax(net.forward(params, index)[2], active)
    leaves = net.backward(params, index, p[:, [label]] * (np.eye(CLASSES)[label] - p))
    return np.concatenate([leaves[name].reshape(len(index), -1) for name in sorted(leaves)], axis=1)


def gauss_newton(params, index, active):
    """Return Σ over samples of the diagonal of Jᵀ (diag p − p pᵀ) J, J being that of logits."""
    p = net.softmax(net.forward(params, index)[2], active)
    jacobian = []
    for label in range(CLASSES):
        rows = np.tile(np.eye(CLASSES)[label], (len(index), 1))
        leaves = net.backward(params, index, rows)
        jacobian.append(
            np.concatenate([leaves[name].reshape(len(index), -1) for name in sorted(leaves)], 1)
        )
    hessian = p[:, :, None] * np.eye(CLASSES) - p[:, :, None] * p[:, None, :]
    return np.einsum("cij,icd,dij->j", np.array(jacobian), hessian, np.array(jacobian))


def chosen_points(params, index, active, classes):
    """Return the two samples of each class with the largest Σ p (1 − p)."""
    p = net.softmax(net.forward(params, index)[2], active)
    score = dict(zip(index, np.sum(p * (1 - p), axis=1), strict=True))
    return [
        point
        for label in classes
        for point in sorted((i for i in index if LABELS[i] == label), key=lambda i: -score[i])[:2]
    ]


def clipped_step(params, gradient):
    length = np.sqrt(sum(np.sum(leaf**2) for leaf in gradient.values()))
    scale = RATE * min(1.0, CLIP / length)
    return {name: params[name] - scale * gradient[name] for name in params}


def split(vector):
    """Return the parameters of a joined vector."""
    result, start = {}, 0
    for name in sorted(START):
        size = START[name].size
        result[name] = vector[start : start + size].reshape(START[name].shape)
        start += size
    return result


# Ten points per step are all points of one or two earlier tasks.
@pytest.mark.parametrize(
    ("heads", "block", "points_per_step"), [("one head", 64, None), ("a head per task", 2, 10)]
)
def test_three_tasks_are_those_of_float64(heads, block, points_per_step, monkeypatch):
    module = importlib.import_module("everlight.continual.strategies.fromp")
    monkeypatch.setattr(module, "BLOCK", block)
    setup = net.small_setup(jnp.asarray(GROUP) if heads == "a head per task" else None)
    strategy = fromp(setup, 3, SLOTS, TAU, PRIOR, JITTER, CLIP, points_per_step=points_per_step)
    tasks = [net.task_of(t, CLASSES_OF[t], TRAIN[t]) for t in range(3)]
    after = net.run_tasks(setup, strategy, list(zip(tasks, STREAMS, strict=True)))

    params, curvature, points, was_clipped = START, 0.0, [], set()
    for task, (memory, learner) in enumerate(after):
        active = [
            np.arange(CLASSES) < 2 * task + 2 if heads == "one head" else number == GROUP
            for number in range(task + 1)
        ]
        variance, start, past = 1 / (curvature + PRIOR), params, []
        for number, index in enumerate(points):
            old = net.softmax(net.forward(start, index)[2], active[number])
            for label in np.flatnonzero(active[number]):
                rows = probability_gradients(start, index, active[number], label)
                kernel = (rows * variance) @ rows.T + JITTER * np.eye(len(index))
                inverse = np.linalg.inv(kernel)
                past.append((number, label, old[:, label], inverse))
                held = np.ix_(range(len(index)), range(len(index)))
                np.testing.assert_allclose(
                    memory.inverses[number, label][held], inverse, rtol=2e-3, atol=2e-3
                )
            assert not np.any(memory.inverses[number][~active[number]])
        for batch in STREAMS[task]:
            gradient = net.batch_gradient(params, batch, active[task])
            pull = np.zeros(sum(leaf.size for leaf in START.values()))
            for number, label, old, inverse in past:
                p = net.softmax(net.forward(params, points[number])[2], active[number])[:, label]
                rows = probability_gradients(params, points[number], active[number], label)
                pull += TAU * rows.T @ inverse @ (p - old)
            pull = split(pull)
            total = {name: gradient[name] + pull[name] for name in params}
            was_clipped.add(np.linalg.norm(net.joined(total)) > CLIP)
            params = clipped_step(params, total)
        net.assert_trees_close(learner.params, params, rtol=2e-4, atol=2e-5)

        curvature = curvature + gauss_newton(params, TRAIN[task], active[task])
        points.append(chosen_points(params, TRAIN[task], active[task], CLASSES_OF[task]))
        np.testing.assert_allclose(net.joined(memory.curvature), curvature, rtol=1e-3, atol=1e-5)
        mask = np.asarray(memory.samples.mask[task])
        np.testing.assert_array_equal(mask, np.arange(SLOTS) < len(points[-1]))
        np.testing.assert_array_equal(memory.samples.index[task][mask], points[-1])
    assert was_clipped == {True, False}
    assert int(strategy.stored_samples(memory, tasks[2])) == 3 + 4 + 4


def test_a_step_compares_points_at_the_batch_statistics_that_its_training_pass_leaves():
    """The points are those of one pass, as is the network after the training pass of the step."""
    plain = net.small_setup()

    def apply(params, batch_stats, inputs, train, key):
        outputs, after = plain.apply(params, batch_stats, inputs, train, key)
        gain = 1.0 if train else 1.0 + batch_stats["passes"]
        return outputs._replace(logits=outputs.logits * gain), after

    setup = plain._replace(apply=apply)
    strategy = net.compiled(fromp(setup, 2, SLOTS, clip_norm=1e6))
    memory, learner = net.untrained(setup, strategy)
    first, second = (net.task_of(t, CLASSES_OF[t], TRAIN[t]) for t in range(2))
    learner = learner._replace(seen=first.classes | second.classes)
    memory, _ = strategy.end_task(memory, learner, first, jax.random.key(0))
    once = learner._replace(batch_stats={"passes": jnp.array(1)})
    memory, _ = strategy.begin_task(memory, once, second, jax.random.key(0))
    assert np.any(memory.inverses[0] > 1)
    batch = net.filled(setup, net.batch_of(TRAIN[1]))
    gradient, _ = strategy.grads(memory, learner, batch, second, jax.random.key(0))
    net.assert_trees_close(gradient, net.batch_gradient(START, TRAIN[1], np.arange(CLASSES) < 4))


def test_a_sample_of_the_task_stands_for_several_in_the_curvature():
    """Half of equal samples have the mean of all, and the sum counts all; the last is padding."""
    setup = net.small_setup()
    task = net.task_of(0, [0, 1], net.samples_of([0, 0, 1, 1, 6], [1, 1, 1, 1, 0]))
    sums = []
    for limit in (4, 2, 1):
        strategy = fromp(setup, 1, 2, importance_samples=limit)
        memory, learner = net.untrained(setup, strategy)
        learner = learner._replace(seen=task.classes)
        sums.append(strategy.end_task(memory, learner, task, jax.random.key(0))[0].curvature)
    net.assert_trees_close(sums[1], sums[0])
    active = np.arange(CLASSES) < 2
    expected = gauss_newton(START, TRAIN[0][:1] * 2 + [1, 1], active)
    np.testing.assert_allclose(net.joined(sums[0]), expected, rtol=1e-4, atol=1e-6)
    expected = gauss_newton(START, [0] * 4, active)
    np.testing.assert_allclose(net.joined(sums[2]), expected, rtol=1e-4, atol=1e-6)


def test_a_class_of_the_loss_is_covered_at_a_probability_of_exactly_0_or_1():
    setup = net.small_setup()
    params = {**START, "head_bias": 400.0 * np.array([1, -1, 1, 0, 0, 0])}
    learner = net.small_learner(setup, [0, 1], params)
    values, covered = class_probabilities(setup, learner, net.samples_of([0, 6]))
    assert values.tolist() == [[1, 0, 0, 0, 0, 0]] * 2
    assert covered.tolist() == [[True, True, False, False, False, False]] * 2


@pytest.mark.parametrize(
    ("size", "chosen"),
    [(4, [5, 0, 6, 4]), (5, [5, 0, 6, 4]), (1, [5]), (6, [5, 0, 3, 6, 4])],
)
def test_the_points_of_greatest_score_are_chosen_in_equal_parts(size, chosen):
    """Slots 1 and 2 are padding and an unlabelled sample, with the greatest scores."""
    label = np.array([0, 0, -1, 0, 3, 0, 3])
    mask = np.array([True, False, True, True, True, True, True])
    samples = Samples(jnp.arange(7), jnp.asarray(label[:, None]), jnp.asarray(mask))
    score = jnp.array([0.3, 0.9, 0.8, 0.1, 0.2, 0.4, 0.5])
    points = memorable_points(samples, score, size, 4)
    assert points.index[points.mask].tolist() == chosen
    assert points.labels[points.mask][:, 0].tolist() == label[chosen].tolist()
    assert points.mask.tolist() == [slot < len(chosen) for slot in range(size)]


def test_a_kernel_below_zero_by_rounding_has_its_jitter_there():
    """Its eigenvalues are 140.001 and −0.001; a third point is masked."""
    kernel = jnp.array([[70.0, 70.001, 9.0], [70.001, 70.0, jnp.nan], [9.0, jnp.nan, jnp.nan]])
    inverse = invert_kernel(kernel, jnp.array([True, True, False]), 1e-6)
    expected = [[5e5, -5e5, 0], [-5e5, 5e5, 0], [0, 0, 1]]
    np.testing.assert_allclose(inverse, expected, rtol=1e-4, atol=1e-3)


def test_a_step_compares_a_part_of_the_points_of_each_earlier_task():
    """Seven points of three earlier tasks are three of each, or the two that are stored."""
    rng = np.random.default_rng(4)
    index = np.arange(20).reshape(4, 5)
    mask = np.array([[1] * 5, [1] * 5, [1, 0, 1, 0, 0], [0] * 5], bool)
    samples = Samples(jnp.asarray(index), jnp.asarray(LABELS[index][..., None]), jnp.asarray(mask))
    stored = rng.uniform(size=(4, 5, CLASSES))
    roots = rng.normal(size=(4, CLASSES, 5, 5))
    inverses = roots @ np.swapaxes(roots, 2, 3)
    memory = MemorablePast(samples, (), jnp.float32(stored), jnp.float32(inverses))
    setup = net.small_setup()
    learner = net.small_learner(setup, [0, 1, 2])
    drawn_sets, same_slots = set(), []
    for number in range(8):
        drawn = draw_points(memory, 7, jnp.array(3), jax.random.key(number))
        expected = 0.0
        for task in range(4):
            picked = np.asarray(drawn.samples.index[task])[np.asarray(drawn.samples.mask[task])]
            assert len(set(picked)) == len(picked) == (3, 3, 2, 0)[task]
            place = [index[task].tolist().index(point) for point in picked]
            assert mask[task][place].all()
            if len(picked):
                drawn_sets.add(tuple(sorted(picked)))
                active = np.arange(CLASSES) < 3
                change = net.softmax(net.forward(START, picked)[2], active) - stored[task][place]
                block = inverses[task][:, place][:, :, place]
                expected += np.einsum("ic,cij,jc->", change, block, change) / 2
        first, second = np.asarray(drawn.samples.index[:2])
        same_slots.append(np.array_equal(first + 5, second))
        distance = functional_distance(setup, learner.params, learner, drawn)
        np.testing.assert_allclose(distance, expected, rtol=1e-4)
    assert len(drawn_sets) > 3
    assert not all(same_slots)
