"""Prediction by a moving average of the weights, around strategies with and without a memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.ema import Averaged, with_ema
from everlight.continual.strategies import der, gdumb, icarl, naive
from tests.continual import small_net as net
from tests.continual.small_net import DATA

SETUP = net.small_setup()
BATCHES = [[0, 1, 6], [7, 12], [2, 3], [8, 9, 14]]
INPUTS = jnp.float32(DATA)


def tasks():
    """Return one batch per task, so that parameters after every step are results."""
    return [
        (net.task_of(number, pair, batch), [net.batch_of(batch)])
        for number, (pair, batch) in enumerate(
            zip([[0, 1], [0, 1], [2, 3], [2, 3]], BATCHES, strict=True)
        )
    ]


@pytest.mark.parametrize("make", [naive, lambda setup: der(setup, 20, 0.5)])
def test_training_stays_and_the_average_is_the_recursion_in_float64(make):
    plain = net.run_tasks(SETUP, make(SETUP), tasks())
    strategy = with_ema(make(SETUP), 0.7)
    result = net.run_tasks(SETUP, strategy, tasks())
    average = None
    for step, ((memory, learner), (inner, part)) in enumerate(zip(result, plain, strict=True), 1):
        jax.tree.map(np.testing.assert_array_equal, learner, part)
        jax.tree.map(np.testing.assert_array_equal, memory.memory, inner)
        params = {name: np.asarray(leaf, np.float64) for name, leaf in part.params.items()}
        decay = min(1 - 1 / step, 0.7)
        average = params if average is None else average
        average = {name: decay * average[name] + (1 - decay) * params[name] for name in params}
        net.assert_trees_close(memory.params, average, rtol=1e-5, atol=1e-6)
        # The number of passes is an integer, of which there is no mean.
        assert memory.batch_stats == learner.batch_stats
    scores = jax.jit(strategy.predict)(memory, learner, INPUTS)
    np.testing.assert_allclose(
        scores, net.forward(average, range(len(DATA)))[2], rtol=1e-4, atol=1e-5
    )
    assert strategy.parameter_copies == 1
    assert strategy.draw is None or strategy.stored_samples is not None


def test_values_that_a_strategy_sets_are_those_of_the_average():
    """One weight is set when the task begins; all others keep their average."""

    def begin_task(memory, learner, task, key):
        head = learner.params["head"].at[0, 0].set(9.0)
        return memory, learner._replace(params={**learner.params, "head": head})

    strategy = with_ema(naive(SETUP)._replace(begin_task=begin_task), 0.5)
    learner = net.small_learner(SETUP, [0])
    average = jax.tree.map(lambda leaf: leaf + 1, learner.params)
    before = Averaged((), average, learner.batch_stats)
    memory, _ = strategy.begin_task(before, learner, None, None)
    expected = {**average, "head": average["head"].at[0, 0].set(9.0)}
    jax.tree.map(np.testing.assert_array_equal, memory.params, expected)


def test_means_of_exemplars_are_those_of_the_average():
    """iCaRL's classes are the nearest means of features, which the average computes too."""
    make = icarl(SETUP, loss="softmax", classifier="nearest mean", exemplars_per_class=2)
    task, batches = net.task_of(0, [0, 1], [0, 1, 6, 7]), [net.batch_of([0, 1, 6, 7])]
    ((memory, learner),) = net.run_tasks(SETUP, with_ema(make, 0.5), [(task, batches * 3)])
    average = learner._replace(params=memory.params)
    assert any(np.any(memory.params[name] != learner.params[name]) for name in memory.params)

    @jax.jit
    def scores():
        ready, last = with_ema(make, 0.5).before_evaluation(memory, learner, jax.random.key(0))
        inner, _ = make.before_evaluation(memory.memory, average, jax.random.key(0))
        return (
            with_ema(make, 0.5).predict(ready, last, INPUTS),
            make.predict(inner, average, INPUTS),
        )

    np.testing.assert_allclose(*scores(), rtol=1e-5)


def test_a_strategy_that_trains_before_evaluations_is_refused():
    with pytest.raises(ValueError, match="has no steps to average over"):
        with_ema(gdumb(SETUP, 10), 0.9)
