"""Continual Fisher-weighted model averaging (CoFiMA; Marouf et al. 2024, ECCV).

    θ*_t = (λ F_t θ_t + (1 − λ) F*_{t−1} θ*_{t−1}) / (λ F_t + (1 − λ) F*_{t−1}),        θ*_1 = θ_1

θ_t are the parameters after task t, whose training starts from the merged ones θ*_{t−1}. F_t is
their diagonal Fisher information on task t, and F*_{t−1} that of the merged parameters on the task
before. Between tasks the merged network predicts. Memory holds one network and its information.

The paper gives every task outputs of its own. Here all tasks share one head, whose columns have a
gradient and an information in the tasks that have samples of their class (`merging`). With disjoint
classes a new column therefore keeps the values of its own task, and an old one those it had.

The authors' settings have λ = 0.4 on CIFAR-100 and ImageNet-R with a supervised network, otherwise
0.5.

Equal to the official code (IemProg/CoFiMA, `models/cofima.py`, `interpolate_weights`) at the
weighted average of two networks with given information, for parameters that both have; differs in:

- The information there is that of the cross-entropy over all outputs so far, in training mode. It
  squares the mean gradient of each batch, and is limited to 1e-4.
- There θ*_{t−1} is weighed by the information of θ_{t−1} before it was merged.
- New outputs there are multiplied by their information, here they are kept.
- The next task begins with the merged outputs, there with those before merging. Earlier outputs
  are frozen there, and the square of their last gradient stands in for their information.
- The paper and that code also align the classifier after every task but the first, on features
  drawn from a Gaussian per class (SLCA; Zhang et al. 2023, ICCV). This is left out.
- A parameter without information in both networks takes the average with weights 1 − λ and λ;
  there it is NaN.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from everlight.base import (
    Batch,
    Coefficient,
    Fisher,
    Learner,
    Setup,
    StepInfo,
    Strategy,
    Task,
)
from everlight.checks import PositiveInt, checked
from everlight.continual.strategies.importance import chosen_fisher, fisher_diagonal
from everlight.continual.strategies.merging import merged_learner, own_classes
from everlight.continual.strategies.naive import naive, task_gradient


class Averaged(NamedTuple):
    """Memory of CoFiMA."""

    params: PyTree
    """Parameters θ* of the merged network; during a task those of the task before."""
    information: PyTree
    """Diagonal Fisher information F* of the merged network on the last task."""
    classes: Bool[Array, "c"]
    """Classes of the current task's samples; between tasks those of the last one."""


@checked
def cofima(
    setup: Setup,
    weight: Coefficient = 0.5,
    fisher_samples: PositiveInt = 1024,
    fisher: Fisher | None = None,
) -> Strategy:
    """Return continual Fisher-weighted model averaging (CoFiMA), whose memory is `Averaged`.

    Args:
      setup: network, objective, optimizer and data access.
      weight: weight λ of the current network, at most 1; the merged one before it has 1 − λ.
      fisher_samples: maximal number of a task's samples, evenly spaced, that estimate the Fisher
        information.
      fisher: "empirical" takes the data's labels, "true" draws them from the model. None is the
        objective's default: empirical, except for embeddings.

    Raises:
      ValueError: `fisher` is "true" and the objective has no `fisher_loss`.
    """
    kind = chosen_fisher(setup, fisher)

    def information(learner: Learner, memory: Averaged, task: Task, key: PRNGKeyArray) -> PyTree:
        own = learner._replace(seen=memory.classes)
        return fisher_diagonal(setup, own, task.train, fisher_samples, key, fisher=kind)

    def init(key: PRNGKeyArray, learner: Learner) -> Averaged:
        nothing = jax.tree.map(jnp.zeros_like, learner.params)
        return Averaged(learner.params, nothing, jnp.zeros_like(learner.seen))

    def begin_task(
        memory: Averaged, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Averaged, Learner]:
        return memory._replace(classes=own_classes(task, learner)), learner

    def grads(
        memory: Averaged, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        return task_gradient(setup, learner._replace(seen=memory.classes), batch, key)

    def end_task(
        memory: Averaged, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Averaged, Learner]:
        key_own, key_merged, key_statistics = jax.random.split(key, 3)
        own = information(learner, memory, task, key_own)
        params = jax.tree.map(
            lambda *leaves: weighted_average(*leaves, jnp.where(task.id == 0, 1.0, weight)),
            *(memory.params, learner.params, memory.information, own),
        )
        learner = merged_learner(setup, learner, params, task, key_statistics)
        merged = information(learner, memory, task, key_merged)
        return memory._replace(params=params, information=merged), learner

    return naive(setup)._replace(
        init=init,
        begin_task=begin_task,
        grads=grads,
        end_task=end_task,
        parameter_copies=2,
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
    own, other = weight * information, (1 - weight) * information_before
    known = own + other > 0
    share = jnp.where(known, own / jnp.where(known, own + other, 1), weight)
    # As a step from one network, so that equal parameters stay as they are.
    return before + share * (current - before)
