"""CWR, CopyWeights with Re-init (Lomonaco and Maltoni 2017, CORe50, sections 5.2 and 5.3).

Only the head learns, on top of a frozen network. Every task trains a newly drawn temporary head tw.
At its end the rows of its classes are averaged into the consolidated head cw, which predicts:

    cw[i] ← (updates[i] · cw[i] + tw[i]) / (updates[i] + 1),    updates[i] ← updates[i] + 1

The rows of unseen classes are 0. When the second task begins, the weights (not the biases)
consolidated at the first are multiplied once. The factor is 3 in the authors' code, where the first
task has twice as many classes as the others and as many steps. The text does not mention it.

That code (`inc_finetuning.py`) produced the published curves and differs from the text twice;
`form="code"` follows it. First, unseen classes keep the rows that the latest task trained for them
as wrong answers, so their scores are low. Rows of 0 win wherever all others are negative. Second,
tw is not redrawn: the first weights are views of the memory in which the first task trains. All
later tasks therefore start from the weights that the first task left; the biases are copies and
start from their initial values.

Two later forms subtract avg(tw) from the consolidated rows, the single mean of all entries of the
task's rows. It balances tasks without a gain. CWR+, `form="plus"` (Maltoni and Lomonaco 2019,
Neural Networks), starts every tw from 0. Its paper has only new classes; in everlight a class that
comes again is averaged by `updates` as above. It expands the head by the seen classes; in everlight
unseen classes have the latest temporary rows. CWR*, `form="star"` (Lomonaco, Maltoni and Pellegrini
2020, CVPR Workshops), starts the rows of the task's repeated classes from cw and the others from 0.
It weighs by samples, past[i] of earlier tasks and cur[i] of this one:

    w[i] = √(past[i] / cur[i]),    cw[i] ← (w[i] · cw[i] + tw[i] − avg(tw)) / (w[i] + 1)

Equal to the official code of CWR* (vlomonaco/ar1-pytorch) at the start, the consolidation and the
rows of unseen classes, which are the latest temporary ones as in `form="code"`; differs in the
bias, which that head lacks: in everlight it is consolidated like the weights, with its own mean.
That code counts replayed classes and samples as the task's; nothing is replayed in everlight. The
loss runs over the classes seen so far by default, there over all.
Avalanche's plugin left the first task of a class out of past[i] until May 2022 and has the same
equation since.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Learner, Setup, Strategy, Task
from everlight.checks import PositiveFloat, checked
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.objectives.multilabel import multi_hot
from everlight.continual.strategies.naive import naive
from everlight.errors import ArgumentError

Form = Literal["text", "code", "plus", "star"]


class Consolidated(NamedTuple):
    """Memory of CWR; the last axis of a head's leaves is the classes."""

    head: PyTree
    """Consolidated head cw."""
    updates: Int[Array, "c"]
    """Number of finished tasks with each class; in the form "star", of their samples."""
    start: PyTree
    """Head from which tw starts in the form "code"; empty in the others."""
    held: Int[Array, "c"]
    """Number of samples of each class in the current task; 0 between tasks."""


@checked
def cwr(setup: Setup, first_task_gain: PositiveFloat = 3.0, form: Form = "text") -> Strategy:
    """Return CopyWeights with Re-init (CWR), whose memory is `Consolidated`.

    The linear head is `params["head"]`: `kernel`, `[f, c]`, and optional `bias`, `[c]`. The layers
    below the head must not change. Either the setup's `trainable` freezes them, or the network is
    the head alone and its inputs are precomputed features. A task's classes are the labels of its
    samples. During a task, predictions are those that it would leave if it ended now.

    Args:
      setup: network, objective, optimizer and data access.
      first_task_gain: factor on the weights consolidated at the first task. If it is too large,
        their classes win all predictions. The forms "plus" and "star" do not use it.
      form: "text" is the paper's, "code" the authors', "plus" CWR+ and "star" CWR*.

    Raises:
      ValueError: `form` is unknown; or, while tracing, no layer is named head
        (`caffe_nets.LinearClassifier` has one).
    """
    plain, as_coded = naive(setup), form == "code"

    def init(key: PRNGKeyArray, learner: Learner) -> Consolidated:
        if "head" not in learner.params:
            layers = ", ".join(learner.params)
            raise ArgumentError(f"the parameters are {layers}; CWR needs a linear layer named head")
        head = learner.params["head"]
        nothing = jax.tree.map(jnp.zeros_like, head)
        seen = learner.seen
        begun = head if as_coded else {}
        none = jnp.zeros(seen.shape, jnp.int32)
        return Consolidated(nothing, none, begun, none)

    def begin_task(
        memory: Consolidated, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Consolidated, Learner]:
        carried = multi_hot(task.train.labels, learner.seen.shape[0])
        held = jnp.sum(carried & task.train.mask[:, None], axis=0).astype(jnp.int32)
        head = memory.head
        if form in ("text", "code"):
            gain = jnp.where(task.id == 1, first_task_gain, 1.0)
            head = {**head, "kernel": gain * head["kernel"]}
        learner = learner._replace(params={**learner.params, "head": start(memory, held, key)})
        return memory._replace(head=head, held=held), learner

    def start(memory: Consolidated, held: Int[Array, "c"], key: PRNGKeyArray) -> PyTree:
        if form == "text":
            return setup.init(key)[0]["head"]
        if form == "code":
            return memory.start
        again = (held > 0) & (memory.updates > 0) & (form == "star")
        return jax.tree.map(lambda leaf: jnp.where(again, leaf, 0), memory.head)

    def end_task(
        memory: Consolidated, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Consolidated, Learner]:
        trained, begun = learner.params["head"], memory.start
        if as_coded:
            left = jnp.where(task.id == 0, trained["kernel"], begun["kernel"])
            begun = {**begun, "kernel": left}
        head = consolidate(memory, trained, form)
        updates = memory.updates + (memory.held if form == "star" else memory.held > 0)
        return Consolidated(head, updates, begun, jnp.zeros_like(memory.held)), learner

    def predict(
        memory: Consolidated, learner: Learner, inputs: Float[Array, "b *shape"]
    ) -> Float[Array, "b c"]:
        head = consolidate(memory, learner.params["head"], form)
        params = {**learner.params, "head": head}
        return plain.predict((), learner._replace(params=params), inputs)

    return plain._replace(init=init, begin_task=begin_task, end_task=end_task, predict=predict)


def consolidate(memory: Consolidated, temporary: PyTree, form: Form = "text") -> PyTree:
    """Return the consolidated head after averaging in the temporary rows of the task's classes.

    In all forms but "text" the rows of unseen classes are the temporary ones too.
    """
    held = memory.held > 0

    def average(old: Float[Array, "*f c"], new: Float[Array, "*f c"]) -> Float[Array, "*f c"]:
        weight = memory.updates.astype(old.dtype)
        if form == "star":
            weight = jnp.sqrt(weight / jnp.maximum(memory.held, 1).astype(old.dtype))
        row = new - _mean_of_classes(new, held) if form in ("plus", "star") else new
        mean = (weight * old + row) / (weight + 1)
        other = old if form == "text" else jnp.where(memory.updates > 0, old, new)
        return jnp.where(held, mean, other)

    return jax.tree.map(average, memory.head, temporary)


def _mean_of_classes(leaf: Float[Array, "*f c"], held: Bool[Array, "c"]) -> Float[Array, ""]:
    """Return the single mean of all entries of the held classes; 0 if there are none."""
    entries = jnp.broadcast_to(held, leaf.shape)
    return jnp.sum(leaf, where=entries) / jnp.maximum(jnp.sum(entries), 1).astype(leaf.dtype)


_CWR = Method(
    "CWR",
    cwr,
    Publication("Lomonaco and Maltoni", 2017, "CoRL", ("old net",)),
    "CopyWeights with Re-init: one consolidated head over a frozen network",
    fixed={"first_task_gain": 1.0},
    trains="head",
    requirements=OTHER_WEIGHTS,
    authors={"first_task_gain": 3, "features": "a pretrained network's"},
)
METHODS = (
    _CWR,
    _CWR._replace(
        name="CWR as coded",
        fixed={"first_task_gain": 1.0, "form": "code"},
        summary="CWR as the code of its authors differs from their text",
        benchmarks=("core50-ni", "core50-nc", "core50-nic"),
    ),
    _CWR._replace(
        name="CWR+",
        fixed={"form": "plus"},
        publication=Publication("Maltoni and Lomonaco", 2019, "Neural Networks", ("old net",)),
        summary="CWR with a zero start and a mean shift (Maltoni and Lomonaco 2019)",
        authors={"features": "a pretrained network's"},
    ),
    _CWR._replace(
        name="CWR*",
        fixed={"form": "star"},
        publication=Publication("Lomonaco et al.", 2020, "CVPRW", ("old net",)),
        summary="CWR+ weighted by numbers of samples (Lomonaco et al. 2020)",
        authors={"features": "a pretrained network's"},
    ),
)
