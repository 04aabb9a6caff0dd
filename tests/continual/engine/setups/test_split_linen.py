"""Linen networks in two parts, against both parts in float64 and every network of the registry."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs
from everlight.continual.engine import flax_setup
from everlight.continual.engine.setups.split_linen import module_outputs, split_linen
from everlight.continual.engine.sources import StoredImages
from everlight.continual.objectives.softmax import softmax_objective
from everlight.models import MLP, NetworkRequest, named_network, networks
from everlight.models.layers.normalization import EPSILON, BatchNorm
from everlight.models.resnet import ReducedResNet

FEATURES, CLASSES, BATCH = 4, 3, 6
INPUTS = np.random.default_rng(2).normal(size=(BATCH, FEATURES))


class Net(nn.Module):
    """Two dense layers with batch norm, a parameter of the module itself, and a shortcut."""

    classes: int = CLASSES

    @nn.compact
    def __call__(self, inputs, train):
        shift = self.param("shift", nn.initializers.normal(1.0), (FEATURES,))
        first = BatchNorm(name="norm1")(nn.Dense(5, name="first")(inputs + shift), train)
        second = BatchNorm(name="norm2")(nn.Dense(5, name="second")(nn.relu(first)), train)
        features = nn.relu(first + second)
        return Outputs(nn.Dense(self.classes, name="head")(features), features, {"first": first})


class Noisy(nn.Module):
    """Two dense layers with batch norm and dropout in either."""

    @nn.compact
    def __call__(self, inputs, train):
        for name in ("hidden", "above"):
            inputs = nn.Dropout(0.5, deterministic=not train)(nn.Dense(5, name=name)(inputs))
            inputs = BatchNorm(name=f"{name}_norm")(inputs, train)
        return nn.Dense(CLASSES, name="head")(inputs)


def drawn(net, shape=(FEATURES,)):
    """Return variables of a network, with statistics that differ from the initial ones."""
    variables = jax.jit(lambda: net.init(jax.random.key(1), jnp.zeros((1, *shape)), False))()
    leaves, tree = jax.tree.flatten(variables.get("batch_stats", {}))
    rng = np.random.default_rng(3)
    moved = [np.float32(leaf + rng.uniform(0.1, 1, leaf.shape)) for leaf in leaves]
    return variables["params"], tree.unflatten(moved)


def test_lower_and_upper_parts_done_again_in_float64():
    """Below, norms have their running statistics, which stay; above, they have the batch's."""
    split = split_linen(Net(), (FEATURES,), "norm1")
    params, stats = drawn(Net())
    p, s = jax.tree.map(np.float64, (params, stats))
    dense = (INPUTS + p["shift"]) @ p["first"]["kernel"] + p["first"]["bias"]
    deviation = np.sqrt(s["norm1"]["var"] + EPSILON)
    first = (dense - s["norm1"]["mean"]) / deviation * p["norm1"]["scale"] + p["norm1"]["bias"]
    inputs = jnp.float32(INPUTS)
    lower, statistics = jax.jit(split.lower, static_argnums=3)(params, stats, inputs, False, None)
    np.testing.assert_allclose(lower, first, rtol=1e-4, atol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, statistics, stats)

    other = np.random.default_rng(4).normal(size=first.shape)
    dense = np.maximum(other, 0) @ p["second"]["kernel"] + p["second"]["bias"]
    second = (dense - dense.mean(axis=0)) / np.sqrt(dense.var(axis=0) + EPSILON)
    features = np.maximum(other + second, 0)
    upper, key = jax.jit(split.upper, static_argnums=3), jax.random.key(0)
    outputs, changed = upper(params, stats, jnp.float32(other), True, key)
    logits = features @ p["head"]["kernel"] + p["head"]["bias"]
    np.testing.assert_allclose(outputs.logits, logits, rtol=1e-4, atol=1e-5)
    assert outputs.hidden is None
    mean = 0.9 * s["norm2"]["mean"] + 0.1 * dense.mean(axis=0)
    np.testing.assert_allclose(changed["norm2"]["mean"], mean, rtol=1e-4, atol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, changed["norm1"], stats["norm1"])


@pytest.mark.parametrize("train", [False, True])
def test_both_parts_are_the_network(train):
    split, net, key = split_linen(Noisy(), (FEATURES,), "hidden"), Noisy(), jax.random.key(4)
    params, stats = drawn(net)

    def network(inputs):
        return module_outputs(net, params, stats, inputs, train, key)

    def parts(inputs):
        activations, changed = split.lower(params, stats, inputs, train, key)
        return split.upper(params, changed, activations, train, key)

    inputs = jnp.float32(INPUTS)
    (expected, moved), (outputs, changed) = jax.jit(network)(inputs), jax.jit(parts)(inputs)
    np.testing.assert_allclose(outputs.logits, expected, rtol=1e-5, atol=1e-6)
    assert jax.tree.structure(changed) == jax.tree.structure(moved)
    for actual, leaf in zip(*map(jax.tree.leaves, (changed, moved)), strict=True):
        np.testing.assert_allclose(actual, leaf, rtol=1e-5, atol=1e-6)


def test_the_lower_parameters_are_those_without_a_gradient():
    split = split_linen(Net(), (FEATURES,), "norm1")
    params, stats = drawn(Net())

    def loss(params):
        outputs, _ = split.upper(params, stats, jnp.ones((2, 5)), True, jax.random.key(0))
        return jnp.sum(outputs.logits**2)

    lower = {name: all(jax.tree.leaves(split.is_lower[name])) for name in params}
    upper = {"second", "norm2", "head"}
    assert lower == {name: name not in upper for name in params}
    gradient = jax.jit(jax.grad(loss))(params)
    for name in params.keys() - upper:
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient[name]))


@pytest.mark.parametrize("row", networks().values(), ids=lambda row: row.name)
def test_every_network_divides_within_itself_by_default(row):
    net = named_network(row.form, NetworkRequest(CLASSES, 32)).shape
    if not isinstance(net, nn.Module) or row.name == "linear":
        pytest.skip("no linen module with a hidden layer")
    split = split_linen(net, (32, 32, 3), None)
    images = jnp.zeros((1, 32, 32, 3))
    variables = jax.eval_shape(lambda: net.init(jax.random.key(1), images, False))
    params, stats = variables["params"], variables.get("batch_stats", {})
    inputs = jax.ShapeDtypeStruct((2, 32, 32, 3), jnp.float32)
    key = jax.eval_shape(jax.random.key, 0)
    activations, statistics = jax.eval_shape(
        lambda *arrays: split.lower(*arrays, False, None), params, stats, inputs
    )
    assert jax.tree.structure(statistics) == jax.tree.structure(stats)
    outputs, changed = jax.eval_shape(
        lambda *arrays, key: split.upper(*arrays, True, key), params, stats, activations, key=key
    )
    assert outputs.logits.shape == (2, CLASSES)
    assert jax.tree.structure(changed) == jax.tree.structure(stats)
    assert {*jax.tree.leaves(split.is_lower)} == {True, False}
    assert jax.tree.structure(split.is_lower) == jax.tree.structure(params)


@pytest.mark.parametrize(
    ("hidden", "expected"), [((5, 6, 7), "hidden2"), ((5, 6), "hidden1"), ((5,), "hidden1")]
)
def test_by_default_the_last_but_one_below_the_head_divides(hidden, expected):
    split = split_linen(MLP(CLASSES, hidden), (FEATURES,), None)
    layers = [name for name, layer in split.is_lower.items() if all(layer.values())]
    assert max(layers) == expected
    assert "head" not in layers


@pytest.mark.parametrize(
    ("net", "layer", "message"),
    [
        (MLP(CLASSES, (5,)), "hidden2", "hidden2 does not exist; the layers are hidden1, head"),
        (MLP(CLASSES, ()), None, "the only layer is head"),
        (Net(), "second", "a shortcut passes the layer second; give the block"),
        (nn.Sequential([layer := nn.Dense(FEATURES), layer]), "layers_0", "called several times"),
    ],
)
def test_layers_that_do_not_divide_are_refused(net, layer, message):
    if isinstance(net, nn.Sequential):

        class Twice(nn.Module):
            @nn.compact
            def __call__(self, inputs, train):
                return (dense := nn.Dense(FEATURES, name="layers_0"))(dense(inputs))

        net = Twice()
    with pytest.raises(ValueError, match=message):
        split_linen(net, (FEATURES,), layer)


@pytest.mark.parametrize("row", networks().values(), ids=lambda row: row.name)
def test_stages_end_at_layers_that_divide_the_network(row):
    """Their outputs are the maps that the network returns, but for what follows the layer."""
    net = named_network(row.form, NetworkRequest(CLASSES, 32)).shape
    stages = getattr(net, "stages", ())
    inputs = jnp.zeros((1, 32, 32, 3))
    variables = jax.eval_shape(lambda: net.init(jax.random.key(1), inputs, False)) if stages else {}
    params, stats = variables.get("params"), variables.get("batch_stats", {})
    for stage in stages:
        split = split_linen(net, (32, 32, 3), stage)
        maps, _ = jax.eval_shape(
            lambda *arrays, split=split: split.lower(*arrays, False, None), params, stats, inputs
        )
        hidden = jax.eval_shape(lambda *arrays: net.apply(*arrays, False), variables, inputs).hidden
        returned = [*hidden.values()][stages.index(stage)]
        assert maps.shape[-1] in (returned.shape[-1], returned.shape[-1] // 2)


def test_a_block_of_a_residual_network_divides_it_as_a_whole():
    shape, net = (8, 8, 3), ReducedResNet(CLASSES, blocks=1)
    stored = StoredImages.of(np.zeros((1, *shape), np.uint8), jnp.float32(0), jnp.float32(1))
    setup = flax_setup(net, stored, softmax_objective(), optax.sgd(0.1))
    is_lower = setup.split_at("BasicBlock_1").is_lower
    lower = {name for name, layer in is_lower.items() if all(jax.tree.leaves(layer))}
    assert lower == {"NormalizedConvolution_0", "BasicBlock_0", "BasicBlock_1"}
    with pytest.raises(ValueError, match="a shortcut passes the layer BasicBlock_1/Normalized"):
        setup.split_at("BasicBlock_1/NormalizedConvolution_0")
