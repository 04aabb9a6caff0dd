"""The toy strategy against the gradient of the task's batch."""

import jax
import pytest

from everlight.base import Strategy
from everlight.continual.engine.updates import with_inputs
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.toy import toy
from tests.continual.small_net import (
    assert_trees_close,
    batch_of,
    samples_of,
    small_learner,
    small_setup,
    task_of,
)

SETUP = small_setup()


def gradient_of(strategy: Strategy, task: int):
    samples = samples_of([0, 1])
    batch = with_inputs(SETUP, batch_of([0, 1]), None)
    own = task_of(task, [0, 1], samples)
    return strategy.grads((), small_learner(SETUP, [0, 1]), batch, own, jax.random.key(0))[0]


@pytest.mark.parametrize(("task", "factor"), [(0, 1), (1, 0.25), (2, 0.25)])
def test_gradients_are_smaller_after_the_first_task(task, factor):
    plain = gradient_of(naive(SETUP), task)
    expected = jax.tree.map(lambda leaf: factor * leaf, plain)
    assert_trees_close(gradient_of(toy(SETUP, share=0.25), task), expected, atol=1e-7)
