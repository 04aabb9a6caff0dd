"""Dynamically expandable representation (DER; Yan et al. 2021, CVPR): an extractor per task.

The name DER belongs to dark experience replay, so that the method is `expandable DER` here. A task
t adds an extractor φ_t that starts from the last one, and the earlier ones are frozen. The head
reads the features of all, and an auxiliary head a reads those of φ_t alone:

    z(x) = Σ_{s ≤ t} K_sᵀ φ_s(x) + b
    L = CE(y, π(z)) + λ_a CE(y', π(a(φ_t(x)))),   y' = 0 for earlier classes, else 1 + the class

π runs over the seen classes, in the second term over the task's classes and the joint one of all
earlier classes. The first task has the first term alone. Herded exemplars of earlier classes join
every epoch; herding compares the features of all extractors. The head that a task starts from has
the earlier K_s, a new K_t and the earlier bias. After every task but the first the head is
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
- K_t is drawn as the first head is. In both codes its variance is that of a head of all t f
  features, t times less.
- Finetuning passes exemplars as they are, after the task's ones have been herded. In the official
  code they are augmented, and of the task's samples as many are taken as there are exemplars of
  each earlier class, before herding. So with a fixed total of K exemplars every class has K / all
  classes here, and K / earlier classes there.
- All rows of the head exist from the start, on which weight decay acts; both codes draw the rows of
  new classes in every task.
- Herding: see `icarl`.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import (
    Batch,
    Coefficient,
    Epoch,
    Learner,
    Outputs,
    Samples,
    Setup,
    StepInfo,
    Strategy,
    Task,
)
from everlight.checks import NonNegativeInt, PositiveFloat, PositiveInt, checked
from everlight.continual.engine.epochs import train_on
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.added_parameters import (
    new_parameters,
    updated_parameters,
)
from everlight.continual.strategies.parts.distillation import label_softmax
from everlight.continual.strategies.parts.exemplars import empty_exemplars, exemplar_slots
from everlight.continual.strategies.parts.expansion import (
    Expansion,
    below_head,
    drawn_head,
    empty_copies,
    expanded_outputs,
    expanded_setup,
    finished_features,
    joined_head,
    new_auxiliary,
    with_finished,
    with_joined_head,
)
from everlight.continual.strategies.parts.linear_head import linear_head, linear_logits
from everlight.continual.strategies.parts.memory import merge_buffer
from everlight.continual.strategies.parts.passes import weighted_mean
from everlight.continual.strategies.parts.rehearsal import herd_task
from everlight.continual.strategies.wa import align_head

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
      finetuning_epochs: epochs over the exemplars.
      finetuning_learning_rate_factor: factor on the optimizer's learning rate in the finetuning; in
        its second half it is a tenth.
      finetuning_batch_size: exemplars per finetuning step.
      temperature: temperature δ of the finetuning.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.

    Raises:
      ValueError: at `init`, no layer is named head, or it is not linear.
    """
    finished = max(tasks - 1, 1)
    finetuning = Finetuning(
        finetuning_epochs, finetuning_batch_size, finetuning_learning_rate_factor, temperature
    )

    def init(key: PRNGKeyArray, learner: Learner) -> Expansion:
        kernel = linear_head(learner.params, "DER")["kernel"]
        slots = exemplar_slots(exemplars_per_class, buffer_size, learner.seen.shape[0])
        extractors, batch_stats, kernels = empty_copies(
            (below_head(learner.params), learner.batch_stats, kernel), finished
        )
        heads = {"kernel": kernels, "auxiliary": new_auxiliary(kernel, key)}
        buffer = empty_exemplars(slots, labels)
        return Expansion(
            buffer, extractors, batch_stats, jnp.int32(0), new_parameters(setup, heads)
        )

    def begin_task(
        memory: Expansion, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Expansion, Learner]:
        key_network, key_auxiliary = jax.random.split(key)
        kernel, grows = learner.params["head"]["kernel"], task.id > 0
        extractors, batch_stats, kernels = with_finished(
            (memory.extractors, memory.batch_stats, memory.heads.params["kernel"]),
            (below_head(learner.params), learner.batch_stats, kernel),
            task.id,
        )
        drawn = setup.init(key_network)[0]["head"]["kernel"]
        params = {
            **learner.params,
            "head": {**learner.params["head"], "kernel": jnp.where(grows, drawn, kernel)},
        }
        heads = {"kernel": kernels, "auxiliary": new_auxiliary(kernel, key_auxiliary)}
        memory = Expansion(
            memory.buffer,
            extractors,
            batch_stats,
            task.id.astype(memory.count.dtype),
            new_parameters(setup, heads),
        )
        return memory, learner._replace(params=params)

    def epoch_data(memory: Expansion, task: Task) -> Epoch:
        return merge_buffer(task.train, memory.buffer.samples)

    def grads(
        memory: Expansion, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        # The number of the task is common to vmapped runs, so that no run passes more often.
        earlier = memory.extractors, memory.batch_stats
        features = finished_features(
            setup, earlier, learner.params, batch.inputs, task.id, finished
        )
        label = batch.labels[:, 0]
        target = jnp.where(task.classes[label], 1 + label, 0)
        active = jnp.concatenate([jnp.ones(1, bool), task.classes])

        def loss(params: PyTree, heads: PyTree) -> tuple[Float[Array, ""], tuple]:
            outputs, batch_stats = setup.apply(params, learner.batch_stats, batch.inputs, True, key)
            expanded = expanded_outputs(outputs, features, heads["kernel"])
            losses = setup.objective.loss(expanded, batch.labels, learner.seen)
            task_loss = weighted_mean(losses, batch.weight)
            logits = linear_logits(heads["auxiliary"], outputs.features)
            auxiliary = label_softmax(logits, target[:, None], active)
            auxiliary = auxiliary_weight * weighted_mean(auxiliary, batch.weight)
            return task_loss + jnp.where(task.id > 0, auxiliary, 0), (task_loss, batch_stats)

        differentiate = jax.grad(loss, argnums=(0, 1), has_aux=True)
        (gradient, for_heads), (task_loss, batch_stats) = differentiate(
            learner.params, memory.heads.params
        )
        return gradient, StepInfo(gradient, batch_stats, task_loss, for_heads)

    def after_step(
        memory: Expansion, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Expansion, Learner]:
        heads = updated_parameters(setup, learner, memory.heads, info.aux)
        return memory._replace(heads=heads), learner

    def end_task(
        memory: Expansion, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Expansion, Learner]:
        sharing_classes = None if buffer_size is None else learner.seen
        expanded = expanded_setup(setup, memory)
        buffer = herd_task(expanded, memory.buffer, learner, task, sharing_classes)
        memory = memory._replace(buffer=buffer)
        if classifier == "plain":
            return memory, learner
        head = joined_head(memory, learner.params)
        if classifier == "aligned":
            known = learner.seen & ~task.classes
            corrected = {**head, "kernel": align_head(head["kernel"], task.classes, known)}
        else:
            corrected = finetuned_head(setup, memory, learner, task, key, finetuning)
        corrected = jax.tree.map(
            lambda new, old: jnp.where((task.id > 0) & learner.seen, new, old), corrected, head
        )
        return with_joined_head(memory, learner, corrected)

    def predict(
        memory: Expansion, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        outputs, _ = expanded_setup(setup, memory).apply(
            learner.params, learner.batch_stats, inputs, False, None
        )
        return setup.objective.scores(outputs)

    return naive(setup)._replace(
        init=init,
        begin_task=begin_task,
        epoch_data=epoch_data,
        grads=grads,
        after_step=after_step,
        end_task=end_task,
        predict=predict,
        stored_samples=lambda memory, task: jnp.sum(memory.buffer.samples.mask),
        tasks=tasks,
        parameter_copies=finished,
    )


def finetuned_head(
    setup: Setup,
    memory: Expansion,
    learner: Learner,
    task: Task,
    key: PRNGKeyArray,
    finetuning: Finetuning,
) -> PyTree:
    """Return a newly drawn joined head after training on the exemplars' features.

    Args:
      setup: network, objective, optimizer and data access.
      memory: memory with the exemplars.
      learner: learner at the end of the task.
      task: task that ends.
      key: random key of the head and of the exemplars' order.
      finetuning: settings of the training.
    """
    key_head, key_order = jax.random.split(key)
    held = memory.buffer.samples
    features = sample_features(expanded_setup(setup, memory), learner, held)

    def apply(
        params: PyTree,
        batch_stats: PyTree,
        features: Float[Array, "b f"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> tuple[Outputs, PyTree]:
        logits = linear_logits(params["head"], features) / finetuning.temperature
        return Outputs(logits, features), batch_stats

    head_setup = setup._replace(
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
