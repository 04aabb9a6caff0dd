"""Evaluation: one pass over samples, from whose scores everything else is read."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from everlight.continual.base import Learner, Memory, Samples, Setup, Strategy


def predict_samples(
    setup: Setup, strategy: Strategy, memory: Memory, learner: Learner, samples: Samples, size: int
) -> Float[Array, "n c"]:
    """Scores of all classes for every sample, `size` samples a forward pass; padding gets any."""
    return over_samples(setup, partial(strategy.predict, memory, learner), samples, size)


def sample_features(
    setup: Setup, learner: Learner, samples: Samples, size: int = 256
) -> Float[Array, "n f"]:
    """Features of every sample in evaluation mode, `size` a forward pass; padding gets any."""

    def features(inputs: Float[Array, "s *shape"]) -> Float[Array, "s f"]:
        return setup.apply(learner.params, learner.batch_stats, inputs, False, None)[0].features

    return over_samples(setup, features, samples, size)


def over_samples(
    setup: Setup,
    forward: Callable[[Float[Array, "s *shape"]], Float[Array, "s w"]],
    samples: Samples,
    size: int,
) -> Float[Array, "n w"]:
    """What `forward` gives for every sample's inputs, `size` at once; padding gets any."""
    count = samples.mask.shape[0]
    # Padding holds anything; the first sample of the data set stands in for it.
    index = jnp.where(samples.mask, samples.index, 0)
    blocks = jnp.pad(index, (0, -count % size)).reshape(-1, size)

    def pass_forward(block: Int[Array, "s"]) -> Float[Array, "s w"]:
        return forward(setup.gather(block, None))

    def add(number: Int[Array, ""], rows: Float[Array, "k s w"]) -> Float[Array, "k s w"]:
        return rows.at[number].set(pass_forward(blocks[number]))

    # Samples come first in their array, so blocks of padding alone need no pass.
    last = jnp.max(jnp.where(samples.mask, jnp.arange(1, count + 1), 0), initial=0)
    width = jax.eval_shape(pass_forward, blocks[0]).shape[-1]
    rows = jax.lax.fori_loop(0, -(-last // size), add, jnp.zeros((*blocks.shape, width)))
    return rows.reshape(-1, width)[:count]


def validate(
    setup: Setup, strategy: Strategy, memory: Memory, learner: Learner, samples: Samples, size: int
) -> Float[Array, ""]:
    """Mean goodness over samples; 0 without any."""
    scores = predict_samples(setup, strategy, memory, learner, samples, size)
    labels = jnp.where(samples.mask[:, None], samples.labels, 0)
    good = setup.objective.goodness(scores, labels, learner.seen)
    return jnp.sum(jnp.where(samples.mask, good, 0)) / jnp.maximum(jnp.sum(samples.mask), 1)
