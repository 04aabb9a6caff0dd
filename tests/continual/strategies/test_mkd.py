"""Momentum knowledge distillation of three methods of replay against loops in float64 NumPy."""

import numpy as np
import pytest

from everlight.continual.strategies.mkd import mkd
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, LABELS, RATE, SHIFT, START

SETUP = net.small_setup()
LAMBDA, TEMPERATURE, RATES = 0.3, 2.0, (0.4, 0.1)
STREAM = [[0, 6], [1, 7], [12, 13], *[[number, number + 6] for number in (18, 19, 24, 25)]] * 3
"""Batches of classes 0 and 1; after twenty steps the averages' correction has changed."""
ACTIVE = np.arange(CLASSES) < 2
ALL = np.ones(CLASSES, bool)
# These are DER++'s coefficients.
ALPHA, BETA = 0.1, 0.5


def without_shift(params):
    """Return parameters whose outputs for shifted inputs are those of `params` for stored ones."""
    bias = params["hidden_bias"] - SHIFT * params["hidden"].sum(axis=0)
    return {**params, "hidden_bias": bias}


def distillation_gradient(params, teachers, index):
    total = dict.fromkeys(params, 0.0)
    for teacher in teachers:
        expected = net.softmax(net.forward(teacher, index, train=True)[2] / TEMPERATURE, ALL)
        for stored in (False, True):
            seen_by = without_shift(params) if stored else params
            result = net.softmax(net.forward(seen_by, index, train=True)[2] / TEMPERATURE, ALL)
            contribution = net.backward(
                seen_by, index, TEMPERATURE * (result - expected), train=True
            )
            if stored:
                inputs = DATA[np.asarray(index)]
                contribution["hidden"] = (
                    inputs[:, :, None] * contribution["hidden_bias"][:, None, :]
                )
            for name in total:
                total[name] = total[name] + contribution[name].mean(axis=0) / (2 * len(teachers))
    return total


def own_gradient(method, params, batch, held, stored, active):
    """Return the weighted gradients of the method's loss; ER adds none to the shared loss."""
    if method == "ER":
        return []
    if method == "ER-ACE":
        # The batch's softmax has its own classes, and those not seen where all count.
        present = np.isin(np.arange(CLASSES), LABELS[batch]) | (active & ~ACTIVE)
        terms = [(1, net.batch_gradient(params, batch, present))]
        return terms + ([(1, net.batch_gradient(params, held, active))] if held else [])
    terms = [(1, net.batch_gradient(params, batch, active))]
    if held:
        away = net.forward(params, held, train=True)[2] - stored
        contribution = net.backward(params, held, 2 * away / CLASSES, train=True)
        terms.append((ALPHA, {name: leaf.mean(axis=0) for name, leaf in contribution.items()}))
        terms.append((BETA, net.batch_gradient(params, held, active)))
    return terms


def train_by_hand(method, active):
    """Return parameters and averages after steps that replay the whole memory."""
    params, held, stored = START, [], np.zeros((0, CLASSES))
    teachers = [{name: leaf * rate / (1 - rate) for name, leaf in params.items()} for rate in RATES]
    for number, batch in enumerate(STREAM, start=1):
        both = [*batch, *held]
        terms = [
            *own_gradient(method, params, batch, held, stored, active),
            (1, net.batch_gradient(params, both, active)),
            (LAMBDA, distillation_gradient(params, teachers, both)),
        ]
        stored = np.concatenate([stored, net.forward(params, batch, train=True)[2]])
        held = [*held, *batch]
        params = {
            name: params[name] - RATE * sum(weight * term[name] for weight, term in terms)
            for name in params
        }
        power = max(1, number // 10)
        teachers = [
            {name: (1 - rate) * old[name] + rate / (1 - rate**power) * params[name] for name in old}
            for rate, old in zip(RATES, teachers, strict=True)
        ]
    return params, teachers


@pytest.mark.parametrize(
    ("method", "loss_over", "active"),
    [
        ("ER", "seen", ACTIVE),
        ("ER-ACE", "all", ALL),
        ("DER++", "seen", ACTIVE),
        ("DER++", "all", ALL),
    ],
)
def test_steps_are_the_loop_in_float64(method, loss_over, active):
    strategy = mkd(SETUP, method, 60, LAMBDA, RATES, TEMPERATURE, 1, 60, loss_over)
    task = net.task_of(0, [0, 1], np.concatenate(STREAM))
    ((memory, learner),) = net.run_tasks(SETUP, strategy, [(task, STREAM)])
    params, teachers = train_by_hand(method, active)
    net.assert_trees_close(learner.params, params, rtol=2e-3, atol=2e-4)
    for number, expected in enumerate(teachers):
        result = {name: leaf[number] for name, leaf in memory.teachers.items()}
        net.assert_trees_close(result, expected, rtol=2e-3, atol=2e-4)
    mean = {name: (params[name] + sum(item[name] for item in teachers)) / 3 for name in params}
    scores = strategy.predict(memory, learner, np.float32(DATA))
    np.testing.assert_allclose(scores, net.forward(mean, range(len(DATA)))[2], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("averaging_weights", [(), (0.1, 1.0), (0.0,)])
def test_weights_that_average_nothing_are_refused(averaging_weights):
    with pytest.raises(ValueError, match="averaging_weights"):
        mkd(SETUP, averaging_weights=averaging_weights)
