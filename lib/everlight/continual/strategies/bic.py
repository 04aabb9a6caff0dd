"""Bias correction (BiC; Wu et al. 2019, CVPR), with softmax or with many labels per sample.

Before a task, some samples of every seen class are held out from training. Stage 1 trains on the
rest,

    L(θ) = (1 − w) · CE(labels, π(z)) + w · CE(π(ẑ_old / T), π(z / T)),   w = old / (old + new),

the second term over the old classes, with the network before the task as the teacher. Stage 2
freezes the network. It fits one scale and one shift for the new classes, ẑ = α z + β. The fit
minimizes the same CE on the held-out samples, with a penalty 0.05 β². Only the new classes are
corrected: the last task's correction is in ẑ_old and is then dropped (`corrections="last"`). T = 2
in the paper.

A tenth of each class's exemplars is held out, at least one, and as many of every new class. The
last sample of a class stays in training, so a class of one exemplar gives none. Where no old class
gives any, nothing is held out or corrected: new classes alone would fit a larger bias. The paper's
memory is a fixed total that the seen classes share: 2,000 exemplars on CIFAR-100, 20,000 on
ImageNet and 50,000 on Celeb-10000 (`buffer_size`).

Softmax π runs over the seen classes, in the second term over the old ones. Abdelsalam et al. 2021
(IIRC) run BiC on samples with many labels and publish no code for it. In everlight the logistic
function and binary cross-entropy, averaged over these classes, replace softmax. Corrections of all
tasks stay active in both networks (`corrections="all"`, as in FACIL's bic.py). Their penalty is
0.001 ((α − 1)² + β²); FACIL has 0.05 β². With many labels, 1 − w gives new classes little weight
once old classes are many. Few held-out samples carry a new class, so the fit puts hard ones below
the threshold of ½. `weigh_labels` and `fit` change either behaviour.

Equal to the official code (wuyuebupt/LargeScaleIncrementalLearning) at the loss of stage 1, the
objective of stage 2 and the corrected logits; differs in:

- Held-out samples are drawn from the exemplars before every task. In the official code each class
  has its own, which are never trained on.
- Features are normalized for herding, exemplars stay those of the first choice, and counts are
  rounded down.
- The weight decay is the optimizer's. In the official code it is 1e-4 times all tasks over those so
  far.
- Stage 2 has the network in evaluation mode and Newton's method. In the official code batches
  normalize it.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Epoch, Learner, Outputs, Samples, Setup, StepInfo, Strategy, Task
from everlight.checks import NonNegativeFloat, PositiveFloat, PositiveInt, checked
from everlight.continual.engine.evaluation import predict_samples
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.bias_correction import (
    Correction,
    best_threshold,
    correct_classes,
    fit_pair,
    no_correction,
)
from everlight.continual.strategies.parts.distillation import (
    Loss,
    label_entropy,
    label_softmax,
    soft_entropy,
    soft_softmax,
    taught_gradient,
)
from everlight.continual.strategies.parts.exemplars import (
    ExemplarBuffer,
    divide_slots,
    empty_exemplars,
    exemplar_slots,
    fill_slots,
    random_ranks,
)
from everlight.continual.strategies.parts.memory import (
    carried_classes,
    distinct,
    empty_buffer,
    merge_buffer,
)
from everlight.continual.strategies.parts.passes import evaluation_outputs, weighted_mean
from everlight.continual.strategies.parts.rehearsal import herd_task
from everlight.continual.strategies.parts.teacher import Teacher, freeze_teacher, no_teacher
from everlight.errors import Argument, ArgumentError

Fit = Literal["entropy", "metric"]
"""Criterion of stage 2 on the held-out samples: cross-entropy, or the objective's metric."""
Corrections = Literal["last", "all"]
"""Corrected classes: those of the last task, or those of every task."""
RIDGE: dict[Corrections, float] = {"last": 0.05, "all": 1e-3}
"""Default weight of the penalty on α and β."""


LabelLoss = Callable[[Float[Array, "n c"], Int[Array, "n k"], Bool[Array, "c"]], Float[Array, "n"]]
"""Function from logits, labels and classes to the cross-entropy of each sample."""


class BiasMemory(NamedTuple):
    """Memory of BiC."""

    buffer: ExemplarBuffer
    held_out: Samples
    """Samples that are held out from training for stage 2."""
    teacher: Teacher
    correction: Correction
    """Correction of the network's logits."""
    old_correction: Correction
    """Correction of the teacher's logits."""


class StageOne(NamedTuple):
    """Cross-entropies and settings of the loss of stage 1."""

    label_loss: LabelLoss
    teacher_loss: Callable[[Array, Array, Bool[Array, "c"]], Float[Array, "n"]]
    """Function from logits, the teacher's logits and classes to each sample's cross-entropy."""
    temperature: float
    weigh_labels: bool


@checked
def bic(
    setup: Setup,
    exemplars_per_class: PositiveInt = 20,
    labels: PositiveInt = 1,
    temperature: PositiveFloat = 2.0,
    ridge: NonNegativeFloat | None = None,
    loss: Loss | None = None,
    weigh_labels: bool = True,
    fit: Fit = "entropy",
    corrections: Corrections | None = None,
    buffer_size: PositiveInt | None = None,
) -> Strategy:
    """Return bias correction (BiC), whose memory is `BiasMemory`.

    Args:
      setup: network, objective, optimizer and data access; BiC's losses replace the objective's.
      exemplars_per_class: exemplars per class, used without `buffer_size`.
      labels: labels per sample in the sequence.
      temperature: temperature T of the distillation.
      ridge: weight of the penalty: β², or (α − 1)² + β² with `corrections="all"`. None is 0.05, or
        0.001 with `corrections="all"`.
      loss: "softmax" for one label per sample (Wu et al.), "binary" for many (IIRC); None is
        "softmax" if `labels` is 1.
      weigh_labels: weigh the labels' loss by 1 − w; False is weight 1, which is not in the paper.
      fit: criterion for α and β. "entropy" is the cross-entropy; "metric" is the objective's metric
        with α = 1, which is not in the paper.
      corrections: "last" corrects the last task's classes and trains the uncorrected logits (Wu et
        al.). "all" keeps every task's correction active, in training too. None is "last" with
        softmax and "all" with the binary loss.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.

    Raises:
      ValueError: `loss`, `fit` or `corrections` is unknown, or they do not fit together.
    """
    loss = loss or ("softmax" if labels == 1 else "binary")
    corrections = corrections or ("last" if loss == "softmax" else "all")
    if loss == "softmax" and fit != "entropy":
        raise ArgumentError(
            Argument("fit", fit),
            " is for ",
            Argument("loss", "binary"),
            remedy=("choose ", Argument("fit", "entropy")),
        )
    weight = RIDGE[corrections] if ridge is None else ridge
    # The authors leave the scale free.
    penalty = jnp.array([0.0 if corrections == "last" else 1.0, 1.0]) * weight
    plain = naive(setup)
    entropies = (
        (label_softmax, soft_softmax) if loss == "softmax" else (label_entropy, soft_entropy)
    )
    settings = StageOne(*entropies, temperature, weigh_labels)

    def init(key: PRNGKeyArray, learner: Learner) -> BiasMemory:
        classes = learner.seen.shape[0]
        slots = exemplar_slots(exemplars_per_class, buffer_size, classes)
        held_out = empty_buffer(held_out_slots(exemplars_per_class, buffer_size, classes), labels)
        return BiasMemory(
            empty_exemplars(slots, labels),
            held_out,
            no_teacher(learner),
            no_correction(classes),
            no_correction(classes),
        )

    def begin_task(
        memory: BiasMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[BiasMemory, Learner]:
        teacher = freeze_teacher(learner, task)
        candidates = merge_buffer(task.train, memory.buffer.samples).samples
        sharing_classes, quota = None, exemplars_per_class
        if buffer_size is not None:
            sharing_classes = learner.seen
            quota = buffer_size // jnp.maximum(jnp.sum(teacher.known), 1)
        slots = memory.held_out.mask.shape[0]
        held_out = hold_out(candidates, learner.seen, quota, slots, sharing_classes, key)
        # Nothing is corrected without something old.
        has_old = jnp.any(carried_classes(held_out, learner.seen.shape[0]) & teacher.known)
        held_out = held_out._replace(mask=held_out.mask & has_old)
        old, current = memory.correction, memory.correction
        if corrections == "last":
            current = no_correction(learner.seen.shape[0])
        return BiasMemory(memory.buffer, held_out, teacher, current, old), learner

    def grads(
        memory: BiasMemory, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        losses = partial(stage_one_losses, settings, memory, learner.seen, batch.labels)
        return taught_gradient(setup, memory.teacher, learner, batch, losses, key)

    def end_task(
        memory: BiasMemory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[BiasMemory, Learner]:
        logits = predict_samples(setup, plain, (), learner, memory.held_out, 256)
        new = task.classes
        if fit == "metric":
            metric, old = setup.objective.metric, memory.correction
            fitted = best_threshold(logits, memory.held_out, old, new, learner.seen, metric)
        else:
            # The pair enters binary cross-entropy by the new classes' part alone.
            loss_classes, entropy = learner.seen if loss == "softmax" else new, settings.label_loss
            fitted = entropy_pair(
                memory, logits, new, loss_classes, entropy=entropy, penalty=penalty
            )
        correction = correct_classes(memory.correction, fitted, task.classes)
        sharing_classes = None if buffer_size is None else learner.seen
        buffer = herd_task(setup, memory.buffer, learner, task, sharing_classes)
        return memory._replace(buffer=buffer, correction=correction), learner

    def predict(
        memory: BiasMemory, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        outputs = evaluation_outputs(setup, learner, inputs)
        corrected = Outputs(memory.correction(outputs.logits), outputs.features)
        return setup.objective.scores(corrected)

    return plain._replace(
        init=init,
        begin_task=begin_task,
        epoch_data=without_held_out,
        grads=grads,
        end_task=end_task,
        predict=predict,
        stored_samples=lambda memory, task: jnp.sum(memory.buffer.samples.mask),
    )


def without_held_out(memory: BiasMemory, task: Task) -> Epoch:
    """Return the task's samples and the exemplars that are not held out from training."""
    epoch = merge_buffer(task.train, memory.buffer.samples)
    stays = epoch.samples.mask & ~_is_among(epoch.samples, memory.held_out)
    return epoch._replace(samples=epoch.samples._replace(mask=stays))


def stage_one_losses(
    settings: StageOne,
    memory: BiasMemory,
    seen: Bool[Array, "c"],
    labels: Int[Array, "b k"],
    logits: Float[Array, "b c"],
    old: Float[Array, "b c"],
) -> Float[Array, "b"]:
    """Return L of each sample, from its labels and the logits of the network and the teacher."""
    known = memory.teacher.known
    old_share = jnp.sum(known) / jnp.maximum(jnp.sum(seen), 1)
    label_share = 1 - old_share if settings.weigh_labels else 1.0
    logits, soft = memory.correction(logits), memory.old_correction(old) / settings.temperature
    label_loss = settings.label_loss(logits, labels, seen)
    distilled = settings.teacher_loss(logits / settings.temperature, soft, known)
    return label_share * label_loss + old_share * distilled


def entropy_pair(
    memory: BiasMemory,
    logits: Float[Array, "n c"],
    new: Bool[Array, "c"],
    loss_classes: Bool[Array, "c"],
    *,
    entropy: LabelLoss,
    penalty: Float[Array, "2"],
) -> Float[Array, "2"]:
    """Return α and β with the least cross-entropy of the held-out samples.

    Args:
      memory: held-out samples, and the correction of earlier classes.
      logits: logits of the held-out samples.
      new: classes that are corrected.
      loss_classes: classes of the cross-entropy.
      entropy: function from logits, labels and classes to cross-entropies.
      penalty: weights of (α − 1)² and β².
    """
    samples = memory.held_out

    def cross_entropy(pair: Float[Array, "2"]) -> Float[Array, ""]:
        corrected = correct_classes(memory.correction, pair, new)(logits)
        losses = entropy(corrected, samples.labels, loss_classes)
        return weighted_mean(losses, samples.mask.astype(logits.dtype))

    return fit_pair(cross_entropy, penalty)


def held_out_slots(exemplars_per_class: int, buffer_size: int | None, classes: int) -> int:
    """Return the number of held-out slots: a tenth per class, or a fifth of a fixed total.

    With a fixed total, all exemplars belong to old classes when a task begins. A tenth of the total
    is for them and a tenth for the new classes, if these are no more than the old ones.
    """
    if buffer_size is None:
        return classes * max(1, exemplars_per_class // 10)
    return max(classes, buffer_size // 5)


def hold_out(
    samples: Samples,
    classes: Bool[Array, "c"],
    quota: int | Int[Array, ""],
    slots: int,
    sharing_classes: Bool[Array, "c"] | None,
    key: PRNGKeyArray,
) -> Samples:
    """Draw the held-out samples: a tenth of each class, limited to a tenth of its quota.

    At least one sample of a class is held out and at least one stays, so a class of one sample
    gives none. The last sample in a class's random order stays in training, for all its labels.

    Args:
      samples: samples of the task and of memory.
      classes: classes of which samples are held out, `[c]`.
      quota: number of exemplars of an old class; a class gives at most a tenth of it.
      slots: number of slots for held-out samples.
      sharing_classes: the classes that share the slots; None divides them among all classes.
      key: random key of the choice.
    """
    candidates = distinct(samples)
    rank = random_ranks(candidates, key)
    real, label = rank >= 0, jnp.maximum(candidates.labels, 0)
    count = jnp.zeros(classes.shape, jnp.int32).at[label].add(real.astype(jnp.int32))
    tenth = jnp.maximum(jnp.minimum(quota, count) // 10, 1)
    leave = jnp.minimum(tenth, jnp.maximum(count - 1, 0)).astype(jnp.int32)
    stays = jnp.any(real & (rank == count[label] - 1), axis=1)
    chosen = real & classes[label] & (rank < leave[label]) & ~stays[:, None]
    division = divide_slots(slots, classes.shape[0], sharing_classes)
    return fill_slots(candidates, label, rank, chosen, division, slots).samples


def _is_among(samples: Samples, others: Samples) -> Bool[Array, "n"]:
    """Return True for samples that are among the others with the same labels."""
    same_labels = jnp.all(samples.labels[:, None] == others.labels, axis=-1)
    same = (samples.index[:, None] == others.index) & same_labels
    return jnp.any(same & others.mask, axis=1)


_PAPER = Publication("Wu et al.", 2019, "CVPR", ("samples", "old net"))
METHODS = (
    Method(
        "BiC",
        bic,
        _PAPER,
        "bias correction (BiC)",
        requirements=("class scores", "disjoint classes", "last weights"),
        select="last",
        # The value for ImageNet, the only data set in their code.
        authors={"temperature": 2, "batch size": 256, "epochs per task": 100},
    ),
    # Other stages 1 and 2, which are not the paper's.
    Method(
        "BiC-whole-pwJS",
        bic,
        _PAPER,
        "BiC for several labels, fitted to pw-JS (IIRC)",
        fixed={"weigh_labels": False, "fit": "metric"},
        requirements=("multi-label", "last weights"),
        select="last",
        benchmarks=("iirc",),
    ),
)
