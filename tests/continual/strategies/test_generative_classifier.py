"""The generative classifier against steps of Adam on the loss of `models.vae`, class by class."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.continual.strategies.generative_classifier import generative_classifier
from everlight.models.vae import VAE, log_likelihoods, vae_losses
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, LABELS

SETUP = net.small_setup()
STRATEGY = generative_classifier(
    SETUP, hidden=(4,), latent=2, importance_draws=3, vae_learning_rate=0.05
)
VAE_OF_CLASS = VAE(net.HIDDEN, (4,), 2)
INDEX = np.array([0, 1, 6, 7, 12, 3])
TASK = net.task_of(0, [0, 1, 3], INDEX)


def features(shift):
    """Return the hidden layer in evaluation mode, of stored inputs or of a step's shifted ones."""
    return np.tanh((DATA + shift) @ net.START["hidden"] + net.START["hidden_bias"])


def of_class(networks, name):
    return jax.tree.map(lambda leaf: leaf[name], networks.params)


@functools.cache
def after_a_step(*weight):
    memory, learner = jax.jit(lambda: net.untrained(SETUP, STRATEGY))()
    batch = net.filled(SETUP, net.batch_of(INDEX, weight or None))
    _, info = jax.jit(STRATEGY.grads)(memory, learner, batch, TASK, jax.random.key(5))
    new, after = STRATEGY.after_step(memory, learner, info, jax.random.key(6))
    return memory, new, learner, after, info


def test_a_step_trains_each_class_of_the_batch_on_its_own_samples():
    """Adam's first step is the rate times the gradient over its size, plus 1e-8."""
    memory, new, learner, after, info = after_a_step()
    noise = jax.random.normal(jax.random.key(5), (len(INDEX), 2))
    values, total = jnp.float32(features(net.SHIFT)[INDEX]), 0.0

    @jax.jit
    @jax.value_and_grad
    def loss(params, member):
        return jnp.sum(vae_losses(VAE_OF_CLASS, params, values, noise) * member) / jnp.sum(member)

    for name in range(CLASSES):
        before, trained = of_class(memory.networks, name), of_class(new.networks, name)
        count = np.sum(LABELS[INDEX] == name)
        assert new.networks.trained[name] == (count > 0)
        if not count:
            jax.tree.map(np.testing.assert_array_equal, trained, before)
            continue
        value, gradient = loss(before, LABELS[INDEX] == name)
        total += count * value
        for moved, start, slope in zip(
            *map(jax.tree.leaves, (trained, before, gradient)), strict=True
        ):
            step = 0.05 * slope / (np.abs(slope) + 1e-8)
            np.testing.assert_allclose(moved, start - step, atol=2e-5)
    np.testing.assert_allclose(info.loss, total / len(INDEX), rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, after.params, learner.params)


def test_samples_of_weight_0_train_nothing():
    _, padded, *_ = after_a_step(1, 0, 1, 0, 1, 1)
    np.testing.assert_array_equal(padded.networks.trained, np.isin(np.arange(CLASSES), [0, 3]))
    counts = jax.tree.leaves(optax.tree_utils.tree_get(padded.networks.opt_state, "count"))[0]
    np.testing.assert_array_equal(counts, [1, 0, 0, 1, 0, 0])


def test_the_class_of_the_greatest_likelihood_is_predicted():
    _, memory, learner, *_ = after_a_step()
    scores = np.asarray(jax.jit(STRATEGY.predict)(memory, learner, jnp.float32(DATA)))
    values = jnp.float32(features(0.0))
    for name in range(CLASSES):
        params = of_class(memory.networks, name)
        expected = log_likelihoods(VAE_OF_CLASS, params, values, memory.noise)
        trained = name in LABELS[INDEX]
        np.testing.assert_allclose(scores[:, name], expected if trained else -np.inf, rtol=1e-5)
