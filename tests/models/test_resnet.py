"""The residual nets against PyTorch in float64, their sizes and statistics."""

import jax
import jax.numpy as jnp
import pytest

from everlight.models.resnet import BasicBlock, BottleneckBlock, ReducedResNet, ResNet50
from tests.models.torch_networks import (
    TorchNet,
    assert_close,
    drawn,
    images_for,
    needs_torch,
    shapes_of,
    tensor,
    torch,
)


@pytest.mark.parametrize(
    ("net", "side", "count"),
    [
        (ReducedResNet(115), 32, 473_731),
        (ReducedResNet(115, head="cosine"), 32, 473_617),
        (ResNet50(1000), 224, 25_557_032),
    ],
    ids=["ResNet-32 of IIRC", "with a cosine head", "ResNet-50"],
)
def test_a_network_has_its_published_size(net, side, count):
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes_of(net, side)["params"])) == count


@needs_torch
@pytest.mark.parametrize(("blocks", "head"), [(5, "linear"), (1, "cosine")])
def test_training_pass_gradients_and_statistics_are_pytorchs(blocks, head, rng):
    """The test is in float64: in float32 a ReLU near 0 can have the other sign in 32 layers."""
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


@needs_torch
@pytest.mark.parametrize(("blocks", "head"), [(3, "linear"), (2, "cosine")])
def test_evaluation_is_pytorchs_with_the_running_statistics(blocks, head, rng):
    net = ReducedResNet(7, blocks, head)
    variables = drawn(net, 32, rng)
    images, tensors = images_for(rng, 32, 2)
    outputs = jax.jit(net.apply, static_argnums=2)(variables, images, False)
    assert_close([*outputs[:3]], [*TorchNet(variables, train=False).reduced(tensors, blocks)])
    assert outputs.features.shape == (2, 64)
    assert float(outputs.features.min()) < 0, "no ReLU after the last block"


@needs_torch
def test_resnet_50_is_pytorchs(rng):
    net = ResNet50(9)
    variables = drawn(net, 64, rng)
    images, tensors = images_for(rng, 64, 2)
    outputs = jax.jit(net.apply, static_argnums=2)(variables, images, False)
    with torch.no_grad():
        assert_close([*outputs[:3]], [*TorchNet(variables, train=False).resnet_50(tensors)])
    assert outputs.features.shape == (2, 2048)


@needs_torch
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


@needs_torch
@pytest.mark.parametrize(
    ("block", "strides"), [(BasicBlock(8, 2), (2, 1)), (BottleneckBlock(2, 2), (1, 2, 1))]
)
def test_a_stride_without_more_channels_projects_the_shortcut_as_torchvision_does(
    block, strides, rng
):
    """The strided branch of 2x2 pixels is one pixel, which would broadcast over the inputs."""
    images = jnp.asarray(rng.normal(size=(3, 2, 2, 8)), jnp.float32)
    variables = jax.tree.map(
        lambda leaf: jnp.asarray(rng.uniform(0.5, 1.5, leaf.shape), jnp.float32),
        jax.eval_shape(lambda: block.init(jax.random.key(0), images, False)),
    )
    outputs = block.apply(variables, images, False)
    assert outputs.shape == (3, 1, 1, 8)
    reference = TorchNet(variables, train=False)
    assert "shortcut" in reference.params
    with torch.no_grad():
        expected = reference.block(tensor(images).permute(0, 3, 1, 2), strides=strides)
    assert_close(outputs, expected.permute(0, 2, 3, 1))
