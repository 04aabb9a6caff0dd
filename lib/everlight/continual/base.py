"""The types of continual learning: what a learner, a task and a strategy are.

A strategy is a tuple of pure functions over pytrees, built by a factory from a `Setup` and its
hyperparameters. The engine (`engine/`) owns the training step, what a step reads, validation, the
learning-rate schedule and the best epoch; a strategy owns only what makes it different, its
`memory`.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import Between, NonNegativeFloat

Memory = Any
"""A strategy's own state between steps: importances, replay buffer, old parameters."""


Coefficient = NonNegativeFloat | Annotated[Float[Array, ""], Between(0)]
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
    past_valid: Samples | None = None
    """Validation samples of all tasks so far; only where `uses_past`."""


class TaskSequence(NamedTuple):
    """Tasks with a leading axis, and the union of their test sets."""

    tasks: Task
    test: Samples
    test_member: Bool[Array, "tests m"]
    """Whether a test sample belongs to a test set, of which every task has one; in a stream that
    is cut into pieces there are fewer. With many labels it belongs to several."""
    class_task: Int[Array, "c"]
    """The test set of each class: that of the task that introduces it."""
    test_classes: Bool[Array, "tests c"] | None = None
    """The classes among which the samples of each test set are scored where the task is known: in
    domain-incremental sequences the same for all. None where no one asks, as with many labels."""


class Batch(NamedTuple):
    """What a step learns from; `weight` is 0 for the filling of a last, partial batch.

    The engine fills in the last two: a strategy that draws a batch leaves them out.
    """

    index: Int[Array, "*n b"]
    labels: Int[Array, "*n b k"]
    weight: Float[Array, "*n b"]
    from_memory: Bool[Array, "*n b"]
    inputs: Float[Array, "..."] | None = None
    """The network's, `[*n, b, *shape]`, augmented."""
    replay: PyTree = ()
    """What the strategy's `draw` gave for this step, with the inputs of every batch in it; left out
    (`batch._replace(replay=())`) before batches are joined."""


class Epoch(NamedTuple):
    """The samples of one epoch, in any order; the engine shuffles and cuts them into batches."""

    samples: Samples
    from_memory: Bool[Array, "n"]


class Outputs(NamedTuple):
    """What a network gives for a batch."""

    logits: Float[Array, "b c"]
    features: Float[Array, "b f"]


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


def seen_logits(outputs: Outputs, seen: Bool[Array, "c"]) -> Float[Array, "b c"]:
    """The logits, 0 for classes that are not seen."""
    return jnp.where(seen, outputs.logits, 0)


class Predictions(NamedTuple):
    """What a strategy says of some test samples, and what is true of them."""

    scores: Float[Array, "b c"]
    """Of all classes, seen or not; who judges masks them."""
    task_scores: Float[Array, "b c"]
    """The same with the sample's task told, for strategies that use it (`predict_task`). Equal to
    `scores` where no one task has the sample: several test sets share it, or there are fewer test
    sets than tasks."""
    labels: Int[Array, "b k"]
    task: Int[Array, "b"]
    """Each sample's, the first of several."""
    class_task: Int[Array, "c"]
    """The task that introduces each class."""
    task_classes: Bool[Array, "b c"] | None = None
    """The classes of each sample's test set (`TaskSequence.test_classes`)."""


Fisher = Literal["true", "empirical"]
"""The expectation that a Fisher information takes over labels: the model's, or the data's."""


class Objective(NamedTuple):
    """What outputs mean.

    Scores are of classes, `[.., c]`; where outputs are embeddings, they are of any width.
    """

    loss: Callable[[Outputs, Int[Array, "b k"], Bool[Array, "c"]], Float[Array, "b"]]
    """From outputs, labels and the seen classes to each sample's loss."""
    scores: Callable[[Outputs], Float[Array, "b c"]]
    """Scores of all classes, seen or not; who evaluates masks them."""
    metric: Callable[[Float[Array, "b c"], Int[Array, "b k"], Bool[Array, "c"]], Float[Array, "b"]]
    """From scores, labels and the seen classes to what validation averages, more being better."""
    per_sample_metrics: Callable[[Predictions, Bool[Array, "c"]], PyTree]
    """From some samples' predictions after a task, and the classes seen by then, to what an
    evaluation keeps of each; leaves `[b, ...]`. The scores themselves are held block by block."""
    evaluate: Callable[[TaskSequence, PyTree, Bool[Array, "c"]], PyTree]
    """Function from the sequence, what `per_sample_metrics` gave for the whole test union (leaves
    `[m, ...]`, 0 for samples that were left out) and the seen classes to what is kept."""
    function: Callable[[Outputs, Bool[Array, "c"]], Float[Array, "b w"]] = seen_logits
    """From outputs and the seen classes to the F(x) that MAS keeps from changing."""
    evaluates_unseen_classes: bool = True
    """Whether an evaluation needs test samples of which no class is seen yet."""
    fisher_loss: (
        Callable[[Outputs, Int[Array, "b k"], Bool[Array, "c"], PRNGKeyArray], Float[Array, "b"]]
        | None
    ) = None
    """A random function of each sample's outputs, from outputs, labels, the seen classes and a key.
    The mean of its squared gradient is the true Fisher information of the model. An objective over
    classes draws labels from the model and returns their negative log-likelihood. None where the
    objective has the empirical Fisher alone."""
    fisher: Fisher = "empirical"
    """The Fisher information that strategies use by default with this objective."""


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
    """What a step found out; the engine fills in the last three."""

    task_gradient: PyTree
    batch_stats: PyTree
    loss: Float[Array, ""]
    aux: PyTree = ()
    """What the strategy wants of the outputs after the step, for its memory."""
    batch: Batch | None = None
    """What the step learned from, inputs and replay included."""
    update: PyTree = None
    """The change of the parameters."""
    arrives: Bool[Array, ""] | bool = True
    """Whether the batch's samples enter memory after this step: false before the last of several
    steps on one batch (`memory.arrived`)."""


class Strategy(NamedTuple):
    """The functions that make a strategy; those that are None have nothing to do.

    A task calls `begin_task`, for every epoch `epoch_data`, for every step `draw`, `grads` and
    `after_step`, then `end_task`. At `begin_task` the task's classes are seen already, and the
    optimizer begins anew after it. At `end_task` parameters and memory are those of the epoch that
    the protocol keeps. A strategy without both needs no boundaries between tasks, and learns from
    streams that have none. What a strategy stores is for it to declare, in the last two fields.
    """

    init: Callable[[PRNGKeyArray, Learner], Memory]
    """The memory before the first task; whatever changes it keeps its structure, shapes and dtypes.
    `learner.seen` has its full length already, the number of classes."""
    epoch_data: Callable[[Memory, Task], Epoch]
    valid_data: Callable[[Memory, Task], Samples]
    """The samples by which an epoch is chosen."""
    grads: Callable[[Memory, Learner, Batch, Task, PRNGKeyArray], tuple[PyTree, StepInfo]]
    predict: Callable[[Memory, Learner, Float[Array, "b *shape"]], Float[Array, "b c"]]
    """Never receives the task; task-aware scoring masks the scores afterwards."""
    begin_task: Callable[[Memory, Learner, Task, PRNGKeyArray], tuple[Memory, Learner]] | None = (
        None
    )
    draw: Callable[[Memory, Batch, Task, PRNGKeyArray], PyTree] | None = None
    """A step's own batches from memory, in any tree, of which the engine fills in the inputs; it
    stands in the step's `batch.replay`."""
    after_step: (
        Callable[[Memory, Learner, StepInfo, PRNGKeyArray], tuple[Memory, Learner]] | None
    ) = None
    """After the optimizer's step, with all that it found out. Over several epochs a sample comes
    several times. What it puts into memory goes back with the best epoch."""
    end_task: Callable[[Memory, Learner, Task, PRNGKeyArray], tuple[Memory, Learner]] | None = None
    before_evaluation: Callable[[Memory, Learner, PRNGKeyArray], tuple[Memory, Learner]] | None = (
        None
    )
    """What has to be solved or trained from memory before `predict`."""
    predict_task: (
        Callable[[Memory, Learner, Float[Array, "b *shape"], Int[Array, ""]], Float[Array, "b c"]]
        | None
    ) = None
    """`predict` where the inputs' task is told; used by task-aware scoring only."""
    uses_past: bool = False
    on_memory: "tuple[Strategy, int] | None" = None
    """The strategy by which `before_evaluation` trains on memory, and the samples of its steps;
    those on the stream then train nothing, and take themselves back in `learner.step`."""
    tasks: int | None = None
    """Of how many tasks a sequence must be, where the strategy was made for a number of them."""
    stored_samples: Callable[[Memory, Task], Int[Array, ""]] | None = None
    """Samples held from earlier tasks, from the memory before the task; None is none."""
    parameter_copies: int = 0
    """Parameter-shaped arrays held from the second task on (the paper's rule of model size)."""

    @property
    def needs_boundaries(self) -> bool:
        """Whether something happens where a task begins or ends."""
        return self.begin_task is not None or self.end_task is not None or self.uses_past
