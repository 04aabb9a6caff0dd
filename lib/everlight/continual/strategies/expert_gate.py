"""Expert Gate (Aljundi et al. 2017, CVPR): a network and an autoencoder for every task.

The autoencoder has one undercomplete hidden layer and sees s = σ(features):

    ŝ = σ(W₂ relu(W₁ s + b₁) + b₂),   error = mean over features of the cross-entropy of s and ŝ

A new expert starts from the one whose autoencoder reconstructs the new task best; the gate takes
for every sample the expert with the least error.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import Count, Place, Positive, checked
from everlight.continual.base import Batch, Learner, Setup, Strategy, Task
from everlight.continual.engine.evaluation import nothing_over, over_blocks, over_samples
from everlight.continual.engine.steps import shuffle, take_batch
from everlight.continual.strategies.naive import naive, weighted_mean

BATCH = 32
"""Samples a step of an autoencoder's training."""
CHOSEN = 32
"""Samples at once of those for which the gate chose the same expert."""


class Autoencoder(NamedTuple):
    """Its parameters; stacked, with a leading axis over experts."""

    encode: Float[Array, "*e f h"]
    encode_bias: Float[Array, "*e h"]
    decode: Float[Array, "*e h f"]
    decode_bias: Float[Array, "*e f"]


class Experts(NamedTuple):
    """Expert Gate's memory; everything but `gated` has a leading axis over tasks."""

    params: PyTree
    batch_stats: PyTree
    autoencoders: Autoencoder
    trained: Bool[Array, "t"]
    gated: Bool[Array, ""]
    """Whether the gate chooses the network that predicts: between tasks."""


@checked
def expert_gate(
    setup: Setup,
    tasks: Count,
    features: Callable[[Float[Array, "b *shape"]], Float[Array, "b f"]],
    hidden: Count = 100,
    epochs: Place = 10,
    rate: Positive = 1e-2,
) -> Strategy:
    """Expert Gate, its memory being `Experts`: as many networks as tasks.

    While a task is learnt, validation judges its expert; afterwards the gate chooses.

    Args:
      setup: what is static.
      tasks: how many the sequence has.
      features: of inputs in evaluation mode, the same for all tasks (a pretrained network's),
        `[b, f]`, of about mean 0 and deviation 1, as σ is flat elsewhere.
      hidden: units of an autoencoder, fewer than features; 100 in the paper.
      epochs: of an autoencoder's training.
      rate: of its optimizer, Adam.

    Raises:
      ValueError: at `init`, as many hidden units as features or more.
    """

    def all_errors(memory: Experts, inputs: Float[Array, "b *shape"]) -> Float[Array, "b t"]:
        every = jax.vmap(reconstruction_error, (0, None), 1)(memory.autoencoders, features(inputs))
        return jnp.where(memory.trained, every, jnp.inf)

    def init(key: PRNGKeyArray, learner: Learner) -> Experts:
        inputs = jax.eval_shape(setup.gather, jnp.zeros(1, int), None)
        width = jax.eval_shape(features, inputs).shape[-1]
        if hidden >= width:
            raise ValueError(f"hidden={hidden} of {width} features; an autoencoder needs fewer")
        one = _new_autoencoder(width, hidden, key)
        stacked = jax.tree.map(
            lambda leaf: jnp.zeros((tasks, *leaf.shape), leaf.dtype),
            (learner.params, learner.batch_stats, one),
        )
        return Experts(*stacked, jnp.zeros(tasks, bool), jnp.array(False))

    def begin_task(
        memory: Experts, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Experts, Learner]:
        errors = over_samples(setup, partial(all_errors, memory), task.train, 256)
        related = jnp.argmin(jnp.sum(errors, axis=0, where=task.train.mask[:, None]))
        params, batch_stats = jax.tree.map(
            lambda every, own: jnp.where(jnp.any(memory.trained), every[related], own),
            (memory.params, memory.batch_stats),
            (learner.params, learner.batch_stats),
        )
        learner = learner._replace(params=params, batch_stats=batch_stats)
        return memory._replace(gated=jnp.array(False)), learner

    def end_task(
        memory: Experts, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Experts, Learner]:
        width = memory.autoencoders.encode.shape[1]
        autoencoder = _train(setup, features, task, (width, hidden, epochs), rate, key)
        stacked = jax.tree.map(
            lambda every, new: every.at[task.id].set(new),
            (memory.params, memory.batch_stats, memory.autoencoders),
            (learner.params, learner.batch_stats, autoencoder),
        )
        return Experts(*stacked, memory.trained.at[task.id].set(True), jnp.array(True)), learner

    def predict(
        memory: Experts, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        def scores(
            params: PyTree, batch_stats: PyTree, slots: Int[Array, "s"]
        ) -> Float[Array, "s c"]:
            outputs, _ = setup.apply(params, batch_stats, inputs[slots], False, None)
            return setup.objective.scores(outputs)

        every = jnp.ones(inputs.shape[0], bool)
        own = partial(scores, learner.params, learner.batch_stats)

        def gated() -> Float[Array, "b c"]:
            expert = jnp.argmin(all_errors(memory, inputs), axis=1)

            def of_expert(
                number: Int[Array, ""], found: Float[Array, "b c"]
            ) -> Float[Array, "b c"]:
                stacked = memory.params, memory.batch_stats
                one = jax.tree.map(lambda leaf: leaf[number], stacked)
                return over_blocks(partial(scores, *one), expert == number, CHOSEN, found)

            return jax.lax.fori_loop(0, tasks, of_expert, nothing_over(own, every))

        return jax.lax.cond(memory.gated, gated, lambda: own(jnp.arange(inputs.shape[0])))

    return naive(setup)._replace(
        init=init,
        begin_task=begin_task,
        end_task=end_task,
        predict=predict,
        tasks=tasks,
        parameter_copies=tasks,
    )


def reconstruction_error(
    autoencoder: Autoencoder, features: Float[Array, "b f"]
) -> Float[Array, "b"]:
    """Mean over features of the cross-entropy above, of every sample."""
    squashed = jax.nn.sigmoid(features)
    code = jax.nn.relu(squashed @ autoencoder.encode + autoencoder.encode_bias)
    logits = code @ autoencoder.decode + autoencoder.decode_bias
    return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, squashed), axis=-1)


def _train(
    setup: Setup,
    features: Callable[[Float[Array, "b *shape"]], Float[Array, "b f"]],
    task: Task,
    sizes: tuple[int, int, int],
    rate: float,
    key: PRNGKeyArray,
) -> Autoencoder:
    """An autoencoder of `sizes` (features, hidden units) after so many epochs on a task."""
    width, hidden, epochs = sizes
    key_start, key_epochs = jax.random.split(key)
    optimizer = optax.adam(rate)
    data = naive(setup).epoch_data((), task)

    def loss(params: Autoencoder, batch: Batch) -> Float[Array, ""]:
        inputs = setup.gather(batch.index, None)
        return weighted_mean(reconstruction_error(params, features(inputs)), batch.weight)

    def one_epoch(number: Int[Array, ""], carry: tuple) -> tuple:
        order = shuffle(data, jax.random.fold_in(key_epochs, number))

        def one_step(step: Int[Array, ""], carry: tuple) -> tuple:
            params, state = carry
            gradient = jax.grad(loss)(params, take_batch(data, order, step, BATCH))
            update, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, update), state

        return jax.lax.fori_loop(0, -(-order.count // BATCH), one_step, carry)

    start = _new_autoencoder(width, hidden, key_start)
    return jax.lax.fori_loop(0, epochs, one_epoch, (start, optimizer.init(start)))[0]


def _new_autoencoder(width: int, hidden: int, key: PRNGKeyArray) -> Autoencoder:
    encode, decode = jax.random.split(key)
    draw = jax.nn.initializers.lecun_normal()
    return Autoencoder(
        draw(encode, (width, hidden)),
        jnp.zeros(hidden),
        draw(decode, (hidden, width)),
        jnp.zeros(width),
    )
