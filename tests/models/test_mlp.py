"""The dense net against float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.models.mlp import MLP


@pytest.mark.parametrize("last_relu", [True, False])
@pytest.mark.parametrize("hidden", [(), (5,), (7, 3)])
def test_mlp_equals_dense_layers_with_relu(hidden, last_relu):
    net = MLP(4, hidden, last_relu=last_relu)
    values = np.random.default_rng(0).normal(size=(6, 6))
    inputs = jnp.asarray(values, jnp.float32).reshape(6, 2, 3)
    variables = net.init(jax.random.key(0), inputs, False)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, float), variables["params"])
    assert params.keys() == {*(f"hidden{n}" for n in range(1, len(hidden) + 1)), "head"}
    for number, name in enumerate(sorted(params.keys() - {"head"}), 1):
        values = values @ params[name]["kernel"] + params[name]["bias"]
        if last_relu or number < len(hidden):
            values = np.maximum(values, 0)
    outputs = net.apply(variables, inputs, True)
    np.testing.assert_allclose(outputs.features, values, rtol=1e-5, atol=1e-6)
    head = params["head"]
    logits = values @ head["kernel"] + head["bias"]
    np.testing.assert_allclose(outputs.logits, logits, rtol=1e-5, atol=1e-6)


def test_the_cosine_head_has_a_scale_and_no_bias():
    params = MLP(3, (5,), "cosine").init(jax.random.key(0), jnp.ones((1, 2)), False)["params"]
    assert params["head"].keys() == {"kernel", "scale"}


def test_layer_norm_and_concatenated_relu_by_numpy():
    values = np.random.default_rng(1).normal(size=(5, 4))
    net = MLP(3, (6, 2), layer_norm=True, crelu=True)
    params = net.init(jax.random.key(0), jnp.float32(values), False)["params"]
    # Scales and offsets change from 1 and 0.
    params = jax.tree.map(
        lambda leaf: leaf + 0.3 * jnp.cos(leaf + jnp.arange(leaf.shape[-1])), params
    )
    assert params["hidden2"]["kernel"].shape == (12, 2)
    outputs = net.apply({"params": params}, jnp.float32(values), True)
    params = jax.tree.map(np.float64, params)
    for number in (1, 2):
        dense, norm = params[f"hidden{number}"], params[f"norm{number}"]
        values = values @ dense["kernel"] + dense["bias"]
        values = (values - values.mean(axis=1, keepdims=True)) / np.sqrt(
            values.var(axis=1, keepdims=True) + 1e-6
        )
        values = values * norm["scale"] + norm["bias"]
        values = np.maximum(np.concatenate([values, -values], axis=1), 0)
        np.testing.assert_allclose(outputs.hidden[f"hidden{number}"], values, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(outputs.features, outputs.hidden["hidden2"])
