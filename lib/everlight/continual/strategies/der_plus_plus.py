"""Dark experience replay with labels (DER++; Buzzega et al. 2020, NeurIPS).

    L = CE(batch) + α · mean ‖z(x') − z'‖² / c + β · CE(x'', y'')

x' and x'' are two draws of equal size from a reservoir, each without replacement. The second draw
and its labels are added to DER (`der`), whose memory and stored logits z' it shares. As in the
authors' code, all three passes run in training mode, one after another.

The paper has, on CIFAR-10 with 200, 500 and 5,120 samples, α = 0.1, 0.2, 0.1 and β = 0.5, 0.5, 1.

Both cross-entropies run over all outputs of the head; `der` has the reason.

Equal to the official code (aimagelab/mammoth, `derpp.py`) at the gradient of a step and at the
stored logits.
"""

from typing import Literal, NamedTuple

import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Coefficient, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.der import DarkDraw, DarkReservoir, der, logit_distance
from everlight.continual.strategies.parts.passes import batch_loss
from everlight.continual.strategies.parts.replayed import replayed_loss, with_all_seen


class TwoDraws(NamedTuple):
    """Batches that a step replays."""

    matched: Batch
    """Batch whose logits are matched to the stored `logits`."""
    logits: Float[Array, "b c"]
    labelled: Batch
    """Batch whose labels enter the cross-entropy."""


@checked
def der_plus_plus(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    alpha: Coefficient = 0.1,
    beta: Coefficient = 0.5,
    labels: PositiveInt = 1,
    replay_batch_size: PositiveInt | None = None,
    loss_over: Literal["seen", "all"] = "all",
) -> Strategy:
    """Return dark experience replay with labels (DER++), whose memory is `DarkReservoir`.

    Args:
      setup: network, objective, optimizer and data access.
      buffer_size: number of stored samples.
      alpha: coefficient α of the squared distance of logits.
      beta: coefficient β of the replayed batch's cross-entropy.
      labels: labels per sample in the sequence.
      replay_batch_size: samples per draw, at most the stored ones; None is the size of the incoming
        batch.
      loss_over: classes of both cross-entropies: all outputs of the head, as in the authors' code,
        or the seen ones.
    """

    dark = der(setup, buffer_size, alpha, labels, replay_batch_size, loss_over)

    def draw(memory: DarkReservoir, batch: Batch, task: Task, key: PRNGKeyArray) -> TwoDraws:
        key_matched, key_labelled = jax.random.split(key)
        labelled = dark.draw(memory, batch, task, key_labelled).matched
        return TwoDraws(*dark.draw(memory, batch, task, key_matched), labelled)

    def grads(
        memory: DarkReservoir, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        learner = learner if loss_over == "seen" else with_all_seen(learner)
        matched, logits, labelled = batch.replay
        key_batch, key_matched, key_labelled = jax.random.split(key, 3)

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            task_loss, (outputs, stats) = batch_loss(setup, params, learner, batch, key_batch)
            after = learner._replace(batch_stats=stats)
            drawn = DarkDraw(matched, logits)
            away, stats = logit_distance(setup, params, after, drawn, key_matched)
            after = learner._replace(batch_stats=stats)
            replay_loss, stats = replayed_loss(setup, params, after, labelled, key_labelled)
            return task_loss + alpha * away + beta * replay_loss, (task_loss, outputs.logits, stats)

        gradient, (task_loss, task_logits, stats) = jax.grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, stats, task_loss, task_logits)

    return dark._replace(draw=draw, grads=grads)


METHODS = (
    Method(
        "DER++",
        der_plus_plus,
        Publication("Buzzega et al.", 2020, "NeurIPS", ("samples",)),
        "dark experience replay with labels (DER++)",
        requirements=("class scores",),
        authors={
            "alpha": 0.1,
            "beta": 0.5,
            "loss_over": "all",
            "replay_batch_size": 32,
            "batch size": 32,
            "epochs per task": 50,
        },
    ),
)
