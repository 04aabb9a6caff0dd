"""HAT's gates: their gradient in the official code, how they steepen, and what they leave free."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.strategies.hat import (
    OPEN,
    Attention,
    anneal,
    compensation,
    descend,
    freedom,
    new_use,
    units_used,
)
from everlight.continual.strategies.parts.gates import gate
from tests.continual.strategies.references.official_hat import official_gradient, sigmoid

S = [1 / 400, 50.0, 200.0, 400.0]
SPREAD = np.unique(np.concatenate([np.linspace(-6, 6, 241), np.linspace(-0.3, 0.3, 241)]))


@pytest.mark.parametrize("s", S)
def test_five_steps_of_the_official_gradient_on_fed_tensors(s):
    """Each step starts from the official embeddings; 1 − a has a rounding error of 2^-23."""
    embedding, rng = SPREAD, np.random.default_rng(1)
    for _ in range(5):
        by_gate = rng.normal(size=embedding.shape)
        result = descend(jnp.float32(embedding), jnp.float32(by_gate), s, 400.0, 0.05)
        gradient = official_gradient(np.float32(embedding), by_gate, s, 400.0)
        expected = np.clip(embedding - 0.05 * gradient, -6, 6)
        live = 5 * np.abs(by_gate) / (np.cosh(embedding) + 1)
        rounding = np.where(s * embedding < 17, 2.0**-23 * np.exp(np.minimum(s * embedding, 17)), 0)
        error = np.abs(np.asarray(result, float) - expected)
        # The bound is twice 0.05 * 400 * sigma'(e), in float32 around 6.
        assert np.all(error <= 20 * live * (rounding + 1e-4 * (s * np.abs(embedding) > 40)) + 5e-6)
        embedding = np.float64(np.float32(expected))


@pytest.mark.parametrize("s", S)
def test_the_compensation_is_finite_and_its_closed_form(s):
    """The float64 form is σ'(s e) and the clipped ratio; it is 0 where float32 has a = 1."""
    result = np.asarray(compensation(jnp.float32(SPREAD), s, 400.0), float)
    embedding = np.float64(np.float32(SPREAD))
    product = s * embedding
    gate = sigmoid(product)
    ratio = (np.cosh(np.clip(product, -50, 50)) + 1) / (np.cosh(embedding) + 1)
    expected = np.where(product < OPEN, 400 * gate * sigmoid(-product) * ratio, 0)
    clear = np.abs(product - OPEN) > 1e-3
    np.testing.assert_allclose(result[clear], expected[clear], rtol=2e-3, atol=1e-20)
    assert np.all(np.isfinite(result))
    assert np.any(result > 0)


def test_where_an_open_gate_is_one_in_float32():
    """Backpropagation gives an open gate no gradient from this bound on."""
    below, above = np.float32(OPEN - 1e-4), np.float32(OPEN + 1e-4)
    assert np.float32(1) + np.exp(-above) == 1 < np.float32(1) + np.exp(-below)


def test_the_gate_steepens_over_a_round():
    steps = jnp.int32(5)
    result = [anneal(jnp.int32(step), steps, 400.0) for step in range(7)]
    expected = [1 / 400, 100.001875, 200.00125, 300.000625, 400, 1 / 400, 100.001875]
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert anneal(jnp.int32(3), jnp.int32(1), 400.0) == 400


def test_units_used_by_hand():
    embeddings = {
        "one": jnp.array([[-1.0, 0.5, -0.1, -2], [3, 0.5, -1, -1], [1, 1, 1, 1]]),
        "two": jnp.array([[0.1, -0.1], [-1, -1], [1, 1]]),
    }
    attention = Attention(embeddings, {}, jnp.int32(1), jnp.zeros(6, bool), jnp.int32(0))
    result = units_used(attention)
    # The third task has not begun.
    np.testing.assert_allclose(result.by_layer["one"], [0.25, 0.5, 0.5])
    np.testing.assert_allclose(result.by_layer["two"], [0.5, 0.5, 0.5])
    np.testing.assert_allclose(result.overall, [2 / 6, 3 / 6, 3 / 6], rtol=1e-6)
    last = units_used(attention._replace(task=jnp.int32(2)))
    np.testing.assert_allclose(last.overall, [2 / 6, 3 / 6, 1], rtol=1e-6)


def test_only_units_that_no_task_uses_cost():
    """The cost is (0.5 + 0.25 · 0.5) / (1 + 0.5), and nothing once all units are used."""
    gates = {"one": jnp.array([0.5, 1.0]), "two": jnp.array([0.25])}
    used = {"one": jnp.array([0.0, 1.0]), "two": jnp.array([0.5])}
    np.testing.assert_allclose(new_use(gates, used), 0.625 / 1.5, rtol=1e-6)
    assert new_use(gates, jax.tree.map(jnp.ones_like, used)) == 0


class Convolutions(nn.Module):
    """Two convolutions and a dense layer over their maps, in either order of the axes."""

    channels_first: bool

    @nn.compact
    def __call__(self, maps):
        for name, channels in (("conv1", 6), ("conv2", 5)):
            maps = nn.max_pool(nn.relu(nn.Conv(channels, (3, 3), name=name)(maps)), (2, 2), (2, 2))
        maps = maps.transpose(0, 3, 1, 2) if self.channels_first else maps
        hidden = nn.relu(nn.Dense(7, name="dense")(maps.reshape(len(maps), -1)))
        return nn.Dense(4, name="head")(hidden)


@pytest.mark.parametrize("channels_first", [False, True])
def test_free_parameters_touch_no_used_unit_of_a_convolutional_net(channels_first):
    """Gates are 0 and 1; any change of the free parameters leaves the gated outputs."""
    net, layers = Convolutions(channels_first), ("conv1", "conv2", "dense")
    keys = jax.random.split(jax.random.key(5), 6)
    images = jax.random.normal(keys[0], (3, 8, 8, 2))
    params = net.init(keys[1], images)["params"]
    widths = {"conv1": 6, "conv2": 5, "dense": 7}
    used = {name: (jnp.arange(width) % 2).astype(jnp.float32) for name, width in widths.items()}
    new_classes = jnp.arange(4) >= 2
    free = freedom(params, used, layers, new_classes, channels_first)
    noise = jax.tree.map(lambda leaf: 1 + jax.random.normal(keys[2], leaf.shape), params)
    moved = jax.tree.map(lambda leaf, f, change: leaf + f * change, params, free, noise)

    def outputs(params):
        return net.apply({"params": gate(params, used)}, images)

    before, after = outputs(params), outputs(moved)
    np.testing.assert_allclose(after[:, :2], before[:, :2], atol=1e-6)
    assert np.max(np.abs(after[:, 2:] - before[:, 2:])) > 0.1
    # Whatever one of its sides leaves open is free: half of each side, three quarters of a kernel.
    shares = {name: float(jnp.mean(free[name]["kernel"])) for name in layers}
    expected = {"conv1": 1 - 3 / 6, "conv2": 1 - 3 * 2 / 30, "dense": 1 - 2 * 3 / 35}
    for name, share in expected.items():
        np.testing.assert_allclose(shares[name], share, rtol=1e-6)
    # The other order of the axes would be seen here.
    wrong = freedom(params, used, layers, new_classes, not channels_first)
    assert np.any(wrong["dense"]["kernel"] != free["dense"]["kernel"])
