"""The nets' layers at 128x128, their sizes, and their outputs against PyTorch's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.models.caffe_nets import (
    LinearClassifier,
    MidCaffeNet,
    MidVGG,
    scale_layers,
    with_weights,
)

IMAGES = (2, 128, 128, 3)
NETS = {"caffe": MidCaffeNet, "vgg": MidVGG}
# Sides follow from the layers' sizes: conv1 of CaffeNet is floor((128 - 11) / 4) + 1 = 30.
MAPS = {
    "caffe": [(30, 96), (15, 256), (7, 384), (7, 384), (7, 256)],
    "vgg": [(61, 96), (14, 256), (7, 512), (7, 512), (7, 512)],
}
# Inputs of a kernel (of one group) times outputs, and a bias for each output.
PARAMETERS = {
    "caffe": [(11**2 * 3, 96), (5**2 * 48, 256), (9 * 256, 384), (9 * 192, 384), (9 * 192, 256)],
    "vgg": [(7**2 * 3, 96), (5**2 * 96, 256), (9 * 256, 512), (9 * 512, 512), (9 * 512, 512)],
}
DENSE = {"caffe": 3 * 3 * 256, "vgg": 3 * 3 * 512}
STATED = {"caffe": (11_353_522, 2_334_080, 2_449_330), "vgg": (20_266_674, 6_528_640, 6_759_090)}
each_net = pytest.mark.parametrize("name", NETS)


@functools.cache
def shapes(name, hidden=(2048, 2048)):
    """Return shapes of all parameters and of every layer's output."""
    net = NETS[name](50, hidden)

    def run(key):
        params = net.init(key, jnp.zeros(IMAGES), False)["params"]
        outputs, captured = net.apply(
            {"params": params}, jnp.zeros(IMAGES), False, capture_intermediates=True
        )
        return params, outputs, captured["intermediates"]

    return jax.eval_shape(run, jax.random.key(0))


@each_net
def test_layer_outputs_have_the_sizes_worked_out_by_hand(name):
    _, outputs, layers = shapes(name)
    for number, (side, depth) in enumerate(MAPS[name], 1):
        assert layers[f"conv{number}"]["__call__"][0].shape == (2, side, side, depth)
    assert layers["fc6"]["__call__"][0].shape == layers["fc7"]["__call__"][0].shape == (2, 2048)
    assert outputs.logits.shape == (2, 50)
    assert outputs.features.shape == (2, 2048)
    assert shapes(name, ())[1].features.shape == (2, DENSE[name])


@each_net
def test_parameters_are_as_many_as_stated(name):
    def count(layers):
        return sum(inputs * outputs + outputs for inputs, outputs in layers)

    trunk = count(PARAMETERS[name])
    full = trunk + count([(DENSE[name], 2048), (2048, 2048), (2048, 50)])
    assert (full, trunk, trunk + count([(DENSE[name], 50)])) == STATED[name]
    for hidden, total in (((2048, 2048), full), ((), STATED[name][2])):
        params = shapes(name, hidden)[0]
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == total


def caffe_arrays(name, params, rng):
    """Draw weights by layer, in Caffe's shapes."""
    arrays = {}
    for layer, leaves in params.items():
        shape = leaves["kernel"].shape
        shape = (shape[3], shape[2], *shape[:2]) if len(shape) == 4 else shape[::-1]
        weight = rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[1:]))
        arrays[f"{layer}/weight"] = weight.astype(np.float32)
        arrays[f"{layer}/bias"] = rng.normal(size=shape[0]).astype(np.float32) * 0.1
    return arrays


def torch_pool5(name, arrays, images):
    """Compute pool5 in PyTorch."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional

    def convolve(maps, layer, **mode):
        weight, bias = (torch.tensor(arrays[f"{layer}/{part}"]) for part in ("weight", "bias"))
        return functional.relu(functional.conv2d(maps, weight, bias, **mode))

    def pool(maps):
        return functional.max_pool2d(maps, 3, 2, ceil_mode=True)

    maps = torch.tensor(images.transpose(0, 3, 1, 2))
    if name == "caffe":
        maps = pool(convolve(maps, "conv1", stride=4))
        maps = functional.local_response_norm(maps, 5, 1e-4, 0.75, 1.0)
        maps = pool(convolve(maps, "conv2", padding=2, groups=2))
        maps = functional.local_response_norm(maps, 5, 1e-4, 0.75, 1.0)
        maps = convolve(maps, "conv3", padding=1)
        maps = convolve(maps, "conv4", padding=1, groups=2)
        return pool(convolve(maps, "conv5", padding=1, groups=2))
    maps = convolve(maps, "conv1", stride=2)
    maps = pool(functional.local_response_norm(maps, 5, 5e-4, 0.75, 2.0))
    maps = convolve(maps, "conv2", stride=2, padding=1)
    maps = pool(functional.local_response_norm(maps, 5, 5e-4, 0.75, 2.0))
    for layer in ("conv3", "conv4", "conv5"):
        maps = convolve(maps, layer, padding=1)
    return pool(maps)


@each_net
def test_with_a_caffe_nets_weights_it_is_pytorchs(name, rng):
    net = NETS[name](10, hidden=(32,))
    images = rng.uniform(-120, 150, size=IMAGES).astype(np.float32)
    shapes = jax.eval_shape(lambda: net.init(jax.random.key(0), jnp.zeros(IMAGES), False))
    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes["params"])
    arrays = caffe_arrays(name, start, rng)
    pool5 = torch_pool5(name, arrays, images).flatten(1).numpy().astype(np.float64)
    hidden = np.maximum(pool5 @ arrays["fc6/weight"].T + arrays["fc6/bias"], 0)
    logits = hidden @ arrays["head/weight"].T + arrays["head/bias"]
    params = with_weights(start, arrays)

    @jax.jit
    def run(params, images):
        plain = net.apply({"params": params}, images, False)
        keys = {"dropout": jax.random.key(2)}
        return plain, net.apply({"params": params}, images, True, rngs=keys)

    outputs, dropped = run(params, jnp.asarray(images))
    scale = np.abs(hidden).max()
    assert (hidden > 0.01 * scale).mean() > 0.2
    np.testing.assert_allclose(outputs.features, hidden, atol=1e-4 * scale)
    np.testing.assert_allclose(outputs.logits, logits, atol=1e-4 * np.abs(logits).max())
    # Half of the hidden units are dropped, the others doubled.
    active = np.asarray(outputs.features) > 0
    stored = active & (np.asarray(dropped.features) > 0)
    np.testing.assert_allclose(dropped.features[stored], 2 * outputs.features[stored], rtol=1e-5)
    assert 0.2 < stored.sum() / active.sum() < 0.8
    single = LinearClassifier(10).apply(
        {"params": {"head": params["head"]}}, outputs.features, False
    )
    np.testing.assert_allclose(single.logits, outputs.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("net", [MidCaffeNet, MidVGG])
def test_images_that_are_too_small_are_refused(net):
    def shapes(side):
        images = jnp.zeros((1, side, side, 3))
        return jax.eval_shape(lambda key: net(5).init(key, images, False), jax.random.key(0))

    with pytest.raises(ValueError, match="pool5; give 48 or more pixels"):
        shapes(32)
    shapes(48)


def test_layers_that_are_not_given_keep_their_values(rng):
    params = {layer: {"kernel": jnp.ones((4, 3)), "bias": jnp.ones(3)} for layer in ("fc6", "head")}
    weight = rng.normal(size=(3, 4)).astype(np.float32)
    loaded = with_weights(params, {"fc6/weight": weight, "fc6/bias": np.zeros(3, np.float32)})
    np.testing.assert_array_equal(loaded["fc6"]["kernel"], weight.T)
    assert loaded["head"] is params["head"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"fc8/weight": (5, 4)}, "no layer 'fc8'; its layers are conv1, head"),
        ({"conv1/weight": (2, 3, 5, 7)}, "conv1/bias is missing"),
        ({"conv1/bias": (2,)}, "conv1/weight is missing"),
        (
            {"conv1/weight": (2, 3, 7, 5), "conv1/bias": (2,)},
            r"conv1/weight has the shape \(2, 3, 7, 5\); give \(2, 3, 5, 7\), the network's",
        ),
        ({"head/weight": (4, 7), "head/bias": (7,)}, r"\(4, 7\); give \(7, 4\), the network's"),
        ({"head/weight": (7, 4), "head/bias": (7,), "head/mean": (1,)}, "'head/mean' is neither"),
    ],
)
def test_arrays_that_do_not_fit_are_named(arrays, message):
    params = {
        "conv1": {"kernel": jnp.zeros((5, 7, 3, 2)), "bias": jnp.zeros(2)},
        "head": {"kernel": jnp.zeros((4, 7)), "bias": jnp.zeros(7)},
    }
    with pytest.raises(ValueError, match=message):
        with_weights(params, {name: np.zeros(shape) for name, shape in arrays.items()})


def test_layers_have_rates_of_their_own():
    """The factors are 1 for convolutions, 2 for biases, 10 and 20 for fully connected layers."""
    params = {
        "conv1": {"kernel": jnp.ones((3, 3, 2, 4)), "bias": jnp.ones(4)},
        "head": {"kernel": jnp.ones((4, 5)), "bias": jnp.ones(5)},
    }
    optimizer = optax.chain(optax.sgd(0.5), scale_layers(10.0))
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    factors = jax.tree.map(lambda leaf: float(leaf.ravel()[0]), updates)
    conv1, head = {"kernel": -0.5, "bias": -1.0}, {"kernel": -5.0, "bias": -10.0}
    assert factors == {"conv1": conv1, "head": head}
