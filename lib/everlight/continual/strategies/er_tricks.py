"""Experience replay with a bag of tricks (Buzzega et al. 2020, ICPR, "Rethinking ...").

Each trick is an option of `er_tricks`; without any the method is `experience_replay`:

- Balanced reservoir: a sample arrives as in a reservoir and replaces a random one of the class that
  has the most samples in memory.
- Loss-aware balanced reservoir: it replaces sample i with probability

      p_i ∝ ŝ_i,  s_i = n(y_i) / 2 − l_i / (2 mean(l) mean(n)),

  where n(y_i) counts the stored samples of its class, l_i is its last loss, and ŝ is s rescaled to
  [0, 1]. Samples of large loss stay.
- Bias control: after a task, one scale and one shift of the last task's logits are trained on the
  memory by gradient descent (a simple form of BiC). Predictions use them; training does not.
- Exponential learning-rate decay: after n arrivals, gradients are multiplied by γ^n. With plain
  gradient descent this is a decay of the learning rate. Adam divides the factor away, and weight
  decay in the optimizer is not multiplied.

The fifth trick, independent augmentation of replayed samples, holds for every method in everlight.

Equal to the official code (hastings24/rethinking_er, `er_tricks.py`) at the gradient of a step, the
replacement probabilities, the decay, and the gradient descent of the bias control; differs in five
points. The n-th sample is stored with probability m / n; in the official code with m / (n - 1).
Before the memory is full, the official code also replays empty slots, as black images of class 0,
and trains the bias control on them. Its count of class 0 is one too low once the memory is full.
The losses run over the classes that the objective counts; in the official code over all outputs.
The balanced reservoir without losses is in the paper alone.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Outputs, Samples, Setup, StepInfo, Strategy, Task
from everlight.checks import NonNegativeInt, PositiveInt, PositiveShare, checked
from everlight.conditional import where_under_vmap
from everlight.continual.engine.evaluation import predict_samples
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.bias_correction import correct_classes, no_correction
from everlight.continual.strategies.parts.memory import (
    ReservoirDraw,
    arrived,
    draw_from_reservoir,
    empty_buffer,
)
from everlight.continual.strategies.parts.passes import (
    batch_outputs,
    evaluation_outputs,
    weighted_mean,
)
from everlight.continual.strategies.parts.replayed import join_batches

Replacement = Literal["uniform", "balanced", "loss-aware"]
"""Stored samples that an arriving one replaces."""
BIAS_RATE = 0.5
"""Learning rate of the bias control in the authors' code."""


class TricksMemory(NamedTuple):
    """Memory of experience replay with tricks."""

    samples: Samples
    losses: Float[Array, "m"]
    """Loss of each stored sample at its last step."""
    arrived: Int[Array, ""]
    """Number of samples that have arrived so far."""
    bias: Float[Array, "2"]
    """Scale and shift of the last task's logits."""
    last: Bool[Array, "c"]
    """Classes of the last task; none before the end of the first."""


@checked
def er_tricks(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    replay_batch_size: PositiveInt | None = 32,
    replacement: Replacement = "loss-aware",
    bias_epochs: NonNegativeInt = 50,
    bias_batch_size: PositiveInt = 10,
    decay: PositiveShare = 1.0,
) -> Strategy:
    """Return experience replay with tricks, whose memory is `TricksMemory`.

    Samples have one label. The objective determines the classes of the loss. For all outputs of the
    head, as in the authors' code, give the setup `softmax_objective(jnp.zeros(classes, int))`.

    Args:
      setup: network, objective, optimizer and data access.
      buffer_size: number of stored samples.
      replay_batch_size: samples drawn per step, at most the stored ones; None is the size of the
        incoming batch.
      replacement: stored samples that an arriving one replaces: any one, one of the largest class,
        or one chosen by class and loss.
      bias_epochs: passes over the memory that train the bias control; 0 leaves it out.
      bias_batch_size: samples per step of the bias control; the authors take the incoming batch's
        number.
      decay: factor γ > 0 on gradients per arrived sample; 1 leaves the decay out. The authors take
        0.99995 on Fashion-MNIST in one epoch and 0.99999935 on CIFAR-10 in 50.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> TricksMemory:
        return TricksMemory(
            empty_buffer(buffer_size, 1),
            jnp.zeros(buffer_size),
            jnp.int32(0),
            jnp.zeros(2),
            jnp.zeros_like(learner.seen),
        )

    def draw(memory: TricksMemory, batch: Batch, task: Task, key: PRNGKeyArray) -> ReservoirDraw:
        size = replay_batch_size or batch.index.shape[0]
        return draw_from_reservoir(memory.samples, memory.arrived, size, batch, key)

    def grads(
        memory: TricksMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        both = join_batches(batch, batch.replay.batch)

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            outputs, batch_stats = batch_outputs(setup, params, learner, both, key)
            losses = setup.objective.loss(outputs, both.labels, learner.seen)
            return weighted_mean(losses, both.weight), (losses, batch_stats)

        differentiate = jax.value_and_grad(loss, has_aux=True)
        (value, (losses, batch_stats)), gradient = differentiate(learner.params)
        # In float32 a γ close to 1 is inexact; γ - 1 is not.
        power = jnp.exp(memory.arrived * jnp.log1p(decay - 1))
        # A tiny γ has the logarithm of 0, which times 0 samples is NaN.
        factor = jnp.where(memory.arrived > 0, power, 1.0)
        gradient = jax.tree.map(lambda leaf: (factor * leaf).astype(leaf.dtype), gradient)
        return gradient, StepInfo(gradient, batch_stats, value, losses)

    def after_step(
        memory: TricksMemory, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[TricksMemory, Learner]:
        new, size = arrived(info), info.batch.index.shape[0]
        replay = info.batch.replay
        slots = jnp.where(replay.batch.weight > 0, replay.slots, buffer_size)
        losses = memory.losses.at[slots].set(info.aux[size:], mode="drop")
        memory = memory._replace(losses=losses)
        classes = learner.seen.shape[0]
        return _store_all(memory, new, info.aux[:size], replacement, classes, key), learner

    def end_task(
        memory: TricksMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[TricksMemory, Learner]:
        logits = predict_samples(setup, plain, (), learner, memory.samples, 256)
        held = memory.samples.mask

        def loss(pair: Float[Array, "2"], slots: Int[Array, "b"]) -> Float[Array, ""]:
            corrected = _corrected_logits(pair, task.classes, logits[slots])
            # The loss reads no features.
            outputs = Outputs(corrected, corrected[:, :0])
            losses = setup.objective.loss(outputs, memory.samples.labels[slots], learner.seen)
            mask = held.at[slots].get(mode="fill", fill_value=False)
            return weighted_mean(losses, mask.astype(logits.dtype))

        bias = _descend(loss, memory.bias, held, bias_batch_size, bias_epochs, key)
        return memory._replace(bias=bias, last=task.classes), learner

    def predict(
        memory: TricksMemory, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        outputs = evaluation_outputs(setup, learner, inputs)
        corrected = _corrected_logits(memory.bias, memory.last, outputs.logits)
        return setup.objective.scores(outputs._replace(logits=corrected))

    plain = naive(setup)
    tricks = plain._replace(
        init=init,
        draw=draw,
        grads=grads,
        after_step=after_step,
        stored_samples=lambda memory, task: jnp.sum(memory.samples.mask),
    )
    return tricks._replace(end_task=end_task, predict=predict) if bias_epochs else tricks


def replacement_weights(
    labels: Int[Array, "m"], losses: Float[Array, "m"], classes: int, replacement: Replacement
) -> Float[Array, "m"]:
    """Return weights, up to a factor, with which stored samples are replaced.

    Args:
      labels: label of each stored sample, `[m]`.
      losses: last loss of each stored sample, `[m]`.
      classes: number of classes.
      replacement: "uniform", "balanced" or "loss-aware".
    """
    if replacement == "uniform":
        return jnp.ones(labels.shape)
    counts = jnp.zeros(classes).at[labels].add(1.0)
    if replacement == "balanced":
        return (labels == jnp.argmax(counts)).astype(losses.dtype)
    balance = counts[labels]
    scale = jnp.mean(jnp.abs(losses)) * jnp.mean(balance)
    score = 0.5 * balance - 0.5 * losses / jnp.where(scale > 0, scale, 1)
    span = jnp.max(score) - jnp.min(score)
    return jnp.where(span > 0, (score - jnp.min(score)) / jnp.where(span > 0, span, 1), 1.0)


def _store_all(
    memory: TricksMemory,
    new: Samples,
    losses: Float[Array, "b"],
    replacement: Replacement,
    classes: int,
    key: PRNGKeyArray,
) -> TricksMemory:
    """Store a batch's samples one after another; each changes the weights of the next."""
    capacity = memory.losses.shape[0]

    def replaced_slot(memory: TricksMemory, key: PRNGKeyArray) -> Int[Array, ""]:
        labels = memory.samples.labels[:, 0]
        weights = replacement_weights(labels, memory.losses, classes, replacement)
        slot = jax.random.choice(key, capacity, p=weights / jnp.sum(weights))
        return slot.astype(memory.arrived.dtype)

    def store(memory: TricksMemory, arriving: tuple) -> tuple[TricksMemory, None]:
        sample, loss, key = arriving
        key_enters, key_slot = jax.random.split(key)
        number = memory.arrived
        enters = jax.random.randint(key_enters, (), 0, number + 1) < capacity
        full = enters & (number >= capacity)
        slot = where_under_vmap(full, lambda: replaced_slot(memory, key_slot), number)
        slot = jnp.where(sample.mask & enters, slot, capacity)
        samples, held_losses = jax.tree.map(
            lambda old, row: old.at[slot].set(row, mode="drop"),
            (memory.samples, memory.losses),
            (sample, loss),
        )
        after = memory._replace(samples=samples, losses=held_losses, arrived=number + sample.mask)
        return after, None

    keys = jax.random.split(key, losses.shape[0])
    return jax.lax.scan(store, memory, (new, losses, keys))[0]


def _corrected_logits(
    pair: Float[Array, "2"], classes: Bool[Array, "c"], logits: Float[Array, "b c"]
) -> Float[Array, "b c"]:
    return correct_classes(no_correction(logits.shape[-1]), pair, classes)(logits)


def _descend(
    loss: Callable[[Float[Array, "2"], Int[Array, "b"]], Float[Array, ""]],
    start: Float[Array, "2"],
    held: Bool[Array, "m"],
    batch: int,
    epochs: int,
    key: PRNGKeyArray,
) -> Float[Array, "2"]:
    """Return scale and shift after gradient descent over shuffled batches of the filled slots."""
    samples = held.shape[0]
    steps = -(-samples // batch)

    def epoch(pair: Float[Array, "2"], key: PRNGKeyArray) -> tuple[Float[Array, "2"], None]:
        order = jax.random.permutation(key, samples)
        # Filled slots come first, so that all batches but one are full or empty.
        order = order[jnp.argsort(~held[order], stable=True)]
        # The last, partial batch repeats no sample: its padding points behind the memory.
        order = jnp.pad(order, (0, steps * batch - samples), constant_values=samples)

        def step(pair: Float[Array, "2"], slots: Int[Array, "b"]) -> tuple:
            return pair - BIAS_RATE * jax.grad(loss)(pair, slots), None

        return jax.lax.scan(step, pair, order.reshape(steps, batch))

    return jax.lax.scan(epoch, start, jax.random.split(key, epochs))[0]


METHODS = (
    Method(
        "ER-tricks",
        er_tricks,
        Publication("Buzzega et al.", 2020, "ICPR", ("samples",)),
        "experience replay with a bag of tricks",
        # The replay batch is as large as the batch where a benchmark sets no number.
        derived=lambda arguments: {"replay_batch_size": arguments.replay_batch_size},
        requirements=OTHER_WEIGHTS,
    ),
)
