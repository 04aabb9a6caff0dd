"""Evaluation: one pass over samples, from whose scores everything else is read."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from everlight.continual.base import Learner, Memory, Samples, Setup, Strategy


def predict_samples(
    setup: Setup, strategy: Strategy, memory: Memory, learner: Learner, samples: Samples, size: int
) -> Float[Array, "n c"]:
    """Scores of all classes for every sample, `size` samples a forward pass; padding gets any."""
    count = samples.mask.shape[0]
    # Padding holds anything; the first sample of the data set stands in for it.
    index = jnp.where(samples.mask, samples.index, 0)
    blocks = jnp.pad(index, (0, -count % size)).reshape(-1, size)

    def add(block: Int[Array, ""], scores: Float[Array, "k s c"]) -> Float[Array, "k s c"]:
        inputs = setup.gather(blocks[block], None)
        return scores.at[block].set(strategy.predict(memory, learner, inputs))

    # Samples come first in their array, so blocks of padding alone need no pass.
    last = jnp.max(jnp.where(samples.mask, jnp.arange(1, count + 1), 0), initial=0)
    empty = jnp.zeros((*blocks.shape, learner.seen.shape[0]))
    scores = jax.lax.fori_loop(0, -(-last // size), add, empty)
    return scores.reshape(-1, scores.shape[-1])[:count]


def validate(
    setup: Setup, strategy: Strategy, memory: Memory, learner: Learner, samples: Samples, size: int
) -> Float[Array, ""]:
    """Mean goodness over samples; 0 without any."""
    scores = predict_samples(setup, strategy, memory, learner, samples, size)
    labels = jnp.where(samples.mask[:, None], samples.labels, 0)
    good = setup.objective.goodness(scores, labels, learner.seen)
    return jnp.sum(jnp.where(samples.mask, good, 0)) / jnp.maximum(jnp.sum(samples.mask), 1)
