"""L2 Init against gradient descent in float64, with explicit and with implicit steps."""

import numpy as np
import pytest

from everlight.continual.strategies.l2_init import l2_init
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, RATE, START

SETUP, LAMBDA = net.small_setup(), 0.4
BATCHES = [net.batch_of([0, 6, 12]), net.batch_of([1, 7, 13]), net.batch_of([2, 8])]


@pytest.mark.parametrize("implicit", [False, True])
def test_two_tasks_stay_near_the_initial_parameters(implicit):
    strategy = l2_init(SETUP, LAMBDA, RATE if implicit else None)
    tasks = [
        (net.task_of(0, [0, 1], net.samples_of([0, 1])), BATCHES[:2]),
        (net.task_of(1, [2, 3], net.samples_of([2])), BATCHES[2:]),
    ]
    *_, (_, learner) = net.run_tasks(SETUP, strategy, tasks)
    ones = {name: np.ones_like(leaf) for name, leaf in START.items()}

    def pull(params):
        return {name: 2 * LAMBDA * (params[name] - START[name]) for name in params}

    given = (net.no_penalty, net.proximal_point(LAMBDA, [(ones, START)])) if implicit else (pull,)
    params, _ = net.descend(START, BATCHES[:2], np.arange(CLASSES) < 2, *given)
    params, _ = net.descend(params, BATCHES[2:], np.arange(CLASSES) < 4, *given)
    net.assert_trees_close(learner.params, params, rtol=2e-4, atol=2e-5)
