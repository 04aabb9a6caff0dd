"""Runs in a shared folder that send themselves a signal: `FOLDER DISTRIBUTED [SIGNAL EPOCH]`."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.report.writer import Report, write_report
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions
from tests.experiments.checkpoint_intervals import due_every
from tests.experiments.command import run_as_command

Checkpoints.due = due_every(2)


@dataclass(frozen=True)
class Settings:
    """None but how many processes there are."""

    distributed: str | None = None


def run(settings: Settings) -> None:
    from everlight_experiments.continual.training import runs
    from tests.experiments.images.ewc_runs import train

    folder, _, *stop = sys.argv[1:]
    driven = runs.drive_runs
    advanced = iter(range(1_000))

    def stopping(*arguments):
        for state in driven(*arguments):
            # The caller waits for this epoch meanwhile.
            number = next(advanced)
            if stop and number == int(stop[1]):
                os.kill(os.getpid(), int(stop[0]))
            shared.log(runs=len(state.result.losses), epoch=number, process=os.getpid())
            yield state

    runs.drive_runs = stopping
    shared = RunFolder("paper", "run", ExperimentOptions(runs=Path(folder)), shared=True)
    train(shared)
    write_report(shared.path, "Runs", Report([("Selection rule", "nothing was chosen")]))


if __name__ == "__main__":
    run_as_command("--distributed", sys.argv[2])
