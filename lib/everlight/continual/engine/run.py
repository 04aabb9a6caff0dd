"""A run: its build function, data, protocol and tasks, its state and its result."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Learner, Memory, Setup, Strategy, TaskSequence
from everlight.checks import check_fields
from everlight.continual.engine.input_checks import refuse_unfit_samples
from everlight.continual.engine.protocol import Protocol
from everlight.errors import ArgumentError

Build = Callable[[Any], tuple[Setup, Strategy]]
"""Function from the data on the device to the setup and the strategy. It is called while tracing,
so that the data are an argument of the compiled program and not a constant inside it."""

Announce = Callable[[Int[np.ndarray, "n"]], None]
"""Function that receives the samples of an epoch, in order, so that reading can begin early."""


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True, eq=False)
class Run:
    """Everything that determines a run; an argument of `jit`, `vmap` and `eval_shape`.

    Data, sequence and key are arrays, or shapes and dtypes (`jax.ShapeDtypeStruct`). Another
    `build` or an unequal `protocol` is another program.

    Raises:
      ValueError: a field does not match its type, or the sequence does not fit the data: a compiled
        program cannot check values.
    """

    build: Build
    """Function from `data` to the setup and the strategy."""
    protocol: Protocol
    data: Any
    """Data from which the setup gathers inputs."""
    sequence: TaskSequence
    """Tasks and test samples."""
    key: PRNGKeyArray | jax.ShapeDtypeStruct
    """Random key of any implementation, for initial parameters, shuffles, augmentation and the
    strategy's choices (module `keys`)."""

    def __post_init__(self):
        check_fields(self)
        refuse_unfit_samples(self.data, self.sequence)

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return self.sequence.tasks.id.shape[0]

    def setup_and_strategy(self) -> tuple[Setup, Strategy]:
        """Return what `build` makes of the data.

        Raises:
          ValueError: it is no pair of a setup and a strategy.
        """
        match self.build(self.data):
            case (Setup() as setup, Strategy() as strategy):
                return setup, strategy
            case other:
                raise ArgumentError(
                    f"Run: build returns {type(other).__name__}; give a function of the data that "
                    "returns the pair (setup, strategy)"
                )

    def tree_flatten(self) -> tuple[tuple, tuple[Build, Protocol]]:
        """Return the pytree's children (data, sequence, key) and the static fields."""
        return (self.data, self.sequence, self.key), (self.build, self.protocol)

    @classmethod
    def tree_unflatten(cls, static: tuple[Build, Protocol], children: tuple) -> "Run":
        """Return the run of a flattened pytree; leaves may be placeholders."""
        run = object.__new__(cls)
        for field, value in zip(dataclasses.fields(cls), (*static, *children), strict=True):
            object.__setattr__(run, field.name, value)
        return run


class Usage(NamedTuple):
    """Costs of learning, from which `metrics.cl_score` computes memory and computation criteria."""

    steps: Int[Array, "t"]
    """Optimizer steps from the start of the sequence to the end of each task."""
    stored_samples: Int[Array, "t"]
    """Samples of earlier tasks that were stored when each task began."""


class StepEvaluations(NamedTuple):
    """Evaluations within tasks; the leading axes are task, epoch and evaluation of the epoch."""

    evaluation: PyTree
    """Result of the objective on all test samples. Floats are NaN where none took place, and from
    then on where a loss or the parameters were not finite."""
    steps: Int[Array, "t e n"]
    """Optimizer steps from the start of the sequence; 0 where no evaluation took place. Steps on a
    batch count even if they train nothing, as in GDumb."""


class SequenceResult(NamedTuple):
    """Result of a sequence; for tasks not reached yet, floats are NaN and others 0."""

    evaluation: PyTree
    """Result of the objective on all test samples after each task, with a leading axis over tasks.
    With softmax it is both accuracy matrices, `[i, j]` after task i on task j. With a
    `Setup.measure` it is `Measured`. Floats are NaN from the task on in which the run diverged."""
    usage: Usage
    losses: Float[Array, "t e"]
    """Mean loss of every epoch's steps, without a strategy's penalty; 0 in an epoch without steps,
    and NaN from the epoch on in which the run diverged. A run diverges if a loss, the parameters
    after the epoch, its validation or the strategy's memory after the task is not finite."""
    validation: Float[Array, "t e"]
    """Validation on the current task after every epoch; NaN without validation samples."""
    memory: Memory
    learner: Learner
    prequential: Float[Array, "t e"] | None = None
    """Mean metric of every epoch's batches, each before it was learned. With one epoch per task it
    is the prequential (online) accuracy. NaN in an epoch without batches, such as those after a
    `Strategy.single_pass`. None unless `Protocol.prequential`."""
    within_tasks: StepEvaluations | None = None
    """Evaluations every few steps. None unless `Protocol.evaluate_steps`."""


class Best(NamedTuple):
    """Parameters and memory of the current task's best epoch by its validation score."""

    score: Float[Array, ""]
    memory: Memory
    """Memory after the epoch if steps change it, otherwise empty."""
    params: PyTree
    batch_stats: PyTree


class SequenceState(NamedTuple):
    """State from which a stopped sequence continues: its results and its position."""

    result: SequenceResult
    task: Int[Array, ""]
    """Current task; the number of tasks at the end."""
    epoch: Int[Array, ""]
    """Number of finished epochs of the task; 0 before its start."""
    best: Best | None
    """Best epoch of the task so far; None if the protocol keeps the last epoch, which saves
    memory."""


def with_learned(state: SequenceState, memory: Memory, learner: Learner) -> SequenceState:
    """Return the state with another memory and learner."""
    return state._replace(result=state.result._replace(memory=memory, learner=learner))
