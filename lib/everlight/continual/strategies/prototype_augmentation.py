"""Prototype augmentation and self-supervision (PASS; Zhu et al. 2021, CVPR).

No sample of earlier tasks is stored. A turn of an image by k times 90 degrees is a class of its
own, (y, k), so that the head has four outputs per class in training. With B images in a step

    L(θ) = mean over images and turns of CE((y, k), π(z / τ))
           + λ_d ‖φ(x) − φ_old(x)‖ + λ_p · mean over B draws of CE((c, 0), π(z(μ_c + r ε) / τ))
    r² = mean over the first task's classes of tr(Σ_c) / f,   ε ~ N(0, I)

π is the softmax over all turns of the seen classes. The norm is over all features φ of the step's
4 B inputs, and φ_old is the network before the task, in evaluation mode. A prototype μ_c is the
mean of the f features of class c after its task. The classes c are drawn from the earlier ones. The
first task has the first term alone. The outputs of k = 0, the network's own head, predict.

The authors have τ = 0.1 and λ_d = λ_p = 10 with Adam on CIFAR-100 and Tiny-ImageNet. The norm is no
mean, so that its gradient has the same length in every step: with large learning rates the features
oscillate about the old ones. Turns need square images. Other inputs are their only form, and the
method is then prototype augmentation without self-supervision.

Equal to the official code (Impression2805/CVPR21_PASS, `PASS.py`) at the gradient of a step, given
the draws, and at the prototypes and the radius r of given features. Its functions, run on the same
tensors in float32, differ by 8e-7 at most, relative to the largest value. Differs in:

- Prototypes and radius are those of all samples as they are. In the official code they are those of
  augmented samples, and the last batch is left out where it is smaller.
- The step's inputs pass once through the network. In the official code they pass twice, which
  changes batch statistics twice.
- The head has all outputs from the start, on which weight decay acts. In the official code a task
  adds its own.
- A class with one sample has no part in r. In the official code r is then NaN.
- Outputs of the turns start with variance 1/f and bias 0, in the official code with 1/(3f) and a
  random bias. Their optimizer restarts in every task, whatever the protocol says.
- Weight decay (2e-4) and the decay of the learning rate are the setup's.

Its file for ImageNet-Subset has no temperature, the mean standard deviation as r, SGD, and
prototypes of about 200 batches.

PyCIL's `pa2s.py` draws B times ⌊old classes / new classes⌋ prototypes, and r is a mean over the
classes of all tasks.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Batch, Coefficient, Learner, Outputs, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveFloat, checked
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.methods.method import SINGLE_LABEL_SCORES, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.added_parameters import (
    AddedParameters,
    new_parameters,
    updated_parameters,
)
from everlight.continual.strategies.parts.class_statistics import (
    ClassMeans,
    add_first_labels,
    no_means,
)
from everlight.continual.strategies.parts.distillation import label_softmax
from everlight.continual.strategies.parts.frozen import feature_width
from everlight.continual.strategies.parts.linear_head import linear_head, linear_logits
from everlight.continual.strategies.parts.passes import evaluation_outputs, weighted_mean
from everlight.continual.strategies.parts.teacher import Teacher, freeze_teacher, no_teacher
from everlight.precision import matrix_product


class Prototypes(NamedTuple):
    """Memory of PASS."""

    means: ClassMeans
    """Mean of each class's features after its task."""
    radius: Float[Array, ""]
    """Standard deviation r of the first task's features about their class means."""
    teacher: Teacher
    """Network before the task."""
    turned_head: AddedParameters
    """Outputs of all forms but the first: kernel `[f, r - 1, c]` and bias `[r - 1, c]`."""


def quarter_turns(inputs: Float[Array, "*shape"]) -> Float[Array, "r *shape"]:
    """Return a square image turned by 0 to 3 times 90 degrees; others are their only form."""
    if inputs.ndim != 3 or inputs.shape[0] != inputs.shape[1]:
        return inputs[None]
    return jnp.stack([jnp.rot90(inputs, turns) for turns in range(4)])


@checked
def prototype_augmentation(
    setup: Setup,
    prototype_weight: Coefficient = 10.0,
    distillation_weight: Coefficient = 10.0,
    temperature: PositiveFloat = 0.1,
    forms: Callable[[Float[Array, "*shape"]], Float[Array, "r *shape"]] = quarter_turns,
) -> Strategy:
    """Return prototype augmentation and self-supervision (PASS), whose memory is `Prototypes`.

    The first label of a sample is its class. The linear head is `params["head"]`.

    Args:
      setup: network, objective, optimizer and data access; PASS's loss replaces the objective's.
      prototype_weight: coefficient λ_p of the prototypes' loss.
      distillation_weight: coefficient λ_d of the distance to the old features.
      temperature: temperature τ of the softmax.
      forms: function from an input to its forms, the input itself first.

    Raises:
      ValueError: at `init`, no layer is named head, or it is not linear.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> Prototypes:
        linear_head(learner.params, "PASS")
        (width, dtype), classes = feature_width(setup, learner), learner.seen.shape[0]
        inputs = jax.eval_shape(lambda: forms(setup.gather(jnp.zeros(1, int), None)[0]))
        added = inputs.shape[0] - 1
        kernel = jax.random.normal(key, (width, added, classes)) / jnp.sqrt(width)
        head = {"kernel": kernel, "bias": jnp.zeros((added, classes))}
        return Prototypes(
            no_means(classes, width, dtype),
            jnp.zeros((), dtype),
            no_teacher(learner),
            new_parameters(setup, head),
        )

    def begin_task(
        memory: Prototypes, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Prototypes, Learner]:
        head = new_parameters(setup, memory.turned_head.params)
        return memory._replace(teacher=freeze_teacher(learner, task), turned_head=head), learner

    def grads(
        memory: Prototypes, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        key_pass, key_draws = jax.random.split(key)
        turned = jax.vmap(forms)(batch.inputs)
        size, count = turned.shape[:2]
        inputs = turned.reshape(-1, *turned.shape[2:])
        label, form = jnp.repeat(batch.labels[:, 0], count), jnp.tile(jnp.arange(count), size)
        weight = jnp.repeat(batch.weight, count)
        known = memory.teacher.known
        old = evaluation_outputs(setup, memory.teacher, inputs).features
        drawn, noise = draw_prototypes(known, size, old.shape[1], key_draws)
        augmented = memory.means.mean[drawn] + memory.radius * noise

        def cross_entropies(
            logits: Float[Array, "n r c"], label: Int[Array, "n"], form: Int[Array, "n"]
        ) -> Float[Array, "n"]:
            rows = logits.reshape(logits.shape[0], -1) / temperature
            target = form * learner.seen.shape[0] + label
            return label_softmax(rows, target[:, None], jnp.tile(learner.seen, count))

        def loss(params: PyTree, turned_head: PyTree) -> tuple[Float[Array, ""], tuple]:
            outputs, batch_stats = setup.apply(params, learner.batch_stats, inputs, True, key_pass)
            logits = form_logits(outputs, turned_head)
            current = weighted_mean(cross_entropies(logits, label, form), weight)
            head_logits = linear_logits(linear_head(params, "PASS"), augmented)
            logits = form_logits(Outputs(head_logits, augmented), turned_head)
            prototypes = jnp.mean(cross_entropies(logits, drawn, jnp.zeros_like(drawn)))
            distance = feature_distance(outputs.features, old, weight)
            earlier_terms = distillation_weight * distance + prototype_weight * prototypes
            total = current + jnp.where(jnp.any(known), earlier_terms, 0)
            return total, (current, batch_stats)

        differentiate = jax.grad(loss, argnums=(0, 1), has_aux=True)
        (gradient, for_turned), (current, batch_stats) = differentiate(
            learner.params, memory.turned_head.params
        )
        return gradient, StepInfo(gradient, batch_stats, current, for_turned)

    def after_step(
        memory: Prototypes, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Prototypes, Learner]:
        head = updated_parameters(setup, learner, memory.turned_head, info.aux)
        return memory._replace(turned_head=head), learner

    def end_task(
        memory: Prototypes, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Prototypes, Learner]:
        features = sample_features(setup, learner, task.train)
        label, mask = task.train.labels[:, 0], task.train.mask
        means = add_first_labels(memory.means, features, label, mask)
        first = feature_radius(means, features, label, mask)
        radius = jnp.where(task.id == 0, first, memory.radius).astype(memory.radius.dtype)
        return memory._replace(means=means, radius=radius), learner

    return naive(setup)._replace(
        init=init,
        begin_task=begin_task,
        grads=grads,
        after_step=after_step,
        end_task=end_task,
        parameter_copies=1,
    )


def form_logits(outputs: Outputs, turned_head: PyTree) -> Float[Array, "n r c"]:
    """Return the logits of all forms and classes; those of the first form are the network's."""
    kernel, bias = turned_head["kernel"], turned_head["bias"]
    flat = matrix_product(outputs.features, kernel.reshape(kernel.shape[0], -1))
    turned = flat.reshape(flat.shape[0], *bias.shape) + bias
    return jnp.concatenate([outputs.logits[:, None], turned], axis=1)


def draw_prototypes(
    known: Bool[Array, "c"], size: int, width: int, key: PRNGKeyArray
) -> tuple[Int[Array, "n"], Float[Array, "n f"]]:
    """Return random known classes, with replacement, and normal noise for each of them.

    Args:
      known: classes that are drawn from; without any, class 0 is drawn.
      size: number of draws.
      width: number of features.
      key: random key.
    """
    key_class, key_noise = jax.random.split(key)
    position = jax.random.randint(key_class, (size,), 0, jnp.maximum(jnp.sum(known), 1))
    drawn = jnp.argsort(~known, stable=True)[position]
    drawn = jnp.where(jnp.any(known), drawn, 0)
    return drawn, jax.random.normal(key_noise, (size, width))


def feature_distance(
    features: Float[Array, "n f"], old: Float[Array, "n f"], weight: Float[Array, "n"]
) -> Float[Array, ""]:
    """Return the Euclidean distance of all features together; the gradient at 0 is 0.

    Args:
      features: features of the network.
      old: features of the network before the task.
      weight: 0 for padding, which does not count.
    """
    change = jnp.where(weight[:, None] > 0, features - old, 0)
    square = jnp.sum(change**2)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def feature_radius(
    means: ClassMeans, features: Float[Array, "n f"], label: Int[Array, "n"], mask: Bool[Array, "n"]
) -> Float[Array, ""]:
    """Return the root of the classes' mean variance per feature; 0 without two samples of a class.

    Args:
      means: means of the samples' classes, made of these samples.
      features: features of the samples.
      label: class of each sample.
      mask: True for samples that count.
    """
    classes = means.count.shape[0]
    away = features - means.origin - means.offset[label]
    squares = jnp.where(mask, jnp.mean(away**2, axis=1), 0)
    count = jax.ops.segment_sum(mask.astype(int), label, classes)
    variance = jax.ops.segment_sum(squares, label, classes) / jnp.maximum(count - 1, 1)
    several = count > 1
    mean = jnp.sum(variance, where=several) / jnp.maximum(jnp.sum(several), 1)
    return jnp.sqrt(mean)


METHODS = (
    Method(
        "PASS",
        prototype_augmentation,
        Publication("Zhu et al.", 2021, "CVPR", ("old net", "statistics")),
        "prototype augmentation and self-supervision (PASS): noisy class means and turned images",
        requirements=(*SINGLE_LABEL_SCORES, "disjoint classes", "named head"),
        select="last",
        authors={
            "prototype_weight": 10,
            "distillation_weight": 10,
            "temperature": 0.1,
            "batch size": 64,
            "epochs per task": 101,
            "optimizer": "adam",
            "learning rate": 0.001,
        },
    ),
)
