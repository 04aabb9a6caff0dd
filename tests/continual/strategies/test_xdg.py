"""XdG: the gates of each task, and its gradient in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.strategies.xdg import random_gates, xdg
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, HIDDEN

SETUP = net.layered_setup()
STRATEGY = xdg(SETUP, 3, ("hidden",), 0.4)
CLASSES_OF_TASK = [2, 3]
INDEX = np.array([2, 3, 8, 9])
TASK = net.task_of(1, CLASSES_OF_TASK, INDEX)
INPUTS = jnp.float32(DATA)


def started():
    """Return memory and learner within the second task."""
    learner = net.small_learner(SETUP, [0, 1, 2, 3], net.layered(net.START))
    memory = STRATEGY.init(jax.random.key(4), learner)
    return net.begin(SETUP, STRATEGY, memory, learner, TASK)


def gated_by_hand(gates):
    """Return the small network's parameters with 0 where a unit is closed."""
    closed = {name: net.START[name] * np.asarray(gates) for name in ("hidden", "hidden_bias")}
    return {**net.START, **closed}


@pytest.mark.parametrize(("share", "closed"), [(0.0, 0), (0.5, 3), (0.9, 6), (1.0, 7)])
def test_each_task_closes_the_floor_of_the_share_of_units(share, closed):
    gates = np.asarray(random_gates(7, 200, share, jax.random.key(0)))
    assert set(np.unique(gates)) <= {0, 1}
    np.testing.assert_array_equal(np.sum(gates == 0, axis=1), closed)
    # Each unit is closed in the share of tasks, within five standard errors.
    expected = closed / 7
    error = 5 * np.sqrt(expected * (1 - expected) / 200)
    assert np.all(np.abs(np.mean(gates == 0, axis=0) - expected) <= error)


def test_tasks_and_runs_have_other_gates():
    first, second = (random_gates(20, 5, 0.5, jax.random.key(seed)) for seed in range(2))
    assert np.any(first != second)
    assert len(np.unique(first, axis=0)) > 1


def test_a_step_is_the_gradient_of_the_open_units_on_the_task_s_classes():
    memory, learner = started()
    gates = memory.gates["hidden"][1]
    assert np.sum(gates == 0) == int(0.4 * HIDDEN)
    batch = net.filled(SETUP, net.batch_of(INDEX))
    gradient, info = jax.jit(STRATEGY.grads)(memory, learner, batch, TASK, jax.random.key(0))
    active = np.isin(np.arange(CLASSES), CLASSES_OF_TASK)
    by_hand = net.batch_gradient(gated_by_hand(gates), INDEX, active)
    # A gate of 0 also stops the gradient below it; tanh maps 0 to 0.
    by_hand["hidden"] = by_hand["hidden"] * np.asarray(gates)
    by_hand["hidden_bias"] = by_hand["hidden_bias"] * np.asarray(gates)
    net.assert_trees_close(net.flat(gradient), by_hand)
    assert np.all(np.asarray(gradient["hidden"]["kernel"])[:, np.asarray(gates) == 0] == 0)
    assert np.all(np.asarray(gradient["head"]["kernel"])[np.asarray(gates) == 0] == 0)
    assert np.isfinite(info.loss)


def test_predictions_have_the_gates_of_the_task_if_it_is_given():
    memory, learner = started()
    open_units = net.forward(net.START, range(len(DATA)))[2]

    def logits_of(task):
        return net.forward(gated_by_hand(memory.gates["hidden"][task]), range(len(DATA)))[2]

    for task in range(3):
        scores = STRATEGY.predict_task(memory, learner, INPUTS, jnp.int32(task))
        np.testing.assert_allclose(scores, logits_of(task), rtol=1e-4, atol=1e-5)
    during = np.asarray(STRATEGY.predict(memory, learner, INPUTS))
    np.testing.assert_allclose(during[:, 2:4], logits_of(1)[:, 2:4], rtol=1e-4, atol=1e-5)
    assert np.all(during[:, [0, 1, 4, 5]] == -np.inf)
    between, _ = STRATEGY.end_task(memory, learner, TASK, jax.random.key(0))
    scores = STRATEGY.predict(between, learner, INPUTS)
    np.testing.assert_allclose(scores, open_units, rtol=1e-4, atol=1e-5)


def test_parameters_outside_the_layers_are_refused():
    setup = net.small_setup()
    strategy = xdg(setup, 3, ("hidden",))
    with pytest.raises(ValueError, match=r"the parameters are .*hidden_bias.*XdG needs all layers"):
        strategy.init(jax.random.key(0), net.small_learner(setup, [0]))
