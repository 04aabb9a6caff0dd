"""Exponential moving average (EMA) of the weights, with which any strategy may predict.

    θ̄ ← d θ̄ + (1 − d) θ after each step,   d = min(1 − 1 / t, decay)

t is the number of steps so far, this one included: the average is the mean of all weights at first,
and exponential later (Polyak and Juditsky 1992; Tarvainen and Valpola 2017, NeurIPS, for networks).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Learner, Memory, StepInfo, Strategy, Task
from everlight.checks import UnitInterval, checked
from everlight.continual.inner_memory import with_outer_memory
from everlight.errors import ArgumentError


class Averaged(NamedTuple):
    """Memory of a strategy and the moving average of its network."""

    memory: Memory
    params: PyTree
    batch_stats: PyTree


@checked
def with_ema(strategy: Strategy, decay: UnitInterval) -> Strategy:
    """Return the strategy that predicts by a moving average of its parameters and batch statistics.

    Steps do not change. Values that the strategy sets itself when a task begins or ends, such as
    the weights of new classes, are taken into the average as they are. Functions that prepare an
    evaluation, such as means of features, receive the average. If they train it (`review_memory`),
    the result is the new average, and training continues from the network as it was. Integers are
    not averaged. Where the strategy predicts only from its memory, the average has no effect.

    Args:
      strategy: strategy whose predictions depend on the learner's parameters.
      decay: largest decay of the average per step.

    Raises:
      ValueError: the strategy trains only on its memory, before evaluations (`memory_training`).
    """
    if strategy.memory_training is not None:
        raise ArgumentError(
            "a strategy that trains on its memory before every evaluation has no steps to average "
            "over; leave out the moving average"
        )

    def init(key: PRNGKeyArray, learner: Learner) -> Averaged:
        return Averaged(strategy.init(key, learner), learner.params, learner.batch_stats)

    def predict(
        memory: Averaged, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        return strategy.predict(memory.memory, _averaged_learner(memory, learner), inputs)

    def begin_task(
        memory: Averaged, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Averaged, Learner]:
        inner, after = strategy.begin_task(memory.memory, learner, task, key)
        return _with_set_values(memory, inner, learner, after), after

    def after_step(
        memory: Averaged, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Averaged, Learner]:
        inner = memory.memory
        if strategy.after_step is not None:
            inner, learner = strategy.after_step(inner, learner, info, key)
        share = jnp.maximum(1 - decay, 1 / learner.step)
        averages = memory.params, memory.batch_stats
        params, stats = moved_average(averages, (learner.params, learner.batch_stats), share)
        return Averaged(inner, params, stats), learner

    def end_task(
        memory: Averaged, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Averaged, Learner]:
        inner, after = strategy.end_task(memory.memory, learner, task, key)
        return _with_set_values(memory, inner, learner, after), after

    def before_evaluation(
        memory: Averaged, learner: Learner, key: PRNGKeyArray
    ) -> tuple[Averaged, Learner]:
        average = _averaged_learner(memory, learner)
        inner, ready = strategy.before_evaluation(memory.memory, average, key)
        return Averaged(inner, ready.params, ready.batch_stats), learner

    def predict_task(
        memory: Averaged, learner: Learner, inputs: Float[Array, "b *shape"], task: Int[Array, ""]
    ) -> Float[Array, "b c"]:
        average = _averaged_learner(memory, learner)
        return strategy.predict_task(memory.memory, average, inputs, task)

    functions = {
        function.__name__: function
        for function in (predict, begin_task, end_task, before_evaluation, predict_task)
        if getattr(strategy, function.__name__) is not None
    }
    return with_outer_memory(strategy, "memory")._replace(
        init=init,
        after_step=after_step,
        parameter_copies=strategy.parameter_copies + 1,
        **functions,
    )


def moved_average(average: PyTree, current: PyTree, share: Float[Array, ""]) -> PyTree:
    """Return the average after one step, in which the current values have the given weight.

    Leaves of integers are the current ones.
    """

    def move(old: Array, new: Array) -> Array:
        if not jnp.issubdtype(new.dtype, jnp.inexact):
            return new
        return old + share.astype(old.dtype) * (new - old)

    return jax.tree.map(move, average, current)


def _averaged_learner(memory: Averaged, learner: Learner) -> Learner:
    return learner._replace(params=memory.params, batch_stats=memory.batch_stats)


def _with_set_values(memory: Averaged, inner: Memory, before: Learner, after: Learner) -> Averaged:
    """Return the memory whose average has the values that changed between two learners."""

    def take_changed(average: Array, old: Array, new: Array) -> Array:
        return jnp.where(new == old, average, new)

    params = jax.tree.map(take_changed, memory.params, before.params, after.params)
    stats = jax.tree.map(take_changed, memory.batch_stats, before.batch_stats, after.batch_stats)
    return Averaged(inner, params, stats)
