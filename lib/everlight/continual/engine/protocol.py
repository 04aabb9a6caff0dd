"""Training protocol: epochs, batches, selection of the best epoch, task boundaries."""

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


@dataclass(frozen=True)
class Protocol:
    """Training protocol of every task, for all strategies.

    Raises:
      ValueError: a count is below 1; a factor of the learning rate is not positive; `select` is
        unknown; or `select` is "best" without boundaries.
    """

    epochs: PositiveInt = 10
    """Number of epochs per task."""
    first_epochs: PositiveInt | None = None
    """Epochs of the first task; None is `epochs`."""
    batch_size: PositiveInt = 32
    """Number of samples per step."""
    epoch_steps: PositiveInt | None = None
    """Steps per epoch, which cycles through its samples in one order; None is one pass. With a
    fixed number, tasks of all sizes take equally many steps."""
    select: Literal["best", "last"] = "best"
    """Kept epoch of a task: "best" validation on the task (early stopping; ties go to the last), or
    "last"."""
    plateau_factor: PositiveFloat = 1.0
    """Factor on the learning rate when validation stops improving; 1 keeps the rate."""
    plateau_patience: NonNegativeInt = 10
    """Epochs without improvement before the learning rate changes."""
    plateau_threshold: NonNegativeFloat = 1e-3
    """Least increase of the validation metric that counts as improvement."""
    evaluation_batch: PositiveInt = 256
    """Samples per forward pass in validation and evaluation."""
    evaluate_every: PositiveInt = 1
    """Tasks between two evaluations on all test samples; the last task is always evaluated."""
    new_optimizer: bool = True
    """Reset optimizer and schedule at every task."""
    updates_per_batch: PositiveInt = 1
    """Optimizer steps on every batch of the epoch, each with a new augmentation and a new draw from
    memory. The batch enters a memory after the last one. Aljundi et al. 2019 (NeurIPS) take 5."""
    prequential: bool = False
    """Predict every batch before it is learned (Gama et al. 2013). A strategy with
    `before_evaluation` calls it before every batch."""
    boundaries: bool = True
    """Inform the strategy of task boundaries. Without them, tasks are pieces of a stream between
    which it is evaluated. Strategies are then called at steps alone, a class is seen once a sample
    of it has arrived, and the optimizer is never reset."""

    def __post_init__(self):
        check_fields(self)
        if self.select == "best" and not self.boundaries:
            raise ValueError("select='best' needs boundaries; choose 'last' for a stream without")

    @property
    def most_epochs(self) -> int:
        """Maximal number of epochs of a task."""
        return max(self.epochs, self.epochs_of(0))

    def epochs_of(self, task: int) -> int:
        """Return the number of epochs of a task, counted from 0."""
        return self.epochs if task or self.first_epochs is None else self.first_epochs


@checked
def online_protocol(batch_size: PositiveInt = 10) -> Protocol:
    """Return the online protocol: one pass over a stream without task boundaries.

    It is that of Aljundi et al. 2019 and Buzzega et al. 2020.

    Args:
      batch_size: samples per step; 10 in the literature.
    """
    return Protocol(epochs=1, batch_size=batch_size, select="last", boundaries=False)
