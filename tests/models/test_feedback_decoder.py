"""The decoder of a classifier's features against float64 NumPy, and a closed form of its prior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.models.feedback_decoder import (
    FeedbackDecoder,
    drawn_divergences,
    feedback_losses,
    generate_of_classes,
    new_feedback,
)
from everlight.models.vae import LatentGaussian

WIDTH, LATENT, CLASSES, COUNT = 5, 2, 3, 4
_rng = np.random.default_rng(5)
FEATURES = _rng.normal(size=(COUNT, 6))
INPUTS = _rng.uniform(size=(COUNT, WIDTH))
NOISE = _rng.normal(size=(COUNT, LATENT))
# The third input has a known class.
PROBABILITIES = np.array([[0.2, 0.5, 0.3], [0.6, 0, 0.4], [0, 1, 0], [0.1, 0.1, 0.8]])
GATES = tuple(_rng.uniform(size=(COUNT, units)) for units in (4, 3))


def decoder_of(likelihood):
    decoder = FeedbackDecoder(WIDTH, CLASSES, (4, 3), LATENT, likelihood)
    params = new_feedback(decoder, FEATURES.shape[1], jax.random.key(0))
    return decoder, jax.tree.map(lambda leaf: leaf + 0.1, params)


def as_float32(tree):
    return jax.tree.map(jnp.float32, tree)


def dense(layer, values):
    return values @ np.float64(layer["kernel"]) + np.float64(layer.get("bias", 0))


def decoded_by_hand(params, latent):
    for number, gate in enumerate(GATES):
        latent = np.maximum(gate * dense(params[f"decoder_{number}"], latent), 0)
    return dense(params["output"], latent)


def normal_density(values, mean, log_variance):
    factors = np.exp(-0.5 * (values - mean) ** 2 / np.exp(log_variance))
    return np.prod(factors / np.sqrt(2 * np.pi * np.exp(log_variance)), axis=-1)


def losses_by_hand(params, likelihood):
    """Compute −ELBO / d of every input in float64, from densities instead of their logarithms."""
    mean, log_variance = dense(params["mean"], FEATURES), dense(params["log_variance"], FEATURES)
    latent = mean + np.exp(log_variance / 2) * NOISE
    decoded = decoded_by_hand(params, latent)
    of_class = [
        normal_density(latent, np.float64(mean), np.float64(variance))
        for mean, variance in zip(params["class_means"], params["class_log_variances"], strict=True)
    ]
    prior = np.sum(PROBABILITIES * np.stack(of_class, axis=1), axis=1)
    divergence = np.log(normal_density(latent, mean, log_variance)) - np.log(prior)
    if likelihood == "gaussian":
        return (0.5 * np.sum((INPUTS - decoded) ** 2, axis=1) + divergence) / WIDTH
    pixels = 1 / (1 + np.exp(-decoded))
    cross_entropy = -INPUTS * np.log(pixels) - (1 - INPUTS) * np.log(1 - pixels)
    return (cross_entropy.sum(axis=1) + divergence) / WIDTH


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_the_loss_is_the_written_one(likelihood):
    decoder, params = decoder_of(likelihood)
    arrays = as_float32((FEATURES, INPUTS, PROBABILITIES, GATES, NOISE))
    actual = feedback_losses(decoder, params, *arrays)
    np.testing.assert_allclose(actual, losses_by_hand(params, likelihood), rtol=1e-5)


def test_the_mean_divergence_from_one_class_is_that_of_two_gaussians():
    """The divergence is quadratic in the noise: its mean is that over ±√z of one coordinate."""
    means, log_variances = _rng.normal(size=(2, 2, LATENT))
    latent, prior = (
        LatentGaussian(*as_float32((means[i : i + 1], log_variances[i : i + 1]))) for i in (0, 1)
    )
    points = np.sqrt(LATENT) * np.concatenate([np.eye(LATENT), -np.eye(LATENT)])
    values = [
        drawn_divergences(latent, prior, jnp.ones((1, 1)), jnp.float32(point[None]))
        for point in points
    ]
    ratio = np.exp(log_variances[0] - log_variances[1])
    away = (means[0] - means[1]) ** 2 / np.exp(log_variances[1])
    exact = 0.5 * np.sum(ratio + away - 1 - np.log(ratio))
    np.testing.assert_allclose(np.mean(values), exact, rtol=1e-5)


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_generated_inputs_are_decoded_from_the_prior_of_their_class(likelihood):
    decoder, params = decoder_of(likelihood)
    label = np.array([2, 0, 0, 1])
    arrays = as_float32((GATES, NOISE))
    actual = generate_of_classes(decoder, params, jnp.asarray(label), *arrays)
    mean, log_variance = (
        np.float64(params[name])[label] for name in ("class_means", "class_log_variances")
    )
    expected = decoded_by_hand(params, mean + np.exp(log_variance / 2) * NOISE)
    if likelihood == "bernoulli":
        expected = 1 / (1 + np.exp(-expected))
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_layers_and_first_values():
    decoder = FeedbackDecoder(WIDTH, 300, (4, 3), 50)
    params = new_feedback(decoder, 6, jax.random.key(0))
    shapes = {name: layer["kernel"].shape for name, layer in params.items() if "class" not in name}
    assert shapes == {
        "mean": (6, 50),
        "log_variance": (6, 50),
        "decoder_0": (50, 4),
        "decoder_1": (4, 3),
        "output": (3, WIDTH),
    }
    assert "bias" not in params["log_variance"]
    for name in ("class_means", "class_log_variances"):
        assert params[name].shape == (300, 50)
        np.testing.assert_allclose([params[name].mean(), params[name].std()], [0, 1], atol=0.03)
