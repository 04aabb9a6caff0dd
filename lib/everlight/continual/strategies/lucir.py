"""Learning a unified classifier incrementally by rebalancing (Hou et al. 2019, CVPR): LUCIR.

    L(θ) = task loss + λ · (1 − cos(f_old(x), f(x)))
         + mean over replayed x, their labels y and the K nearest new classes c of
           max(0, m − cos(f, w_y) + cos(f, w_c)),        λ = λ₀ √(old classes / new classes)

The task loss is the setup's: softmax cross-entropy over the seen classes in the paper, binary
cross-entropy in IIRC (Abdelsalam et al. 2021). The method needs a cosine head over signed features:
`MLP` and `ResNet50` with `last_relu=False`, or `ReducedResNet`. Weights of known classes stay
fixed. A new class's weights start as the normalized mean of its samples' normalized features, with
the mean length of the known classes' weights. The paper has λ₀ = 5 (10 on ImageNet), K = 2, m = 0.5
and 20 herded exemplars per class.

The paper also reports predictions by the nearest mean of exemplars (`classifier`) and, on ImageNet,
class-balanced finetuning. After every task but the first, it trains the head's weights of all seen
classes with the same loss on the exemplars alone. The network is in evaluation mode. The authors
take 20 epochs in batches of 128, at 0.1 times the learning rate, and from the 11th at 0.01 times.

Equal to the official code (hshustc/CVPR19_Incremental_Learning) at the losses, the imprinted, fixed
and finetuned weights and the nearest mean; differs in the means of its CIFAR-100 script, which
include mirrored exemplars, in herding and the rounding of a fixed total (see `icarl`), and in the
finetuning's optimizer, which is the setup's. IIRC's code lets the ranking loss move the head's
scale too; in everlight, as in the official code, the ranked scores have no scale.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.base import Coefficient, Samples, Setup, Strategy, Task
from everlight.checks import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.objectives.multilabel import multi_hot
from everlight.continual.strategies.parts.imprinted_head import (
    Finetuning,
    LossInputs,
    imprinted_rehearsal,
)
from everlight.continual.strategies.parts.passes import evaluation_outputs, weighted_mean
from everlight.continual.strategies.parts.rehearsal import (
    Classifier,
    nearest_mean_strategy,
    rehearsal,
)
from everlight.models.heads import cosines, head_kernel, unit_vectors
from everlight.precision import matrix_product


@checked
def lucir(
    setup: Setup,
    exemplars_per_class: PositiveInt = 20,
    labels: PositiveInt = 1,
    distillation: Coefficient = 5.0,
    margin: NonNegativeFloat = 0.5,
    rivals: PositiveInt = 2,
    buffer_size: PositiveInt | None = None,
    classifier: Classifier = "head",
    finetuning_epochs: NonNegativeInt = 0,
    finetuning_learning_rate_factor: PositiveFloat = 0.1,
    finetuning_batch_size: PositiveInt = 128,
) -> Strategy:
    """Return learning a unified classifier by rebalancing (LUCIR), whose memory is `Rehearsal`.

    The head's weights are `params["head"]["kernel"]`.

    Args:
      setup: network, objective, optimizer and data access.
      exemplars_per_class: exemplars per class, used without `buffer_size`; 20 in the paper.
      labels: labels per sample in the sequence.
      distillation: base weight λ₀ of the feature distillation.
      margin: margin m of the ranking loss.
      rivals: number K of nearest new classes per sample; a task with fewer has all of them.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.
      classifier: "head", or "nearest mean" of exemplars for one label per sample.
      finetuning_epochs: epochs of class-balanced finetuning after each task but the first.
      finetuning_learning_rate_factor: factor on the optimizer's learning rate in the first half of
        the finetuning's epochs; a tenth of it in the second half.
      finetuning_batch_size: exemplars per finetuning step.

    Raises:
      ValueError: `classifier` is unknown.
    """

    def rebalanced_loss(inputs: LossInputs) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the batch's loss L and its first term."""
        outputs, batch = inputs.outputs, inputs.batch
        weight = distillation * jnp.sqrt(
            jnp.sum(inputs.teacher.known) / jnp.maximum(jnp.sum(inputs.new), 1)
        )
        old = evaluation_outputs(setup, inputs.teacher, batch.inputs)
        task_loss = weighted_mean(
            setup.objective.loss(outputs, batch.labels, inputs.seen), batch.weight
        )
        moved = 1 - jnp.sum(
            unit_vectors(outputs.features, -1) * unit_vectors(old.features, -1), axis=-1
        )
        true = multi_hot(batch.labels, inputs.new.shape[0]) & inputs.teacher.known
        scores = cosines(outputs.features, head_kernel(inputs.params))
        ranking = margin_ranking(scores, true, inputs.new, margin, rivals)
        replayed = batch.weight * batch.memory_mask
        total = task_loss + weight * weighted_mean(moved, batch.weight)
        return total + weighted_mean(ranking, replayed), task_loss

    def imprint_kernel(
        kernel: Float[Array, "f c"],
        features: Float[Array, "n f"],
        task: Task,
        known: Bool[Array, "c"],
        key: PRNGKeyArray,
    ) -> Float[Array, "f c"]:
        return imprint(kernel, features, task.train, task.classes, known)

    def rate(number: Int[Array, ""]) -> Float[Array, ""]:
        late = number >= (finetuning_epochs + 1) // 2
        return finetuning_learning_rate_factor * jnp.where(late, jnp.float32(0.1), jnp.float32(1))

    by_head = rehearsal(setup, exemplars_per_class, labels, buffer_size)
    finetuning = Finetuning(finetuning_epochs, finetuning_batch_size, rate)
    strategy = imprinted_rehearsal(setup, by_head, rebalanced_loss, imprint_kernel, finetuning)
    return strategy if classifier == "head" else nearest_mean_strategy(setup, strategy)


def margin_ranking(
    scores: Float[Array, "b c"],
    true: Bool[Array, "b c"],
    new: Bool[Array, "c"],
    margin: float,
    rivals: int,
) -> Float[Array, "b"]:
    """Return each sample's mean of max(0, m − true score + rival's) over true classes and rivals.

    Args:
      scores: cosines with all classes, `[b, c]`.
      true: the sample's classes among those known before, `[b, c]`.
      new: the new classes; those with the greatest scores are the rivals.
      margin: margin m.
      rivals: maximal number of rivals; the result is 0 without any.
    """
    top, _ = jax.lax.top_k(jnp.where(new, scores, -jnp.inf), min(rivals, new.shape[0]))
    pairs = true[:, :, None] & (top > -jnp.inf)[:, None, :]
    short = margin - scores[:, :, None] + jnp.where(top > -jnp.inf, top, 0)[:, None, :]
    total = jnp.sum(jnp.where(pairs, jax.nn.relu(short), 0), axis=(1, 2))
    return total / jnp.maximum(jnp.sum(pairs, axis=(1, 2)), 1)


def imprint(
    kernel: Float[Array, "f c"],
    features: Float[Array, "n f"],
    samples: Samples,
    new: Bool[Array, "c"],
    known: Bool[Array, "c"],
) -> Float[Array, "f c"]:
    """Return the head's weights after imprinting new classes; unchanged if no class is known.

    Args:
      kernel: the head's weights, `[f, c]`.
      features: features of the samples, `[n, f]`.
      samples: samples of the task, `[n]`.
      new: classes to imprint; those without a sample stay unchanged.
      known: classes whose mean weight length the new classes take.
    """
    member = multi_hot(samples.labels, new.shape[0]) & samples.mask[:, None]
    rows = jnp.where(samples.mask[:, None], unit_vectors(features, -1), 0)
    sums = matrix_product(rows.T, member)
    lengths = jnp.linalg.norm(kernel, axis=0)
    length = jnp.sum(lengths, where=known) / jnp.maximum(jnp.sum(known), 1)
    imprint_kernel = new & jnp.any(member, axis=0) & jnp.any(known)
    # The sum of a class's unit features has the direction of their mean.
    return jnp.where(imprint_kernel, length * unit_vectors(sums, 0), kernel)


METHODS = (
    Method(
        "LUCIR",
        lucir,
        Publication("Hou et al.", 2019, "CVPR", ("samples", "old net")),
        "learning a unified classifier incrementally by rebalancing (LUCIR)",
        tunes="distillation",
        hyperparameters=(0.5, 1, 2, 5),
        published=5,
        head="cosine",
        requirements=("class scores", "disjoint classes", "named head", "head kinds"),
        select="last",
        authors={
            "distillation": 5,
            "margin": 0.5,
            "rivals": 2,
            "exemplars_per_class": 20,
            "batch size": 128,
            "epochs per task": 160,
        },
    ),
)
