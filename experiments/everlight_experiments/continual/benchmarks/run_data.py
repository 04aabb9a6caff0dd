"""Runs of a benchmark: which sequence each learns, its data, and what a finished one has."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from everlight.checks import Between
from everlight.continual import TaskSequence

VALIDATION_SEED = 1_000
"""Validation seeds begin at the run's seed plus this number and are never evaluated on."""
Seeds = Annotated[int, Between(1, VALIDATION_SEED)]
"""Number of evaluation seeds; with more, the last ones would be validation seeds."""

Use = Literal["evaluation", "validation"]


class SequenceId(NamedTuple):
    """One of a benchmark's sequences: of evaluation or of hyper-parameter selection."""

    use: Use
    run_seed: int
    """Seed of the run."""
    number: int

    @property
    def seed(self) -> int:
        """Seed of this sequence, different from that of any other sequence."""
        return self.run_seed + (VALIDATION_SEED if self.use == "validation" else 0) + self.number

    @property
    def key(self) -> PRNGKeyArray:
        """Random key of the sequence; no other sequence's key is derived from it."""
        return jax.random.key(self.seed)


Normalization = tuple[Float[Array, "*c"], Float[Array, "*c"]] | tuple[()]
"""Mean and standard deviation of one run's training images; () if all runs share theirs."""


class PerRunData(NamedTuple):
    """Data that differ between the runs of a method."""

    class_group: Int[Array, "c"]
    """Task of each class in the task-incremental setting, else one group of all classes."""
    hyperparameter: Float[Array, ""]
    normalization: Normalization = ()
    stream_seed: tuple[Int[Array, ""]] | tuple[()] = ()
    """Seed of the permutations or angles of the tasks; () if all runs share theirs."""


class RunData(NamedTuple):
    """Data of a compiled sequence; other values need no new compilation."""

    shared: Any
    per_run: PerRunData


class AddedData(NamedTuple):
    """Images that came after the training of a run, which its update learns as one more task."""

    data: str
    """Name or path, as in `--data` of `everlight run`."""
    test_data: Path | None = None
    test_every: int = 5


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """One finished run, from which metrics are computed."""

    arrays: dict[str, np.ndarray]
    sequence: TaskSequence
    sequence_id: SequenceId
    tasks: int
    """Number of tasks of the benchmark; joint training may have learned them as one."""
