"""CoFiMA against Fisher-weighted averages in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.strategies.cofima import cofima, weighted_average
from tests.continual.small_net import (
    START,
    assert_trees_close,
    compiled,
    cross_entropy_gradients,
    run_tasks,
    small_learner,
    small_setup,
)
from tests.continual.strategies.recurring_tasks import (
    CLASSES_OF,
    NEW,
    SEQUENCE,
    TRAIN,
    own_mask,
    solution,
)

WEIGHT = 0.3


def fisher(params, task):
    each = cross_entropy_gradients(params, TRAIN[task], own_mask(task))
    return {name: np.mean(leaf**2, axis=0) for name, leaf in each.items()}


def merged_by_hand():
    """Merged parameters after each task, each of which starts from those before."""
    merged = [solution(0)]
    for task in (1, 2):
        before, current = merged[-1], solution(task, merged[-1])
        of_before, own = fisher(before, task - 1), fisher(current, task)
        average = {}
        for name in START:
            weights = WEIGHT * own[name], (1 - WEIGHT) * of_before[name]
            total = weights[0] + weights[1]
            plain = WEIGHT * current[name] + (1 - WEIGHT) * before[name]
            known = np.where(total > 0, total, 1)
            mean = (weights[0] * current[name] + weights[1] * before[name]) / known
            average[name] = np.where(total > 0, mean, plain)
        merged.append(average)
    return merged


def test_three_tasks_are_fisher_weighted_averages_in_float64():
    setup = small_setup()
    strategy = cofima(setup, WEIGHT, fisher="empirical")
    after, expected = run_tasks(setup, strategy, SEQUENCE), merged_by_hand()
    for task, (memory, learner) in enumerate(after):
        assert_trees_close(learner.params, expected[task], rtol=3e-4, atol=2e-5)
        assert_trees_close(memory.params, expected[task], rtol=3e-4, atol=2e-5)
        information = fisher(expected[task], task)
        assert_trees_close(memory.information, information, rtol=3e-3, atol=1e-6)


def test_a_new_class_keeps_its_task_s_column_and_an_old_one_the_merged_network_s():
    setup = small_setup()
    before, after = run_tasks(setup, cofima(setup, WEIGHT, fisher="empirical"), SEQUENCE[:2])
    heads = [np.asarray(learner.params["head"]) for _, learner in (before, after)]
    np.testing.assert_array_equal(heads[1][:, CLASSES_OF[0]], heads[0][:, CLASSES_OF[0]])
    trained = solution(1, merged_by_hand()[0])["head"]
    np.testing.assert_allclose(heads[1][:, CLASSES_OF[1]], trained[:, CLASSES_OF[1]], rtol=1e-4)


def test_the_first_network_stays_also_where_it_has_no_information():
    setup = small_setup()
    strategy = compiled(cofima(setup, WEIGHT, fisher="empirical"))
    start = small_learner(setup, NEW[0])
    memory = strategy.init(jax.random.key(0), start)._replace(classes=own_mask(0))
    trained = start._replace(params={name: leaf + 1 for name, leaf in start.params.items()})
    _, after = strategy.end_task(memory, trained, SEQUENCE[0][0], jax.random.key(1))
    assert_trees_close(after.params, trained.params)


@pytest.mark.parametrize(
    ("information_before", "information", "expected"),
    [(1, 1, 3.25), (3, 1, 1.9), (0, 2, 10), (2, 0, 1), (0, 0, 3.25)],
)
def test_averages_by_hand(information_before, information, expected):
    """One network has 1 with weight 0.75, the other 10 with 0.25."""
    leaves = [jnp.float32(value) for value in (1, 10, information_before, information)]
    np.testing.assert_allclose(weighted_average(*leaves, 0.25), expected, rtol=1e-6)
