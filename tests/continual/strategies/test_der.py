"""DER against a loop in float64 NumPy; `test_der_plus_plus.py` has its reservoir and its draws."""

import numpy as np
import pytest

from everlight.continual.strategies.der import der
from tests.continual.small_net import (
    CLASSES,
    RATE,
    START,
    assert_trees_close,
    backward,
    batch_gradient,
    batch_of,
    forward,
    run_tasks,
    samples_of,
    small_setup,
    task_of,
)

SETUP = small_setup()
ALPHA = 0.7
STREAM = [[0, 6], [12, 18], [1, 7], [0, 13]]
"""Batches of two classes of six; sample 0 comes twice and is held with two rows of logits."""
ALL = np.ones(CLASSES, bool)


def train_by_hand(active):
    """Parameters after steps that replay the whole memory, and the stored logits."""
    params, held, stored = START, [], np.zeros((0, CLASSES))
    for batch in STREAM:
        gradient = batch_gradient(params, batch, active)
        if held:
            away = forward(params, held, train=True)[2] - stored
            each = backward(params, held, 2 * ALPHA * away / CLASSES, train=True)
            gradient = {name: gradient[name] + each[name].mean(axis=0) for name in gradient}
        held = held + batch
        stored = np.concatenate([stored, forward(params, batch, train=True)[2]])
        params = {name: params[name] - RATE * gradient[name] for name in params}
    return params, stored


@pytest.mark.parametrize(("loss_over", "active"), [("seen", np.arange(CLASSES) < 2), ("all", ALL)])
def test_four_steps_are_the_loop_in_float64(loss_over, active):
    strategy = der(SETUP, 20, ALPHA, 1, 20, loss_over)
    task = task_of(0, [0, 1], samples_of(np.concatenate(STREAM)))
    ((memory, learner),) = run_tasks(SETUP, strategy, [(task, [batch_of(b) for b in STREAM])])
    params, stored = train_by_hand(active)
    assert_trees_close(learner.params, params, rtol=2e-4, atol=2e-5)
    np.testing.assert_array_equal(memory.samples.index[:8], np.concatenate(STREAM))
    np.testing.assert_allclose(memory.logits[:8], stored, rtol=2e-4, atol=2e-5)
    # The memory's batch has a pass of its own from the second step on.
    assert learner.batch_stats["passes"] == 7
