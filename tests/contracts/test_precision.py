"""Every network computes in bfloat16 on request: which arrays are rounded, and how far."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import everlight.illuminant as illuminant
import everlight.models as models
from everlight import continual
from everlight.continual.engine.run import Run
from everlight.scenarios import class_incremental
from everlight_data.images.digits import load_digits
from tests.contracts.matrix_products import PRODUCTS, equations
from tests.contracts.networks import NAMED, OTHERS, Case
from tests.contracts.strategies import some_now

PARTS = {
    "IlluminantNet": Case(illuminant.IlluminantNet(), (9,), 0),
    "BasicBlock": Case(models.BasicBlock(8, 2), (8, 8, 4), 0),
    "BottleneckBlock": Case(models.BottleneckBlock(4, 2), (8, 8, 4), 0),
    "NormalizedConvolution": Case(models.NormalizedConvolution(4), (8, 8, 3), 0),
}
NETS = NAMED | OTHERS | PARTS
HEADS = {models.CosineHead, models.LocalSimilarityHead, models.LinearClassifier}
WITHOUT = HEADS | {models.VAE, models.FeedbackDecoder}
"""Heads, float32 whatever the net below them computes in, and generators, which are float32."""
QUICK = ("mlp", "small-cnn", "IlluminantNet", "BasicBlock", "BottleneckBlock")
TOO_DEEP = {"resnet18", "ResNet50, remat", "EfficientNetLite0"}
NAMES = [*(name for name, row in models.networks().items() if row.example), *OTHERS, *PARTS]
COMPARED = [name for name in NAMES if name not in TOO_DEEP]
"""Networks of few layers, whose roundings do not add up; rows without sizes are deep or linear."""
BATCH = 6


def call(net, variables, inputs):
    """Return outputs and new statistics in training."""
    if isinstance(net, illuminant.IlluminantNet):
        return net.apply(variables, inputs), {}
    random = {"dropout": jax.random.key(2)}
    return net.apply(variables, inputs, True, mutable=["batch_stats"], rngs=random)


def start(net, shape):
    inputs = jax.random.uniform(jax.random.key(1), (BATCH, *shape))
    train = () if isinstance(net, illuminant.IlluminantNet) else (False,)
    return net.init(jax.random.key(0), inputs, *train), inputs


def square(net, variables, inputs):
    outputs, stats = call(net, variables, inputs)
    total = sum(jnp.mean(leaf.astype(jnp.float32) ** 2) for leaf in jax.tree.leaves(outputs))
    return total, (outputs, stats)


def types(tree):
    return {str(leaf.dtype) for leaf in jax.tree.leaves(tree)}


def test_the_table_has_every_net():
    named = {getattr(room, name) for room in (illuminant, models) for name in room.__all__}
    nets = {item for item in named if isinstance(item, type) and issubclass(item, nn.Module)}
    assert nets - WITHOUT == {type(net) for net, *_ in NETS.values()}


@pytest.mark.parametrize("name", NETS)
def test_all_but_the_head_is_bfloat16_and_all_that_is_kept_float32(name):
    net, shape, heads = NETS[name]
    half = net.clone(dtype=jnp.bfloat16)
    variables, inputs = jax.eval_shape(lambda: start(half, shape))
    traced = jax.make_jaxpr(lambda v, i: call(half, v, i), return_shape=True)
    program, (outputs, stats) = traced(variables, inputs)
    operands = [
        tuple(str(item.aval.dtype) for item in equation.invars)
        for equation in equations(program.jaxpr)
        if equation.primitive.name in PRODUCTS
    ]
    assert operands.count(("float32", "float32")) == heads
    assert operands.count(("bfloat16", "bfloat16")) == len(operands) - heads
    assert len(operands) > heads or set(variables["params"]) == {"head"}
    part = name in PARTS and name != "IlluminantNet"
    assert types(outputs) == {"bfloat16" if part else "float32"}
    assert types((variables, stats)) == {"float32"}


@some_now(COMPARED, QUICK)
def test_bfloat16_agrees_with_float32_to_some_roundings(name):
    """bfloat16 rounds by 0.2%: outputs and statistics stay within 2%, the gradient within 15%."""
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

    full, half = all_of(jnp.float32), all_of(jnp.bfloat16)
    away = [np.linalg.norm(a - b) / np.linalg.norm(a) for a, b in zip(full, half, strict=True)]
    assert 1e-4 < away[0] < 0.02
    assert away[-1] < 0.15
    assert max(away[:-1]) < 0.02


def digits_accuracy(net):
    """Return the accuracy on test digits after five epochs on all training digits."""
    digits = load_digits()
    values = jnp.asarray(digits.images)
    train = values[: len(digits.train_labels)]
    stored = continual.StoredImages.of(values, jnp.mean(train)[None], jnp.std(train)[None])
    sequence = class_incremental(digits.train_labels, digits.test_labels, [range(10)], 10)

    def build(stored):
        setup = continual.flax_setup(
            net, stored, continual.softmax_objective(), optax.sgd(0.02, momentum=0.9)
        )
        return setup, continual.naive(setup)

    protocol = continual.Protocol(epochs=5, batch_size=32, select="last")
    run = jax.vmap(lambda key: continual.run_sequence(Run(build, protocol, stored, sequence, key)))
    result = jax.jit(run)(jax.random.split(jax.random.key(0), 3))
    return result.evaluation.task_masked.mean()


@pytest.mark.slow
def test_digits_are_learned_as_well():
    """Three seeds train; accuracy varies by more between seeds than between precisions."""
    full, half = (digits_accuracy(models.MLP(10, (100,), dtype=t)) for t in ("float32", "bfloat16"))
    assert full > 0.9
    assert abs(full - half) < 0.01
