"""GEM's quadratic program against SciPy's solver in float64, and its gradient on the small net."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import nnls

from everlight.base import Samples
from everlight.continual.engine.updates import complete_batch
from everlight.continual.strategies.agem import project
from everlight.continual.strategies.gem import gem, nonnegative_least_squares, project_to_cone
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, LABELS, START


def projected_by_scipy(gradient, references, margin):
    """Return v = γ + u in float64, where u ≥ 0 minimizes ‖Gᵀu + (g + γ Gᵀ1)‖."""
    gradient, references = np.float64(gradient), np.float64(references)
    if np.all(references @ gradient >= 0):
        return gradient
    shifted = gradient + margin * references.sum(axis=0)
    return shifted + nnls(references.T, -shifted)[0] @ references


solve = jax.jit(nonnegative_least_squares)
cone = jax.jit(project_to_cone)


@pytest.mark.parametrize("columns", [1, 3, 8, 20])
@pytest.mark.parametrize("seed", range(5))
def test_least_squares_without_negative_values(columns, seed):
    """Columns share a direction and have lengths from 1e-3 to 1e3; some are zeros, which get 0."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(30, columns)) + rng.normal(size=(30, 1))
    matrix *= 10.0 ** rng.uniform(-3, 3, columns)
    matrix[:, rng.random(columns) < 0.2] = 0
    target = rng.normal(size=30)
    matrix, target = np.float32(matrix), np.float32(target)
    expected = nnls(np.float64(matrix), np.float64(target))[0]
    result = np.asarray(solve(matrix, target))
    assert np.all(result >= 0)
    scale = np.maximum(np.linalg.norm(matrix, axis=0), 1e-9)
    np.testing.assert_allclose(result * scale, expected * scale, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(result[np.all(matrix == 0, axis=0)], 0)


def test_columns_that_were_freed_too_early_are_bound_again():
    """A thousand problems of seven unit columns in eight rows have 20 or more such columns."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(1000, 8, 7))
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix, target = np.float32(matrix), np.float32(rng.normal(size=(1000, 8)))
    pairs = zip(np.float64(matrix), np.float64(target), strict=True)
    result = jax.jit(jax.vmap(nonnegative_least_squares))(matrix, target)
    expected = [nnls(*pair)[0] for pair in pairs]
    np.testing.assert_allclose(result, expected, atol=1e-4)


@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("tasks", [1, 2, 5, 19])
@pytest.mark.parametrize("seed", range(4))
def test_the_projection_is_that_of_an_exact_solver_and_opposes_no_memory(margin, tasks, seed):
    """Gradients share a direction, as those of tasks do; some tasks are still to come."""
    rng = np.random.default_rng(seed)
    references = rng.normal(size=(tasks, 60)) + 2 * rng.normal(size=60)
    references[tasks // 2 + 1 :] *= rng.random() < 0.5
    gradient = rng.normal(size=60) - references[0]
    references, gradient = np.float32(references), np.float32(gradient)
    computed = np.float64(cone(gradient, references, margin))
    expected = projected_by_scipy(gradient, references, margin)
    length = np.linalg.norm(expected) + np.linalg.norm(gradient)
    np.testing.assert_allclose(computed, expected, atol=1e-4 * length)
    lengths = np.linalg.norm(references, axis=1)
    assert np.all(references @ computed >= -2e-5 * lengths * length)


def test_two_nearly_equal_references_are_no_harder():
    """At an angle of 1e-3 the optimum is far from any one of them."""
    rng = np.random.default_rng(3)
    first = rng.normal(size=40)
    references = np.float32([first, first + 1e-3 * rng.normal(size=40)])
    gradient = np.float32(rng.normal(size=40) - 0.1 * first)
    computed = np.float64(cone(gradient, references))
    np.testing.assert_allclose(computed, projected_by_scipy(gradient, references, 0), atol=1e-3)
    assert np.all(references @ computed >= -1e-3)


def official_projection(gradient, references, margin, ridge=1e-3):
    """Minimize ½ vᵀ(GGᵀ + εI)v + (Gg)ᵀv for v ≥ γ in float64, as the authors' program does.

    With v = γ + u it is ½ ‖A (γ + u) + b‖² of A = [Gᵀ; √ε I] and b = [g; 0], up to a constant.
    """
    gradient, references = np.float64(gradient), np.float64(references)
    if np.all(references @ gradient >= 0):
        return gradient
    tasks = len(references)
    matrix = np.concatenate([references.T, np.sqrt(ridge) * np.eye(tasks)])
    target = -np.append(gradient, np.zeros(tasks)) - matrix @ np.full(tasks, margin)
    return gradient + (margin + nnls(matrix, target)[0]) @ references


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_the_projection_is_the_official_one_but_for_its_ridge(margin):
    """They agree to 1e-3 where gradients have entries of size 1, not where these are 0.01."""
    rng = np.random.default_rng(5)
    for _ in range(5):
        references = rng.normal(size=(4, 60)) + rng.normal(size=60)
        gradient = rng.normal(size=60) - 2 * references[0]
        for scale, same in ((1, True), (0.01, False)):
            actual = cone(np.float32(scale * gradient), np.float32(scale * references), margin)
            reference = official_projection(scale * gradient, scale * references, margin)
            away = np.linalg.norm(actual - reference) / np.linalg.norm(reference)
            assert (away < 1e-3) if same else (away > 1e-2)


def test_the_projection_onto_two_axes_by_hand():
    """g = (-1, -2, 3) against the first two axes is (0, 0, 3); with γ = 2 v is (2, 2) on axes."""
    gradient, axes = np.float32([-1, -2, 3]), np.float32([[1, 0, 0], [0, 1, 0]])
    np.testing.assert_allclose(cone(gradient, axes), [0, 0, 3], atol=1e-6)
    np.testing.assert_allclose(cone(gradient, axes, 2.0), [1, 0, 3], atol=1e-6)


def test_with_one_memory_it_is_a_gem_and_without_conflict_the_gradient_itself():
    rng = np.random.default_rng(0)
    for gradient, reference in rng.normal(size=(10, 2, 12)).astype(np.float32):
        expected = project({"all": jnp.asarray(gradient)}, {"all": jnp.asarray(reference)})["all"]
        computed = cone(gradient, reference[None])
        np.testing.assert_allclose(computed, expected, atol=1e-5)
        agreeing = np.sign(gradient @ reference) * reference
        np.testing.assert_array_equal(cone(gradient, agreeing[None], 0.5), gradient)


SETUP = net.small_setup()
TASK = net.task_of(2, [2, 3], [2, 3])
BATCH = net.batch_of([2, 8, 3, 20], [1, 1, 1, 0])
ACTIVE = np.arange(CLASSES) < 4
CURRENT = net.batch_gradient(START, [2, 8, 3], ACTIVE)


def memory_of(*held):
    """Return two of three tasks' memories of four slots; those without samples contain others."""
    content, mask = np.full((3, 4), 39), np.zeros((3, 4), bool)
    for row, index in enumerate(held):
        content[row, : len(index)], mask[row, : len(index)] = index, True
    return Samples(jnp.asarray(content), jnp.asarray(LABELS[content][..., None]), jnp.asarray(mask))


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_the_step_goes_along_the_projection_on_every_memory_s_own_gradient(margin):
    strategy = net.compiled(gem(SETUP, tasks=3, per_task=4, margin=margin))

    @jax.jit
    def grads(memory):
        batch = complete_batch(SETUP, strategy, memory, BATCH, TASK, jax.random.key(0))
        learner = net.small_learner(SETUP, [0, 1, 2, 3])
        return strategy.grads(memory, learner, batch, TASK, jax.random.key(1))

    conflicts = 0
    for held in (([0, 6], [1, 7, 13]), ([12, 1], [0]), ([18], [7]), ([3, 9], [2, 14])):
        references = np.stack(
            [net.joined(net.batch_gradient(START, index, ACTIVE)) for index in held]
        )
        conflicts += np.any(references @ net.joined(CURRENT) < 0)
        gradient, info = grads(memory_of(*held))
        expected = projected_by_scipy(net.joined(CURRENT), references, margin)
        np.testing.assert_allclose(net.joined(gradient), expected, rtol=1e-3, atol=2e-5)
        net.assert_trees_close(info.task_gradient, CURRENT, atol=1e-6)
        # Each memory with samples has one pass, and the task has its own.
        assert info.batch_stats["passes"] == 3
    assert 0 < conflicts < 4
    gradient, info = grads(memory_of())
    net.assert_trees_close(gradient, CURRENT, atol=1e-6)
    assert info.batch_stats["passes"] == 1


def test_when_a_task_ends_some_of_its_samples_stay_under_its_number():
    strategy = net.compiled(gem(SETUP, tasks=3, per_task=4))
    learner = net.small_learner(SETUP, [2, 3])
    memory = strategy.init(jax.random.key(0), learner)
    many = net.samples_of([2, 3, 8, 9, 14, 15, 39, 39], [1] * 6 + [0] * 2)
    few = net.samples_of([0, 1, 6, 39], [1, 1, 1, 0])
    for number, train in ((1, many), (0, few)):
        task = net.task_of(number, [2, 3], train)
        memory, _ = strategy.end_task(memory, learner, task, jax.random.key(number))
    index = np.asarray(memory.index)
    np.testing.assert_array_equal(memory.mask, [[1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    assert len(set(index[1].tolist())) == 4
    assert set(index[1].tolist()) <= {2, 3, 8, 9, 14, 15}
    assert sorted(index[0, :3].tolist()) == [0, 1, 6]
    # Padding is a held sample.
    assert index[0, 3] in {0, 1, 6}
    np.testing.assert_array_equal(memory.labels[:2, :, 0], LABELS[index[:2]])
    assert strategy.stored_samples(memory, TASK) == 7
