"""k-means clustering of a part of the samples, with fixed shapes (Lloyd 1982).

The first centres are drawn by k-means++ (Arthur and Vassilvitskii 2007, SODA).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.precision import matrix_product

ROUNDS = 300
"""Maximal number of rounds; clustering ends earlier if no sample changes its cluster."""


def k_means(
    rows: Float[Array, "n f"], member: Bool[Array, "n"], clusters: int, key: PRNGKeyArray
) -> Float[Array, "k f"]:
    """Return the centres of clusters of some rows.

    Args:
      rows: samples, of which some are clustered.
      member: True for these, of which there is at least one.
      clusters: number k of clusters; with fewer distinct members, centres are equal.
      key: random key of the first centres.
    """
    return moved_centers(rows, member, first_centers(rows, member, clusters, key))


def first_centers(
    rows: Float[Array, "n f"], member: Bool[Array, "n"], clusters: int, key: PRNGKeyArray
) -> Float[Array, "k f"]:
    """Return centres of k-means++: members drawn by their squared distance to the nearest centre.

    The first one is drawn uniformly, and so is one that follows if all members are centres.
    """

    def draw(number: Int[Array, ""], carry: tuple) -> tuple:
        centers, nearest = carry
        away = jnp.where(member, nearest, 0)
        odds = jnp.where(jnp.any(away > 0), away, member)
        position = jax.random.categorical(jax.random.fold_in(key, number), jnp.log(odds))
        distance = jnp.sum((rows - rows[position]) ** 2, axis=1)
        nearest = jnp.where(number == 0, distance, jnp.minimum(nearest, distance))
        return centers.at[number].set(rows[position]), nearest

    start = jnp.zeros((clusters, rows.shape[1]), rows.dtype), jnp.ones(rows.shape[0], rows.dtype)
    return jax.lax.fori_loop(0, clusters, draw, start)[0]


def moved_centers(
    rows: Float[Array, "n f"], member: Bool[Array, "n"], centers: Float[Array, "k f"]
) -> Float[Array, "k f"]:
    """Return the centres after rounds of k-means from given ones, until no member changes cluster.

    A centre without members stays where it is.
    """
    clusters = centers.shape[0]

    def assign_clusters(centers: Float[Array, "k f"]) -> Int[Array, "n"]:
        return jnp.argmin(jnp.sum(centers**2, axis=1) - 2 * matrix_product(rows, centers.T), axis=1)

    def changes(carry: tuple) -> Bool[Array, ""]:
        _, _, changed, number = carry
        return changed & (number < ROUNDS)

    def one_round(carry: tuple) -> tuple:
        centers, before, _, number = carry
        cluster = assign_clusters(centers)
        one_hot = ((cluster[:, None] == jnp.arange(clusters)) & member[:, None]).astype(rows.dtype)
        count = jnp.sum(one_hot, axis=0)[:, None]
        means = matrix_product(one_hot.T, rows) / jnp.maximum(count, 1)
        changed = jnp.any((cluster != before) & member)
        return jnp.where(count > 0, means, centers), cluster, changed, number + 1

    start = centers, jnp.full(rows.shape[0], -1), jnp.array(True), jnp.int32(0)
    return jax.lax.while_loop(changes, one_round, start)[0]
