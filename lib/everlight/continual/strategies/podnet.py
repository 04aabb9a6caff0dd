"""Pooled outputs distillation network (PODNet; Douillard et al. 2020, ECCV).

    L(θ) = mean over samples of NCA + √(N / T) · (λ_c · POD-spatial + λ_f · POD-flat)
    NCA = −log(exp η ŷ_y / (Σ_{i ≠ y} exp η ŷ_i + max_i exp η ŷ_i))          in the authors' code
    NCA = max(0, −log(exp η(ŷ_y − δ) / Σ_{i ≠ y} exp η ŷ_i))                 in the paper
    ŷ_c = Σ_k s_ck n_ck,   s_ck = exp n_ck / Σ_j exp n_cj
    n_ck = −‖θ_ck − h‖² = 2⟨θ_ck, h⟩ − 2 in the authors' code,   ⟨θ_ck, h⟩ in the paper
    POD-flat = 1 − cos(h_old, h)
    POD-spatial = mean over maps x of ‖p(x_old) − p(x)‖
    p(x) = the sums of x² over each row and over each column of each channel, together of length 1

N is the number of seen classes and T that of the task's; h are the features and θ the head's K
proxies per class, all of length 1, and η is the head's scale. The network before the task, in
evaluation mode, gives what is old; without one there is only NCA. The method needs a
local-similarity head over signed features: `MLP` and `PlainCNN` with `last_relu=False`, or
`ReducedResNet`. The maps are those that the network returns in `Outputs.hidden`: of the blocks of
`PlainCNN` and of the stages of `ReducedResNet` and `ResNet50`. A network without maps, such as
`MLP`, has only POD-flat.

The authors' form is the default. All their configurations of PODNet have this n, but for the
ablation "cosine", and η = 1 at the start. Predictions are by the similarities of the loss. Where
the first task has two classes, the paper's NCA is 0 at η = 0 whatever the network. On Fashion-MNIST
with 500 exemplars η fell below 0, and the final accuracy was 0.28.

Proxies of known classes stay fixed. Those of a new class start as the centres of K clusters of its
samples' unit features, times the mean length of the known proxies. Exemplars are herded and join
every epoch. After every task but the first, the proxies of all seen classes are finetuned on the
exemplars alone. The authors have K = 10, δ = 0.6, λ_c = 3 and λ_f = 1 on CIFAR-100, 20 exemplars
per class, and 20 epochs of finetuning at half the learning rate.

Equal to the official code (arthurdouillard/incremental_learning.pytorch, `models/podnet.py`,
`lib/losses/` and `lib/network/classifiers.py`) at the similarities, at NCA as a function of them,
at POD-flat, POD-spatial and their weights, and at the fixed and imprinted proxies given the
clusters; differs in:

- With `form="paper"` NCA has a margin, which that code subtracts from all similarities, so that it
  has no effect; and a maximum with 0, which that code leaves out.
- The paper's equations of POD-spatial sum squared distances of x. Both in everlight and in the
  official code x is squared and p normalized, and distances are not squared.
- No ReLU follows a block in the official code, and the maps include those of the last block apart
  from its stage.
- Proxies of the first task are initially uniform in ±1 / √f, in the official code normal with
  variance 1 / f.
- Clusters are those of one start, in the official code the best of ten by scikit-learn.
- Finetuning uses evaluation mode and the setup's optimizer, in the official code training mode and
  SGD with momentum. All gradients of the official code are clipped to ±5.
- Scores are multiplied by η. Predictions of the official code are not, which is the same unless η
  is negative.
- Herding: see `icarl`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.base import Coefficient, Learner, Outputs, Samples, Setup, Strategy, Task
from everlight.checks import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, checked
from everlight.conditional import where_under_vmap
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.objectives.multilabel import multi_hot
from everlight.continual.strategies.parts.clustering import k_means
from everlight.continual.strategies.parts.imprinted_head import (
    Finetuning,
    LossInputs,
    imprinted_rehearsal,
)
from everlight.continual.strategies.parts.passes import evaluation_outputs, weighted_mean
from everlight.continual.strategies.parts.rehearsal import (
    Classifier,
    Rehearsal,
    nearest_mean_strategy,
    rehearsal,
)
from everlight.models.heads import SimilarityForm, head_kernel, local_similarities, unit_vectors


@checked
def podnet(
    setup: Setup,
    exemplars_per_class: PositiveInt = 20,
    labels: PositiveInt = 1,
    spatial_weight: Coefficient = 3.0,
    flat_weight: Coefficient = 1.0,
    margin: NonNegativeFloat = 0.6,
    form: SimilarityForm = "code",
    buffer_size: PositiveInt | None = None,
    classifier: Classifier = "head",
    finetuning_epochs: NonNegativeInt = 20,
    finetuning_learning_rate_factor: PositiveFloat = 0.5,
    finetuning_batch_size: PositiveInt = 128,
) -> Strategy:
    """Return pooled outputs distillation (PODNet), whose memory is `Rehearsal`.

    The first label of a sample is its class. The head is a `LocalSimilarityHead`, whose parameters
    `kernel`, `[f, p, c]`, and `scale` are in `params["head"]`.

    Args:
      setup: network, objective, optimizer and data access; NCA replaces the objective's loss.
      exemplars_per_class: exemplars per class, used without `buffer_size`; 20 in the paper.
      labels: labels per sample in the sequence.
      spatial_weight: coefficient λ_c of POD-spatial.
      flat_weight: coefficient λ_f of POD-flat.
      margin: margin δ of NCA; without effect in the form "code".
      form: similarities and NCA of the authors' code, "code", or of the "paper".
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.
      classifier: "head", or "nearest mean" of exemplars.
      finetuning_epochs: epochs of class-balanced finetuning after each task but the first.
      finetuning_learning_rate_factor: factor on the optimizer's learning rate in the finetuning.
      finetuning_batch_size: exemplars per finetuning step.

    Raises:
      ValueError: `classifier` or `form` is unknown.
    """

    def distilled(inputs: LossInputs) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Return the batch's loss L and its first term."""
        outputs, batch = inputs.outputs, inputs.batch
        scores = local_similarities(outputs.features, head_kernel(inputs.params), form)
        scale = inputs.params["head"]["scale"]

        def sample_loss(scores: Float[Array, "c"], label: Int[Array, ""]) -> Float[Array, ""]:
            if form == "code":
                return nca_as_coded(scores, label, inputs.seen, scale)
            return nca(scores, label, inputs.seen, scale, margin)

        task_loss = weighted_mean(jax.vmap(sample_loss)(scores, batch.labels[:, 0]), batch.weight)
        old = evaluation_outputs(setup, inputs.teacher, batch.inputs)
        moved = jax.vmap(cosine_distance)(outputs.features, old.features)
        distances = [
            jax.vmap(pooled_distance)(maps, before)
            for maps, before in zip(hidden_maps(outputs), hidden_maps(old), strict=True)
        ]
        pooled = sum(distances) / max(1, len(distances))
        distillation = weighted_mean(spatial_weight * pooled + flat_weight * moved, batch.weight)
        weight = jnp.sqrt(jnp.sum(inputs.seen) / jnp.maximum(jnp.sum(inputs.new), 1))
        return task_loss + jnp.where(
            jnp.any(inputs.teacher.known), weight * distillation, 0
        ), task_loss

    def imprint_kernel(
        kernel: Float[Array, "f p c"],
        features: Float[Array, "n f"],
        task: Task,
        known: Bool[Array, "c"],
        key: PRNGKeyArray,
    ) -> Float[Array, "f p c"]:
        return imprint_proxies(kernel, features, task.train, task.classes, known, key)

    def predict(
        memory: Rehearsal, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        outputs = evaluation_outputs(setup, learner, inputs)
        scores = local_similarities(outputs.features, head_kernel(learner.params), form)
        logits = learner.params["head"]["scale"] * scores
        return setup.objective.scores(outputs._replace(logits=logits))

    by_head = rehearsal(setup, exemplars_per_class, labels, buffer_size)._replace(predict=predict)
    finetuning = Finetuning(
        finetuning_epochs,
        finetuning_batch_size,
        rate=lambda epoch: jnp.float32(finetuning_learning_rate_factor),
    )
    strategy = imprinted_rehearsal(setup, by_head, distilled, imprint_kernel, finetuning)
    return strategy if classifier == "head" else nearest_mean_strategy(setup, strategy)


def nca(
    scores: Float[Array, "c"],
    label: Int[Array, ""],
    seen: Bool[Array, "c"],
    scale: Float[Array, ""],
    margin: float,
) -> Float[Array, ""]:
    """Return a sample's NCA loss with margin; 0 if no other class is seen.

    Args:
      scores: similarities ŷ with all classes.
      label: class of the sample.
      seen: classes seen so far.
      scale: scale η.
      margin: margin δ.
    """
    others = seen & (jnp.arange(seen.shape[0]) != label)
    some = jnp.any(others)
    # A sum over nothing would have no finite gradient.
    total = jax.scipy.special.logsumexp(scale * scores, where=others | ~some)
    return jnp.where(some, jax.nn.relu(total - scale * (scores[label] - margin)), 0)


def nca_as_coded(
    scores: Float[Array, "c"],
    label: Int[Array, ""],
    seen: Bool[Array, "c"],
    scale: Float[Array, ""],
) -> Float[Array, ""]:
    """Return a sample's NCA loss as the authors' code has it; arguments as of `nca`."""
    logits = scale * scores
    greatest = jnp.max(logits, where=seen, initial=-jnp.inf)
    true = jnp.arange(seen.shape[0]) == label
    return (
        jax.scipy.special.logsumexp(jnp.where(true, greatest, logits), where=seen) - logits[label]
    )


def hidden_maps(outputs: Outputs) -> list[Float[Array, "b h w c"]]:
    """Return those hidden activations of a network that are maps."""
    return [leaf for leaf in (outputs.hidden or {}).values() if leaf.ndim == 4]


def cosine_distance(features: Float[Array, "f"], old: Float[Array, "f"]) -> Float[Array, ""]:
    """Return a sample's POD-flat: one minus the cosine of its features and the old ones."""
    return 1 - jnp.sum(unit_vectors(features, -1) * unit_vectors(old, -1))


def pooled_distance(maps: Float[Array, "h w c"], old: Float[Array, "h w c"]) -> Float[Array, ""]:
    """Return a sample's POD-spatial of one layer: the Euclidean distance of its pooled maps.

    The gradient is 0 where pooled maps are equal.
    """
    squares = jnp.sum((pooled(maps) - pooled(old)) ** 2)
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)


def pooled(maps: Float[Array, "h w c"]) -> Float[Array, "n"]:
    """Return the sums of squares over each row and each column, together of length 1."""
    squares = maps**2
    sums = [jnp.sum(squares, axis=axis).reshape(-1) for axis in (1, 0)]
    return unit_vectors(jnp.concatenate(sums), -1)


def imprint_proxies(
    kernel: Float[Array, "f p c"],
    features: Float[Array, "n f"],
    samples: Samples,
    new: Bool[Array, "c"],
    known: Bool[Array, "c"],
    key: PRNGKeyArray,
) -> Float[Array, "f p c"]:
    """Return the head's proxies after imprinting new classes; unchanged if no class is known.

    Args:
      kernel: the head's proxies.
      features: features of the samples.
      samples: samples of the task.
      new: classes to imprint; those without a sample stay unchanged.
      known: classes whose mean length of proxies the centres are multiplied by.
      key: random key of the clusters.
    """
    proxies, classes = kernel.shape[1:]
    member = (multi_hot(samples.labels[:, :1], classes) & samples.mask[:, None]).T
    rows = jnp.where(samples.mask[:, None], unit_vectors(features, -1), 0)
    lengths = jnp.linalg.norm(kernel, axis=0)
    length = jnp.sum(lengths, where=known) / jnp.maximum(jnp.sum(known) * proxies, 1)
    imprint_kernel = new & jnp.any(member, axis=1) & jnp.any(known)

    def proxies_of(class_row: tuple) -> Float[Array, "p f"]:
        is_member, needed, number, before = class_row

        def centers() -> Float[Array, "p f"]:
            return length * k_means(rows, is_member, proxies, jax.random.fold_in(key, number))

        return where_under_vmap(needed, centers, before)

    # One class after another: distances of all would be as many times the memory.
    class_rows = member, imprint_kernel, jnp.arange(classes), kernel.transpose(2, 1, 0)
    return jax.lax.map(proxies_of, class_rows).transpose(2, 1, 0)


METHODS = (
    Method(
        "PODNet",
        podnet,
        Publication("Douillard et al.", 2020, "ECCV", ("samples", "old net")),
        "pooled outputs distillation (PODNet)",
        tunes="flat_weight",
        hyperparameters=(0.3, 1, 3, 10),
        published=1,
        head="local similarity",
        requirements=(*SINGLE_LABEL_SCORES, "disjoint classes", "named head", "head kinds"),
        select="last",
        authors={
            "spatial_weight": 3,
            "flat_weight": 1,
            "margin": 0.6,
            "form": "code",
            "finetuning_epochs": 20,
            "finetuning_learning_rate_factor": 0.5,
            "exemplars_per_class": 20,
            "batch size": 128,
            "epochs per task": 160,
        },
    ),
)
