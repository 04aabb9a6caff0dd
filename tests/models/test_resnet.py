"""The residual nets against PyTorch in float64, their sizes and statistics."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.models.resnet import BottleneckBlock, ReducedResNet, ResNet50

torch = pytest.importorskip("torch")


F = torch.nn.functional


def size_of(params):
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def shapes_of(net, side):
    return jax.eval_shape(lambda: net.init(jax.random.key(0), jnp.zeros((1, side, side, 3)), False))


@pytest.mark.parametrize(("head", "count"), [("linear", 473_731), ("cosine", 473_617)])
def test_the_resnet_32_of_iirc_has_the_published_size(head, count):
    assert size_of(shapes_of(ReducedResNet(115, head=head), 32)["params"]) == count


@pytest.mark.parametrize("blocks", [3, 5, 9])
def test_sizes_by_hand(blocks):
    """Convolutions, two numbers of batch norm a channel, two shortcuts and the head."""
    params = 27 * 16 + 2 * 16
    for width, before in ((16, 16), (32, 16), (64, 32)):
        params += 9 * before * width + (2 * blocks - 1) * 9 * width**2 + 2 * blocks * 2 * width
        params += (before * width + 2 * width) * (before != width)
    params += 64 * 10 + 10
    assert size_of(shapes_of(ReducedResNet(10, blocks), 32)["params"]) == params


def test_resnet_50_has_the_published_size():
    assert size_of(shapes_of(ResNet50(1000), 224)["params"]) == 25_557_032


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
            hidden = self.convolved(
                torch.relu(hidden) if index else hidden, *path, name, stride=stride
            )
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
    """Variables of a trained net's kind: He kernels, and no scale, bias or statistic at rest."""
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


def assert_close(ours, theirs, tolerance=1e-4):
    """Every array to a share of its own greatest entry."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for our, their in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        their = their.detach().numpy()
        np.testing.assert_allclose(our, their, atol=tolerance * np.abs(their).max())


@pytest.mark.parametrize(("blocks", "head"), [(5, "linear"), (1, "cosine")])
def test_training_pass_gradients_and_statistics_are_pytorchs(blocks, head, rng):
    """In float64: in float32 a ReLU near 0 can have the other sign, in 32 layers a large one."""
    with jax.enable_x64(True):
        net = ReducedResNet(7, blocks, head, jnp.float64)
        variables = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), drawn(net, 16, rng))
        images, tensors = images_for(rng, 16, 6)
        weights = jnp.asarray(rng.normal(size=(6, 7)))

        def loss(params):
            outputs, changed = net.apply(
                {**variables, "params": params}, images, True, mutable=["batch_stats"]
            )
            return jnp.sum(weights * outputs.logits), (outputs, changed["batch_stats"])

        gradient_of = jax.jit(jax.grad(loss, has_aux=True))
        gradient, (outputs, stats) = gradient_of(variables["params"])
        reference = TorchNet(variables, train=True)
        expected = reference.reduced(tensors, blocks)
        (tensor(weights) * expected[0]).sum().backward()
        assert_close([*outputs[:3]], [*expected], 1e-6)
        assert_close(gradient, jax.tree.map(lambda leaf: leaf.grad, reference.params), 1e-6)
        assert_close(stats, reference.stats, 1e-6)


@pytest.mark.parametrize(("blocks", "head"), [(3, "linear"), (2, "cosine")])
def test_evaluation_is_pytorchs_with_the_running_statistics(blocks, head, rng):
    net = ReducedResNet(7, blocks, head)
    variables = drawn(net, 32, rng)
    images, tensors = images_for(rng, 32, 2)
    outputs = jax.jit(net.apply, static_argnums=2)(variables, images, False)
    assert_close([*outputs[:3]], [*TorchNet(variables, train=False).reduced(tensors, blocks)])
    assert outputs.features.shape == (2, 64)
    assert float(outputs.features.min()) < 0, "no ReLU after the last block"


def test_resnet_50_is_pytorchs(rng):
    net = ResNet50(9)
    variables = drawn(net, 64, rng)
    images, tensors = images_for(rng, 64, 2)
    outputs = jax.jit(net.apply, static_argnums=2)(variables, images, False)
    with torch.no_grad():
        assert_close([*outputs[:3]], [*TorchNet(variables, train=False).resnet_50(tensors)])
    assert outputs.features.shape == (2, 2048)


def test_a_bottlenecks_gradients_are_pytorchs(rng):
    block = BottleneckBlock(4, 2)
    images, tensors = images_for(rng, 9, 3)
    variables = drawn(block, 9, rng)

    def loss(params):
        variables_of = {**variables, "params": params}
        return jnp.sum(jnp.sin(block.apply(variables_of, images, True, mutable=["batch_stats"])[0]))

    reference = TorchNet(variables, train=True)
    torch.sin(reference.block(tensors, strides=(1, 2, 1))).sum().backward()
    gradient = jax.jit(jax.grad(loss))(variables["params"])
    assert_close(gradient, jax.tree.map(lambda leaf: leaf.grad, reference.params))
