"""DER against a loop in float64 NumPy; `test_replay_batch_size.py` has draws."""

import numpy as np
import pytest

from everlight.continual.methods.method import StrategyArguments
from everlight.continual.methods.registry import METHODS
from everlight.continual.strategies import der, der_plus_plus
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, RATE, START

SETUP = net.small_setup()
ALPHA = 0.7
STREAM = [[0, 6], [12, 18], [1, 7], [0, 13]]
"""Batches of two classes of six; sample 0 comes twice and is held with two rows of logits."""
ALL = np.ones(CLASSES, bool)
MADE_OF_LOGITS = {"DER", "DER++", "DER++-MKD"}
SEEN = {"ER-MKD", "ER-ACE-MKD", "ER-ACE", "MIR"}


def train_by_hand(active):
    """Return parameters after steps that replay the whole memory, and the stored logits."""
    params, held, stored = START, [], np.zeros((0, CLASSES))
    for batch in STREAM:
        gradient = net.batch_gradient(params, batch, active)
        if held:
            away = net.forward(params, held, train=True)[2] - stored
            contribution = net.backward(params, held, 2 * ALPHA * away / CLASSES, train=True)
            gradient = {name: gradient[name] + contribution[name].mean(axis=0) for name in gradient}
        held = held + batch
        stored = np.concatenate([stored, net.forward(params, batch, train=True)[2]])
        params = {name: params[name] - RATE * gradient[name] for name in params}
    return params, stored


@pytest.mark.parametrize(
    ("inputs", "active"),
    [({"loss_over": "seen"}, np.arange(CLASSES) < 2), ({"loss_over": "all"}, ALL), ({}, ALL)],
)
def test_four_steps_are_the_loop_in_float64(inputs, active):
    """The default loss runs over all outputs of the head, as in Mammoth's `der.py`."""
    strategy = der(SETUP, 20, ALPHA, 1, 20, **inputs)
    task = net.task_of(0, [0, 1], np.concatenate(STREAM))
    ((memory, learner),) = net.run_tasks(SETUP, strategy, [(task, STREAM)])
    params, stored = train_by_hand(active)
    net.assert_trees_close(learner.params, params, rtol=2e-4, atol=2e-5)
    np.testing.assert_array_equal(memory.samples.index[:8], np.concatenate(STREAM))
    np.testing.assert_allclose(memory.logits[:8], stored, rtol=2e-4, atol=2e-5)
    # The memory's batch has a pass of its own from the second step on.
    assert learner.batch_stats["passes"] == 7


@pytest.mark.parametrize(("loss_over", "below"), [("all", True), ("seen", False)])
@pytest.mark.parametrize("factory", [der, der_plus_plus])
def test_stored_logits_of_unseen_classes_lie_below_those_of_seen_ones(factory, loss_over, below):
    """So replay holds later classes down on old samples; over seen classes alone they are free."""
    strategy = factory(SETUP, 200, loss_over=loss_over)
    task = net.task_of(0, [0, 1], np.concatenate(STREAM))
    batches = [net.batch_of(batch) for batch in STREAM] * 12
    ((memory, _),) = net.run_tasks(SETUP, strategy, [(task, batches)])
    last = np.asarray(memory.logits)[2 * len(batches) - 24 : 2 * len(batches)]
    assert bool(np.all(last[:, 2:].max(axis=1) < last[:, :2].max(axis=1))) is below
    means = last.mean(axis=0)
    assert bool(means[2:].max() < means[:2].min() - 1) is below


def test_the_registry_s_methods_of_stored_logits_take_all_classes():
    """Mammoth's and the authors' code do so; ER-MKD and ER-ACE-MKD keep the classes seen."""
    arguments = StrategyArguments(tasks=2, classes=10, exemplars_per_class=20)
    result = {
        name: METHODS[name].arguments(arguments)["loss_over"] for name in MADE_OF_LOGITS | SEEN
    }
    assert result == dict.fromkeys(MADE_OF_LOGITS, "all") | dict.fromkeys(SEEN, "seen")
