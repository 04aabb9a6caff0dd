"""APER: adaptation at the first task, then prototypes (Zhou et al. 2024, IJCV, arXiv 2303.07338).

    first task: minimize the setup's loss; then θ stays
    z = [f(x; θ₀), f(x; θ)],   score_k(z) = cos(z, μ_k)

θ₀ are the parameters before the first task, such as a pretrained network's, θ those after it, and
μ_k the mean of z over all samples of class k so far. The setup decides what adapts: all parameters
(APER with finetuning), those of adapters, or low-rank additions (`models.with_lora`), which are 0
at θ₀. While the first task is learned its own head predicts.

Equal to the official code (LAMDA-CL/LAMDA-PILOT, `models/aper_adapter.py`) at the gradient of a
step of the first task, the features, the prototypes and the scores, but for their scale, which
ranks no class; differs in:

- Adapters are those of the setup. In the official code they are two layers parallel to each block's
  MLP.
- The head of the first task is the network's own. In the official code it is a cosine head with a
  learned scale.
- The score of a class without samples is −∞. In the official code it is 0.
- Prototypes of a class that comes again have all of its samples. In the official code they have the
  new ones.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from everlight.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.checks import checked
from everlight.conditional import where_under_vmap
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.class_statistics import (
    ClassMeans,
    add_first_labels,
    no_means,
    prototype_scores,
)
from everlight.continual.strategies.parts.frozen import feature_width
from everlight.continual.strategies.parts.passes import evaluation_outputs


class Adaptation(NamedTuple):
    """Memory of APER."""

    start: PyTree
    """Parameters before the first task."""
    start_stats: PyTree
    """Batch statistics before the first task."""
    means: ClassMeans
    """Class means of the features of both networks."""
    adapted: Bool[Array, ""]
    """True from the end of the first task on."""


@checked
def aper(setup: Setup) -> Strategy:
    """Return APER (adaptation at the first task, then prototypes), whose memory is `Adaptation`.

    The first label of a sample is its class. Steps of later tasks train nothing.

    Args:
      setup: network, objective, optimizer and data access; the optimizer adapts to the first task.
    """
    plain = naive(setup)

    def networks(memory: Adaptation, learner: Learner) -> tuple[Learner, Learner]:
        start = learner._replace(params=memory.start, batch_stats=memory.start_stats)
        return start, learner

    def init(key: PRNGKeyArray, learner: Learner) -> Adaptation:
        width, dtype = feature_width(setup, learner)
        means = no_means(learner.seen.shape[0], 2 * width, dtype)
        return Adaptation(learner.params, learner.batch_stats, means, jnp.array(False))

    def grads(
        memory: Adaptation, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        def task_gradients() -> tuple[PyTree, PyTree, Float[Array, ""]]:
            gradient, info = plain.grads((), learner, batch, task, key)
            return gradient, info.batch_stats, info.loss

        *_, loss = jax.eval_shape(task_gradients)
        nothing = jax.tree.map(jnp.zeros_like, learner.params)
        zero_gradients = nothing, learner.batch_stats, jnp.zeros(loss.shape, loss.dtype)
        gradient, batch_stats, loss = where_under_vmap(
            ~memory.adapted, task_gradients, zero_gradients
        )
        return gradient, StepInfo(gradient, batch_stats, loss, learner.params)

    def after_step(
        memory: Adaptation, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Adaptation, Learner]:
        # Weight decay moves a parameter whose gradient is 0.
        params = jax.tree.map(
            lambda old, new: jnp.where(memory.adapted, old, new), info.aux, learner.params
        )
        return memory, learner._replace(params=params)

    def end_task(
        memory: Adaptation, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Adaptation, Learner]:
        features = [sample_features(setup, net, task.train) for net in networks(memory, learner)]
        means = add_first_labels(
            memory.means,
            jnp.concatenate(features, axis=1),
            task.train.labels[:, 0],
            task.train.mask,
        )
        return memory._replace(means=means, adapted=jnp.array(True)), learner

    def predict(
        memory: Adaptation, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        start, adapted = (
            evaluation_outputs(setup, net, inputs) for net in networks(memory, learner)
        )
        features = jnp.concatenate([start.features, adapted.features], axis=1)
        scores = prototype_scores(memory.means, features)
        return jnp.where(memory.adapted, scores, setup.objective.scores(adapted))

    return plain._replace(
        init=init,
        grads=grads,
        after_step=after_step,
        end_task=end_task,
        predict=predict,
        parameter_copies=1,
    )


METHODS = (
    Method(
        "APER",
        aper,
        Publication("Zhou et al.", 2024, "IJCV", ("old net", "statistics")),
        "APER (adaptation at the first task, then prototypes)",
        requirements=OTHER_WEIGHTS,
        advised=("pretrained layers",),
        authors={"network": "pretrained"},
    ),
)
