"""A run of a sequence that sends itself a signal: `FOLDER RESULT [SIGNAL EPOCH]`."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from everlight_data.runs.checkpoints import Checkpoints
from tests.experiments.checkpoint_intervals import due_every
from tests.experiments.command import run_as_command
from tests.experiments.run_folder.agem_run import train_agem


@dataclass(frozen=True)
class Settings:
    """None."""


def run(settings: Settings) -> None:
    folder, result, *stop = sys.argv[1:]
    epochs = iter(range(1_000))

    def announce(order: object) -> None:
        """Send the signal twice at the beginning of an epoch, since the second must not disturb."""
        if stop and next(epochs) == int(stop[1]):
            os.kill(os.getpid(), int(stop[0]))
            os.kill(os.getpid(), int(stop[0]))

    Checkpoints.due = due_every(1)
    train_agem(Path(folder), Path(result), announce)


if __name__ == "__main__":
    run_as_command()
