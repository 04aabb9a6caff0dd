"""Xavier and Kaiming initialization against their closed forms."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual import StoredImages, flax_setup, softmax_objective
from everlight.models import (
    MLP,
    EfficientNetLite0,
    PlainCNN,
    with_kaiming,
    with_layers,
    with_lora,
    with_xavier,
)
from everlight.models.frozen_layers import with_trained_part

IMAGES = StoredImages.of(np.zeros((1, 16, 16, 1), np.uint8), jnp.zeros(1), jnp.ones(1))
KERNEL, BIAS = jnp.zeros((256, 3)), jnp.zeros(3)


def setup_of(net):
    return flax_setup(net, IMAGES, softmax_objective(), optax.sgd(0.1))


@pytest.mark.parametrize(
    ("net", "count"),
    [(MLP(10, (300, 200)), 3), (PlainCNN(10, (16, 32), 64), 4)],
    ids=["dense", "convolutions"],
)
def test_kernels_are_uniform_within_the_bound_and_the_rest_stays(net, count):
    """The mean is 0 and the variance a² / 3 for ±a, within five standard errors."""
    initial, _ = setup_of(net).init(jax.random.key(0))
    params, _ = with_xavier(setup_of(net)).init(jax.random.key(0))
    kernels = 0
    for (path, leaf), before in zip(
        jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(initial), strict=True
    ):
        if path[-1].key != "kernel":
            np.testing.assert_array_equal(leaf, before)
            continue
        kernels += 1
        *taps, inputs, outputs = leaf.shape
        bound = np.sqrt(6 / ((inputs + outputs) * np.prod(taps)))
        scaled = np.asarray(leaf, np.float64).ravel() / bound
        assert np.abs(scaled).max() <= 1
        assert abs(scaled.mean()) < 5 * np.sqrt(1 / 3 / scaled.size)
        # The variance of x² is 1/5 − 1/9 for uniform x.
        assert abs(np.mean(scaled**2) - 1 / 3) < 5 * np.sqrt(4 / 45 / scaled.size)
    assert kernels == count


def test_kernels_of_equal_shape_differ_and_a_key_gives_the_same_again():
    setup = with_xavier(setup_of(MLP(10, (50, 50, 50))))
    (first, _), (again, _) = setup.init(jax.random.key(3)), setup.init(jax.random.key(3))
    jax.tree.map(np.testing.assert_array_equal, first, again)
    kernels = [first[name]["kernel"] for name in ("hidden2", "hidden3")]
    assert np.mean(kernels[0] == kernels[1]) < 0.01


def test_given_layers_stand_in_the_place_of_drawn_ones():
    setup = setup_of(MLP(10, (3,)))
    initial, _ = setup.init(jax.random.key(0))
    first, *others = initial
    options = {first: jax.tree.map(lambda leaf: leaf + 1, initial[first])}
    result, _ = with_layers(setup, options).init(jax.random.key(0))
    assert others
    jax.tree.map(np.testing.assert_array_equal, result, initial | options)


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        (
            {"hiden1": {}},
            "layers holds 'hiden1', and the network has hidden1, head; give layers of the network",
        ),
        ({"hidden1": {"kernel": KERNEL}}, r"hidden1/bias of layers is missing; give \(3,\)"),
        (
            {"hidden1": {"kernel": KERNEL.T, "bias": BIAS}},
            r"hidden1/kernel of layers has the shape \(3, 256\); give \(256, 3\)",
        ),
        (
            {"hidden1": {"kernel": KERNEL, "bias": BIAS, "scale": BIAS}},
            "layers holds hidden1/scale, and the network has none; remove it",
        ),
    ],
)
def test_layers_that_the_network_does_not_have_are_refused(layers, reason):
    """Linen would ignore another name, and fail within the network at another shape."""
    net = MLP(10, (3,))
    parts = with_trained_part(setup_of(net), layers, "part", lambda key: {}, None)
    # Low-rank additions look for a kernel before there is a network.
    makers = [with_layers(setup_of(net), layers), parts]
    if "hidden1" in layers:
        makers.append(with_lora(setup_of(net), layers, ("kernel",), rank=1))
    for setup in makers:
        with pytest.raises(ValueError, match=f"^{reason}"):
            jax.eval_shape(setup.init, jax.random.key(0))


def test_batch_statistics_of_a_network_without_any_are_refused():
    setup = with_layers(setup_of(MLP(10, (3,))), {}, {"norm": {"mean": BIAS}})
    with pytest.raises(ValueError, match=r"^batch_stats holds 'norm', and the network has none;"):
        setup.init(jax.random.key(0))


def test_kaiming_kernels_are_uniform_within_their_bounds():
    """The bounds are ±√(6 / n) in hidden layers and ±√(3 / n) in the head; biases stay."""
    params, _ = with_kaiming(setup_of(MLP(40, (300, 200)))).init(jax.random.key(0))
    for name, layer in params.items():
        size = layer["kernel"].shape[0]
        scaled = np.asarray(layer["kernel"]) / np.sqrt((3 if name == "head" else 6) / size)
        assert 0.999 < np.abs(scaled).max() <= 1
        assert abs(np.mean(scaled**2) - 1 / 3) < 5 * np.sqrt(4 / 45 / scaled.size)
        assert not layer["bias"].any()


class Sequence(nn.Module):
    """Convolution along the rows of an image, then attention of four heads among them."""

    @nn.compact
    def __call__(self, images, train):
        rows = nn.Conv(24, (5,), name="conv")(images[..., 0])
        mixed = nn.MultiHeadDotProductAttention(4, qkv_features=40, out_features=32, name="mix")
        return nn.Dense(6, name="head")(mixed(rows).mean(1))


def test_the_inputs_and_outputs_of_three_axes_are_those_of_the_layer():
    """Inputs and outputs are the values that one output reads and one input reaches."""
    fans = {
        ("conv",): (5 * 16, 5 * 24),
        ("mix", "query"): (24, 40),
        ("mix", "key"): (24, 40),
        ("mix", "value"): (24, 40),
        ("mix", "out"): (40, 32),
    }
    xavier, kaiming = (
        change(setup_of(Sequence())).init(jax.random.key(0))[0]
        for change in (with_xavier, with_kaiming)
    )
    for layer, (inputs, outputs) in fans.items():
        for params, bound in ((xavier, 6 / (inputs + outputs)), (kaiming, 6 / inputs)):
            for name in layer:
                params = params[name]
            assert params["kernel"].ndim == 3
            assert 0.99 < np.abs(params["kernel"]).max() / np.sqrt(bound) <= 1


class ListOfLayers(nn.Module):
    """A layer that has its number as name, as those of a list in NNX and Equinox."""

    @nn.compact
    def __call__(self, rows):
        return nn.Conv(24, (5,), name="0")(rows)


class NumberedConvolution(nn.Module):
    """Network with a convolution in a list named convs."""

    @nn.compact
    def __call__(self, images, train):
        return nn.Dense(6, name="head")(ListOfLayers(name="convs")(images[..., 0]).mean(1))


def test_a_convolution_may_have_its_name_from_its_list():
    params, _ = with_kaiming(setup_of(NumberedConvolution())).init(jax.random.key(0))
    kernel = params["convs"]["0"]["kernel"]
    assert 0.99 < np.abs(kernel).max() / np.sqrt(6 / (5 * 16)) <= 1


@pytest.mark.parametrize(
    ("change", "bound"), [(with_xavier, 6 / (64 + 60)), (with_kaiming, 3 / 64)]
)
def test_all_proxies_of_a_head_have_the_features_as_inputs(change, bound):
    net = MLP(6, (64,), head="local similarity")
    kernel = change(setup_of(net)).init(jax.random.key(0))[0]["head"]["kernel"]
    assert kernel.shape == (64, 10, 6)
    assert 0.99 < np.abs(kernel).max() / np.sqrt(bound) <= 1


@pytest.mark.parametrize("change", [with_xavier, with_kaiming])
def test_other_kernels_of_three_axes_are_refused_by_their_layer(change):
    reason = r"^block0/depthwise/kernel has the shape \(3, 3, 32\), whose [^\n]* initialization"
    images = StoredImages.of(np.zeros((1, 32, 32, 3), np.uint8), jnp.zeros(1), jnp.ones(1))
    setup = flax_setup(EfficientNetLite0(4), images, softmax_objective(), optax.sgd(0.1))
    with pytest.raises(ValueError, match=reason):
        jax.eval_shape(change(setup).init, jax.random.key(0))
