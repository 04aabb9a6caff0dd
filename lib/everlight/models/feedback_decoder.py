"""Decoder on top of a classifier, which is the variational autoencoder's encoder.

    q(z | x) = N(μ(h), diag σ²(h)),   h the classifier's last hidden layer
    p(z | y) = N(m_y, diag s_y²),   p(z) = Σ_y P(y) p(z | y),   m and s learned
    decoder layer l: relu(g_l ⊙ (W_l h_{l−1} + b_l)),   the last one without gates g
    −ELBO(x) ≈ −log p(x | z) + log q(z | x) − log p(z),   z = μ + σ ε, one draw

P(y) is 1 for a known label. p(x | z) is one of `models.vae`. The divergence from a mixture has no
closed form, so that it is the value of the draw.

Equal to the code of van de Ven et al. 2022 (GMvandeVen/continual-learning, `cond_vae.py` with
`prior="GMM"`, `per_class`, one mode per class, and `dg_gates`) at the layers, the losses per input
and the images of given draws; differs in the initial weights, which are LeCun-normal with biases of
0, in that code uniform; in logarithms, which that code cuts: of pixels at −100, of the sum of
modes relative to the greatest at log 1e-40; and in the Gaussian decoder, which is linear, in that
code with a sigmoid unless inputs are normalized.
"""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import checked
from everlight.models.vae import LatentGaussian, Likelihood, reconstruction_losses

DecoderGates = tuple[Float[Array, "b _"], ...]
"""Factor of every unit of each hidden layer, for each input."""


class FeedbackDecoder(nn.Module):
    """Latent variables of features, their prior of a Gaussian per class, and the gated decoder.

    Attributes:
      width: number of inputs d that it decodes.
      classes: number of classes.
      hidden: units of the decoder's hidden layers, from the latent variables on.
      latent: number of latent variables.
      likelihood: distribution of the inputs given the latent variables.
    """

    width: int
    classes: int
    hidden: Sequence[int] = (400, 400)
    latent: int = 100
    likelihood: Likelihood = "gaussian"

    def setup(self) -> None:
        """Name the layers and the prior's parameters."""
        self.mean = nn.Dense(self.latent)
        self.log_variance = nn.Dense(self.latent, use_bias=False)
        self.decoder = [nn.Dense(units) for units in self.hidden]
        self.output = nn.Dense(self.width)
        shape, normal = (self.classes, self.latent), nn.initializers.normal(1.0)
        self.class_means = self.param("class_means", normal, shape)
        self.class_log_variances = self.param("class_log_variances", normal, shape)

    def encode(self, features: Float[Array, "b f"]) -> LatentGaussian:
        """Return the distribution of the latent variables of features."""
        return LatentGaussian(self.mean(features), self.log_variance(features))

    def decode(self, latent: Float[Array, "b z"], gates: DecoderGates) -> Float[Array, "b d"]:
        """Return the decoded values: means of the inputs, or their logits with "bernoulli"."""
        for layer, gate in zip(self.decoder, gates, strict=True):
            latent = nn.relu(gate * layer(latent))
        return self.output(latent)

    def prior(self) -> LatentGaussian:
        """Return the distribution of the latent variables of each class."""
        return LatentGaussian(self.class_means, self.class_log_variances)

    def __call__(
        self, features: Float[Array, "b f"], gates: DecoderGates, noise: Float[Array, "b z"]
    ) -> tuple[LatentGaussian, LatentGaussian, Float[Array, "b d"]]:
        """Return the latent variables, the prior, and the values decoded from a draw."""
        latent = self.encode(features)
        return latent, self.prior(), self.decode(latent.at(noise), gates)


def new_feedback(decoder: FeedbackDecoder, features: int, key: PRNGKeyArray) -> PyTree:
    """Return the first parameters of a decoder of so many features."""
    gates = tuple(jnp.ones((1, units)) for units in decoder.hidden)
    zeros = jnp.zeros((1, features)), gates, jnp.zeros((1, decoder.latent))
    return decoder.init(key, *zeros)["params"]


@checked
def feedback_losses(
    decoder: FeedbackDecoder,
    params: PyTree,
    features: Float[Array, "b f"],
    inputs: Float[Array, "b d"],
    probabilities: Float[Array, "b c"],
    gates: DecoderGates,
    noise: Float[Array, "b z"],
) -> Float[Array, "b"]:
    """Return −ELBO / d of each input, without the Gaussian's constant, for one draw of noise.

    Args:
      decoder: the module; its likelihood decides the reconstruction term.
      params: its parameters.
      features: the classifier's features of the inputs.
      inputs: inputs, from 0 to 1 with the likelihood "bernoulli".
      probabilities: probabilities of the classes, which weigh the prior's parts.
      gates: gates of the decoder's hidden layers.
      noise: standard normal noise of the draw from q(z | x).
    """
    latent, prior, decoded = decoder.apply({"params": params}, features, gates, noise)
    reconstruction = reconstruction_losses(decoder.likelihood, decoded, inputs)
    divergence = drawn_divergences(latent, prior, probabilities, noise)
    return (reconstruction + divergence) / decoder.width


def drawn_divergences(
    latent: LatentGaussian,
    prior: LatentGaussian,
    probabilities: Float[Array, "b c"],
    noise: Float[Array, "b z"],
) -> Float[Array, "b"]:
    """Return log q(z | x) − log p(z) of one draw for each input, of either sign.

    Args:
      latent: distribution of each input's latent variables.
      prior: distribution of those of each class.
      probabilities: probabilities of the classes.
      noise: standard normal noise of the draw.
    """
    drawn = latent.at(noise)
    by_class = log_densities(drawn[:, None], prior)
    log_prior = jax.nn.logsumexp(by_class, axis=1, b=probabilities)
    return log_densities(drawn, latent) - log_prior


def log_densities(values: Float[Array, "*#b z"], normal: LatentGaussian) -> Float[Array, "*#b"]:
    """Return the log density of values under N(mean, σ²), without the constant of 2π."""
    mean, log_variance = normal
    scaled = jnp.square(values - mean) * jnp.exp(-log_variance)
    return -jnp.sum(log_variance + scaled, axis=-1) / 2


@checked
def generate_of_classes(
    decoder: FeedbackDecoder,
    params: PyTree,
    label: Int[Array, "n"],
    gates: DecoderGates,
    noise: Float[Array, "n z"],
) -> Float[Array, "n d"]:
    """Return means of inputs whose latent variables are drawn from the prior of given classes.

    Args:
      decoder: the module.
      params: its parameters.
      label: class of each generated input.
      gates: gates of the decoder's hidden layers.
      noise: standard normal noise of the draws.
    """
    variables = {"params": params}
    mean, log_variance = decoder.apply(variables, method=decoder.prior)
    latent = LatentGaussian(mean[label], log_variance[label]).at(noise)
    decoded = decoder.apply(variables, latent, gates, method=decoder.decode)
    return jax.nn.sigmoid(decoded) if decoder.likelihood == "bernoulli" else decoded
