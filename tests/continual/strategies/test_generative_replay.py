"""Deep generative replay against float64 NumPy; gradients of losses are finite differences."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs
from everlight.continual.strategies.generative_replay import (
    Generator,
    generative_replay,
    replayed_labels,
    replayed_loss,
    trained_generator,
)
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.teacher import Teacher
from everlight.models.vae import VAE, generate, vae_losses
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, FEATURES, GAIN, LABELS, SHIFT

HEADS = jnp.array([0, 0, 1, 1, 2, 2])
INDEX = np.array([4, 5, 10, 11])
TASK = net.task_of(2, [4, 5], INDEX)
FORM = {"hidden": (4,), "latent": 2, "generator_learning_rate": 0.05, "replay_batch_size": 7}


def strategy_of(per_task):
    group = HEADS if per_task else None
    setup = net.small_setup(group)
    return setup, generative_replay(setup, **FORM, class_group=group, groups=3 if per_task else 1)


def within_the_third_task(setup, strategy):
    """Return memory and learner whose previous network is another one, of four known classes."""
    memory, learner = net.untrained(setup, strategy)
    old = jax.tree.map(lambda leaf: 0.7 * leaf + 0.1, learner.params)
    memory = memory._replace(
        teacher=Teacher(old, learner.batch_stats, net.classes_mask(range(4))),
        previous=jax.tree.map(lambda leaf: 2 * leaf + 0.3, memory.generator.params),
    )
    return memory, learner._replace(seen=net.classes_mask(range(CLASSES)))


def decoded(params, latent):
    """Return what the decoder of one hidden layer makes of latent variables, in float64."""
    params = jax.tree.map(np.float64, params)
    below = latent @ params["decoder_0"]["kernel"] + params["decoder_0"]["bias"]
    return np.maximum(below, 0) @ params["output"]["kernel"] + params["output"]["bias"]


def logits_of(params, inputs, gain):
    hidden = np.tanh(inputs @ params["hidden"] + params["hidden_bias"]) * gain
    return hidden @ params["head"] + params["head_bias"]


def cross_entropies(logits, labels, active):
    probability = net.softmax(logits, active)
    return -np.log(probability[np.arange(len(labels)), labels])


@pytest.mark.parametrize("per_task", [False, True])
def test_a_step_weighs_new_and_generated_inputs_by_the_number_of_tasks(per_task):
    setup, strategy = strategy_of(per_task)
    memory, learner = within_the_third_task(setup, strategy)
    batch, key = net.filled(setup, net.batch_of(INDEX)), jax.random.key(3)
    gradient, info = jax.jit(strategy.grads)(memory, learner, batch, TASK, key)

    latent = np.float64(jax.random.normal(jax.random.split(key, 4)[0], (7, 2)))
    generated = decoded(memory.previous, latent)
    teacher = jax.tree.map(np.float64, memory.teacher.params)
    old = logits_of(teacher, generated, 1.0)
    # Per head: its known classes, and those of its softmax.
    parts = [([0, 1], [0, 1]), ([2, 3], [2, 3])] if per_task else [(range(4), range(6))]

    def loss(params):
        new = logits_of(params, DATA[INDEX] + SHIFT, GAIN)
        current_classes = np.isin(np.arange(CLASSES), [4, 5] if per_task else range(6))
        replayed = []
        for known, active in parts:
            labels = np.argmax(np.where(np.isin(np.arange(CLASSES), known), old, -np.inf), axis=1)
            logits = logits_of(params, generated, GAIN)
            among = np.isin(np.arange(CLASSES), active)
            replayed.append(cross_entropies(logits, labels, among).mean())
        current = cross_entropies(new, LABELS[INDEX], current_classes).mean()
        return current / 3 + 2 / 3 * np.mean(replayed)

    start = {name: np.float64(leaf) for name, leaf in learner.params.items()}
    net.assert_trees_close(gradient, net.finite_differences(loss, start), rtol=1e-3, atol=1e-5)
    trained = trained_generator(
        VAE(FEATURES, (4,), 2),
        optax.adam(0.05),
        memory.generator,
        (jnp.float32(DATA[INDEX] + SHIFT), jnp.ones(len(INDEX))),
        jnp.float32(generated),
        jnp.float32(1 / 3),
        jax.random.split(key, 4)[3],
    )
    close = partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-4)
    jax.tree.map(close, info.aux.params, trained.params)
    assert info.batch_stats["passes"] == learner.batch_stats["passes"] + 2


def test_the_first_task_replays_nothing():
    setup, strategy = strategy_of(per_task=False)
    memory, learner = net.untrained(setup, strategy)
    task = net.task_of(0, [0, 1], [0, 1, 6, 7])
    learner = learner._replace(seen=task.classes)
    batch = net.filled(setup, net.batch_of([0, 1, 6, 7]))
    gradient, info = jax.jit(strategy.grads)(memory, learner, batch, task, jax.random.key(3))
    plain, expected = naive(setup).grads((), learner, batch, task, jax.random.key(3))
    net.assert_trees_close(gradient, plain)
    np.testing.assert_array_equal(info.batch_stats["passes"], expected.batch_stats["passes"])
    np.testing.assert_allclose(info.loss, expected.loss, rtol=1e-5)


def test_inputs_that_are_no_pixels_make_a_bernoulli_generator_nan():
    setup = net.small_setup()
    strategy = generative_replay(setup, **FORM, likelihood="bernoulli")
    memory, learner = net.untrained(setup, strategy)
    task = net.task_of(0, [0, 1], [0, 1])
    learner, batch = learner._replace(seen=task.classes), net.filled(setup, net.batch_of([0, 1]))
    for inputs, is_nan in ((jnp.full_like(batch.inputs, 0.5), False), (batch.inputs + 2, True)):
        changed = batch._replace(inputs=inputs)
        _, info = jax.jit(strategy.grads)(memory, learner, changed, task, jax.random.key(3))
        assert bool(jnp.isnan(info.aux.params["output"]["bias"]).all()) == is_nan


def test_a_task_s_end_makes_generator_and_network_the_previous_ones():
    setup, strategy = strategy_of(per_task=False)
    memory, learner = within_the_third_task(setup, strategy)
    batch = net.filled(setup, net.batch_of(INDEX))
    _, info = jax.jit(strategy.grads)(memory, learner, batch, TASK, jax.random.key(3))
    new, _ = strategy.after_step(memory, learner, info, jax.random.key(0))
    net.assert_trees_close(new.previous["output"], memory.previous["output"], 0, 0)
    assert np.any(new.generator.params["output"]["kernel"] != memory.previous["output"]["kernel"])
    ended, _ = strategy.end_task(new, learner, TASK, jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, ended.previous, new.generator.params)
    jax.tree.map(np.testing.assert_array_equal, ended.teacher.params, learner.params)
    np.testing.assert_array_equal(ended.teacher.known, learner.seen)


def test_heads_without_known_classes_have_no_label_and_no_loss():
    setup = net.small_setup(HEADS)
    learner = net.small_learner(setup, range(6))
    teacher = Teacher(learner.params, learner.batch_stats, net.classes_mask([2, 3]))
    heads = (jnp.arange(3)[:, None] == HEADS) & teacher.known
    labels = replayed_labels(setup, teacher, heads, jnp.float32(DATA[:5]))
    logits = net.forward(net.START, range(5))[2]
    np.testing.assert_array_equal(labels[1], 2 + np.argmax(logits[:, 2:4], axis=1))
    np.testing.assert_array_equal(labels[jnp.array([0, 2])], -1)
    outputs = Outputs(jnp.float32(logits), jnp.float32(logits))
    active = np.isin(np.arange(CLASSES), [2, 3])
    expected = cross_entropies(logits, np.asarray(labels[1]), active).mean()
    result = replayed_loss(setup, outputs, labels, learner.seen)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_the_generator_learns_from_both_with_the_same_weights():
    """Adam's first step is the rate times the gradient over its size, plus 1e-8."""
    vae, optimizer = VAE(FEATURES, (4,), 2), optax.adam(0.05)
    params = vae.init(jax.random.key(0), jnp.zeros((1, 3)), jnp.zeros((1, 2)))["params"]
    inputs, weight = jnp.float32(DATA[:4]), jnp.array([1.0, 1.0, 0.0, 1.0])
    generated, key = generate(vae, params, 7, jax.random.key(1)), jax.random.key(2)
    start = Generator(params, optimizer.init(params))
    trained = trained_generator(
        vae, optimizer, start, (inputs, weight), generated, jnp.float32(0.25), key
    )
    keys = jax.random.split(key)
    noises = [jax.random.normal(k, (n, 2)) for k, n in zip(keys, (4, 7), strict=True)]

    def loss(params):
        new = vae_losses(vae, params, inputs, noises[0])[jnp.array([0, 1, 3])]
        return 0.25 * new.mean() + 0.75 * vae_losses(vae, params, generated, noises[1]).mean()

    gradient = jax.jit(jax.grad(loss))(params)
    leaves = map(jax.tree.leaves, (trained.params, params, gradient))
    for moved, before, slope in zip(*leaves, strict=True):
        np.testing.assert_allclose(moved, before - 0.05 * slope / (np.abs(slope) + 1e-8), atol=2e-5)
