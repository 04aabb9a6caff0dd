"""Residual networks in PyTorch, for tests that compare with them where PyTorch is installed."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    torch = F = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed (the extra bench)")


def shapes_of(net, side):
    return jax.eval_shape(lambda: net.init(jax.random.key(0), jnp.zeros((1, side, side, 3)), False))


class TorchNet:
    """The same nets in PyTorch, over a tree of tensors that mirrors the Flax variables."""

    def __init__(self, variables, train):
        self.params = jax.tree.map(lambda a: tensor(a).requires_grad_(), variables["params"])
        self.stats = jax.tree.map(tensor, variables["batch_stats"])
        self.train = train

    def convolved(self, inputs, *path, stride=1):
        params, stats = (
            functools.reduce(dict.get, path, tree) for tree in (self.params, self.stats)
        )
        kernel = params["Convolution_0"]["kernel"].permute(3, 2, 0, 1)
        outputs = F.conv2d(inputs, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        norm, running = params["BatchNorm_0"], stats["BatchNorm_0"]
        return F.batch_norm(
            *(outputs, running["mean"], running["var"], norm["scale"], norm["bias"]),
            *(self.train, 0.1, 1e-5),
        )

    def block(self, inputs, *path, strides):
        hidden = inputs
        for index, stride in enumerate(strides):
            name = f"NormalizedConvolution_{index}"
            before = torch.relu(hidden) if index else hidden
            hidden = self.convolved(before, *path, name, stride=stride)
        if "shortcut" in functools.reduce(dict.get, path, self.params):
            inputs = self.convolved(inputs, *path, "shortcut", stride=max(strides))
        return hidden + inputs

    def head(self, features):
        head = self.params["head"]
        if "bias" in head:
            return features @ head["kernel"] + head["bias"]
        return head["scale"] * F.normalize(features, dim=1) @ F.normalize(head["kernel"], dim=0)

    def reduced(self, images, blocks):
        hidden, maps = self.convolved(images, "NormalizedConvolution_0"), {}
        for index in range(3 * blocks):
            strides = (2 if index in (blocks, 2 * blocks) else 1, 1)
            hidden = self.block(torch.relu(hidden), f"BasicBlock_{index}", strides=strides)
            if (index + 1) % blocks == 0:
                maps[f"stage{(index + 1) // blocks}"] = hidden.permute(0, 2, 3, 1)
        read = {name: torch.relu(leaf) for name, leaf in maps.items()}
        features = hidden.mean((2, 3))
        return self.head(features), features, read | {"stage3": maps["stage3"]}

    def resnet_50(self, images):
        hidden = torch.relu(self.convolved(images, "NormalizedConvolution_0", stride=2))
        hidden, maps = F.max_pool2d(hidden, 3, 2, 1), {}
        for index in range(16):
            strides = (1, 2 if index in (3, 7, 13) else 1, 1)
            hidden = torch.relu(self.block(hidden, f"BottleneckBlock_{index}", strides=strides))
            if index in (2, 6, 12, 15):
                maps[f"stage{len(maps) + 1}"] = hidden.permute(0, 2, 3, 1)
        features = hidden.mean((2, 3))
        return self.head(features), features, maps


def tensor(array):
    return torch.tensor(np.asarray(array), dtype=torch.float64)


def images_for(rng, side, batch):
    images = jnp.asarray(rng.normal(size=(batch, side, side, 3)), jnp.float32)
    return images, tensor(images).permute(0, 3, 1, 2)


def drawn(net, side, rng):
    """Draw variables as of a trained net: He kernels; scales, biases and statistics vary."""
    draw = {
        "kernel": lambda shape: rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[:-1])),
        "scale": lambda shape: rng.uniform(0.5, 1.5, shape),
        "var": lambda shape: rng.uniform(0.5, 1.5, shape),
        "bias": lambda shape: 0.2 * rng.normal(size=shape),
        "mean": lambda shape: 0.2 * rng.normal(size=shape),
    }
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.asarray(draw[path[-1].key](leaf.shape), jnp.float32),
        shapes_of(net, side),
    )


def assert_close(actual, reference, tolerance=1e-4):
    """Check every array to a share of its greatest entry."""
    assert jax.tree.structure(actual) == jax.tree.structure(reference)
    for our, their in zip(jax.tree.leaves(actual), jax.tree.leaves(reference), strict=True):
        their = their.detach().numpy()
        np.testing.assert_allclose(our, their, atol=tolerance * np.abs(their).max())
