"""The illuminant network: the paper's parameter counts, float64, and initial kernels."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.illuminant.illuminant_net import IlluminantNet

SIZES = {2: 200, 5: 470, 16: 1460}  # paper, section 3.3


@functools.cache
def initialized(depth, width=9):
    """Return a net with random biases, as it is after training."""
    init = jax.jit(IlluminantNet(depth, width).init)
    leaves, structure = jax.tree.flatten(init(jax.random.key(depth), jnp.zeros(9)))
    keys = jax.random.split(jax.random.key(7), len(leaves))
    moved = [p + 0.1 * jax.random.normal(k, p.shape) for p, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, moved)


def forward(params, features, depth):
    """Compute the paper's section 3.3 in float64 NumPy, with one row per sample."""
    weights = {name: np.float64(value) for name, value in params["params"].items()}
    hidden = np.float64(features)
    for layer in range(depth):
        affine = hidden @ weights[f"hidden_{layer}_kernel"] + weights[f"hidden_{layer}_bias"]
        hidden = np.maximum(affine, 0)
    return np.exp(hidden @ weights["chromaticity_kernel"] + weights["chromaticity_bias"])


@pytest.mark.parametrize(("depth", "count"), SIZES.items())
def test_parameter_counts_are_the_papers(depth, count):
    params = jax.eval_shape(IlluminantNet(depth).init, jax.random.key(0), jnp.zeros(9))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}


@pytest.mark.parametrize(
    ("depth", "shape"), [(2, (9,)), (2, (1, 9)), (2, (40, 9)), (5, (9,)), (16, (3, 5, 9))]
)
def test_forward_pass_is_that_of_float64(depth, shape, rng):
    params = initialized(depth)
    features = jnp.asarray(rng.normal(size=shape), jnp.float32)
    output = jax.jit(IlluminantNet(depth).apply)(params, features)
    assert output.shape == (*shape[:-1], 2)
    assert output.dtype == jnp.float32
    np.testing.assert_allclose(output, forward(params, features, depth), rtol=2e-5)


def test_width_is_free(rng):
    params = initialized(3, 32)
    features = jnp.asarray(rng.normal(size=(4, 9)), jnp.float32)
    output = IlluminantNet(3, 32).apply(params, features)
    np.testing.assert_allclose(output, forward(params, features, 3), rtol=2e-5)


def test_initial_kernels_have_he_variance_and_no_bias():
    params = IlluminantNet(2, 1000).init(jax.random.key(0), jnp.zeros(9))["params"]
    # He et al. 2015, eq. 10, have the variance 2 / fan in.
    assert np.var(params["hidden_0_kernel"]) == pytest.approx(2 / 9, rel=0.05)
    assert np.var(params["hidden_1_kernel"]) == pytest.approx(2 / 1000, rel=0.05)
    assert not any(np.any(value) for name, value in params.items() if name.endswith("bias"))
