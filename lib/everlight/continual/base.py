"""The types of continual learning: what a learner, a task and a strategy are.

A strategy is a tuple of pure functions over pytrees, built by a factory from a `Setup` and its
hyperparameters. The engine (`steps.py`, `sequence.py`) owns the training step, validation, the
learning-rate schedule and the best epoch; a strategy owns only what makes it different, its
`memory`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

Memory = Any
"""A strategy's own state between steps: importances, replay buffer, old parameters."""


Strength = float | Float[Array, ""]
"""Of a penalty; as an array it can be vmapped, and another one compiles nothing new."""


class Samples(NamedTuple):
    """Samples of a data set that lies on the device once; slots with mask 0 are padding.

    Labels are classes, as many per sample as it has, padded with -1.
    """

    index: Int[Array, "n"]
    labels: Int[Array, "n k"]
    mask: Bool[Array, "n"]


class Task(NamedTuple):
    """One task of a sequence; in a sequence every array has a leading axis over tasks."""

    train: Samples
    valid: Samples
    classes: Bool[Array, "c"]
    """The classes that it introduces."""
    id: Int[Array, ""]
    """Its place in the sequence, from 0."""
    past: Samples | None = None
    """Training samples of all tasks so far, this one included; only where `uses_past`."""


class TaskSequence(NamedTuple):
    """Tasks with a leading axis, and the union of their test sets."""

    tasks: Task
    test: Samples
    test_member: Bool[Array, "t m"]
    """Whether a test sample belongs to a task's test set; with many labels, to several."""
    class_task: Int[Array, "c"]
    """The task that introduces each class."""


class Batch(NamedTuple):
    """What a step learns from; `weight` is 0 for the filling of a last, partial batch."""

    index: Int[Array, "b"]
    labels: Int[Array, "b k"]
    weight: Float[Array, "b"]
    from_memory: Bool[Array, "b"]


class Epoch(NamedTuple):
    """The samples of one epoch, in any order; the engine shuffles and cuts them into batches."""

    samples: Samples
    from_memory: Bool[Array, "n"]


class Outputs(NamedTuple):
    """What a network gives for a batch."""

    logits: Float[Array, "b c"]
    features: Float[Array, "b f"]


class Best(NamedTuple):
    """The best epoch of the present task by its validation score."""

    score: Float[Array, ""]
    params: PyTree
    batch_stats: PyTree


class Plateau(NamedTuple):
    """State of the reduce-on-plateau schedule; `factor` scales the optimizer's rate."""

    factor: Float[Array, ""]
    best: Float[Array, ""]
    stale_epochs: Int[Array, ""]


class Learner(NamedTuple):
    """The trained thing."""

    params: PyTree
    batch_stats: PyTree
    opt_state: optax.OptState
    step: Int[Array, ""]
    """Optimizer steps since the beginning of the sequence."""
    seen: Bool[Array, "c"]
    """Classes introduced so far."""
    schedule: Plateau
    best: Best


def seen_logits(outputs: Outputs, seen: Bool[Array, "c"]) -> Float[Array, "b c"]:
    """The logits, 0 for classes that are not seen."""
    return jnp.where(seen, outputs.logits, 0)


class Objective(NamedTuple):
    """What outputs mean.

    Scores are of classes, `[.., c]`; where outputs are embeddings, they are of any width.
    """

    loss: Callable[[Outputs, Int[Array, "b k"], Bool[Array, "c"]], Float[Array, "b"]]
    """From outputs, labels and the seen classes to each sample's loss."""
    scores: Callable[[Outputs], Float[Array, "b c"]]
    """Scores of all classes, seen or not; who evaluates masks them."""
    goodness: Callable[
        [Float[Array, "b c"], Int[Array, "b k"], Bool[Array, "c"]], Float[Array, "b"]
    ]
    """From scores, labels and the seen classes to what validation averages, more being better."""
    evaluate: Callable[[TaskSequence, Float[Array, "m c"], Bool[Array, "c"]], PyTree]
    """From the scores of the whole test union after a task, and the classes seen by then, to what
    is kept of them."""
    function: Callable[[Outputs, Bool[Array, "c"]], Float[Array, "b w"]] = seen_logits
    """From outputs and the seen classes to the F(x) that MAS keeps from changing."""


class Setup(NamedTuple):
    """What is static in a run: functions only.

    `apply(params, batch_stats, inputs, train, key)` gives outputs and new batch statistics.
    `gather(index, key)` gives the network's inputs of stored samples, augmented where there is a
    key. `trainable(params)` is a tree of booleans: where false, updates are dropped after the
    optimizer, since momentum and weight decay would move a parameter whose gradient is zero.
    `task_rate(number)` is the factor on the optimizer's rate with which a task begins, 1 where it
    is None.
    """

    init: Callable[[PRNGKeyArray], tuple[PyTree, PyTree]]
    apply: Callable[..., tuple[Outputs, PyTree]]
    objective: Objective
    optimizer: optax.GradientTransformation
    gather: Callable[[Int[Array, "b"], PRNGKeyArray | None], Float[Array, "b *shape"]]
    trainable: Callable[[PyTree], PyTree] | None = None
    task_rate: Callable[[Int[Array, ""]], Float[Array, ""]] | None = None


class StepInfo(NamedTuple):
    """What a step found out. `update` is the change of the parameters, filled in by the engine."""

    task_gradient: PyTree
    batch_stats: PyTree
    loss: Float[Array, ""]
    update: PyTree = None


class Strategy(NamedTuple):
    """The functions that make a strategy, in the order in which a task calls them.

    At `begin_task` the task's classes are seen already, and the optimizer begins anew after it. At
    `end_task` the parameters are those of the epoch that the protocol keeps. What a strategy stores
    is for it to declare, in the last two fields.
    """

    init: Callable[[PRNGKeyArray, Learner], Memory]
    begin_task: Callable[[Memory, Learner, Task, PRNGKeyArray], tuple[Memory, Learner]]
    epoch_data: Callable[[Memory, Task], Epoch]
    grads: Callable[[Memory, Learner, Batch, Task, PRNGKeyArray], tuple[PyTree, StepInfo]]
    after_step: Callable[[Memory, Learner, StepInfo, PRNGKeyArray], tuple[Memory, Learner]]
    end_task: Callable[[Memory, Learner, Task, PRNGKeyArray], tuple[Memory, Learner]]
    predict: Callable[[Memory, Learner, Float[Array, "b *shape"]], Float[Array, "b c"]]
    """Never receives the task; task-aware scoring masks the scores afterwards."""
    uses_past: bool = False
    stored_samples: Callable[[Memory, Task], Int[Array, ""]] | None = None
    """Samples held from earlier tasks while the task is learnt; None is none."""
    parameter_copies: int = 0
    """Parameter-shaped arrays held from the second task on (the paper's rule of model size)."""
