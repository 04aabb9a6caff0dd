"""A unit with checkpoints that kills itself: `FOLDER RESULT MOMENT`, no moment never.

Odd moments are while a checkpoint is being written, even ones anywhere.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from everlight_data.runs.checkpoints import Checkpoints
from tests.experiments.a_unit import checkpoints_of, train_unit
from tests.experiments.rhythm import due_every


def kill_at(folder: Path, moment: int) -> None:
    rng = np.random.default_rng(moment)
    while not folder.exists():
        time.sleep(0.001)
    for _ in range(rng.integers(1, 6)):
        if moment % 2:
            while not list(folder.glob("*.orbax-checkpoint-tmp*")):
                pass
            time.sleep(rng.uniform(0, 0.01))
        else:
            time.sleep(rng.uniform(0.02, 0.3))
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    folder, result, *moment = sys.argv[1:]
    if moment:
        threading.Thread(
            target=kill_at, args=(checkpoints_of(Path(folder)), int(moment[0])), daemon=True
        ).start()
    Checkpoints.due = due_every(1)
    train_unit(Path(folder), Path(result))


if __name__ == "__main__":
    main()
