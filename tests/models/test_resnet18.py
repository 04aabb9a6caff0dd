"""The literature's ResNet-18 against PyTorch: sizes, outputs, gradients and initial weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.models import NetworkRequest, ResNet18, named_network
from tests.models.torch_networks import (
    TorchNet,
    assert_close,
    drawn,
    images_for,
    needs_torch,
    shapes_of,
    torch,
)

STAGES = ((1, 1), (2, 1), (2, 1), (2, 1))
"""Stride of both blocks, by stage."""


def official(reference, images):
    """Return logits, features and maps in PyTorch, with the parameters of a Flax network."""
    hidden, maps = torch.relu(reference.convolved(images, "NormalizedConvolution_0")), {}
    for stage, strides in enumerate(STAGES):
        for block, stride in enumerate(strides):
            name = f"BasicBlock_{2 * stage + block}"
            hidden = torch.relu(reference.block(hidden, name, strides=(stride, 1)))
        maps[f"stage{stage + 1}"] = hidden.permute(0, 2, 3, 1)
    features = torch.nn.functional.avg_pool2d(hidden, hidden.shape[2]).flatten(1)
    return reference.head(features), features, maps


@pytest.mark.parametrize(
    ("name", "classes", "count"),
    [
        ("resnet18", 10, 11_173_962),
        ("resnet18", 100, 11_220_132),
        ("resnet18", 200, 11_271_432),
        ("slim-resnet18", 10, 1_094_750),
        ("slim-resnet18", 100, 1_109_240),
    ],
)
def test_sizes_are_mammoths(name, classes, count):
    """PyTorch counted the weights of `ResNetBlock.resnet18` and `reduced_resnet18`."""
    net = named_network(name, NetworkRequest(classes, 32)).shape
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes_of(net, 32)["params"])) == count


@needs_torch
@pytest.mark.parametrize("side", [32, 64])
def test_outputs_are_pytorchs(side, rng):
    net = ResNet18(7, 5)
    variables = drawn(net, side, rng)
    images, tensors = images_for(rng, side, 2)
    outputs = jax.jit(net.apply, static_argnums=2)(variables, images, False)
    with torch.no_grad():
        assert_close([*outputs[:3]], [*official(TorchNet(variables, train=False), tensors)])
    assert outputs.features.shape == (2, 40)
    shapes = {name: leaf.shape[1:] for name, leaf in outputs.hidden.items()}
    sides = {f"stage{stage + 1}": side // 2**stage for stage in range(4)}
    assert shapes == {name: (length, length, 5 * side // length) for name, length in sides.items()}


@needs_torch
def test_gradients_and_statistics_are_pytorchs(rng):
    net = ResNet18(4, 3)
    variables = drawn(net, 16, rng)
    images, tensors = images_for(rng, 16, 6)
    weights = jnp.asarray(rng.normal(size=(6, 4)), jnp.float32)

    @jax.jit
    @jax.grad
    def gradient_of(params):
        outputs, _ = net.apply(
            {**variables, "params": params}, images, True, mutable=["batch_stats"]
        )
        return jnp.sum(weights * outputs.logits)

    reference = TorchNet(variables, train=True)
    logits, *_ = official(reference, tensors)
    (torch.tensor(np.float64(weights)) * logits).sum().backward()
    expected = jax.tree.map(lambda leaf: leaf.grad, reference.params)
    assert_close(gradient_of(variables["params"]), expected)
    _, changed = net.apply(variables, images, True, mutable=["batch_stats"])
    assert_close(changed["batch_stats"], reference.stats)


def test_initial_weights_are_distributed_as_pytorchs():
    """They are uniform in ±1 / √n: the variance is 1 / 3n, the largest of many near the bound."""
    params = ResNet18(50, 16).init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)), False)["params"]
    head = params["head"]
    deepest = params["BasicBlock_7"]["NormalizedConvolution_1"]["Convolution_0"]["kernel"]
    for kernel, inputs in ((deepest, 9 * 128), (head["kernel"], 128)):
        scaled = np.asarray(kernel) * np.sqrt(inputs)
        assert 0.99 < np.abs(scaled).max() <= 1.0001
        np.testing.assert_allclose(scaled.var(), 1 / 3, rtol=0.05)
    biases = np.abs(np.asarray(head["bias"])) * np.sqrt(128)
    assert 0.8 < biases.max() <= 1.0001


def test_features_before_a_head_of_cosines_keep_their_sign(rng):
    net = named_network("resnet18:4", NetworkRequest(3, 16))
    images = np.float32(rng.normal(size=(4, 16, 16, 3)))
    least = {
        head: float(net.make(head).init_with_output(jax.random.key(1), images, False)[0][1].min())
        for head in ("linear", "cosine")
    }
    assert least["linear"] == 0 > least["cosine"]
