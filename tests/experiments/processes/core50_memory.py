"""NIC's 79 batches with checkpoints; prints the peak resident bytes after batch 10 and batch 79."""

import dataclasses
import resource
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from everlight.continual import Setup, StoredImages, Strategy
from everlight.scenarios.core50 import core50
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.continual.benchmarks.run_data import PerRunData, RunData
from everlight_experiments.continual.training.runs import SharedTraining, TrainingRun, train_runs
from everlight_experiments.core50.benchmark import SharedFrames, TrainingSchedule, setup_factory
from everlight_experiments.core50.config import FIXED, PRESETS, Length
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions
from tests.experiments.checkpoint_intervals import due_every

FRAMES, SIDE = 10, 32


def peak() -> int:
    kibibyte = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kibibyte


def main() -> None:
    session, number, _ = (axis.ravel() for axis in np.indices((11, 50, FRAMES)))
    images = np.random.default_rng(0).integers(0, 256, (len(number), SIDE, SIDE, 3), np.uint8)
    stored = StoredImages.of(jnp.asarray(images), jnp.full(3, 128.0), jnp.full(3, 64.0))
    sequence = core50(number, session, "NIC")
    shared = SharedFrames(stored, {}, jnp.float32(1e-3), jnp.float32(1.0))
    config = dataclasses.replace(PRESETS["demo"], channels=(4, 8), hidden=16)
    schedule = TrainingSchedule("NIC", "NIC", lambda method: Length(2, 2, 1e-3))
    begin = setup_factory(config, schedule, 50)
    method = FIXED["cumulative"]

    def build(data: RunData) -> tuple[Setup, Strategy]:
        setup, arguments = begin(method, data)
        return setup, method.make(setup, arguments)

    run_data = PerRunData(jnp.zeros_like(sequence.class_task), jnp.float32(1.0))
    run = TrainingRun("NIC", {}, sequence, jax.random.key(0), run_data)
    Checkpoints.due = due_every(1)
    protocol = Length(2, 2, 1e-3).protocol(16)
    peaks = []
    training = SharedTraining(
        build,
        protocol,
        shared,
        lambda result: {"losses": result.losses},
        RunData,
        # The function is called once per batch, before its first step.
        announce=lambda _: peaks.append(peak()),
        one_by_one=True,
    )
    with tempfile.TemporaryDirectory() as path:
        train_runs(
            RunFolder("paper", "run", ExperimentOptions(runs=Path(path))),
            [run],
            training,
        )
    print(peaks[10], peak())


if __name__ == "__main__":
    main()
