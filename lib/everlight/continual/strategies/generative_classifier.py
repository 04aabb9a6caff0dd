"""Generative classifier (van de Ven, Li and Tolias 2021, CVPRW): a VAE for every class.

The VAE of class y learns p(x | y) from the samples of that class alone, so that no class interferes
with another. With equal class frequencies the prediction is

    argmax_y p(y | x) = argmax_y log p(x | y)
    log p(x | y) ≈ log mean_s p(x | z_s) p(z_s) / q(z_s | x)

with S importance samples z_s = μ_y(x) + σ_y(x) ε_s and p(x | z) = N(x̂(z), I) (`models.vae`). x are
the network's features: the inputs themselves, or those of a frozen network. The training loss is
−ELBO / d. Its default likelihood is Gaussian, for features of any normalization; "bernoulli", the
authors' binary cross-entropy, is for pixels from 0 to 1, and gives NaN for others.

Equal to the code of its first author (GMvandeVen/continual-learning, `generative_classifier.py`,
`vae.py`) at the VAE's layers, its loss, and the scores of given draws but for a constant of all
classes; differs in:

- A step trains the VAEs of all classes of its batch, each on its own samples. In the official code
  each class has batches of its own, in `compare.py` the steps of a task divided by its classes: as
  many samples in fewer steps.
- The draws ε_s are the same for every image and class, in that code new ones each time.
- Initial weights are LeCun-normal, in that code uniform.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, PositiveInt, checked
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.frozen import feature_width
from everlight.continual.strategies.parts.passes import evaluation_outputs, weighted_mean
from everlight.models.vae import VAE, Likelihood, log_likelihoods, new_vae, vae_losses


class ClassNetworks(NamedTuple):
    """VAEs of all classes and their optimizers' states; leaves have a leading axis over classes."""

    params: PyTree
    opt_state: PyTree
    trained: Bool[Array, "c"]
    """True for classes of which there were samples."""


class GenerativeMemory(NamedTuple):
    """Memory of the generative classifier."""

    networks: ClassNetworks
    noise: Float[Array, "s z"]
    """Standard normal noise of the importance samples."""


class BeforeStep(NamedTuple):
    """Values that a step passes to its memory."""

    networks: ClassNetworks
    params: PyTree
    """Parameters before the step; an optimizer with weight decay would change them."""


@checked
def generative_classifier(
    setup: Setup,
    hidden: Sequence[PositiveInt] = (85, 85),
    latent: PositiveInt = 5,
    importance_draws: PositiveInt = 50,
    vae_learning_rate: PositiveFloat = 1e-3,
    likelihood: Likelihood = "gaussian",
) -> Strategy:
    """Return the generative classifier, whose memory is `GenerativeMemory`.

    The first label of a sample is its class. The network's parameters are not trained. It needs no
    task boundaries. A class without samples has score −∞.

    Args:
      setup: network, objective, optimizer and data access; its features are modelled.
      hidden: units of the hidden layers of every VAE's encoder; the decoder has them in reverse.
      latent: number of latent variables.
      importance_draws: number S of importance samples.
      vae_learning_rate: learning rate of the VAEs' optimizer, Adam.
      likelihood: "gaussian", or "bernoulli" for features from 0 to 1, such as pixels.
    """
    optimizer = optax.adam(vae_learning_rate)

    def vae_of(learner: Learner) -> VAE:
        width, _ = feature_width(setup, learner)
        return VAE(width, tuple(hidden), latent, likelihood)

    def init(key: PRNGKeyArray, learner: Learner) -> GenerativeMemory:
        classes, vae = learner.seen.shape[0], vae_of(learner)
        key_networks, key_noise = jax.random.split(key)
        params = jax.vmap(lambda key: new_vae(vae, key))(jax.random.split(key_networks, classes))
        networks = ClassNetworks(params, jax.vmap(optimizer.init)(params), jnp.zeros(classes, bool))
        return GenerativeMemory(networks, jax.random.normal(key_noise, (importance_draws, latent)))

    def grads(
        memory: GenerativeMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        nothing = jax.tree.map(jnp.zeros_like, learner.params)
        features = evaluation_outputs(setup, learner, batch.inputs).features
        vae = vae_of(learner)
        networks, loss = train_present(vae, optimizer, memory.networks, features, batch, key)
        before = BeforeStep(networks, learner.params)
        return nothing, StepInfo(nothing, learner.batch_stats, loss, before)

    def after_step(
        memory: GenerativeMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[GenerativeMemory, Learner]:
        memory = memory._replace(networks=info.aux.networks)
        return memory, learner._replace(params=info.aux.params)

    def predict(
        memory: GenerativeMemory, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        features = evaluation_outputs(setup, learner, inputs).features
        vae, (params, _, trained) = vae_of(learner), memory.networks

        def class_likelihoods(params: PyTree) -> Float[Array, "b"]:
            return log_likelihoods(vae, params, features, memory.noise)

        return jnp.where(trained, jax.vmap(class_likelihoods, out_axes=1)(params), -jnp.inf)

    return naive(setup)._replace(init=init, grads=grads, after_step=after_step, predict=predict)


def train_present(
    vae: VAE,
    optimizer: optax.GradientTransformation,
    networks: ClassNetworks,
    features: Float[Array, "b f"],
    batch: Batch,
    key: PRNGKeyArray,
) -> tuple[ClassNetworks, Float[Array, ""]]:
    """Return the VAEs after a step of each class in a batch, and the batch's mean loss.

    Args:
      vae: module of all VAEs.
      optimizer: their optimizer.
      networks: VAEs before the step.
      features: the batch's features.
      batch: the batch; its first labels are the classes.
      key: random key of the latent variables.
    """
    classes = networks.trained.shape[0]
    member = (batch.labels[:, :1] == jnp.arange(classes)) & (batch.weight[:, None] > 0)
    present = jnp.any(member, axis=0)
    order = jnp.argsort(~present, stable=True)
    noise = jax.random.normal(key, (features.shape[0], vae.latent))

    def one_class(number: Array, carry: tuple[ClassNetworks, Array]) -> tuple[ClassNetworks, Array]:
        networks, total = carry
        name = order[number]
        weight = jnp.where(member[:, name], batch.weight, 0)
        params, state = jax.tree.map(lambda leaf: leaf[name], (networks.params, networks.opt_state))

        def loss(params: PyTree) -> Float[Array, ""]:
            return weighted_mean(vae_losses(vae, params, features, noise), weight)

        value, gradient = jax.value_and_grad(loss)(params)
        update, state = optimizer.update(gradient, state, params)
        new = optax.apply_updates(params, update), state
        params, state = jax.tree.map(
            lambda stacked, leaf: stacked.at[name].set(leaf),
            (networks.params, networks.opt_state),
            new,
        )
        networks = ClassNetworks(params, state, networks.trained.at[name].set(True))
        return networks, total + (value * jnp.sum(weight)).astype(total.dtype)

    networks, total = jax.lax.fori_loop(0, jnp.sum(present), one_class, (networks, jnp.float32(0)))
    return networks, total / jnp.maximum(jnp.sum(batch.weight), 1)


METHODS = (
    Method(
        "generative classifier",
        generative_classifier,
        Publication("van de Ven et al.", 2021, "CVPRW", ("old net",)),
        "a variational autoencoder per class, whose likelihood predicts",
        trains="head",
        requirements=(*OTHER_WEIGHTS, "disjoint classes"),
        authors={
            "hidden": (85, 85),
            "latent": 5,
            "importance_draws": 50,
            "vae_learning_rate": 0.001,
            "likelihood": "bernoulli",
            "batch size": 128,
        },
    ),
)
