"""Dynamically expandable representation (DER; Yan et al. 2021, CVPR): an extractor per task.

The name DER belongs to dark experience replay, so that the method is `expandable DER` here. A task
t adds an extractor φ_t that starts from the last one, and the earlier ones are frozen. The head
reads the features of all, and an auxiliary head a reads those of φ_t alone:

    z(x) = Σ_{s ≤ t} K_sᵀ φ_s(x) + b
    L = CE(y, π(z)) + λ_a CE(y', π(a(φ_t(x)))),   y' = 0 for earlier classes, else 1 + the class

π runs over the seen classes, in the second term over the task's classes and the joint one of all
earlier classes. The first task has the first term alone. Herded exemplars of earlier classes join
every epoch; herding compares the features of all extractors. The head that a task starts from has
the earlier K_s of earlier classes and the earlier bias; K_t and the new classes' weights are drawn,
with the variance of a head of all features. After every task but the first the head is
corrected (`classifier`):

- "finetuned", as in the authors' code: it is drawn again and trained on the exemplars, equally many
  of each class, by CE(y, π(z / δ)) with δ = 5, for 30 epochs (on CIFAR-100).
- "aligned": K of new classes is scaled to the mean length of earlier ones, as in PyCIL (`wa`).
- "plain": it stays.

All arrays have their last sizes from the start. Memory holds T − 1 finished extractors, stacked, of
which the unused ones are empty, and (T − 1) f rows of the head for f features of one extractor. So
it takes T times the network's memory. A step or a prediction passes its samples through the t − 1
finished extractors without gradient, not through the empty ones: over T tasks of equal size these
are (T − 1) / 2 further forward passes per step. Pruning of extractors by learned masks, which the
paper describes, is in neither the authors' nor PyCIL's code nor here.

Equal to PyCIL (`models/der.py`, `utils/inc_net.py`) at the gradient of a step and the aligned head,
and to the official code (Rhyssiyan/DER-ClassIL.pytorch, `incmodel.py`, `network.py`, `utils.py`) at
the gradient of a step and at finetuning from a given head. Functions of both, run on the same
tensors in float32, differ by 1e-6 at most, relative to the largest value. Differs in:

- The head keeps K_s of earlier extractors, as in the paper and PyCIL. The official code draws the
  whole head when a task begins and, with the auxiliary head, again after ten epochs of warm-up, and
  has no bias.
- Finetuning passes exemplars as they are, after the task's ones have been herded. In the official
  code they are augmented, and of the task's samples as many are taken as there are exemplars of
  each earlier class, before herding. So with a fixed total of K exemplars every class has K / all
  classes here, and K / earlier classes there.
- Herding: see `icarl`.
"""

from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import (
    Coefficient,
    Epoch,
    Learner,
    Outputs,
    Samples,
    Setup,
    Strategy,
    Task,
)
from everlight.checks import NonNegativeInt, PositiveFloat, PositiveInt, checked
from everlight.continual.engine.epochs import train_on
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.expansion import (
    Expansion,
    drawn_head,
    joined_head,
    whole_networks,
)
from everlight.continual.strategies.parts.extractor_per_task import (
    aligned_head,
    extractor_per_task,
)
from everlight.continual.strategies.parts.linear_head import linear_logits

Correction = Literal["finetuned", "aligned", "plain"]
"""Correction of the head after a task."""


class Finetuning(NamedTuple):
    """Settings of the head's finetuning, as of `expandable_representation`."""

    epochs: int
    batch_size: int
    learning_rate_factor: float
    temperature: float


@checked
def expandable_representation(
    setup: Setup,
    tasks: PositiveInt,
    exemplars_per_class: PositiveInt = 20,
    labels: PositiveInt = 1,
    auxiliary_weight: Coefficient = 1.0,
    classifier: Correction = "finetuned",
    finetuning_epochs: NonNegativeInt = 30,
    finetuning_learning_rate_factor: PositiveFloat = 1.0,
    finetuning_batch_size: PositiveInt = 128,
    temperature: PositiveFloat = 5.0,
    buffer_size: PositiveInt | None = None,
) -> Strategy:
    """Return dynamically expandable representation (DER), whose memory is `Expansion`.

    The first label of a sample is its class. The linear head is `params["head"]`, which has the
    rows of the current extractor. The setup's network is one extractor with its head.

    Args:
      setup: network, objective, optimizer and data access.
      tasks: number of tasks in the sequence.
      exemplars_per_class: exemplars per class, used without `buffer_size`.
      labels: labels per sample in the sequence.
      auxiliary_weight: coefficient λ_a of the auxiliary loss.
      classifier: correction of the head after a task, "finetuned", "aligned" or "plain".
      finetuning_epochs: epochs over the exemplars; with 0 the head stays.
      finetuning_learning_rate_factor: factor on the optimizer's learning rate in the finetuning; in
        its second half it is a tenth.
      finetuning_batch_size: exemplars per finetuning step.
      temperature: temperature δ of the finetuning.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.

    Raises:
      ValueError: at `init`, no layer is named head, or it is not linear.
    """
    finetuning = Finetuning(
        finetuning_epochs, finetuning_batch_size, finetuning_learning_rate_factor, temperature
    )
    # Without an epoch the head would be the drawn one.
    finetuned = partial(finetuned_head, finetuning=finetuning) if finetuning_epochs else None
    corrections = {"finetuned": finetuned, "aligned": aligned_head, "plain": None}
    return extractor_per_task(
        setup,
        whole_networks(setup, max(tasks - 1, 1)),
        "DER",
        tasks,
        exemplars_per_class,
        labels,
        auxiliary_weight,
        buffer_size,
        corrections[classifier],
    )


def finetuned_head(
    expanded: Setup,
    memory: Expansion,
    learner: Learner,
    task: Task,
    key: PRNGKeyArray,
    finetuning: Finetuning,
) -> PyTree:
    """Return a newly drawn joined head after training on the exemplars' features.

    Args:
      expanded: setup of all extractors.
      memory: memory with the exemplars.
      learner: learner at the end of the task.
      task: task that ends.
      key: random key of the head and of the exemplars' order.
      finetuning: settings of the training.
    """
    key_head, key_order = jax.random.split(key)
    held = memory.buffer.samples
    features = sample_features(expanded, learner, held)

    def apply(
        params: PyTree,
        batch_stats: PyTree,
        features: Float[Array, "b f"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Outputs, PyTree]:
        logits = linear_logits(params["head"], features) / finetuning.temperature
        return Outputs(logits, features), batch_stats

    head_setup = expanded._replace(
        apply=apply, gather=lambda index, key: features[index], trainable=None, measure=None
    )
    head = drawn_head(memory, joined_head(memory, learner.params), key_head)
    slots = Samples(jnp.arange(held.mask.shape[0]), held.labels, held.mask)

    def rate(epoch: Int[Array, ""]) -> Float[Array, ""]:
        decay = jnp.where(2 * epoch < finetuning.epochs, 1.0, 0.1)
        return (finetuning.learning_rate_factor * decay).astype(jnp.float32)

    trained = train_on(
        head_setup,
        naive(head_setup),
        (),
        learner._replace(params={"head": head}),
        task,
        Epoch(slots, jnp.zeros_like(slots.mask)),
        # Nothing is finetuned after the first task.
        epochs=jnp.where(task.id > 0, finetuning.epochs, 0),
        batch_size=finetuning.batch_size,
        key=key_order,
        learning_rate_factor=rate,
    )
    return trained.params["head"]


METHODS = (
    Method(
        "expandable DER",
        expandable_representation,
        Publication("Yan et al.", 2021, "CVPR", ("samples", "old net")),
        "dynamically expandable representation (DER): a frozen extractor per task",
        requirements=(*OTHER_WEIGHTS, "disjoint classes", "named head"),
        select="last",
        extends_network=True,
        authors={
            "auxiliary_weight": 1,
            "classifier": "finetuned",
            "finetuning_epochs": 30,
            "finetuning_learning_rate_factor": 1,
            "finetuning_batch_size": 128,
            "temperature": 5,
            "batch size": 128,
            "epochs per task": 170,
            "learning rate": 0.1,
        },
        planned_total="tasks",
    ),
)
