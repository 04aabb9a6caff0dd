"""Momentum knowledge distillation (MKD; Michel, Wang, Xiao and Yamasaki 2024, ICML) for replay.

Moving averages T_1 to T_n of the network, each with a weight α_i, teach it on the batch and the
replayed samples x, seen augmented (x⁺) and as stored (x):

    L = L_replay + λ / n Σ_i mean over x of (KL(T_i(x⁺) ‖ f(x⁺)) + KL(T_i(x⁺) ‖ f(x))) T² / 2
    T_i ← (1 − α_i) T_i + α_i θ / (1 − α_i^k)  after each step,   k = max(1, ⌊t / 10⌋)

KL compares softmaxes at temperature T over all outputs of the head, and t is the number of steps,
this one included. T_i begins at α_i θ / (1 − α_i). L_replay is ER's loss; for ER-ACE and DER++ it
is the method's own loss plus ER's. Test samples are classified by the mean of the n averages and
the network, with the network's batch statistics. The memory is that of the method.

The authors' configurations run with λ = 5.5, one average with α = 0.01 and T = 4 on every data set,
Tiny-ImageNet included; they replay 64 samples per batch of 10. DER++ has the defaults of
`der_plus_plus`, α = 0.1 and β = 0.5, as in their program; their configurations have 0.2 and 1.

Equal to the official code (Nicolas1203/mkd_ocl, `er_ema.py`, `er_ace_ema.py`, `derpp_ema.py`) at
the gradient of a step, the averages and the mean that predicts, with `loss_over="all"`; differs in:

- By default cross-entropies run over the seen classes; the registry's DER++-MKD has
  `loss_over="all"`, as `der_plus_plus` has.
- The first batch is trained on; in the official code the step of ER and of DER++ is left out while
  the memory is empty.
- x⁺ has one augmentation, the setup's; in the official code the terms that ER-ACE and DER++ gain
  have a second one, and pass the stored samples before the augmented ones.
- Of the classes that have not arrived, ER-ACE's incoming softmax in the official code has those
  whose number is below the size of the batch. With `loss_over="all"` it has all classes of later
  tasks in everlight.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Coefficient, Learner, Memory, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, PositiveInt, UnitInterval, checked
from everlight.continual.engine.evaluation import gather_inputs
from everlight.continual.inner_memory import with_outer_memory
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.der_plus_plus import TwoDraws, der_plus_plus
from everlight.continual.strategies.er_ace import er_ace
from everlight.continual.strategies.experience_replay import experience_replay
from everlight.continual.strategies.parts.passes import (
    batch_loss,
    batch_outputs,
    evaluation_outputs,
    weighted_mean,
)
from everlight.continual.strategies.parts.replayed import join_batches, with_all_seen
from everlight.errors import Argument, ArgumentError

CORRECTION_STEPS = 10
"""Steps between two values of k in the authors' code."""


class Taught(NamedTuple):
    """Memory of a replay method, and the moving averages that teach it."""

    memory: Memory
    teachers: PyTree
    """Parameters of all averages, with a leading axis over them."""


@checked
def mkd(
    setup: Setup,
    method: Literal["ER", "ER-ACE", "DER++"] = "ER",
    buffer_size: PositiveInt = 200,
    regularization: Coefficient = 5.5,
    averaging_weights: tuple[UnitInterval, ...] = (0.01,),
    temperature: PositiveFloat = 4.0,
    labels: PositiveInt = 1,
    replay_batch_size: PositiveInt | None = None,
    loss_over: Literal["seen", "all"] = "seen",
) -> Strategy:
    """Return replay taught by moving averages of the network (MKD), whose memory is `Taught`.

    Args:
      setup: network, objective, optimizer and data access.
      method: method of replay.
      buffer_size: number of stored samples.
      regularization: coefficient λ of the distillation.
      averaging_weights: weight α of the new network in each average, below 1.
      temperature: temperature T of the distillation's softmaxes.
      labels: labels per sample in the sequence.
      replay_batch_size: samples per draw, at most the stored ones; None is the size of the incoming
        batch.
      loss_over: classes of the cross-entropies: the seen ones, or all outputs of the head, as in
        the authors' code.

    Raises:
      ValueError: there is no weight, or one is not between 0 and 1.
    """
    if not averaging_weights or not all(0 < weight < 1 for weight in averaging_weights):
        raise ArgumentError(
            Argument("averaging_weights", averaging_weights),
            remedy=("give one or more above 0 and below 1",),
        )
    replay_arguments = {"labels": labels, "replay_batch_size": replay_batch_size}
    if method == "ER":
        base = experience_replay(setup, buffer_size, **replay_arguments)
    elif method == "ER-ACE":
        base = er_ace(setup, buffer_size, loss_over=loss_over, **replay_arguments)
    else:
        base = der_plus_plus(setup, buffer_size, loss_over=loss_over, **replay_arguments)
    replay_strategy = with_outer_memory(base, "memory")

    def init(key: PRNGKeyArray, learner: Learner) -> Taught:
        scales = [weight / (1 - weight) for weight in averaging_weights]
        teachers = jax.tree.map(lambda leaf: teacher_factors(leaf, scales) * leaf, learner.params)
        return Taught(base.init(key, learner), teachers)

    def distillation_gradient(
        memory: Taught, learner: Learner, batch: Batch, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        """Return the gradient of ER's loss and the distillation over a batch."""
        learner = learner if loss_over == "seen" else with_all_seen(learner)
        key_teacher, key_augmented, key_stored = jax.random.split(key, 3)
        stored = batch._replace(inputs=gather_inputs(setup, batch.index, None))
        targets = jax.vmap(
            lambda params: batch_outputs(setup, params, learner, batch, key_teacher)[0].logits
        )(memory.teachers)

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            entropy, (outputs, stats) = batch_loss(setup, params, learner, batch, key_augmented)
            after = learner._replace(batch_stats=stats)
            plain, stats = batch_outputs(setup, params, after, stored, key_stored)
            away = sum(
                jnp.mean(divergence(targets, student.logits, temperature), axis=0)
                for student in (outputs, plain)
            )
            total = entropy + regularization / 2 * weighted_mean(away, batch.weight)
            return total, (entropy, stats)

        gradient, (entropy, stats) = jax.grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, stats, entropy)

    def grads(
        memory: Taught, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        replay = batch.replay.labelled if isinstance(batch.replay, TwoDraws) else batch.replay
        both = join_batches(batch, replay)
        if method == "ER":
            return distillation_gradient(memory, learner, both, key)
        key_base, key_distilled = jax.random.split(key)
        gradient, info = replay_strategy.grads(memory, learner, batch, task, key_base)
        after = learner._replace(batch_stats=info.batch_stats)
        more, distillation = distillation_gradient(memory, after, both, key_distilled)
        gradient = jax.tree.map(jnp.add, gradient, more)
        return gradient, info._replace(task_gradient=gradient, batch_stats=distillation.batch_stats)

    def after_step(
        memory: Taught, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Taught, Learner]:
        memory, learner = replay_strategy.after_step(memory, learner, info, key)
        return memory._replace(
            teachers=move_teachers(memory.teachers, learner, averaging_weights)
        ), learner

    def predict(
        memory: Taught, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        params = jax.tree.map(
            lambda teachers, current: (
                (jnp.sum(teachers, axis=0) + current) / (len(averaging_weights) + 1)
            ),
            memory.teachers,
            learner.params,
        )
        outputs = evaluation_outputs(setup, learner._replace(params=params), inputs)
        return setup.objective.scores(outputs)

    return replay_strategy._replace(
        init=init,
        grads=grads,
        after_step=after_step,
        predict=predict,
        parameter_copies=len(averaging_weights),
    )


def teacher_factors(leaf: Array, values: Sequence[float]) -> Float[Array, "n ..."]:
    """Return a value of each teacher, to be multiplied by a leaf of the parameters."""
    return jnp.asarray(values, leaf.dtype).reshape(-1, *[1] * leaf.ndim)


def move_teachers(teachers: PyTree, learner: Learner, averaging_weights: Sequence[float]) -> PyTree:
    """Return the moving averages after a step of the network, each by its weight."""
    power = jnp.maximum(learner.step // CORRECTION_STEPS, 1)

    def move_average(old: Array, new: Array) -> Array:
        weight = teacher_factors(new, averaging_weights)
        return (1 - weight) * old + weight / (1 - weight**power) * new

    return jax.tree.map(move_average, teachers, learner.params)


def divergence(
    teacher: Float[Array, "*n b c"], student: Float[Array, "b c"], temperature: float
) -> Float[Array, "*n b"]:
    """Return KL(teacher ‖ student) of softmaxes at a temperature, times its square."""
    target, predicted = (jax.nn.log_softmax(logits / temperature) for logits in (teacher, student))
    return temperature**2 * jnp.sum(jnp.exp(target) * (target - predicted), axis=-1)


_ER_MKD = Method(
    "ER-MKD",
    mkd,
    Publication("Michel et al.", 2024, "ICML", ("samples", "old net")),
    "ER taught by a moving average (momentum knowledge distillation, MKD)",
    requirements=OTHER_WEIGHTS,
    authors={
        "regularization": 5.5,
        "temperature": 4,
        "replay_batch_size": 64,
        "loss_over": "all",
        "batch size": 10,
        "epochs per task": 1,
        "optimizer at a new task": "continues",
    },
    # The mean of the averages and the network predicts.
    has_review=False,
)
METHODS = (
    _ER_MKD,
    _ER_MKD._replace(
        name="ER-ACE-MKD",
        fixed={"method": "ER-ACE"},
        requirements=(*OTHER_WEIGHTS, "chosen classes"),
        summary="ER-ACE taught by a moving average of the network (MKD)",
    ),
    _ER_MKD._replace(
        name="DER++-MKD",
        fixed={"method": "DER++", "loss_over": "all"},
        summary="DER++ taught by a moving average of the network (MKD)",
    ),
)
