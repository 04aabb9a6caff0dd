"""Deep generative replay (DGR; Shin et al. 2017, NeurIPS) with a variational autoencoder.

A generator learns beside the network, and both replay what the previous generator makes. In task t

    L(θ) = 1/t · L_task(θ) + (1 − 1/t) · L(θ; x', y'),   x' ~ generator of task t − 1
    L(φ) = 1/t · −ELBO(x; φ) / d + (1 − 1/t) · −ELBO(x'; φ) / d

y' is the class of the greatest score of the previous network among the classes known to it. With
one head per task every generated input is labelled for each earlier head, and the losses are
averaged over these heads. The paper's generator is a generative adversarial network; the VAE is
that of van de Ven et al. (`models.vae`). Its default likelihood is Gaussian, for inputs of any
normalization; "bernoulli", their binary cross-entropy, is for pixels from 0 to 1. Others make the
generator NaN, and the network from the second task on.

Equal to the code of van de Ven et al. 2022 (GMvandeVen/continual-learning, `train_task_based.py`,
`classifier.py`, `vae.py` with `--replay=generative`) at the labels with
`--active-classes=all-so-far`, the weights and the gradient of both losses for given draws; differs
in the labels of that code's default, which may be classes of later tasks, in the VAE's initial
weights, which are LeCun-normal, in that code uniform, and in the generator's optimizer, which is
Adam whatever the network's is.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Outputs, Setup, StepInfo, Strategy, Task
from everlight.checks import Between, NotEmpty, PositiveFloat, PositiveInt, check_range, checked
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.passes import (
    batch_loss,
    evaluation_outputs,
    weighted_mean,
)
from everlight.continual.strategies.parts.teacher import Teacher, no_teacher
from everlight.models.vae import VAE, Likelihood, generate, new_vae, vae_losses


class Generator(NamedTuple):
    """Parameters of the generator and its optimizer's state."""

    params: PyTree
    opt_state: PyTree


class Scholars(NamedTuple):
    """Memory of deep generative replay: generator and network, new and previous."""

    generator: Generator
    previous: PyTree
    """Parameters of the generator at the end of the task before."""
    teacher: Teacher
    """Network at the end of the task before, and the classes known to it."""


@checked
def generative_replay(
    setup: Setup,
    hidden: Sequence[PositiveInt] = (400, 400),
    latent: PositiveInt = 100,
    generator_learning_rate: PositiveFloat = 1e-3,
    likelihood: Likelihood = "gaussian",
    replay_batch_size: PositiveInt | None = None,
    class_group: Annotated[Int[Array, "c"], Between(0), NotEmpty] | None = None,
    groups: PositiveInt = 1,
) -> Strategy:
    """Return deep generative replay (DGR), whose memory is `Scholars`.

    Args:
      setup: network, objective, optimizer and data access.
      hidden: units of the hidden layers of the generator's encoder; its decoder has them in
        reverse.
      latent: number of latent variables.
      generator_learning_rate: learning rate of the generator's optimizer, Adam.
      likelihood: "gaussian", or "bernoulli" for inputs from 0 to 1, such as pixels.
      replay_batch_size: generated inputs per step; None is the size of the incoming batch.
      class_group: head of each class, if tasks have separate heads.
      groups: largest number of heads; heads of `class_group` alone have a part in the loss.

    Raises:
      ValueError: `class_group` holds a head that is not below `groups`.
    """
    if class_group is not None:
        check_range("class_group", class_group, 0, groups - 1)
    optimizer = optax.adam(generator_learning_rate)

    def vae_of(width: int) -> VAE:
        return VAE(width, tuple(hidden), latent, likelihood)

    def init(key: PRNGKeyArray, learner: Learner) -> Scholars:
        params = new_vae(vae_of(setup.input_shape.size), key)
        generator = Generator(params, optimizer.init(params))
        return Scholars(generator, params, no_teacher(learner))

    def grads(
        memory: Scholars, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        keys = jax.random.split(key, 4)
        flat = batch.inputs.reshape(batch.inputs.shape[0], -1)
        vae, share = vae_of(flat.shape[1]), 1 / (task.id + 1)
        generated = generate(vae, memory.previous, replay_batch_size or flat.shape[0], keys[0])
        inputs = generated.reshape(-1, *batch.inputs.shape[1:])
        group = jnp.zeros(learner.seen.shape, int) if class_group is None else class_group
        heads = (group == jnp.arange(groups)[:, None]) & memory.teacher.known
        labels = replayed_labels(setup, memory.teacher, heads, inputs)

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            outputs, batch_stats = setup.apply(params, learner.batch_stats, inputs, True, keys[1])
            # Nothing is replayed in the first task.
            batch_stats = jax.tree.map(
                lambda old, new: jnp.where(task.id == 0, old, new),
                learner.batch_stats,
                batch_stats,
            )
            after = learner._replace(batch_stats=batch_stats)
            replayed = replayed_loss(setup, outputs, labels, learner.seen)
            current, (_, batch_stats) = batch_loss(setup, params, after, batch, keys[2])
            return share * current + (1 - share) * replayed, (current, batch_stats)

        gradient, (current, batch_stats) = jax.grad(loss, has_aux=True)(learner.params)
        generator = trained_generator(
            vae, optimizer, memory.generator, (flat, batch.weight), generated, share, keys[3]
        )
        return gradient, StepInfo(gradient, batch_stats, current, generator)

    def after_step(
        memory: Scholars, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Scholars, Learner]:
        return memory._replace(generator=info.aux), learner

    def end_task(
        memory: Scholars, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Scholars, Learner]:
        teacher = Teacher(learner.params, learner.batch_stats, learner.seen)
        return Scholars(memory.generator, memory.generator.params, teacher), learner

    return naive(setup)._replace(
        init=init, grads=grads, after_step=after_step, end_task=end_task, parameter_copies=1
    )


def replayed_labels(
    setup: Setup, teacher: Teacher, heads: Bool[Array, "g c"], inputs: Float[Array, "b *shape"]
) -> Int[Array, "g b"]:
    """Return the class of the greatest score of each head; -1 for heads without known classes."""
    scores = setup.objective.scores(evaluation_outputs(setup, teacher, inputs))
    labels = jnp.argmax(jnp.where(heads[:, None], scores, -jnp.inf), axis=2)
    return jnp.where(jnp.any(heads, axis=1)[:, None], labels, -1)


def replayed_loss(
    setup: Setup, outputs: Outputs, labels: Int[Array, "g b"], seen: Bool[Array, "c"]
) -> Float[Array, ""]:
    """Return the mean loss over generated inputs and heads; -1 is no label, and 0 if all are."""
    losses = jax.vmap(lambda label: setup.objective.loss(outputs, label[:, None], seen))(labels)
    return weighted_mean(losses.reshape(-1), (labels >= 0).astype(jnp.float32).reshape(-1))


def trained_generator(
    vae: VAE,
    optimizer: optax.GradientTransformation,
    generator: Generator,
    current: tuple[Float[Array, "b d"], Float[Array, "b"]],
    generated: Float[Array, "n d"],
    share: Float[Array, ""],
    key: PRNGKeyArray,
) -> Generator:
    """Return the generator after a step on current and generated inputs.

    Args:
      vae: its module.
      optimizer: its optimizer.
      generator: generator before the step.
      current: the batch's inputs and their weights.
      generated: inputs that the previous generator made.
      share: weight 1/t of the current inputs; the generated ones have the rest.
      key: random key of the latent variables.
    """
    inputs, weight = current
    noises = [
        jax.random.normal(key, (values.shape[0], vae.latent))
        for values, key in zip((inputs, generated), jax.random.split(key), strict=True)
    ]

    def loss(params: PyTree) -> Float[Array, ""]:
        new = weighted_mean(vae_losses(vae, params, inputs, noises[0]), weight)
        replayed = jnp.mean(vae_losses(vae, params, generated, noises[1]))
        return share * new + (1 - share) * replayed

    update, state = optimizer.update(
        jax.grad(loss)(generator.params), generator.opt_state, generator.params
    )
    return Generator(optax.apply_updates(generator.params, update), state)


METHODS = (
    Method(
        "DGR",
        generative_replay,
        Publication("Shin et al.", 2017, "NeurIPS", ("old net",)),
        "deep generative replay (DGR): inputs of a generator, labelled by the old network",
        requirements=SINGLE_LABEL_SCORES,
        authors={
            "hidden": (400, 400),
            "latent": 100,
            "generator_learning_rate": 0.001,
            "likelihood": "bernoulli",
            "batch size": 128,
            "optimizer": "adam",
            "learning rate": 0.001,
        },
    ),
)
