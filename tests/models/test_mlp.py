"""The dense net against float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.models.mlp import MLP


@pytest.mark.parametrize("last_relu", [True, False])
@pytest.mark.parametrize("hidden", [(), (5,), (7, 3)])
def test_it_is_dense_layers_with_relu(hidden, last_relu):
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
    np.testing.assert_allclose(
        outputs.logits, values @ head["kernel"] + head["bias"], rtol=1e-5, atol=1e-6
    )


def test_the_cosine_head_has_a_scale_and_no_bias():
    params = MLP(3, (5,), "cosine").init(jax.random.key(0), jnp.ones((1, 2)), False)["params"]
    assert params["head"].keys() == {"kernel", "scale"}
