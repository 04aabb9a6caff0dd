"""Tricks for any method that stores samples (Mai et al. 2022, Neurocomputing; 2021, CVPRW).

Each is a function from a strategy to a strategy. The first predicts the class with the nearest mean
of the stored samples' features (the survey's NCM trick), as iCaRL does (`rehearsal`). The survey
and SCR's paper find that it helps most where the output layer favours the last classes. The second
(the survey's review trick) trains the network on the memory alone before it is evaluated: one epoch
in batches of 10 by the usual loss, at a tenth of the learning rate. After a task, training
continues from the reviewed network, as in the official code. A task without an evaluation at its
end has no review, so `Protocol.evaluate_every` changes training. Reviews for validation and for
evaluations within a task are dropped.

Equal to the official code (RaptorMai/online-continual-learning, `base.py`) at the means and
distances, and at the steps of a review by plain gradient descent; differs in:

- A class without stored samples is predicted last, in the official code by a mean drawn at random.
- Review takes a smaller last batch, in the official code none, and keeps the update's tenth where
  the optimizer is not plain gradient descent; in the official code the gradient is divided.
- The survey's text has one review, before the final test.
- The loss runs over the classes that the objective counts, in the official code over all outputs.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Learner, Memory, Samples, Setup, Strategy
from everlight.checks import PositiveFloat, PositiveInt, checked
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.engine.updates import optimizer_step, with_inputs
from everlight.continual.inner_memory import with_outer_memory
from everlight.continual.strategies.parts.frozen import feature_width
from everlight.continual.strategies.parts.memory import batch_at, distinct
from everlight.continual.strategies.parts.passes import evaluation_outputs, task_gradient
from everlight.continual.strategies.parts.rehearsal import exemplar_means, nearness
from everlight.errors import ArgumentError


class WithMeans(NamedTuple):
    """Memory of a strategy that predicts by the nearest mean."""

    inner: Memory
    """Memory of the strategy without the trick."""
    means: Float[Array, "c f"]
    """Class means of length 1; 0 for classes without stored samples."""


@checked
def predict_by_nearest_mean(setup: Setup, strategy: Strategy) -> Strategy:
    """Return the strategy with predictions by the nearest mean; its memory is `WithMeans`.

    Samples have one label. Training stays the same. Features are those of the trained network, also
    where the strategy predicts by another one, such as an average.

    Args:
      setup: network, objective, optimizer and data access of the strategy.
      strategy: strategy whose memory holds `Samples`.

    Raises:
      ValueError: the memory stores no samples; raised by `init`.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> WithMeans:
        inner = strategy.init(key, learner)
        held_samples(inner)
        width, dtype = feature_width(setup, learner)
        return WithMeans(inner, jnp.zeros((learner.seen.shape[0], width), dtype))

    def before_evaluation(
        memory: WithMeans, learner: Learner, key: PRNGKeyArray
    ) -> tuple[WithMeans, Learner]:
        inner = memory.inner
        if strategy.before_evaluation is not None:
            inner, learner = strategy.before_evaluation(inner, learner, key)
        held = held_samples(inner)
        features = sample_features(setup, learner, held)
        classes = learner.seen.shape[0]
        return WithMeans(
            inner, exemplar_means(features, held.mask, held.labels[:, 0], classes)
        ), learner

    def predict(
        memory: WithMeans, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        outputs = evaluation_outputs(setup, learner, inputs)
        return nearness(outputs.features, memory.means)

    return with_outer_memory(strategy, "inner")._replace(
        init=init, before_evaluation=before_evaluation, predict=predict, predict_task=None
    )


@checked
def review_memory(
    setup: Setup, strategy: Strategy, batch_size: PositiveInt = 10, rate_factor: PositiveFloat = 0.1
) -> Strategy:
    """Return the strategy with an epoch on its memory before every evaluation.

    After a task, training continues from the reviewed network.

    Args:
      setup: network, objective, optimizer and data access of the strategy. The optimizer
        restarts for the review.
      strategy: strategy whose memory holds `Samples`.
      batch_size: samples per step of the review.
      rate_factor: factor on the optimizer's updates.

    Raises:
      ValueError: the memory stores no samples; raised by `before_evaluation`.
    """

    def before_evaluation(
        memory: Memory, learner: Learner, key: PRNGKeyArray
    ) -> tuple[Memory, Learner]:
        key_inner, key_order, key_steps = jax.random.split(key, 3)
        if strategy.before_evaluation is not None:
            memory, learner = strategy.before_evaluation(memory, learner, key_inner)
        held = held_samples(memory)
        count = jnp.sum(held.mask)
        drawn = jax.random.uniform(key_order, held.mask.shape)
        order = jnp.argsort(jnp.where(held.mask, drawn, 2.0))

        def step(number: Int[Array, ""], current: Learner) -> Learner:
            key_inputs, key_pass = jax.random.split(jax.random.fold_in(key_steps, number))
            position = number * batch_size + jnp.arange(batch_size)
            weight = (position < count).astype(jnp.float32)
            # The first samples fill up the last batch, at weight 0, for batch norm.
            batch = batch_at(held, order[position % jnp.maximum(count, 1)], weight)
            batch = with_inputs(setup, batch, key_inputs)
            gradient, info = task_gradient(setup, current, batch, key_pass)
            return optimizer_step(setup, current, gradient)._replace(batch_stats=info.batch_stats)

        slower = learner.schedule._replace(factor=learner.schedule.factor * rate_factor)
        start = learner._replace(opt_state=setup.optimizer.init(learner.params), schedule=slower)
        reviewed = jax.lax.fori_loop(0, -(-count // batch_size), step, start)
        return memory, learner._replace(params=reviewed.params, batch_stats=reviewed.batch_stats)

    return strategy._replace(before_evaluation=before_evaluation)


def held_samples(memory: Memory) -> Samples:
    """Return all samples that a memory stores, found by their type `Samples`.

    A part may have leading axes, such as tasks. Of several parts, as a buffer and what is held out
    of it, equal samples count once.

    Raises:
      ValueError: the memory stores no samples.
    """

    def is_samples(part: PyTree) -> bool:
        return isinstance(part, Samples)

    stored = [part for part in jax.tree.leaves(memory, is_leaf=is_samples) if is_samples(part)]
    if not stored:
        raise ArgumentError(
            f"a {type(memory).__name__} has no stored samples; the trick needs a strategy whose "
            "memory holds `Samples`"
        )
    stored = [
        Samples(
            part.index.ravel(), part.labels.reshape(-1, part.labels.shape[-1]), part.mask.ravel()
        )
        for part in stored
    ]
    if len(stored) == 1:
        return stored[0]
    return distinct(jax.tree.map(lambda *parts: jnp.concatenate(parts), *stored))
