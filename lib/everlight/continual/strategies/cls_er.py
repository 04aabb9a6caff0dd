"""Complementary learning systems replay (CLS-ER; Arani, Sarfraz and Zonooz 2022, ICLR).

Two moving averages of the network teach it on replayed samples x'. The plastic average follows
fast, the stable one slowly:

    L = CE(batch ∪ x') + λ mean over x' and outputs of (f(x'; θ) − z)²
    z = f(x'; θ_S) where softmax(f(x'; θ_S))_y' > softmax(f(x'; θ_P))_y', else f(x'; θ_P)
    θ_P ← α θ_P + (1 − α) θ  with probability r_P after each step,   α = min(1 − 1 / (t + 1), α_P)

and likewise θ_S with r_S ≤ r_P and α_S ≥ α_P, t being the number of steps, this one included. The
softmax and the distance run over all outputs of the head. Test samples are classified by θ_S. The
memory is a reservoir as in `experience_replay`. Both averages pass x' in training mode and keep
their own batch statistics, which see only replayed samples.

The authors' code sets, with 200 samples, λ = 2, α_P = α_S = 0.99, r_P = 1 and r_S = 0.9 on split
MNIST, replaying 128 samples per batch of 10. On split CIFAR-10 it has λ = 0.15, α_P = α_S = 0.999,
r_P = 0.3 and r_S = 0.1, replaying 32 per batch of 32.

Equal to the official code (NeurAI-Lab/CLS-ER, `clser.py`) at the gradient of a step and at both
averages, with `loss_over="all"`; differs by default, where the cross-entropy runs over the seen
classes, and in batch norm, which also sees the padding of a batch (`memory.fill_up`). That code
reports the accuracy of all three networks; the paper and `predict` take θ_S.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Coefficient, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, PositiveShare, UnitInterval, check_range, checked
from everlight.continual.ema import moved_average
from everlight.continual.inner_memory import with_outer_memory
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.experience_replay import Reservoir, experience_replay
from everlight.continual.strategies.parts.passes import batch_loss, weighted_mean
from everlight.continual.strategies.parts.replayed import (
    join_batches,
    replayed_outputs,
    with_all_seen,
)


class Average(NamedTuple):
    """Moving average of a network's parameters, and its own batch statistics."""

    params: PyTree
    batch_stats: PyTree


class TwoAverages(NamedTuple):
    """Memory of CLS-ER."""

    held: Reservoir
    steps: Int[Array, ""]
    """Number of optimizer steps so far, whether or not an average moved."""
    plastic: Average
    stable: Average


@checked
def cls_er(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    regularization: Coefficient = 0.1,
    plastic_decay: UnitInterval = 0.999,
    plastic_probability: UnitInterval = 0.9,
    stable_decay: UnitInterval = 0.999,
    stable_probability: PositiveShare = 0.7,
    labels: PositiveInt = 1,
    replay_batch_size: PositiveInt | None = None,
    loss_over: Literal["seen", "all"] = "seen",
) -> Strategy:
    """Return replay taught by two averages (CLS-ER), whose memory is `TwoAverages`.

    Args:
      setup: network, objective, optimizer and data access.
      buffer_size: number of stored samples.
      regularization: coefficient λ of the squared distance of logits.
      plastic_decay: largest decay α_P of the plastic average.
      plastic_probability: probability r_P that the plastic average moves after a step.
      stable_decay: largest decay α_S of the stable average, at least α_P.
      stable_probability: probability r_S that the stable average moves after a step, more than 0
        and at most r_P.
      labels: labels per sample in the sequence; the first one chooses the teacher.
      replay_batch_size: samples drawn per step, at most the stored ones; None is the size of the
        incoming batch.
      loss_over: classes of the cross-entropy: the seen ones, or all outputs of the head, as in the
        authors' code.

    Raises:
      ValueError: the stable average would move faster than the plastic one.
    """
    check_range("stable_probability", stable_probability, 0, plastic_probability)
    check_range("stable_decay", stable_decay, plastic_decay, 1)
    replay = experience_replay(setup, buffer_size, labels, replay_batch_size)

    def init(key: PRNGKeyArray, learner: Learner) -> TwoAverages:
        start = Average(learner.params, learner.batch_stats)
        return TwoAverages(replay.init(key, learner), jnp.int32(0), start, start)

    def grads(
        memory: TwoAverages, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        learner = learner if loss_over == "seen" else with_all_seen(learner)
        replayed = batch.replay
        key_stable, key_plastic, key_student, key_joint = jax.random.split(key, 4)

        def teacher_logits(
            average: Average, key: PRNGKeyArray
        ) -> tuple[Float[Array, "b c"], PyTree]:
            averaged = learner._replace(batch_stats=average.batch_stats)
            outputs, stats = replayed_outputs(setup, average.params, averaged, replayed, key)
            return outputs.logits, stats

        stable, stable_stats = teacher_logits(memory.stable, key_stable)
        plastic, plastic_stats = teacher_logits(memory.plastic, key_plastic)
        target = surer_logits(stable, plastic, replayed.labels[:, 0])

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            outputs, stats = replayed_outputs(setup, params, learner, replayed, key_student)
            distance = weighted_mean(
                jnp.mean((outputs.logits - target) ** 2, axis=1), replayed.weight
            )
            after = learner._replace(batch_stats=stats)
            joint = join_batches(batch, replayed)
            task_loss, (_, stats) = batch_loss(setup, params, after, joint, key_joint)
            return task_loss + regularization * distance, (task_loss, stats)

        gradient, (task_loss, stats) = jax.grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, stats, task_loss, (plastic_stats, stable_stats))

    def after_step(
        memory: TwoAverages, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[TwoAverages, Learner]:
        key_store, key_plastic, key_stable = jax.random.split(key, 3)
        held, learner = replay.after_step(memory.held, learner, info, key_store)
        steps = memory.steps + 1
        plastic_stats, stable_stats = info.aux

        def update_average(
            average: Average, stats: PyTree, decay: float, probability: float, key: PRNGKeyArray
        ) -> Average:
            least = jnp.maximum(1 / (steps + 1), 1 - decay)
            share = jnp.where(jax.random.uniform(key) < probability, least, 0.0)
            return Average(moved_average(average.params, learner.params, share), stats)

        plastic = update_average(
            memory.plastic, plastic_stats, plastic_decay, plastic_probability, key_plastic
        )
        stable = update_average(
            memory.stable, stable_stats, stable_decay, stable_probability, key_stable
        )
        return TwoAverages(held, steps, plastic, stable), learner

    def predict(
        memory: TwoAverages, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        params, batch_stats = memory.stable
        return replay.predict((), learner._replace(params=params, batch_stats=batch_stats), inputs)

    return with_outer_memory(replay, "held")._replace(
        init=init, grads=grads, after_step=after_step, predict=predict, parameter_copies=2
    )


def surer_logits(
    stable: Float[Array, "b c"], plastic: Float[Array, "b c"], labels: Int[Array, "b"]
) -> Float[Array, "b c"]:
    """Return each sample's logits of the average that gives its label the higher probability.

    Equal probabilities take the plastic average's.

    Args:
      stable: logits of the stable average.
      plastic: logits of the plastic average.
      labels: label of each sample.
    """
    rows = jnp.arange(labels.shape[0])
    sure = jax.nn.softmax(stable)[rows, labels] > jax.nn.softmax(plastic)[rows, labels]
    return jnp.where(sure[:, None], stable, plastic)


_ON_MNIST = {
    **dict.fromkeys(("plastic_decay", "stable_decay"), 0.99),
    "plastic_probability": 1.0,
    "stable_probability": 0.9,
}
"""The authors' decays and probabilities on split MNIST."""
METHODS = (
    Method(
        "CLS-ER",
        cls_er,
        Publication("Arani et al.", 2022, "ICLR", ("samples", "old net")),
        "complementary learning systems replay (CLS-ER), taught by two averages",
        tunes="regularization",
        hyperparameters=(0.1, 0.5, 2),
        fixed=_ON_MNIST,
        requirements=OTHER_WEIGHTS,
        authors={
            "regularization": 2,
            "plastic_decay": 0.99,
            "stable_decay": 0.99,
            "plastic_probability": 1,
            "stable_probability": 0.9,
            "replay_batch_size": 128,
            "loss_over": "all",
            "batch size": 10,
            "epochs per task": 1,
        },
        # The stable average predicts.
        has_review=False,
    ),
)
