"""Types of continual learning: learner, task, strategy, objective and setup.

A strategy is a tuple of pure functions over pytrees. A factory builds it from a `Setup` and its
hyper-parameters. The engine (`engine/`) owns the training step, the batches, validation, the
learning-rate schedule and the best epoch. A strategy owns its `memory` alone.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.checks import SMALLEST, Between, NonNegativeFloat, PositiveFloat, UnitInterval

Memory = Any
"""A strategy's own state between steps: importances, replay buffer, old parameters."""


Coefficient = NonNegativeFloat | Annotated[Float[Array, ""], Between(0)]
"""Coefficient of a penalty. As an array it can be vmapped, and a new value compiles nothing."""
PositiveCoefficient = PositiveFloat | Annotated[Float[Array, ""], Between(SMALLEST)]
"""Coefficient without which a system of equations has no solution; as an array like the others."""
Proportion = UnitInterval | Annotated[Float[Array, ""], Between(0, 1)]
"""Share of a whole or weight of a mean, from 0 to 1; as an array it is like a `Coefficient`."""


class Samples(NamedTuple):
    """Samples of a data set that is stored on the device once; slots with mask 0 are padding.

    Labels are class numbers. A sample may have several; -1 is padding.
    """

    index: Int[Array, "n"]
    labels: Int[Array, "n k"]
    mask: Bool[Array, "n"]


class Task(NamedTuple):
    """One task of a sequence; in a sequence every array has a leading axis over tasks."""

    train: Samples
    valid: Samples
    classes: Bool[Array, "c"]
    """Classes that the task introduces."""
    id: Int[Array, ""]
    """Position of the task in the sequence, from 0."""
    past: Samples | None = None
    """Training samples of all tasks up to this one; None unless `Strategy.uses_past`."""
    past_valid: Samples | None = None
    """Validation samples of all tasks up to this one; None unless `Strategy.uses_past`."""


class TaskSequence(NamedTuple):
    """Tasks, stacked along a leading axis, and the union of their test sets."""

    tasks: Task
    test: Samples
    test_member: Bool[Array, "tests m"]
    """True where a test sample belongs to a test set. Every task has one test set; a stream that
    is cut into pieces has fewer. A sample with many labels belongs to several."""
    class_task: Int[Array, "c"]
    """The test set of each class: that of the task that introduces it."""
    test_classes: Bool[Array, "tests c"] | None = None
    """Classes among which task-masked scoring ranks each test set's samples. They are the same for
    all test sets in domain-incremental sequences. None where scores are never masked to a task, as
    with many labels."""


class TaskGenerator(NamedTuple):
    """Pure functions that draw tasks and their samples; the state is any tree of arrays."""

    begin: Callable[[PRNGKeyArray], Any]
    """Function that returns the state before the first task."""
    next_task: Callable[[Any, PRNGKeyArray], Any]
    """Function that returns the state of the next task."""
    draw: Callable[[Any, int, PRNGKeyArray], Samples]
    """Function that draws so many samples of the state's task."""
    test: Callable[[Any], Samples] | None = None
    """Function that returns the test samples of the state's task; None tests nothing."""
    renew: Callable[[PyTree], PyTree] | None = None
    """Function that changes the parameters before every task, such as one that sets the head to
    0; None changes nothing."""
    most_tasks: int | None = None
    """Most tasks whose samples have an index of 32 bits; None is any number."""


class Batch(NamedTuple):
    """Samples of one training step; `weight` is 0 for the padding of a last, partial batch.

    The engine fills in the last two fields. A strategy that draws a batch leaves them out.
    """

    index: Int[Array, "*n b"]
    labels: Int[Array, "*n b k"]
    weight: Float[Array, "*n b"]
    memory_mask: Bool[Array, "*n b"]
    inputs: Float[Array, "..."] | None = None
    """Augmented inputs of the network, `[*n, b, *shape]`."""
    replay: PyTree = ()
    """Tree that the strategy's `draw` returned for this step, with the inputs of every batch in it.
    It is removed (`batch._replace(replay=())`) before batches are concatenated."""


class Epoch(NamedTuple):
    """Samples of one epoch, in any order; the engine shuffles them and cuts them into batches."""

    samples: Samples
    memory_mask: Bool[Array, "n"]


class Outputs(NamedTuple):
    """Outputs of a network for a batch."""

    logits: Float[Array, "b c"]
    features: Float[Array, "b f"]
    hidden: Mapping[str, Float[Array, "b *units"]] | None = None
    """Activations of each hidden layer by its name, as the next layer reads them; units are the
    last axis. None if the network does not return them."""
    penalty: Float[Array, "b"] | None = None
    """Term of each sample's loss that depends on the network's own parameters, such as the distance
    of prompts' keys (`models.with_prompts`), whose setup has an objective that adds it."""


class Plateau(NamedTuple):
    """State of the reduce-on-plateau schedule; `factor` scales the optimizer's learning rate."""

    factor: Float[Array, ""]
    best: Float[Array, ""]
    stale_epochs: Int[Array, ""]


class Learner(NamedTuple):
    """Network parameters, optimizer state and the classes seen so far."""

    params: PyTree
    batch_stats: PyTree
    opt_state: optax.OptState
    step: Int[Array, ""]
    """Optimizer steps since the start of the sequence."""
    seen: Bool[Array, "c"]
    """Classes introduced so far."""
    schedule: Plateau


def seen_logits(outputs: Outputs, seen: Bool[Array, "c"]) -> Float[Array, "b c"]:
    """Return the logits, 0 for unseen classes."""
    return jnp.where(seen, outputs.logits, 0)


class Predictions(NamedTuple):
    """Scores of a strategy for some test samples, and the samples' true labels and tasks."""

    scores: Float[Array, "b c"]
    """Scores of all classes, seen or not; an objective masks them before it ranks classes."""
    task_scores: Float[Array, "b c"]
    """Scores of a strategy that receives each sample's task (`predict_task`). They equal `scores`
    where several test sets share the sample, or where there are fewer test sets than tasks."""
    labels: Int[Array, "b k"]
    task: Int[Array, "b"]
    """Task of each sample; the first one where several test sets share it."""
    class_task: Int[Array, "c"]
    """Task that introduces each class."""
    task_classes: Bool[Array, "b c"] | None = None
    """Classes of each sample's test set (`TaskSequence.test_classes`)."""


Fisher = Literal["true", "expected", "empirical"]
"""Labels over which a Fisher information averages: one per sample that is drawn from the model, all
labels by the model's probabilities, or the data's."""


class Objective(NamedTuple):
    """Loss, class scores and metrics of a network's outputs.

    Scores are one number per class, `[.., c]`. Where outputs are embeddings, they have any width.
    """

    loss: Callable[[Outputs, Int[Array, "b k"], Bool[Array, "c"]], Float[Array, "b"]]
    """Function from outputs, labels and seen classes to each sample's loss."""
    scores: Callable[[Outputs], Float[Array, "b c"]]
    """Function from outputs to the scores of all classes, seen or not."""
    metric: Callable[[Float[Array, "b c"], Int[Array, "b k"], Bool[Array, "c"]], Float[Array, "b"]]
    """Function from scores, labels and seen classes to each sample's metric; greater is better.
    Validation averages it."""
    per_sample_metrics: Callable[[Predictions, Bool[Array, "c"]], PyTree]
    """Function from predictions after a task and the seen classes to the values per sample that an
    evaluation keeps, leaves `[b, ...]`. Scores are held for one block of samples at a time."""
    evaluate: Callable[[TaskSequence, PyTree, Bool[Array, "c"]], PyTree]
    """Function that reduces the per-sample metrics of all test samples to the result that is
    kept. Its arguments are the sequence, the metrics and the seen classes. The metrics have leaves
    `[m, ...]`, 0 for samples that are not evaluated."""
    function: Callable[[Outputs, Bool[Array, "c"]], Float[Array, "b w"]] = seen_logits
    """Function from outputs and seen classes to the F(x) that MAS keeps from changing."""
    evaluates_unseen_classes: bool = True
    """True if an evaluation includes test samples that have no seen class."""
    fisher_loss: (
        Callable[[Outputs, Int[Array, "b k"], Bool[Array, "c"], PRNGKeyArray], Float[Array, "b"]]
        | None
    ) = None
    """Random function from outputs, labels, seen classes and a key to one value per sample.
    The mean of its squared gradient is the true Fisher information of the model. An objective over
    classes draws labels from the model and returns their negative log-likelihood. None if the
    objective supports the empirical Fisher information alone."""
    fisher: Fisher = "empirical"
    """Fisher information that strategies use by default with this objective."""
    label_losses: (
        Callable[
            [Outputs, Int[Array, "b k"], Bool[Array, "c"]],
            tuple[Float[Array, "b c"], Float[Array, "b c"]],
        ]
        | None
    ) = None
    """Function from outputs, labels and seen classes to the negative log-likelihood of every
    possible label and its probability; both are 0 for impossible ones. None if a sample's labels
    cannot be enumerated, so that there is no "expected" Fisher information."""


class SplitNetwork(NamedTuple):
    """A network in two parts, the layers up to a chosen one and those above it."""

    lower: Callable[
        [PyTree, PyTree, Float[Array, "b *shape"], bool, PRNGKeyArray | None],
        tuple[Float[Array, "b *units"], PyTree],
    ]
    """Function with the arguments of `Setup.apply` to the layer's outputs and to batch statistics.
    Those of the upper part stay."""
    upper: Callable[
        [PyTree, PyTree, Float[Array, "b *units"], bool, PRNGKeyArray | None],
        tuple[Outputs, PyTree],
    ]
    """Function with the arguments of `Setup.apply`, but for the layer's outputs in place of inputs,
    to the network's outputs, without `hidden`, and to batch statistics. Those of the lower part
    stay."""
    is_lower: PyTree
    """Tree of booleans like the parameters, true where the upper part does not depend on them."""


class Setup(NamedTuple):
    """Network, objective, optimizer and data access of a run, as functions.

    `apply(params, batch_stats, inputs, train, key)` returns outputs and new batch statistics.
    `gather(index, key)` returns the network's inputs of stored samples, augmented if there is a
    key. `trainable(params)` is a tree of booleans. Where it is false, updates are set to 0 after
    the optimizer: momentum and weight decay would move a parameter whose gradient is 0.
    `task_rate(number)` is the factor on the learning rate at the start of a task; None is 1.
    `layer_inputs(params, batch_stats, inputs)` returns what each kernel multiplies in evaluation
    mode, `[b, p, i]` at p positions by the kernel's path in the parameters. A kernel `[*, o]`
    counts as a matrix `[i, o]`, i being the product of its first axes; a convolution's inputs are
    patches. Kernels of other layers are left out. None if the network's layers are unknown.
    `split_at(layer)` returns the network in two parts, below and above a layer's outputs. The layer
    is a name, or None for the last but one below the head. None if the layers are unknown.
    `stages` names the layers at whose outputs the stages of the network end, in order, such as the
    last blocks of a residual network's. It is empty if the network's module does not state them.
    `measure(params, outputs)` computes diagnostics of the network from its outputs for some test
    samples, such as `metrics.diagnose_plasticity`. They are kept with every evaluation.
    """

    init: Callable[[PRNGKeyArray], tuple[PyTree, PyTree]]
    apply: Callable[..., tuple[Outputs, PyTree]]
    objective: Objective
    optimizer: optax.GradientTransformation
    gather: Callable[[Int[Array, "b"], PRNGKeyArray | None], Float[Array, "b *shape"]]
    trainable: Callable[[PyTree], PyTree] | None = None
    task_rate: Callable[[Int[Array, ""]], Float[Array, ""]] | None = None
    layer_inputs: (
        Callable[
            [PyTree, PyTree, Float[Array, "b *shape"]], dict[tuple[str, ...], Float[Array, "b p i"]]
        ]
        | None
    ) = None
    measure: Callable[[PyTree, Outputs], PyTree] | None = None
    split_at: Callable[[str | None], SplitNetwork] | None = None
    stages: tuple[str, ...] = ()

    @property
    def input_shape(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the network's inputs of one stored sample, `[1, *shape]`."""
        return jax.eval_shape(self.gather, jnp.zeros(1, jnp.int32), None)


class StepInfo(NamedTuple):
    """Results of a training step; the engine fills in the last three fields."""

    task_gradient: PyTree
    batch_stats: PyTree
    loss: Float[Array, ""]
    aux: PyTree = ()
    """Values that `grads` passes to the strategy's own `after_step`."""
    batch: Batch | None = None
    """Batch of the step, with inputs and replay."""
    update: PyTree = None
    """Change of the parameters."""
    arrives: Bool[Array, ""] | bool = True
    """True if the batch's samples enter memory after this step. It is false before the last of
    several steps on one batch (`memory.arrived`)."""


class Strategy(NamedTuple):
    """Functions that define a strategy; a function that is None is skipped.

    A task calls `begin_task`, then `epoch_data` for every epoch and `draw`, `grads` and
    `after_step` for every step, then `end_task`. At `begin_task` the task's classes are already
    seen; the optimizer is reset after it. At `end_task` parameters and memory are those of the
    epoch that the protocol keeps. A strategy without these two needs no task boundaries and learns
    from streams without them. The last two fields declare what a strategy stores.
    """

    init: Callable[[PRNGKeyArray, Learner], Memory]
    """Function that returns the memory before the first task. Structure, shapes and dtypes of the
    memory never change. `learner.seen` already has its full length, the number of classes."""
    epoch_data: Callable[[Memory, Task], Epoch]
    """Function that returns the samples of the next epoch."""
    valid_data: Callable[[Memory, Task], Samples]
    """Function that returns the samples on which the best epoch is chosen."""
    grads: Callable[[Memory, Learner, Batch, Task, PRNGKeyArray], tuple[PyTree, StepInfo]]
    """Function that returns the gradient of a step and its `StepInfo`."""
    predict: Callable[[Memory, Learner, Float[Array, "b *shape"]], Float[Array, "b c"]]
    """Function that returns scores. It never receives the task; task-masked scoring masks the
    scores afterwards."""
    begin_task: Callable[[Memory, Learner, Task, PRNGKeyArray], tuple[Memory, Learner]] | None = (
        None
    )
    draw: Callable[[Memory, Batch, Task, PRNGKeyArray], PyTree] | None = None
    """Function that draws a step's batches from memory, in any tree. The engine fills in their
    inputs and stores the tree in `batch.replay`."""
    after_step: (
        Callable[[Memory, Learner, StepInfo, PRNGKeyArray], tuple[Memory, Learner]] | None
    ) = None
    """Function called after the optimizer's step. Over several epochs it sees a sample several
    times. Returning to the best epoch also restores the memory of that epoch."""
    end_task: Callable[[Memory, Learner, Task, PRNGKeyArray], tuple[Memory, Learner]] | None = None
    before_evaluation: Callable[[Memory, Learner, PRNGKeyArray], tuple[Memory, Learner]] | None = (
        None
    )
    """Function that solves or trains from memory what `predict` needs. After a task, training
    continues from its result; other evaluations drop it."""
    predict_task: (
        Callable[[Memory, Learner, Float[Array, "b *shape"], Int[Array, ""]], Float[Array, "b c"]]
        | None
    ) = None
    """Variant of `predict` that receives the inputs' task; task-masked scoring alone uses it."""
    uses_past: bool = False
    """True if the strategy needs the samples of all earlier tasks (`Task.past`)."""
    memory_training: "MemoryTraining | None" = None
    """Training by `before_evaluation` on memory. Steps on the stream then train nothing and are not
    counted in `learner.step`."""
    single_pass: bool = False
    """True if the strategy collects statistics of samples and trains nothing. A task's samples then
    pass once, whatever the protocol's `epochs`, and later epochs have no step. With `epoch_steps`
    the pass ends after the steps of all the task's epochs."""
    tasks: int | None = None
    """Number of tasks that a sequence must have; None allows any."""
    stored_samples: Callable[[Memory, Task], Int[Array, ""]] | None = None
    """Function that counts the samples held from earlier tasks when a task starts; None is 0."""
    parameter_copies: int = 0
    """Parameter-shaped arrays held from the second task on. The model size of Díaz-Rodríguez et
    al. 2018 counts them."""

    @property
    def needs_boundaries(self) -> bool:
        """True if the strategy acts at the start or end of a task."""
        return self.begin_task is not None or self.end_task is not None or self.uses_past


class MemoryTraining(NamedTuple):
    """Strategy and batch size with which another strategy trains on its memory."""

    strategy: Strategy
    batch_size: int
