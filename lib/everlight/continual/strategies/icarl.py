"""iCaRL (Rebuffi et al. 2017, CVPR), also for many labels per sample (Abdelsalam et al. 2021).

    L(θ) = mean over seen classes c of BCE(t_c, σ(z_c)),   t_c = σ(z_old,c) for classes known before

Targets of known classes, for new and replayed samples alike, are the outputs of the network before
the task, in evaluation mode. Exemplars are herded and join every epoch. With softmax the loss is

    L(θ) = CE(y, softmax(z)) + T² KL(softmax(z_old / T) ‖ softmax(z / T)),   T = 2.

The first term is over the seen classes, the second over those known before. Castro et al. 2018
(ECCV) have a second term without T² for each earlier task, and finetune on balanced samples
afterwards. The paper predicts the class with the nearest mean of exemplars,

    argmin over c of ‖f̂ − μ_c‖,   μ_c = the mean of f̂ over c's exemplars, again of length 1,

f̂ being features of length 1. IIRC's iCaRL-CNN predicts by σ(z) > ½ with a linear head. Its
iCaRL-norm has a cosine head whose scale starts at 1 at every task.

The paper's memory is a fixed total of K exemplars that the seen classes share: 2,000 on CIFAR-100
and on ImageNet's first 100 classes, 20,000 on ImageNet (`buffer_size`). IIRC keeps 20 per class
(`exemplars_per_class`).

Equal to the official code (srebuffi/iCaRL, Theano) at the binary targets, the criterion of herding,
the reduction to each class's first m exemplars and the nearest mean; differs in:

- m is K / classes rounded down. In the official code it is rounded up, which may exceed K.
- The loss averages over the seen classes, in the official code over all.
- Herding excludes chosen samples. In the official code it may pick one again, which adds none.
- Means leave out mirrored images.
- No class without exemplars is predicted. In the official code its mean is 0, which is nearer than
  a mean at more than 60 degrees.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.objectives.multilabel import binary_cross_entropy, multi_hot
from everlight.continual.strategies.parts.distillation import Loss, distillation, taught_gradient
from everlight.continual.strategies.parts.passes import (
    batch_loss,
    evaluation_outputs,
    weighted_mean,
)
from everlight.continual.strategies.parts.rehearsal import (
    Classifier,
    Rehearsal,
    nearest_mean_strategy,
    rehearsal,
)
from everlight.continual.strategies.parts.teacher import freeze_teacher

TEMPERATURE = 2.0
"""Temperature T of the distillation."""


@checked
def icarl(
    setup: Setup,
    exemplars_per_class: PositiveInt = 20,
    labels: PositiveInt = 1,
    restart: Callable[[PyTree], PyTree] = lambda params: params,
    loss: Loss = "binary",
    classifier: Classifier = "head",
    buffer_size: PositiveInt | None = None,
) -> Strategy:
    """Return incremental classifier and representation learning (iCaRL).

    Its memory is `Rehearsal`. The paper's form has the binary loss, the nearest mean, and an
    objective of one label per sample, whose metric takes the greatest score. During a task its
    classes have no exemplars, so validation scores the head; afterwards the means predict.

    Args:
      setup: network, objective, optimizer and data access. The binary loss replaces the
        objective's; the softmax loss is the objective's plus distillation.
      exemplars_per_class: exemplars per class, used without `buffer_size`.
      labels: labels per sample in the sequence.
      restart: function applied to the parameters at the start of a task.
      loss: "binary"; or "softmax", for a softmax objective.
      classifier: "head", or "nearest mean" for one label per sample.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.

    Raises:
      ValueError: `loss` or `classifier` is unknown.
    """

    def begin_task(
        memory: Rehearsal, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Rehearsal, Learner]:
        memory = memory._replace(teacher=freeze_teacher(learner, task))
        return memory, learner._replace(params=restart(learner.params))

    def binary_gradient(
        memory: Rehearsal, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        def losses(logits: Float[Array, "b c"], old: Float[Array, "b c"]) -> Float[Array, "b"]:
            hard = multi_hot(batch.labels, learner.seen.shape[0])
            targets = jnp.where(memory.teacher.known, jax.nn.sigmoid(old), hard)
            return binary_cross_entropy(logits, targets, learner.seen)

        return taught_gradient(setup, memory.teacher, learner, batch, losses, key)

    def softmax_gradient(
        memory: Rehearsal, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        def total(params: PyTree) -> tuple[Float[Array, ""], PyTree]:
            task_loss, (outputs, batch_stats) = batch_loss(setup, params, learner, batch, key)
            old = evaluation_outputs(setup, memory.teacher, batch.inputs)
            distilled = jax.vmap(distillation, (0, 0, None, None))(
                outputs.logits, old.logits, memory.teacher.known, TEMPERATURE
            )
            return task_loss + weighted_mean(distilled, batch.weight), batch_stats

        (value, batch_stats), gradient = jax.value_and_grad(total, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, batch_stats, value)

    exemplars = rehearsal(setup, exemplars_per_class, labels, buffer_size)
    grads = softmax_gradient if loss == "softmax" else binary_gradient
    head_strategy = exemplars._replace(begin_task=begin_task, grads=grads)
    return head_strategy if classifier == "head" else nearest_mean_strategy(setup, head_strategy)


def _restart_scale(params: PyTree) -> PyTree:
    """Return the parameters with the cosine head's scale at 1 again."""
    return {**params, "head": {**params["head"], "scale": jnp.ones_like(params["head"]["scale"])}}


_IIRC = Publication("Abdelsalam et al.", 2021, "CVPR", ("samples", "old net"))
METHODS = (
    Method(
        "iCaRL",
        icarl,
        Publication("Rebuffi et al.", 2017, "CVPR", ("samples", "old net")),
        "incremental classifier and representation learning (iCaRL)",
        fixed={"classifier": "nearest mean"},
        requirements=("class scores", "one label", "disjoint classes"),
        select="last",
        nearest_mean=True,
        authors={"batch size": 128, "epochs per task": 70},
    ),
    Method(
        "iCaRL-CNN",
        icarl,
        _IIRC,
        "iCaRL predicting by its output layer, for several labels (IIRC)",
        requirements=("multi-label",),
        select="last",
        benchmarks=("iirc",),
    ),
    Method(
        "iCaRL-norm",
        icarl,
        _IIRC,
        "iCaRL with a cosine head, for several labels (IIRC)",
        fixed={"restart": _restart_scale},
        head="cosine",
        requirements=("multi-label", "head kinds"),
        select="last",
        benchmarks=("iirc",),
    ),
)
