"""TIES-merging (Yadav et al. 2023, NeurIPS): task vectors are trimmed, and signs elected.

Of every task vector τ_t = θ_t − θ_0, the share k of entries of greatest magnitude is kept and the
others are set to 0. The trimmed vectors τ̂_t elect a sign for each parameter. Those that agree with
it are averaged:

    γ = sign(Σ_t τ̂_t)        m = mean of τ̂_t over tasks with sign(τ̂_t) = γ        θ̄_T = θ_0 + λ m

Trimming ranks the entries of all parameters together. Every task is trained from θ_0, the
parameters with which the sequence starts. The sums and counts of positive and of negative entries
represent all task vectors exactly, so memory does not grow with tasks. Between tasks the merged
network predicts. The paper's recipe without validation data is k = 0.2 and λ = 1, the defaults.

Columns of the head move in the tasks that have samples of their class (`merging`). With disjoint
classes and without weight decay, which moves all columns in every task, no sign in the head is
contested, so a column is θ_0 + λ τ̂_t of its own task.

Equal to the official code (prateeky2806/ties-merging, `merge_utils.py`, `merge_methods` with topk,
mass and dis-mean) for given trimmed vectors without opposite entries that cancel; differs in:

- A parameter whose trimmed entries cancel stays at θ_0, since sign(0) = 0. In the official code it
  takes the sign of the majority of all parameters, and the negative one if there is none.
- The int(k d) greatest of d entries are kept, and all entries equal to the smallest of them. In the
  official code it is one more.
- Batch statistics are estimated on the last task's samples. In the official code running averages
  are entries of the task vectors.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from everlight.base import Coefficient, Setup, Strategy
from everlight.checks import UnitInterval, checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.parts.merging import merge_from_common_start


class SignedSums(NamedTuple):
    """Sums and counts of the entries of trimmed task vectors, by their sign."""

    positive: PyTree
    negative: PyTree
    positive_count: PyTree
    negative_count: PyTree


@checked
def ties(setup: Setup, scale: Coefficient = 1.0, density: UnitInterval = 0.2) -> Strategy:
    """Return TIES-merging (trim, elect sign, merge), whose memory is `CommonStart` of `SignedSums`.

    Args:
      setup: network, objective, optimizer and data access.
      scale: coefficient λ of the merged task vector.
      density: share k of each task vector's entries that trimming keeps.
    """
    return merge_from_common_start(
        setup,
        no_vectors,
        lambda sums, vector: with_vector(sums, trim_vector(vector, density)),
        lambda sums: jax.tree.map(lambda leaf: scale * leaf, disjoint_mean(sums)),
    )._replace(parameter_copies=5)


def no_vectors(params: PyTree) -> SignedSums:
    """Return the sums over no task vector."""
    zeros = jax.tree.map(jnp.zeros_like, params)
    none = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.int32), params)
    return SignedSums(zeros, zeros, none, none)


def trim_vector(vector: PyTree, density: float) -> PyTree:
    """Return a task vector with all but its greatest entries set to 0.

    Args:
      vector: tree whose entries are ranked together by their magnitude.
      density: share of the entries that stays, rounded down; entries of equal magnitude stay alike.
    """
    magnitudes = jnp.concatenate([jnp.abs(leaf).ravel() for leaf in jax.tree.leaves(vector)])
    count = int(density * magnitudes.size)
    if count == 0:
        return jax.tree.map(jnp.zeros_like, vector)
    least = jnp.sort(magnitudes)[-count]
    return jax.tree.map(lambda leaf: jnp.where(jnp.abs(leaf) >= least, leaf, 0), vector)


def with_vector(sums: SignedSums, vector: PyTree) -> SignedSums:
    """Return the sums with one more trimmed task vector."""
    return SignedSums(
        jax.tree.map(lambda total, leaf: total + jnp.maximum(leaf, 0), sums.positive, vector),
        jax.tree.map(lambda total, leaf: total + jnp.minimum(leaf, 0), sums.negative, vector),
        jax.tree.map(lambda total, leaf: total + (leaf > 0), sums.positive_count, vector),
        jax.tree.map(lambda total, leaf: total + (leaf < 0), sums.negative_count, vector),
    )


def disjoint_mean(sums: SignedSums) -> PyTree:
    """Return each parameter's mean over the entries of the elected sign; 0 if there are none."""

    def mean(
        positive: Float[Array, "*shape"],
        negative: Float[Array, "*shape"],
        above: Int[Array, "*shape"],
        below: Int[Array, "*shape"],
    ) -> Float[Array, "*shape"]:
        sign = jnp.sign(positive + negative)
        total = jnp.where(sign > 0, positive, jnp.where(sign < 0, negative, 0))
        return total / jnp.maximum(jnp.where(sign > 0, above, below), 1)

    return jax.tree.map(mean, *sums)


METHODS = (
    Method(
        "TIES",
        ties,
        Publication("Yadav et al.", 2023, "NeurIPS", ("old net",)),
        "TIES-merging (trim, elect sign, merge)",
        tunes="scale",
        hyperparameters=(0.5, 1, 1.5, 2),
        published=1,
        requirements=("last weights",),
        advised=("pretrained layers",),
        authors={"scale": 1, "density": 0.2, "network": "pretrained"},
        takes_targets=True,
    ),
)
