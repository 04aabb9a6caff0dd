"""Low-rank adaptation against NumPy in float64 with gradients by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight import continual
from everlight.continual.engine import train_step
from everlight.continual.engine.tasks import init_learner
from everlight.metrics import weight_norm
from everlight.models import MLP, PlainCNN, VisionTransformer, with_lora
from everlight.scenarios import class_incremental
from tests.continual.small_net import batch_of, samples_of, task_of
from tests.refusals import refused

INPUTS, HIDDEN, CLASSES, RATE, SCALE = 4, 6, 3, 0.1, 0.7
RNG = np.random.default_rng(4)
DATA = RNG.normal(size=(24, INPUTS))
FROZEN = {"hidden1": {"kernel": RNG.normal(size=(INPUTS, HIDDEN)), "bias": RNG.normal(size=HIDDEN)}}
LAYERS = jax.tree.map(jnp.float32, FROZEN)
STORED = continual.StoredImages.of(jnp.float32(DATA), jnp.float32(0), jnp.float32(1))


def plain_setup(net=None, stored=STORED):
    net = net or MLP(CLASSES, (HIDDEN,))
    return continual.flax_setup(
        net, stored, continual.softmax_objective(only_seen=False), optax.sgd(RATE)
    )


def lora_setup(**changes):
    return with_lora(plain_setup(), LAYERS, ("hidden1",), **{"rank": 2, "scale": SCALE} | changes)


def test_lora_starts_as_the_given_network_and_trains_the_rest_alone():
    setup = lora_setup()
    params, stats = setup.init(jax.random.key(0))
    initial, _ = plain_setup().init(jax.random.split(jax.random.key(0))[0])
    assert set(params) == {"lora", "head"}
    jax.tree.map(np.testing.assert_array_equal, params["head"], initial["head"])
    pair = params["lora"]["hidden1"]["kernel"]
    assert (pair["a"].shape, pair["b"].shape) == ((INPUTS, 2), (2, HIDDEN))
    inputs = setup.gather(jnp.arange(5), None)
    expected, _ = plain_setup().apply({**LAYERS, "head": initial["head"]}, {}, inputs, False, None)
    result, _ = setup.apply(params, stats, inputs, False, None)
    np.testing.assert_array_equal(result.logits, expected.logits)


def test_a_is_uniform_within_one_over_the_root_of_its_inputs_and_b_is_0():
    layers = {"hidden1": {"kernel": jnp.zeros((100, 50)), "bias": jnp.zeros(50)}}
    stored = continual.StoredImages.of(jnp.zeros((1, 100)), jnp.float32(0), jnp.float32(1))
    plain = plain_setup(MLP(CLASSES, (50,)), stored)
    setup = with_lora(plain, layers, ("kernel",), rank=40)
    draws = [setup.init(jax.random.key(n))[0]["lora"]["hidden1"]["kernel"] for n in (0, 1)]
    a = np.asarray(draws[0]["a"])
    assert np.abs(a).max() <= 0.1
    np.testing.assert_allclose(a.std(), 0.1 / np.sqrt(3), rtol=0.03)
    assert np.mean(a == draws[1]["a"]) < 0.01
    assert np.all(np.asarray(draws[0]["b"]) == 0)


def test_four_steps_are_those_of_float64():
    """The gradients of A, B and the head are written by hand."""
    setup = lora_setup()
    strategy = continual.naive(setup)
    learner = init_learner(setup, CLASSES, jax.random.key(3))
    learner = learner._replace(seen=jnp.ones(CLASSES, bool))
    start = jax.tree.map(np.float64, learner.params)
    a, b = (start["lora"]["hidden1"]["kernel"][name] for name in ("a", "b"))
    head, bias = start["head"]["kernel"], start["head"]["bias"]
    memory, task = (), task_of(0, range(CLASSES), samples_of(range(4)))
    for step in range(4):
        index = np.arange(step * 6, step * 6 + 6)
        batch = batch_of(index)._replace(labels=jnp.asarray(index % CLASSES)[:, None])
        memory, learner, _ = train_step(
            setup, strategy, memory, learner, batch, task, jax.random.key(step)
        )
        inputs, hot = DATA[index], np.eye(CLASSES)[index % CLASSES]
        kernel = FROZEN["hidden1"]["kernel"] + SCALE * a @ b
        hidden = np.maximum(inputs @ kernel + FROZEN["hidden1"]["bias"], 0)
        exponents = np.exp(hidden @ head + bias)
        error = (exponents / exponents.sum(axis=1, keepdims=True) - hot) / len(index)
        of_kernel = inputs.T @ ((error @ head.T) * (hidden > 0))
        head, bias = head - RATE * hidden.T @ error, bias - RATE * error.sum(axis=0)
        a, b = a - RATE * SCALE * of_kernel @ b.T, b - RATE * SCALE * a.T @ of_kernel
    pair = learner.params["lora"]["hidden1"]["kernel"]
    assert np.abs(b).max() > 1e-3
    for actual, expected in (
        *((pair["a"], a), (pair["b"], b)),
        *((learner.params["head"]["kernel"], head), (learner.params["head"]["bias"], bias)),
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


def test_a_convolution_is_adapted_by_one_of_r_channels_and_one_of_a_single_tap():
    images = jnp.float32(RNG.normal(size=(2, 8, 8, 3)))
    net = PlainCNN(CLASSES, (4,), HIDDEN)
    plain = plain_setup(net, continual.StoredImages.of(images, jnp.zeros(3), jnp.ones(3)))
    initial, _ = plain.init(jax.random.split(jax.random.key(0))[0])
    setup = with_lora(plain, {"convolution1": initial["convolution1"]}, ("convolution1",), rank=2)
    params, _ = setup.init(jax.random.key(0))
    assert set(params) == {"lora", "hidden", "head"}
    pair = params["lora"]["convolution1"]["kernel"]
    assert (pair["a"].shape, pair["b"].shape) == ((27, 2), (2, 4))
    pair["b"] = jnp.float32(RNG.normal(size=(2, 4)))
    result, _ = setup.apply(params, {}, images, False, None)
    change = np.asarray(pair["a"] @ pair["b"]).reshape(3, 3, 3, 4)
    initial["convolution1"] = initial["convolution1"] | {
        "kernel": initial["convolution1"]["kernel"] + change
    }
    expected, _ = plain.apply(initial, {}, images, False, None)
    np.testing.assert_allclose(result.logits, expected.logits, rtol=1e-4, atol=1e-5)


def test_queries_and_values_of_all_blocks_of_a_transformer():
    net = VisionTransformer(CLASSES, 4, 12, 2, 3, 20)
    stored = continual.StoredImages.of(jnp.zeros((2, 8, 8, 3)), jnp.zeros(3), jnp.ones(3))
    layers, _ = plain_setup(net, stored).init(jax.random.key(0))
    del layers["head"]
    setup = with_lora(plain_setup(net, stored), layers, ("query", "value"), rank=3)
    params, _ = setup.init(jax.random.key(1))
    assert set(params["lora"]) == {"block0", "block1"}
    assert set(params["lora"]["block1"]) == {"query", "value"}
    assert sum(leaf.size for leaf in jax.tree.leaves(params["lora"])) == 4 * 2 * 12 * 3


def test_layers_are_data_of_a_run_and_diagnostics_see_the_whole_network():
    labels = np.arange(24) % CLASSES
    sequence = class_incremental(labels[:18], labels[18:], [[0, 1], [2]], CLASSES, 0.0)

    def build(data):
        stored, layers = data
        measured = plain_setup(stored=stored)._replace(
            measure=lambda params, outputs: weight_norm(params)
        )
        setup = with_lora(measured, layers, ("hidden1",), rank=2)
        return setup, continual.naive(setup)

    protocol = continual.Protocol(epochs=2, batch_size=6, select="last")
    run = continual.Run(build, protocol, (STORED, LAYERS), sequence, jax.random.key(0))
    result = jax.jit(continual.run_sequence)(run)
    params = jax.tree.map(np.float64, result.learner.params)
    pair = params["lora"]["hidden1"]["kernel"]
    assert np.abs(pair["b"]).max() > 1e-3
    full = [FROZEN["hidden1"]["kernel"] + pair["a"] @ pair["b"], FROZEN["hidden1"]["bias"]]
    squares = sum(np.sum(leaf**2) for leaf in [*full, *params["head"].values()])
    np.testing.assert_allclose(result.evaluation.measured[-1], np.sqrt(squares), rtol=1e-5)


def test_layers_that_cannot_be_adapted_are_refused_in_one_line():
    two = ("hidden1", "query")
    refused("hidden1 belongs to query; name", lambda: with_lora(plain_setup(), LAYERS, two))
    refused("belongs to no name", lambda: with_lora(plain_setup(), LAYERS, ()))
    frozen = plain_setup()._replace(trainable=lambda params: params)
    refused("set trainable of what with_lora", lambda: with_lora(frozen, LAYERS, ("hidden1",)))
    twice = with_lora(lora_setup(), LAYERS, ("hidden1",))
    refused("a layer of the network is named lora", lambda: twice.init(jax.random.key(0)))
    refused("^GPM needs the inputs of every layer", lambda: continual.gpm(lora_setup()))
    learner = init_learner(lora_setup(), CLASSES, jax.random.key(0))
    for strategy in (
        continual.hat(lora_setup(), 2, ("hidden1",)),
        continual.redo(lora_setup(), ("hidden1",)),
    ):
        refused(
            "the parameters are", lambda current=strategy: current.init(jax.random.key(0), learner)
        )
