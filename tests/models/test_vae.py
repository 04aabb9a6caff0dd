"""The VAE against float64 NumPy, and its log likelihood where it has a closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.models.vae import VAE, generate, log_likelihoods, new_vae, vae_losses

WIDTH, LATENT = 5, 2
INPUTS = np.random.default_rng(1).uniform(size=(4, WIDTH))
NOISE = np.random.default_rng(2).normal(size=(4, LATENT))


def dense(layer, values):
    return values @ np.float64(layer["kernel"]) + np.float64(layer.get("bias", 0))


def relu(values):
    return np.maximum(values, 0)


def losses_by_hand(params, likelihood):
    """Compute −ELBO / d of every input in float64."""
    hidden = relu(dense(params["encoder_1"], relu(dense(params["encoder_0"], INPUTS))))
    mean, log_variance = dense(params["mean"], hidden), dense(params["log_variance"], hidden)
    latent = mean + np.exp(log_variance / 2) * NOISE
    below = relu(dense(params["decoder_1"], relu(dense(params["decoder_0"], latent))))
    decoded = dense(params["output"], below)
    divergence = -0.5 * np.sum(1 + log_variance - mean**2 - np.exp(log_variance), axis=1)
    if likelihood == "gaussian":
        return (0.5 * np.sum((INPUTS - decoded) ** 2, axis=1) + divergence) / WIDTH
    pixels = 1 / (1 + np.exp(-decoded))
    cross_entropy = -INPUTS * np.log(pixels) - (1 - INPUTS) * np.log(1 - pixels)
    return (cross_entropy.sum(axis=1) + divergence) / WIDTH


@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_the_loss_is_the_written_one(likelihood):
    vae = VAE(WIDTH, (4, 3), LATENT, likelihood)
    params = new_vae(vae, jax.random.key(0))
    params = jax.tree.map(lambda leaf: leaf + 0.1, params)
    actual = vae_losses(vae, params, jnp.float32(INPUTS), jnp.float32(NOISE))
    np.testing.assert_allclose(actual, losses_by_hand(params, likelihood), rtol=1e-5)


def test_layers_mirror_the_encoder_and_the_log_variance_has_no_bias():
    params = new_vae(VAE(WIDTH, (4, 3), LATENT), jax.random.key(0))
    shapes = {name: layer["kernel"].shape for name, layer in params.items()}
    assert shapes == {
        "encoder_0": (WIDTH, 4),
        "encoder_1": (4, 3),
        "mean": (3, LATENT),
        "log_variance": (3, LATENT),
        "decoder_0": (LATENT, 3),
        "decoder_1": (3, 4),
        "output": (4, WIDTH),
    }
    assert [name for name, layer in params.items() if "bias" not in layer] == ["log_variance"]


def linear_gaussian(scale):
    """Return VAE, parameters and decoder of x = A z + b + noise, with the exact posterior times a
    scale of its variance.

    The last input is 1, so that the log variance, which has no bias, is a constant.
    """
    slopes = np.array([1.5, 0.4])
    decoder = np.zeros((LATENT, WIDTH))
    decoder[0, :2] = slopes[0] / np.sqrt(2)
    decoder[1, 3] = slopes[1]
    bias = np.array([0.2, -0.1, 0.3, 0.0, 0.5])
    variance = 1 / (1 + slopes**2)
    mean = decoder.T * variance
    log_variance = np.zeros((WIDTH, LATENT))
    log_variance[-1] = np.log(scale * variance)
    params = {
        "mean": {"kernel": mean, "bias": -bias @ mean},
        "log_variance": {"kernel": log_variance},
        "output": {"kernel": decoder, "bias": bias},
    }
    params = jax.tree.map(lambda leaf: jnp.float32(leaf), params)
    return VAE(WIDTH, (), LATENT), params, decoder, bias


def normal_log_density(values, mean, covariance):
    away = values - mean
    square = np.sum(away * np.linalg.solve(covariance, away.T).T, axis=1)
    _, log_determinant = np.linalg.slogdet(covariance)
    return -0.5 * (square + log_determinant + values.shape[1] * np.log(2 * np.pi))


@pytest.mark.parametrize(("scale", "draws", "tolerance"), [(1.0, 1, 1e-5), (1.6, 4000, 0.05)])
def test_the_log_likelihood_of_a_linear_gaussian_model_has_a_closed_form(scale, draws, tolerance):
    """Every single draw is exact with the exact posterior; a wider one needs many."""
    vae, params, decoder, bias = linear_gaussian(scale)
    inputs = np.concatenate([INPUTS[:, :-1] * 3, np.ones((4, 1))], axis=1)
    noise = np.random.default_rng(4).normal(size=(draws, LATENT))
    actual = log_likelihoods(vae, params, jnp.float32(inputs), jnp.float32(noise))
    exact = normal_log_density(inputs, bias, np.eye(WIDTH) + decoder.T @ decoder)
    np.testing.assert_allclose(actual, exact, atol=tolerance)


def test_the_mean_loss_is_above_the_negative_log_likelihood_by_the_gap_of_the_posterior():
    """For q = N(μ, s σ²) the gap is KL(q ‖ p(z | x)) = z (s − 1 − log s) / 2 for any input."""
    scale = 1.6
    vae, params, decoder, bias = linear_gaussian(scale)
    inputs = np.concatenate([INPUTS[:, :-1] * 3, np.ones((4, 1))], axis=1)
    exact = normal_log_density(inputs, bias, np.eye(WIDTH) + decoder.T @ decoder)
    # A quadratic's mean over a normal variable is that over ±√z of one coordinate at a time.
    points = np.sqrt(LATENT) * np.concatenate([np.eye(LATENT), -np.eye(LATENT)])
    losses = [
        vae_losses(vae, params, jnp.float32(inputs), jnp.float32(np.tile(point, (4, 1))))
        for point in points
    ]
    bound = WIDTH * np.mean(losses, axis=0) + WIDTH / 2 * np.log(2 * np.pi)
    gap = LATENT * (scale - 1 - np.log(scale)) / 2
    np.testing.assert_allclose(bound + exact, gap, atol=1e-5)


def test_pixels_are_generated_from_0_to_1_and_other_inputs_refused():
    vae = VAE(WIDTH, (4,), LATENT, "bernoulli")
    params = jax.tree.map(lambda leaf: 30 * leaf, new_vae(vae, jax.random.key(0)))
    images = np.asarray(generate(vae, params, 50, jax.random.key(1)))
    assert 0 <= images.min() < 0.1
    assert 0.9 < images.max() <= 1
    outside = np.array(INPUTS)
    outside[1, 2], outside[3, 0] = 1.01, -0.01
    losses = vae_losses(vae, params, jnp.float32(outside), jnp.float32(NOISE))
    np.testing.assert_array_equal(np.isnan(losses), [False, True, False, True])
