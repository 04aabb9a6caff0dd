"""Variational autoencoder (VAE) of flat inputs (Kingma and Welling 2014, ICLR).

    q(z | x) = N(μ(x), diag σ²(x)),   p(z) = N(0, I)
    −ELBO(x) = −E_q log p(x | z) + ½ Σ_i (μ_i² + σ_i² − 1 − log σ_i²)

Two likelihoods p(x | z), x̂ being the decoded mean of d inputs:

- gaussian: N(x̂, I), for inputs of any normalization; −log p(x | z) = ½ |x − x̂|² + (d / 2) log 2π.
- bernoulli: the cross-entropy of x and x̂ = sigmoid(decoder), for pixels from 0 to 1 alone. An input
  outside makes the loss and its gradient NaN, since the cross-entropy would have no lower bound.

The log likelihood is estimated by importance sampling (Burda et al. 2016, ICLR), z_s from q:

    log p(x) ≈ log mean_s p(x | z_s) p(z_s) / q(z_s | x)

Equal to the code of van de Ven et al. 2022 (GMvandeVen/continual-learning, `models/vae.py`,
`fc_layer_split`) at the layers, the loss per input and the log likelihood of given draws, whose
p(x | z) is the Gaussian one for both losses in that code, without the constant (d / 2) log 2π;
differs in the initial weights, which are LeCun-normal with biases of 0, in logarithms, which that
code cuts at −100, and in the Gaussian decoder, which is linear, in that code a sigmoid.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.checks import PositiveInt, checked

Likelihood = Literal["gaussian", "bernoulli"]


class LatentGaussian(NamedTuple):
    """Distribution q(z | x) of each input."""

    mean: Float[Array, "b z"]
    log_variance: Float[Array, "b z"]

    def at(self, noise: Float[Array, "*b z"]) -> Float[Array, "b z"]:
        """Return the latent variables that standard normal noise gives, μ + σ ε."""
        return self.mean + jnp.exp(self.log_variance / 2) * noise


class VAE(nn.Module):
    """Encoder and decoder of dense layers with ReLU; the decoder has the encoder's in reverse.

    Attributes:
      width: number of inputs d.
      hidden: units of the encoder's hidden layers.
      latent: number of latent variables.
      likelihood: distribution of the inputs given the latent variables.
    """

    width: int
    hidden: Sequence[int] = (400, 400)
    latent: int = 100
    likelihood: Likelihood = "gaussian"

    def setup(self) -> None:
        """Name the layers."""
        self.encoder = [nn.Dense(units) for units in self.hidden]
        self.mean = nn.Dense(self.latent)
        self.log_variance = nn.Dense(self.latent, use_bias=False)
        self.decoder = [nn.Dense(units) for units in reversed(self.hidden)]
        self.output = nn.Dense(self.width)

    def encode(self, inputs: Float[Array, "b d"]) -> LatentGaussian:
        """Return the distribution of the latent variables of inputs."""
        for layer in self.encoder:
            inputs = nn.relu(layer(inputs))
        return LatentGaussian(self.mean(inputs), self.log_variance(inputs))

    def decode(self, latent: Float[Array, "b z"]) -> Float[Array, "b d"]:
        """Return the decoded values: means of the inputs, or their logits with "bernoulli"."""
        for layer in self.decoder:
            latent = nn.relu(layer(latent))
        return self.output(latent)

    def __call__(
        self, inputs: Float[Array, "b d"], noise: Float[Array, "b z"]
    ) -> tuple[LatentGaussian, Float[Array, "b d"]]:
        """Return the distribution of the latent variables, and the values decoded from a draw."""
        latent = self.encode(inputs)
        return latent, self.decode(latent.at(noise))


def new_vae(vae: VAE, key: PRNGKeyArray) -> PyTree:
    """Return the first parameters of a VAE."""
    return vae.init(key, jnp.zeros((1, vae.width)), jnp.zeros((1, vae.latent)))["params"]


@checked
def vae_losses(
    vae: VAE, params: PyTree, inputs: Float[Array, "b d"], noise: Float[Array, "b z"]
) -> Float[Array, "b"]:
    """Return −ELBO / d of each input, without the Gaussian's constant, for one draw of noise.

    Args:
      vae: the module; its likelihood decides the reconstruction term.
      params: its parameters.
      inputs: inputs, from 0 to 1 with the likelihood "bernoulli".
      noise: standard normal noise of the draw from q(z | x).
    """
    latent, decoded = vae.apply({"params": params}, inputs, noise)
    reconstruction = reconstruction_losses(vae.likelihood, decoded, inputs)
    return (reconstruction + divergences(latent)) / vae.width


def reconstruction_losses(
    likelihood: Likelihood, decoded: Float[Array, "b d"], inputs: Float[Array, "b d"]
) -> Float[Array, "b"]:
    """Return −log p(x | z) of each input, without the Gaussian's constant."""
    if likelihood == "gaussian":
        return jnp.sum(jnp.square(inputs - decoded), axis=-1) / 2
    # A product, so that the gradient is NaN too.
    valid = jnp.where((inputs >= 0) & (inputs <= 1), 1, jnp.nan)
    return jnp.sum(optax.sigmoid_binary_cross_entropy(decoded, inputs) * valid, axis=-1)


def divergences(latent: LatentGaussian) -> Float[Array, "b"]:
    """Return the Kullback-Leibler divergence of each q(z | x) from the prior."""
    mean, log_variance = latent
    return jnp.sum(jnp.square(mean) + jnp.exp(log_variance) - 1 - log_variance, axis=-1) / 2


def decoded_means(vae: VAE, params: PyTree, latent: Float[Array, "b z"]) -> Float[Array, "b d"]:
    """Return the means of the inputs given latent variables."""
    decoded = vae.apply({"params": params}, latent, method=vae.decode)
    return jax.nn.sigmoid(decoded) if vae.likelihood == "bernoulli" else decoded


@checked
def generate(
    vae: VAE, params: PyTree, count: PositiveInt, key: PRNGKeyArray
) -> Float[Array, "n d"]:
    """Return means of inputs whose latent variables are drawn from the prior.

    Args:
      vae: the module.
      params: its parameters.
      count: number n of generated inputs.
      key: random key of the latent variables.
    """
    return decoded_means(vae, params, jax.random.normal(key, (count, vae.latent)))


@checked
def log_likelihoods(
    vae: VAE, params: PyTree, inputs: Float[Array, "b d"], noise: Float[Array, "s z"]
) -> Float[Array, "b"]:
    """Return the importance-sampled log p(x) of each input under N(x̂, I) for both likelihoods.

    Args:
      vae: the module.
      params: its parameters.
      inputs: inputs.
      noise: standard normal noise of s draws from q(z | x), the same for every input.
    """
    latent = vae.apply({"params": params}, inputs, method=vae.encode)

    def draw_likelihoods(draw: Float[Array, "z"]) -> Float[Array, "b"]:
        drawn = latent.at(draw)
        means = decoded_means(vae, params, drawn)
        # The constants of p(z) and q(z | x) cancel.
        log_ratio = jnp.sum(latent.log_variance + draw**2 - drawn**2, axis=-1) / 2
        return log_ratio - reconstruction_losses("gaussian", means, inputs)

    values = jax.lax.map(draw_likelihoods, noise)
    constant = math.log(noise.shape[0]) + vae.width / 2 * math.log(2 * math.pi)
    return jax.nn.logsumexp(values, axis=0) - constant
