"""Adaptive prototypical feedback of OnPro: replayed samples are mixed with others (mixup).

Most slots of a batch mix a replayed sample with another one of the same draw, where a coin p falls
for the batch and another one for the sample; λ is uniform. The other slots mix samples of two
classes that are easily confused. A pair of classes has as many of them as a softmax of one over the
distance of their prototypes gives it, rounded; λ has the distribution Beta(α, α) where a coin p
falls for the pair. Without mixing λ = 0, and the first sample is left.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.base import Batch, Samples
from everlight.continual.strategies.parts.memory import batch_at, carried_classes

NEAREST = 1e-6
"""Least distance of prototypes, so that its inverse is finite."""


class Mixing(NamedTuple):
    """Settings of the mixing, as of `onpro`."""

    base_share: float
    probability: float
    greatest: float
    concentration: float


class Mixed(NamedTuple):
    """Pairs of samples (1 − λ) x + λ x′."""

    first: Batch
    """Samples x; those of pairs that are not used have weight 0."""
    second: Batch
    """Samples x′."""
    share: Float[Array, "r"]
    """Shares λ."""


def mix_replayed(
    replayed: Batch,
    samples: Samples,
    prototypes: Float[Array, "c w"],
    settings: Mixing,
    key: PRNGKeyArray,
) -> Mixed:
    """Return the pairs to mix, as many as replayed samples.

    Args:
      replayed: samples drawn from memory, in random order; those of weight 0 come last.
      samples: samples of the memory.
      prototypes: prototype of each class; 0 for a class without one.
      settings: settings of the mixing.
      key: random key of partners, classes, samples and shares.
    """
    keys = jax.random.split(key, 2)
    size = replayed.weight.shape[0]
    base = int(size * settings.base_share)
    pairs_in_batch = mix_within_batch(
        jax.tree.map(lambda leaf: leaf[:base], replayed), settings, keys[0]
    )
    pairs_of_classes = mix_classes(samples, prototypes, size - base, settings, keys[1])
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), pairs_in_batch, pairs_of_classes)


def mix_within_batch(batch: Batch, settings: Mixing, key: PRNGKeyArray) -> Mixed:
    """Return each sample of a batch with another one of it; those of weight 0 come last."""
    key_order, key_batch, key_sample, key_share = jax.random.split(key, 4)
    held, count = batch.weight > 0, batch.weight.shape[0]
    # Samples of weight 0 stay behind the others, so that none of these has one as its partner.
    order = jnp.argsort(jnp.where(held, jax.random.uniform(key_order, (count,)), 2.0))
    coin = jax.random.bernoulli(key_batch, settings.probability)
    coins = jax.random.bernoulli(key_sample, settings.probability, (count,)) & coin
    share = jax.random.uniform(key_share, (count,), maxval=settings.greatest)
    partner = jax.tree.map(lambda leaf: leaf[order], batch)
    return Mixed(batch, partner, jnp.where(coins, share, 0))


def mix_classes(
    samples: Samples,
    prototypes: Float[Array, "c w"],
    size: int,
    settings: Mixing,
    key: PRNGKeyArray,
) -> Mixed:
    """Return pairs of samples of different classes; all have weight 0 with fewer than two classes.

    Args:
      samples: samples of the memory.
      prototypes: prototype of each class; 0 for a class without one.
      size: number of pairs.
      settings: settings of the mixing.
      key: random key.
    """
    key_round, key_coin, key_share, key_first, key_second = jax.random.split(key, 5)
    classes = prototypes.shape[0]
    one, two = (jnp.asarray(side) for side in np.triu_indices(classes, 1))
    carried = carried_classes(samples, classes) & jnp.any(prototypes != 0, axis=1)
    possible = carried[one] & carried[two]
    odds = pair_odds(prototypes, one, two, possible)
    ends = jnp.cumsum(whole_shares(odds, size, key_round))
    pair = jnp.minimum(jnp.searchsorted(ends, jnp.arange(size), side="right"), len(one) - 1)
    weight = jnp.full(size, jnp.any(possible), jnp.float32)
    coins = jax.random.bernoulli(key_coin, settings.probability, odds.shape)[pair]
    share = jax.random.beta(key_share, settings.concentration, settings.concentration, (size,))
    return Mixed(
        sample_per_label(samples, one[pair], weight, key_first),
        sample_per_label(samples, two[pair], weight, key_second),
        jnp.where(coins, share, 0),
    )


def pair_odds(
    prototypes: Float[Array, "c w"],
    one: Int[Array, "q"],
    two: Int[Array, "q"],
    possible: Bool[Array, "q"],
) -> Float[Array, "q"]:
    """Return the softmax of one over the distance of two prototypes; 0 for impossible pairs."""
    distance = jnp.linalg.norm(prototypes[one] - prototypes[two], axis=1)
    near = 1 / jnp.maximum(distance, NEAREST)
    # A softmax over nothing would be NaN.
    softmax_mask = possible | ~jnp.any(possible)
    return jnp.where(possible, jax.nn.softmax(near, where=softmax_mask), 0)


def whole_shares(odds: Float[Array, "q"], total: int, key: PRNGKeyArray) -> Int[Array, "q"]:
    """Return whole numbers near the shares of a total, whose sum is the total.

    Shares are rounded. One each is added to, or taken from, random pairs where the sum is not the
    total; only pairs with odds above 0 get one.

    Args:
      odds: share of each pair, of sum 1; if all are 0, so are the numbers.
      total: sum of the numbers.
      key: random key of the pairs that change.
    """
    counts = jnp.round(odds * total).astype(jnp.int32)
    missing = total - jnp.sum(counts)
    drawn = jax.random.uniform(key, odds.shape)
    able = jnp.where(missing > 0, odds > 0, counts > 0)
    rank = jnp.argsort(jnp.argsort(jnp.where(able, drawn, 2.0)))
    changed = able & (rank < jnp.abs(missing))
    return counts + jnp.where(changed, jnp.sign(missing), 0)


def sample_per_label(
    samples: Samples, label: Int[Array, "n"], weight: Float[Array, "n"], key: PRNGKeyArray
) -> Batch:
    """Return a random stored sample of each of these classes, drawn with replacement."""
    possible = (samples.labels[:, 0] == label[:, None]) & samples.mask
    drawn = jnp.where(possible, jax.random.uniform(key, possible.shape), -1.0)
    return batch_at(samples, jnp.argmax(drawn, axis=1), weight)


def mixed_inputs(mixed: Mixed) -> Float[Array, "r *shape"]:
    """Return the mixed inputs (1 − λ) x + λ x′."""
    first, second = mixed.first.inputs, mixed.second.inputs
    share = mixed.share.reshape(-1, *[1] * (first.ndim - 1))
    return (1 - share) * first + share * second


def mixed_ids(mixed: Mixed, classes: int) -> Int[Array, "r"]:
    """Return the class of each mixed sample in the instance loss.

    It is the first sample's without mixing, or if both have one class; otherwise the sample is a
    class of its own, numbered from the number of classes on.
    """
    one, two = mixed.first.labels[:, 0], mixed.second.labels[:, 0]
    return jnp.where((mixed.share == 0) | (one == two), one, classes + jnp.arange(one.shape[0]))
