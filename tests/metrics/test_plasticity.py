"""Diagnostics of plasticity against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import Outputs
from everlight.metrics.plasticity import (
    dead_share,
    diagnose_plasticity,
    dormant_share,
    dormant_units,
    effective_rank,
    stable_rank,
    weight_norm,
)

# Units have mean magnitudes 0, 0.5, 1, 2.5 and 0.25; the mean of the layer is 0.85.
ACTIVATIONS = jnp.array([[0, -1, 1, 5, 0.5], [0, 0, -1, 0, 0]])


def with_singular_values(values, rows=6):
    """Return a matrix of these singular values, from two random orthogonal bases."""
    rng = np.random.default_rng(2)
    left, right = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in (rows, len(values)))
    return jnp.asarray(left[:, : len(values)] * np.asarray(values) @ right, jnp.float32)


@pytest.mark.parametrize(
    ("threshold", "dormant"), [(0.0, [0]), (0.29, [0]), (0.3, [0, 4]), (0.6, [0, 1, 4])]
)
def test_dormant_units_are_below_a_share_of_the_mean(threshold, dormant):
    result = dormant_units(jnp.mean(jnp.abs(ACTIVATIONS), axis=0), threshold)
    assert np.flatnonzero(result).tolist() == dormant
    assert float(dormant_share(ACTIVATIONS, threshold)) == pytest.approx(len(dormant) / 5)


def test_a_layer_without_activity_is_dormant_and_dead():
    assert float(dormant_share(jnp.zeros((3, 4)))) == float(dead_share(jnp.zeros((3, 4)))) == 1
    assert float(dead_share(ACTIVATIONS)) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("values", "effective", "stable"),
    [
        ([1, 1, 1, 1], 4.0, 4),
        ([3, 0, 0, 0], 1.0, 1),
        # exp(-(0.5 log 0.5 + 2 * 0.25 log 0.25)) = 2 ** 1.5
        ([2, 1, 1, 0], 2**1.5, 3),
        ([97, 2.5, 0.25, 0.25], 0.97**-0.97 * 0.025**-0.025 * 0.0025**-0.005, 2),
    ],
)
def test_ranks_of_known_singular_values(values, effective, stable):
    features = with_singular_values(values)
    assert float(effective_rank(features)) == pytest.approx(effective, rel=1e-3)
    assert int(stable_rank(features)) == stable
    assert np.isfinite(jax.grad(effective_rank)(features)).all()


def test_features_that_are_0_have_no_rank_and_no_nan():
    nothing = jnp.zeros((3, 2))
    assert float(effective_rank(nothing)) == int(stable_rank(nothing)) == 0
    assert np.isfinite(jax.grad(weight_norm)(nothing)).all()


def test_the_stable_rank_of_all_singular_values_is_at_most_their_number():
    """The cumulative sum of twelve times 1 / 12 ends below 1."""
    rank = jax.jit(lambda features: stable_rank(features, 1.0))
    assert int(rank(jnp.eye(12))) == 12


def test_features_that_nearly_overflow_have_their_rank_and_infinite_ones_none():
    rank, great = jax.jit(effective_rank), 2e38 * jnp.eye(4)
    assert float(rank(great)) == pytest.approx(4)
    assert np.isnan(rank(great * 2))


def test_the_norm_of_all_parameters():
    assert float(weight_norm({"a": jnp.array([3.0, 0]), "b": jnp.array([[4.0]])})) == 5


def test_diagnostics_of_a_network_count_units_of_all_layers():
    """One of five units is dead and two more are dormant; one of two channels is dead."""
    maps = jnp.zeros((2, 3, 3, 2)).at[:, 1, 1, 0].set(1)
    features = with_singular_values([2, 1, 1, 0])
    outputs = Outputs(jnp.zeros((6, 1)), features, {"maps": maps, "units": ACTIVATIONS})
    result = diagnose_plasticity({"a": jnp.array([3.0, 4.0])}, outputs, threshold=0.6)
    np.testing.assert_allclose(result, [(3 + 1) / 7, (1 + 1) / 7, 2**1.5, 3, 5], rtol=1e-3)
    bare = diagnose_plasticity({"a": jnp.ones(1)}, Outputs(outputs.logits, features))
    assert np.isnan(bare.dead_share)
