"""Continual Fisher-weighted model averaging (CoFiMA; Marouf et al. 2024, ECCV).

    θ*_t = (λ F_t θ_t + (1 − λ) F*_{t−1} θ*_{t−1}) / (λ F_t + (1 − λ) F*_{t−1}),        θ*_1 = θ_1

θ_t are the parameters after task t, whose training starts from the merged ones θ*_{t−1}. F_t is
their diagonal Fisher information on task t, and F*_{t−1} that of the merged parameters on the task
before. Between tasks the merged network predicts. Memory holds one network and its information.

Training and prediction are those of SLCA (`slca`; Zhang et al. 2023, ICCV). Layers below the head
learn at 0.01 times the rate, and the loss runs over the task's own classes. After the merge, the
statistics of the new classes are those of the merged network, and the classifier is aligned. The
aligned head predicts. The next task continues from the head before alignment.

The paper gives every task outputs of its own. In everlight all tasks share one head, whose columns
have a gradient and an information only in the task of their class. A new column therefore keeps the
values of its own task, and an old one those it had.

The authors' settings have λ = 0.4 on CIFAR-100 and ImageNet-R with a supervised network, otherwise
0.5; τ = 0.1, 0.05 on Cars.

Equal to the official code (IemProg/CoFiMA, `models/cofima.py`, `interpolate_weights`) at the
weighted average of two networks with given information, for parameters that both have, at the steps
of a task, and at the order of merge, statistics and alignment; differs in:

- The information of the official code is that of the cross-entropy over all outputs so far, in
  training mode. It squares the mean gradient of each batch, and is limited to 1e-4.
- In the official code θ*_{t−1} is weighed by the information of θ_{t−1} before it was merged.
- The official code multiplies new outputs by their information, everlight keeps them.
- It averages earlier outputs with the aligned ones of the task before. These are frozen, and the
  square of their last gradient stands in for their information. Everlight keeps earlier outputs.
- A parameter without information in both networks takes the average with weights 1 − λ and λ; in
  the official code it is NaN.
- Alignment differs from that code as `slca` says.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.base import Coefficient, Fisher, Learner, Setup, Strategy, Task
from everlight.checks import (
    SMALLEST,
    Between,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PositiveShare,
    checked,
)
from everlight.continual.inner_memory import with_outer_memory
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.parts.importance import chosen_fisher, fisher_diagonal
from everlight.continual.strategies.parts.merging import merged_learner
from everlight.continual.strategies.slca import ClassGaussians, slca


class MergedNetwork(NamedTuple):
    """Memory of CoFiMA."""

    gaussians: ClassGaussians
    """Memory of SLCA, with the aligned head that predicts between tasks."""
    params: PyTree
    """Parameters θ* of the merged network, its head before alignment; during a task those of the
    task before."""
    information: PyTree
    """Diagonal Fisher information F* of the merged network on the last task."""


@checked
def cofima(
    setup: Setup,
    weight: PositiveShare | Annotated[Float[Array, ""], Between(SMALLEST, 1)] = 0.5,
    backbone_learning_rate_factor: Coefficient = 0.01,
    epochs: NonNegativeInt = 5,
    samples_per_class: PositiveInt = 256,
    temperature: PositiveFloat = 0.1,
    importance_samples: PositiveInt = 1024,
    fisher: Fisher | None = None,
) -> Strategy:
    """Return continual Fisher-weighted model averaging (CoFiMA), whose memory is `MergedNetwork`.

    The first label of a sample is its class. Tasks must have disjoint classes. The linear head is
    `params["head"]`.

    Args:
      setup: network, objective, optimizer and data access.
      weight: weight λ of the current network, more than 0 and at most 1; the merged one before it
        has 1 − λ.
      backbone_learning_rate_factor: factor on the learning rate of all layers below the head.
      epochs: epochs of alignment, after every task but the first.
      samples_per_class: samples drawn per class and epoch of alignment, and samples per step.
      temperature: temperature τ of the normalized logits.
      importance_samples: maximal number of a task's samples, evenly spaced, that estimate the
        Fisher information.
      fisher: "empirical" takes the data's labels, "true" draws them from the model, "expected"
        weighs all labels by the model's probabilities. None is the objective's default: empirical,
        except for embeddings.

    Raises:
      ValueError: the objective has no `fisher_loss` or `label_losses` for `fisher`; at `init`, no
        layer is named head, or it is not linear.
    """
    kind = chosen_fisher(setup, fisher)
    unmerged = slca(setup, backbone_learning_rate_factor, epochs, samples_per_class, temperature)

    def information(learner: Learner, task: Task, key: PRNGKeyArray) -> PyTree:
        task_learner = learner._replace(seen=task.classes)
        return fisher_diagonal(
            setup, task_learner, task.train, importance_samples, key, fisher=kind
        )

    def init(key: PRNGKeyArray, learner: Learner) -> MergedNetwork:
        nothing = jax.tree.map(jnp.zeros_like, learner.params)
        return MergedNetwork(unmerged.init(key, learner), learner.params, nothing)

    def end_task(
        memory: MergedNetwork, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[MergedNetwork, Learner]:
        key_current, key_merged, key_statistics, key_align = jax.random.split(key, 4)
        current = information(learner, task, key_current)
        params = jax.tree.map(
            lambda *leaves: weighted_average(*leaves, jnp.where(task.id == 0, 1.0, weight)),
            *(memory.params, learner.params, memory.information, current),
        )
        learner = merged_learner(setup, learner, params, task, key_statistics)
        merged = information(learner, task, key_merged)
        gaussians, learner = unmerged.end_task(memory.gaussians, learner, task, key_align)
        return MergedNetwork(gaussians, params, merged), learner

    return with_outer_memory(unmerged, "gaussians")._replace(
        init=init, end_task=end_task, parameter_copies=2
    )


def weighted_average(
    before: Float[Array, "*shape"],
    current: Float[Array, "*shape"],
    information_before: Float[Array, "*shape"],
    information: Float[Array, "*shape"],
    weight: Float[Array, ""] | float,
) -> Float[Array, "*shape"]:
    """Return the average of two networks' parameters, weighted by their information.

    Parameters without information in both networks have the weights 1 − λ and λ.

    Args:
      before: parameters of the merged network before the task.
      current: parameters after the task.
      information_before: Fisher information of the former.
      information: Fisher information of the latter.
      weight: weight λ of the current network.
    """
    new, old = weight * information, (1 - weight) * information_before
    known = new + old > 0
    share = jnp.where(known, new / jnp.where(known, new + old, 1), weight)
    # The mean is a step from one network, so that equal parameters stay as they are.
    return before + share * (current - before)


METHODS = (
    Method(
        "CoFiMA",
        cofima,
        Publication("Marouf et al.", 2024, "ECCV", ("old net", "statistics")),
        "continual Fisher-weighted model averaging (CoFiMA)",
        tunes="weight",
        hyperparameters=(0.2, 0.4, 0.6, 0.8),
        requirements=(*OTHER_WEIGHTS, "disjoint classes", "named head"),
        authors={
            "weight": 0.4,
            "backbone_learning_rate_factor": 0.01,
            "epochs": 5,
            "samples_per_class": 256,
            "temperature": 0.1,
            "importance_samples": "all",
            "batch size": 128,
            "epochs per task": 20,
            "network": "pretrained",
        },
    ),
)
