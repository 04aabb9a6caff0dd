"""Diagnostics of plasticity: dormant and dead units, rank of features, size of weights.

A network that has lost plasticity learns new tasks more slowly or less well. Before it does, units
stop to respond, features span fewer directions and weights grow (Dohare et al. 2024, Nature).
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from everlight.base import Coefficient, Outputs
from everlight.checks import FINITE, LARGEST, NOT_NEGATIVE, NotEmpty, UnitInterval, checked


@checked
def dormant_units(
    magnitudes: Annotated[Float[Array, "u"], NOT_NEGATIVE, NotEmpty], threshold: Coefficient = 0.1
) -> Bool[Array, "u"]:
    """Return which units of a layer are dormant (Sokar et al. 2023, ICML, definition 3.1).

    Args:
      magnitudes: mean absolute activation of each unit over samples, `[u]`.
      threshold: share τ of the layer's mean at or below which a unit is dormant. With 0 a unit is
        dormant if it never responds. If no unit responds, all are dormant.
    """
    return magnitudes <= threshold * jnp.mean(magnitudes)


@checked
def dormant_share(
    activations: Annotated[Float[Array, "n u"], FINITE, NotEmpty], threshold: Coefficient = 0.1
) -> Float[Array, ""]:
    """Return the share of dormant units (`dormant_units`), from 0 to 1.

    Args:
      activations: activations of a layer's units for n samples, `[n, u]`.
      threshold: share of the layer's mean absolute activation.
    """
    magnitudes = jnp.mean(jnp.abs(activations), axis=0)
    return jnp.mean(dormant_units(magnitudes, threshold).astype(jnp.float32))


@checked
def dead_share(activations: Annotated[Float[Array, "n u"], FINITE, NotEmpty]) -> Float[Array, ""]:
    """Return the share of units that are 0 for all samples, as dead ReLUs are; from 0 to 1.

    Args:
      activations: activations of a layer's units for n samples, `[n, u]`.
    """
    return jnp.mean(jnp.all(activations == 0, axis=0).astype(jnp.float32))


@checked
def effective_rank(features: Annotated[Float[Array, "n f"], FINITE, NotEmpty]) -> Float[Array, ""]:
    """Return the effective rank of features (Roy and Vetterli 2007); 0 if all are 0.

    It is exp(−Σ p log p) of the singular values divided by their sum, from 1 to min(n, f). Features
    are not centred. Traced features that are not finite have the rank NaN.

    Args:
      features: features of n samples, `[n, f]`.
    """
    shares = _shares(features)
    some = shares > 0
    safe = jnp.where(some, shares, 1.0)
    rank = jnp.where(jnp.any(some), jnp.exp(-jnp.sum(safe * jnp.log(safe))), 0.0)
    return jnp.where(jnp.all(jnp.isfinite(features)), rank, jnp.nan)


@checked
def stable_rank(
    features: Annotated[Float[Array, "n f"], FINITE, NotEmpty], share: UnitInterval = 0.99
) -> Int[Array, ""]:
    """Return the stable rank of features as Dohare et al. 2024 count it; 0 if all are 0.

    It is the least number of singular values, from the greatest on, whose sum is at least a share
    of the sum of all. In numerical linear algebra the term is the ratio of squared Frobenius and
    spectral norms instead. Features are not centred. It is arbitrary for traced features that are
    not finite.

    Args:
      features: features of n samples, `[n, f]`.
      share: share of the sum of singular values.
    """
    shares = _shares(features)
    # A rounded sum of all may be below 1.
    counted = jnp.minimum(1 + jnp.sum(jnp.cumsum(shares) < share), len(shares))
    return jnp.where(shares[0] > 0, counted, 0).astype(jnp.int32)


@checked
def weight_norm(params: PyTree[Float[Array, "..."]]) -> Float[Array, ""]:
    """Return the Euclidean norm of all parameters.

    Args:
      params: tree of arrays.
    """
    squares = sum(jnp.sum(leaf.astype(jnp.float32) ** 2) for leaf in jax.tree.leaves(params))
    total = jnp.float32(squares)
    return jnp.where(total > 0, jnp.sqrt(jnp.where(total > 0, total, 1.0)), 0.0)


class Plasticity(NamedTuple):
    """Diagnostics of a network's plasticity."""

    dormant_share: Float[Array, ""]
    """Share of the hidden units that are dormant, all layers together; NaN without layers."""
    dead_share: Float[Array, ""]
    """Share of the hidden units that are 0 for all samples; NaN without layers."""
    effective_rank: Float[Array, ""]
    """Effective rank of the features, the head's inputs."""
    stable_rank: Int[Array, ""]
    """Stable rank of the features."""
    weight_norm: Float[Array, ""]
    """Euclidean norm of all parameters."""


@checked
def diagnose_plasticity(
    params: PyTree[Float[Array, "..."]], outputs: Outputs, threshold: Coefficient = 0.1
) -> Plasticity:
    """Return the diagnostics of a network.

    A unit of a convolution is a channel. Each part of a concatenated ReLU counts as one unit.

    Args:
      params: parameters of the network.
      outputs: its outputs for n samples, with the activations of its hidden layers.
      threshold: share of a layer's mean absolute activation at or below which a unit is dormant.
    """
    layers = [leaf.reshape(-1, leaf.shape[-1]) for leaf in (outputs.hidden or {}).values()]
    units = [leaf.shape[1] for leaf in layers]

    def mean_over_units(shares: list[Float[Array, ""]]) -> Float[Array, ""]:
        parts = [share * count for share, count in zip(shares, units, strict=True)]
        return jnp.float32(sum(parts) / sum(units)) if units else jnp.float32(jnp.nan)

    return Plasticity(
        mean_over_units([dormant_share(leaf, threshold) for leaf in layers]),
        mean_over_units([dead_share(leaf) for leaf in layers]),
        effective_rank(outputs.features),
        stable_rank(outputs.features),
        weight_norm(params),
    )


def _shares(features: Float[Array, "n f"]) -> Float[Array, "r"]:
    """Return the singular values, greatest first, divided by their sum."""
    features = features.astype(jnp.float32)
    # The sum is at most the greatest feature times their number, and must not overflow.
    is_great = jnp.max(jnp.abs(features)) > LARGEST / features.size
    features = features * jnp.where(is_great, 2.0**-64, 1.0)
    values = jnp.linalg.svd(features, compute_uv=False)
    total = jnp.sum(values)
    return values / jnp.where(total > 0, total, 1.0)
