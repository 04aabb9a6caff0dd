"""Training protocol: epochs, batches, selection of the best epoch, task boundaries."""

import math
from dataclasses import dataclass
from typing import Literal

from everlight.checks import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    check_fields,
    checked,
)
from everlight.errors import Argument, ArgumentError


@dataclass(frozen=True)
class Protocol:
    """Training protocol of every task, for all strategies.

    Raises:
      ValueError: a count is below 1; a factor of the learning rate is not positive; `select` is
        unknown; `select` is "best" without boundaries; or there are milestones without boundaries
        or with `new_optimizer=False`.
    """

    epochs: PositiveInt = 10
    """Number of epochs per task."""
    first_epochs: PositiveInt | None = None
    """Epochs of the first task; None is `epochs`."""
    batch_size: PositiveInt = 32
    """Number of samples per step."""
    epoch_steps: PositiveInt | None = None
    """Number of steps per epoch, equal for tasks of all sizes: samples are taken in one order, and
    from its beginning again when all were taken. None is one pass over the task's samples."""
    select: Literal["best", "last"] = "best"
    """Kept epoch of a task: "best" validation on the task (early stopping; ties go to the last), or
    "last"."""
    plateau_factor: PositiveFloat = 1.0
    """Factor on the learning rate when validation stops improving; 1 keeps the rate."""
    plateau_patience: NonNegativeInt = 10
    """Epochs without improvement before the learning rate changes."""
    plateau_threshold: NonNegativeFloat = 1e-3
    """Least increase of the validation metric that counts as improvement."""
    milestones: tuple[PositiveInt, ...] = ()
    """Numbers of epochs of a task after which the learning rate is multiplied by
    `milestone_factor`, as in the literature on CIFAR-100; none keeps the rate."""
    milestone_factor: PositiveFloat = 0.1
    """Factor on the learning rate at every milestone."""
    evaluation_batch: PositiveInt = 256
    """Samples per forward pass in validation and evaluation."""
    evaluate_every: PositiveInt = 1
    """Tasks between two evaluations on all test samples; the last task is always evaluated. Tasks
    without an evaluation have no `before_evaluation`, whose result training continues from."""
    evaluate_steps: PositiveInt | None = None
    """Evaluate on all test samples after every so many batches and at the end of each epoch too;
    None evaluates only after tasks. A strategy with `before_evaluation` calls it every time."""
    new_optimizer: bool = True
    """Reset optimizer and schedule at every task."""
    updates_per_batch: PositiveInt = 1
    """Optimizer steps on every batch of the epoch, each with a new augmentation and a new draw from
    memory. The batch enters a memory after the last one. Aljundi et al. 2019 (NeurIPS) take 5."""
    prequential: bool = False
    """Predict every batch before it is learned (Gama et al. 2013). A strategy with
    `before_evaluation` calls it before every batch."""
    boundaries: bool = True
    """Inform the strategy when a task begins and ends. A class then counts as seen from the first
    step of its task. Without boundaries, which need `select` "last", tasks are pieces of a stream:
    the strategy is called only at steps, the optimizer is never reset, and a class counts as seen
    once a sample of it has arrived. Evaluation is the same."""

    def __post_init__(self):
        check_fields(self)
        if self.select == "best" and not self.boundaries:
            raise ArgumentError(
                Argument("select", "best"),
                " needs boundaries",
                remedy=("choose ", Argument("select", "last"), " for a stream without"),
            )
        if self.milestones and not (self.new_optimizer and self.boundaries):
            raise ArgumentError(
                "milestones count the epochs of a task; give new_optimizer=True and "
                "boundaries=True, so that every task restarts the schedule"
            )

    @property
    def validates(self) -> bool:
        """True if validation within a task selects its epoch or learning rate."""
        return self.select == "best" or self.plateau_factor != 1

    @property
    def most_epochs(self) -> int:
        """Maximal number of epochs of a task."""
        return max(self.epochs, self.epochs_of(0))

    def epochs_of(self, task: int) -> int:
        """Return the number of epochs of a task, counted from 0."""
        return self.epochs if task or self.first_epochs is None else self.first_epochs

    def epochs_before(self, task: int) -> int:
        """Return the number of epochs before a task begins; with the number of tasks, of all."""
        return sum(map(self.epochs_of, range(task)))


@checked
def online_protocol(batch_size: PositiveInt = 10) -> Protocol:
    """Return the online protocol: one pass over a stream without task boundaries.

    It is that of Aljundi et al. 2019 and Buzzega et al. 2020.

    Args:
      batch_size: samples per step; 10 in the literature.
    """
    return Protocol(epochs=1, batch_size=batch_size, select="last", boundaries=False)


@checked
def fixed_steps_protocol(
    first: PositiveInt, later: PositiveInt, batch_size: PositiveInt = 32
) -> Protocol:
    """Return the protocol of equally many steps on tasks of all sizes, without validation.

    It is that of Lomonaco and Maltoni 2017 (CORe50).

    Args:
      first: steps on the first task.
      later: steps on every later task.
      batch_size: samples per step.
    """
    chunk = math.gcd(first, later)
    return Protocol(
        epochs=later // chunk,
        first_epochs=first // chunk,
        batch_size=batch_size,
        epoch_steps=chunk,
        select="last",
    )
