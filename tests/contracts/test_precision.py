"""Every net computes in bfloat16 where it is told to: what is rounded then, and how far it goes."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import everlight.models as models
from everlight.continual import (
    Protocol,
    StoredImages,
    flax_setup,
    naive,
    run_sequence,
    softmax_objective,
)
from everlight.continual.engine.run import Run
from everlight.scenarios import class_incremental
from everlight_data.images.digits import load_digits

STILL = (0.0, 0.0, 0.0)
# A small net of every kind, the shape of its inputs, and its heads, which are float32.
NETS = {
    "MLP": (models.MLP(6, (16, 16)), (8,), 1),
    "PlainCNN": (models.PlainCNN(6, (4, 8), 16), (8, 8, 3), 1),
    "SmallCNN": (models.SmallCNN(6, (4, 8), 16, STILL), (8, 8, 3), 1),
    "ReducedResNet": (models.ReducedResNet(6, 1), (16, 16, 3), 1),
    "ReducedResNet, cosine": (models.ReducedResNet(6, 1, "cosine"), (16, 16, 3), 1),
    "ResNet50": (models.ResNet50(6), (32, 32, 3), 1),
    "ResNet50, remat": (models.ResNet50(6, remat=True), (32, 32, 3), 1),
    "MidCaffeNet": (models.MidCaffeNet(6, (16, 16), 0.0), (48, 48, 3), 1),
    "MidVGG": (models.MidVGG(6, (16, 16), 0.0), (48, 48, 3), 1),
    "EfficientNetLite0": (models.EfficientNetLite0(6), (32, 32, 3), 1),
    "VisionTransformer": (models.VisionTransformer(6, 4, 16, 2, 2, 32), (8, 8, 3), 1),
    "JointEmbedding": (models.JointEmbedding(5, (4,), 4, 8), (8, 8, 3), 3),
    "IlluminantNet": (models.IlluminantNet(), (9,), 0),
    "BasicBlock": (models.BasicBlock(8, 2), (8, 8, 4), 0),
    "BottleneckBlock": (models.BottleneckBlock(4, 2), (8, 8, 4), 0),
    "NormalizedConvolution": (models.NormalizedConvolution(4), (8, 8, 3), 0),
}
WITHOUT = {models.CosineHead, models.LocalSimilarityHead, models.LinearClassifier}
"""Heads, float32 whatever the net below them computes in."""
QUICK = ("MLP", "SmallCNN", "IlluminantNet", "BasicBlock", "BottleneckBlock")
SLOW = (
    "PlainCNN",
    "ReducedResNet",
    "ReducedResNet, cosine",
    "MidCaffeNet",
    "MidVGG",
    "VisionTransformer",
    "JointEmbedding",
)
BATCH = 6


def call(net, variables, inputs):
    """Outputs and new statistics in training."""
    if isinstance(net, models.IlluminantNet):
        return net.apply(variables, inputs), {}
    return net.apply(variables, inputs, True, mutable=["batch_stats"])


def start(net, shape):
    inputs = jax.random.uniform(jax.random.key(1), (BATCH, *shape))
    train = () if isinstance(net, models.IlluminantNet) else (False,)
    return net.init(jax.random.key(0), inputs, *train), inputs


def square(net, variables, inputs):
    outputs, stats = call(net, variables, inputs)
    total = sum(jnp.mean(leaf.astype(jnp.float32) ** 2) for leaf in jax.tree.leaves(outputs))
    return total, (outputs, stats)


def types(tree):
    return {str(leaf.dtype) for leaf in jax.tree.leaves(tree)}


def products(jaxpr):
    """The types of all that convolutions and matrix products read, in functions called too."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("conv_general_dilated", "dot_general"):
            yield tuple(str(each.aval.dtype) for each in equation.invars)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from products(inner)


def test_the_table_has_every_net():
    named = {getattr(models, name) for name in models.__all__}
    nets = {each for each in named if isinstance(each, type) and issubclass(each, nn.Module)}
    assert nets - WITHOUT == {type(net) for net, *_ in NETS.values()}


@pytest.mark.parametrize("name", NETS)
def test_all_but_the_head_is_bfloat16_and_all_that_is_kept_float32(name):
    net, shape, heads = NETS[name]
    half = net.clone(dtype=jnp.bfloat16)
    variables, inputs = jax.eval_shape(lambda: start(half, shape))
    traced = jax.make_jaxpr(lambda v, i: call(half, v, i), return_shape=True)
    program, (outputs, stats) = traced(variables, inputs)
    found = list(products(program.jaxpr))
    assert found.count(("float32", "float32")) == heads
    assert found.count(("bfloat16", "bfloat16")) == len(found) - heads > 0
    part = name in ("BasicBlock", "BottleneckBlock", "NormalizedConvolution")
    assert types(outputs) == {"bfloat16" if part else "float32"}
    assert types((variables, stats)) == {"float32"}


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_it_agrees_with_float32_to_some_roundings(name):
    """bfloat16 rounds by .2%: outputs and statistics stay within 2%, the gradient within 15%."""
    net, shape, _ = NETS[name]
    variables, inputs = start(net, shape)

    def all_of(dtype):
        of_net = lambda v: square(net.clone(dtype=dtype), v, inputs)  # noqa: E731
        gradient, (outputs, stats) = jax.jit(jax.grad(of_net, has_aux=True))(variables)
        parts = outputs, stats, gradient["params"]
        return [
            np.concatenate([np.ravel(leaf).astype(np.float32) for leaf in jax.tree.leaves(part)])
            for part in parts
            if jax.tree.leaves(part)
        ]

    whole, half = all_of(jnp.float32), all_of(jnp.bfloat16)
    away = [np.linalg.norm(a - b) / np.linalg.norm(a) for a, b in zip(whole, half, strict=True)]
    assert 1e-4 < away[0] < 0.02
    assert away[-1] < 0.15
    assert max(away[:-1]) < 0.02


def digits_accuracy(net):
    """On the test digits, after five epochs on all of them."""
    digits = load_digits()
    values = jnp.asarray(digits.images)
    train = values[: len(digits.train_labels)]
    stored = StoredImages.of(values, jnp.mean(train)[None], jnp.std(train)[None])
    sequence = class_incremental(digits.train_labels, digits.test_labels, [range(10)], 10)

    def build(stored):
        setup = flax_setup(net, stored, softmax_objective(), optax.sgd(0.02, momentum=0.9))
        return setup, naive(setup)

    protocol = Protocol(epochs=5, batch_size=32, select="last")
    run = jax.vmap(lambda key: run_sequence(Run(build, protocol, stored, sequence, key)))
    result = jax.jit(run)(jax.random.split(jax.random.key(0), 3))
    return result.evaluation.task_masked.mean()


@pytest.mark.slow
def test_digits_are_learnt_as_well():
    """Three seeds; a seed's own accuracy varies by more than the precision makes."""
    whole, half = (
        digits_accuracy(models.MLP(10, (100,), dtype=t)) for t in ("float32", "bfloat16")
    )
    assert whole > 0.9
    assert abs(whole - half) < 0.01
