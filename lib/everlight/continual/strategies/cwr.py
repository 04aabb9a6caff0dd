"""CWR, CopyWeights with Re-init (Lomonaco and Maltoni 2017, CORe50, sections 5.2 and 5.3).

Only the head learns, over a frozen network. Every task trains a temporary head tw that is drawn
anew; at its end the rows of its classes are averaged into the consolidated head cw, with which the
strategy predicts:

    cw[i] ← (updates[i] · cw[i] + tw[i]) / (updates[i] + 1),    updates[i] ← updates[i] + 1

The rows of classes not met yet are 0. When the second task begins, the weights (not the biases)
consolidated at the first are multiplied once: by 3 in the authors' code, where the first task has
twice as many classes as the others and as many steps; the text does not say so.

That code (`inc_finetuning.py`), which made the published curves, differs from the text twice, and
`form="code"` does as it does. Classes not met yet are predicted with the rows that the latest task
trained for them, as wrong answers, which keep them down; rows of 0 win wherever all others are
negative. And tw is not drawn anew: the first weights are kept as views of the memory in which the
first task then trains, so that all later tasks begin from the weights of all classes that the first
one left; the biases are copies, and begin where they began.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import Positive, checked
from everlight.continual.base import Learner, Setup, Strategy, Task
from everlight.continual.objectives.many_labels import multi_hot
from everlight.continual.strategies.naive import naive


class Consolidated(NamedTuple):
    """CWR's memory; heads are the tree `params["head"]`, its leaves' last axis the classes."""

    head: PyTree
    """cw."""
    updates: Int[Array, "c"]
    """Tasks that held the class, those ended."""
    start: PyTree
    """What tw begins from in the code's form; nothing in the text's."""
    held: Bool[Array, "c"]
    """The classes of the task that is being learnt; none between tasks."""


@checked
def cwr(
    setup: Setup, first_task_gain: Positive = 3.0, form: Literal["text", "code"] = "text"
) -> Strategy:
    """CWR, for a linear head `params["head"]` of `kernel`, `[f, c]`, and perhaps `bias`, `[c]`.

    What lies below the head must not change: the setup's `trainable` freezes it, or the network is
    the head alone and the inputs are features computed once. A task's classes are those that its
    samples carry. While a task is learnt, predictions are those it would leave if it ended now.

    Args:
      setup: what is static.
      first_task_gain: of the weights consolidated at the first task; above what balances them
        with the later ones, their classes take all predictions.
      form: "text", the paper's, or "code", the authors'.

    Raises:
      ValueError: a form that is neither; while tracing, no layer is named head;
        `caffe_nets.LinearClassifier` has one.
    """
    as_coded = form == "code"

    def init(key: PRNGKeyArray, learner: Learner) -> Consolidated:
        if "head" not in learner.params:
            layers = ", ".join(learner.params)
            raise ValueError(f"the parameters are {layers}; CWR needs a linear layer named head")
        head = learner.params["head"]
        nothing = jax.tree.map(jnp.zeros_like, head)
        seen = learner.seen
        start = head if as_coded else {}
        return Consolidated(nothing, jnp.zeros(seen.shape, int), start, jnp.zeros_like(seen))

    def begin_task(
        memory: Consolidated, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Consolidated, Learner]:
        carried = multi_hot(task.train.labels, learner.seen.shape[0])
        held = jnp.any(carried & task.train.mask[:, None], axis=0)
        gain = jnp.where(task.id == 1, first_task_gain, 1.0)
        head = {**memory.head, "kernel": gain * memory.head["kernel"]}
        start = memory.start if as_coded else setup.init(key)[0]["head"]
        learner = learner._replace(params={**learner.params, "head": start})
        return memory._replace(head=head, held=held), learner

    def end_task(
        memory: Consolidated, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Consolidated, Learner]:
        trained, updates = learner.params["head"], memory.updates + memory.held
        start = memory.start
        if as_coded:
            left = jnp.where(task.id == 0, trained["kernel"], start["kernel"])
            start = {**start, "kernel": left}
        head = consolidate(memory, trained, form)
        return Consolidated(head, updates, start, jnp.zeros_like(memory.held)), learner

    def predict(
        memory: Consolidated, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        head = consolidate(memory, learner.params["head"], form)
        params = {**learner.params, "head": head}
        outputs, _ = setup.apply(params, learner.batch_stats, inputs, False, None)
        return setup.objective.scores(outputs)

    return naive(setup)._replace(
        init=init, begin_task=begin_task, end_task=end_task, predict=predict
    )


def consolidate(memory: Consolidated, temporary: PyTree, form: str = "text") -> PyTree:
    """The consolidated head with the held classes' temporary rows averaged in (section 5.3).

    In the code's form the rows of classes not met before are the temporary ones too.
    """

    def average(kept: Float[Array, "*f c"], new: Float[Array, "*f c"]) -> Float[Array, "*f c"]:
        mean = (memory.updates * kept + new) / (memory.updates + 1)
        other = jnp.where(memory.updates > 0, kept, new) if form == "code" else kept
        return jnp.where(memory.held, mean, other)

    return jax.tree.map(average, memory.head, temporary)
