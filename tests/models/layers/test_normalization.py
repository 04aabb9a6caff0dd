"""Batch norm against float64 NumPy and a gradient by hand; ReLU; what XLA makes of a chain."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.models.layers.normalization import BatchNorm, normalize, relu
from everlight.models.resnet import BasicBlock

SHAPES = [(6, 5, 4, 3), (7, 3), (2, 1, 1, 3)]


def drawn(shape, rng):
    """Draw inputs away from zero, scale, bias and an outer gradient."""
    inputs = rng.normal(size=shape) * [0.5, 1, 4] + [3, 0, -2]
    return tuple(
        np.float32(a) for a in (inputs, *rng.normal(size=(2, shape[-1])), rng.normal(size=shape))
    )


def normalized(inputs):
    """Return unit inputs, mean and variance in float64, one row per sample and pixel."""
    rows = np.float64(inputs).reshape(-1, inputs.shape[-1])
    mean, variance = rows.mean(0), rows.var(0)
    return (rows - mean) / np.sqrt(variance + 1e-5), mean, variance


@pytest.mark.parametrize("shape", SHAPES)
def test_training_is_that_of_float64(shape, rng):
    inputs, scale, bias, _ = drawn(shape, rng)
    unit, mean, variance = normalized(inputs)
    before = {"mean": jnp.float32([1, 2, 3]), "var": jnp.float32([4, 5, 6])}
    variables = {"params": {"scale": jnp.array(scale), "bias": jnp.array(bias)}}
    outputs, changed = BatchNorm().apply(
        {**variables, "batch_stats": before}, jnp.asarray(inputs), True, mutable=["batch_stats"]
    )
    np.testing.assert_allclose(outputs.reshape(-1, 3), unit * scale + bias, atol=2e-5)
    count = len(unit)
    running = changed["batch_stats"]
    np.testing.assert_allclose(running["mean"], 0.9 * before["mean"] + 0.1 * mean, rtol=1e-5)
    sample = variance * count / (count - 1)
    np.testing.assert_allclose(running["var"], 0.9 * before["var"] + 0.1 * sample, rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES[:2])
def test_gradients_are_those_of_float64(shape, rng):
    """The quotient rule gives the gradient less its mean and its part along the unit inputs."""
    inputs, scale, bias, outer = drawn(shape, rng)
    unit, _, variance = normalized(inputs)
    rows = np.float64(outer).reshape(-1, 3)
    along = (rows * unit).mean(0)
    expected = scale / np.sqrt(variance + 1e-5) * (rows - rows.mean(0) - unit * along)
    arguments = [jnp.asarray(a) for a in (inputs, scale, bias)]
    gradients = jax.grad(lambda *a: jnp.sum(outer * normalize(*a)[0]), (0, 1, 2))(*arguments)
    np.testing.assert_allclose(gradients[0].reshape(-1, 3), expected, atol=3e-5)
    np.testing.assert_allclose(gradients[1], (rows * unit).sum(0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(gradients[2], rows.sum(0), rtol=1e-5, atol=1e-5)


def test_evaluation_uses_the_running_statistics(rng):
    inputs, scale, bias, _ = drawn(SHAPES[0], rng)
    stats = {"mean": jnp.float32([1, 2, 3]), "var": jnp.float32([4, 5, 6])}
    params = {"scale": jnp.array(scale), "bias": jnp.array(bias)}
    variables = {"params": params, "batch_stats": stats}
    outputs, changed = BatchNorm().apply(
        variables, jnp.asarray(inputs), False, mutable=["batch_stats"]
    )
    expected = (np.float64(inputs) - [1, 2, 3]) / np.sqrt([4.00001, 5.00001, 6.00001])
    np.testing.assert_allclose(outputs, expected * scale + bias, atol=1e-5)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, changed["batch_stats"], stats))


def test_a_constant_channel_stays_finite():
    inputs = jnp.full((4, 2, 2, 1), 1e3)
    outputs, gradient = jax.value_and_grad(
        lambda x: jnp.sum(normalize(x, jnp.ones(1), jnp.ones(1))[0])
    )(inputs)
    assert outputs == pytest.approx(16, abs=1e-2)
    assert np.all(np.isfinite(gradient))


def test_relu_and_its_slope():
    values = jnp.float32([-2, -0.0, 0, 1e-30, 3])
    np.testing.assert_array_equal(relu(values), [0, 0, 0, np.float32(1e-30), 3])
    assert np.isnan(relu(jnp.array(jnp.nan))), "a diverged net must show"
    np.testing.assert_array_equal(jax.grad(lambda x: jnp.sum(relu(x)))(values), [0, 0, 0, 1, 1])


class Stage(nn.Module):
    @nn.compact
    def __call__(self, images):
        for _ in range(5):
            images = relu(BasicBlock(4)(images, True))
        return jnp.sum(images**2)


@pytest.mark.cpu
def test_no_operation_of_a_stage_reads_the_activations_of_all_its_blocks():
    """Recomputed chains read one array per block; the program's text shows the operands."""
    images, stage = jnp.ones((2, 8, 8, 4)), Stage()
    variables = jax.eval_shape(stage.init, jax.random.key(0), images)

    def loss(params, stats):
        variables = {"params": params, "batch_stats": stats}
        return stage.apply(variables, images, mutable=["batch_stats"])[0]

    lowered = jax.jit(jax.grad(loss)).lower(variables["params"], variables["batch_stats"])
    program = lowered.compile().as_text()
    headers = re.findall(r"^%fused_computation[^(]*\((.*)\) ->", program, re.MULTILINE)
    operands = [header.count("f32[2,8,8,4]") for header in headers]
    assert 2 <= max(operands) <= 4
