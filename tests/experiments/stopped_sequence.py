"""A run of a sequence that sends itself a signal: `FOLDER RESULT [SIGNAL EPOCH]`."""

import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import numpy as np

from everlight_experiments import cli
from everlight_experiments.common import sequences
from everlight_experiments.common.checkpoint import Checkpoints
from tests.contracts.test_strategies import DATA, KEY, PROTOCOL, SEQUENCE, build_with
from tests.experiments.rhythm import due_every


@dataclass(frozen=True)
class Settings:
    """None."""


def run(settings: Settings) -> None:
    folder, result, *stop = sys.argv[1:]
    epochs = iter(range(1_000))

    def announce(order: object) -> None:
        """At the beginning of every epoch; twice, since a second signal must not disturb."""
        if stop and next(epochs) == int(stop[1]):
            os.kill(os.getpid(), int(stop[0]))
            os.kill(os.getpid(), int(stop[0]))

    parts = (build_with("a-gem"), PROTOCOL, DATA, SEQUENCE, KEY)
    Checkpoints.due = due_every(1)
    sequences.drive_sequence = partial(drive_sequence, announce=announce)
    trained = sequences.train_sequence(*parts, Path(folder), {})
    np.savez(result, *jax.tree.leaves(trained))


if __name__ == "__main__":
    cli.RUNS["test sequence"] = (Settings, run)
    cli.main(["test", "sequence"])
