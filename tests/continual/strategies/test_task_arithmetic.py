"""Task arithmetic against sums of task vectors in float64 NumPy."""

import jax.numpy as jnp
import numpy as np

from everlight.continual.strategies.task_arithmetic import task_arithmetic
from tests.continual import small_net as net
from tests.continual.small_net import DATA, START
from tests.continual.strategies.recurring_tasks import SEQUENCE, solution

SCALE = 0.6


def test_three_tasks_are_a_scaled_sum_from_the_start_in_float64():
    setup = net.small_setup()
    strategy = task_arithmetic(setup, SCALE)
    after = net.run_tasks(setup, strategy, SEQUENCE)
    own = [solution(task) for task in range(3)]
    for task, (_, learner) in enumerate(after):
        expected = {
            name: start + SCALE * sum(params[name] - start for params in own[: task + 1])
            for name, start in START.items()
        }
        net.assert_trees_close(learner.params, expected, atol=1e-5)
        # Three training passes and one for the statistics, from the statistics of the start.
        assert learner.batch_stats["passes"] == 4
        # The column of a class that has been in no task stays as it was.
        np.testing.assert_array_equal(learner.params["head"][:, 4], np.float32(START["head"][:, 4]))
    found = strategy.predict(*after[-1], jnp.asarray(DATA, jnp.float32))
    np.testing.assert_allclose(found, net.forward(expected, np.arange(len(DATA)))[2], atol=1e-4)


def test_with_one_over_the_tasks_it_is_the_mean_of_the_networks():
    memory, learner = net.run_tasks(
        net.small_setup(), task_arithmetic(net.small_setup(), 1 / 3), SEQUENCE
    )[-1]
    own = [solution(task) for task in range(3)]
    mean = {name: np.mean([params[name] for params in own], axis=0) for name in START}
    net.assert_trees_close(learner.params, mean, atol=1e-5)
    net.assert_trees_close(memory.params, START)
