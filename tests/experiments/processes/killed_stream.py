"""Runs streamed from JPEG files, one of which may kill them all: `FOLDER DISTRIBUTED [MOMENT]`.

Experience replay, three tasks of two classes in two orders. The memory limit holds four or more
images, so that most are decoded on request and some ahead, as threads have it. Beside
the folder each process leaves the number of images that it read.
"""

import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.base import Outputs
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.setups.flax_setup import flax_setup
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies.balanced_replay import balanced_replay
from everlight.models.layers.convolution import Convolution
from everlight.scenarios.class_incremental import class_incremental
from everlight.scenarios.shapes import pad_sequences
from everlight_data.iirc.metadata import imagenet_listing
from everlight_data.images.imagenet import list_imagenet
from everlight_data.images.inputs.as_inputs import imagenet_statistics, stream
from everlight_data.images.inputs.jpeg_store import JpegStore
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.continual.training.runs import (
    SharedTraining,
    TrainingRun,
    group_name,
    train_runs,
)
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions
from tests.experiments.checkpoint_intervals import due_every
from tests.experiments.command import run_as_command

WNIDS = ("n01440764", "n01443537", "n01484850", "n02085620", "n02085782", "n02085936")
PROTOCOL = Protocol(epochs=3, batch_size=8, evaluation_batch=8)
ORDERS = (((0, 1), (2, 3), (4, 5)), ((5, 2), (0, 4), (1, 3)))


class Net(nn.Module):
    @nn.compact
    def __call__(self, images, train):
        hidden = nn.relu(Convolution(8, 3, 2)(images))
        features = hidden.reshape(len(images), 4, 4, 4, 4, 8).mean(axis=(2, 4)).reshape(-1, 128)
        return Outputs(nn.Dense(len(WNIDS))(features), features)


def make_build(source):
    def build(data):
        setup = flax_setup(Net(), source(data), softmax_objective(), optax.sgd(0.02, momentum=0.9))
        return setup, balanced_replay(setup, 2)

    return build


def runs_of(files):
    """Return a run of each order."""
    labels = files.train_labels, files.test_labels
    sequences = pad_sequences([class_incremental(*labels, order, len(WNIDS)) for order in ORDERS])
    return [
        TrainingRun(f"ER-{number}", {"order": number}, sequence, jax.random.key(number))
        for number, sequence in enumerate(sequences)
    ]


def keep(result):
    """Return every array of a run's result."""
    leaves = jax.tree.leaves(result)
    return {str(number): jnp.asarray(leaf) for number, leaf in enumerate(leaves)}


def kill_at(folder: Path, moment: int) -> None:
    """Kill this process: at odd moments while it writes a checkpoint, at even ones anywhere."""
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


@dataclass(frozen=True)
class Settings:
    """None but how many processes there are."""

    distributed: str | None = None


def run(settings: Settings) -> None:
    folder, _, *moment = sys.argv[1:]
    files = list_imagenet(imagenet_listing("iirc_imagenet_full"), WNIDS)
    store = JpegStore(files.folder, files.images, 32, 12_000_000, workers=3)
    read, counts = store.read, []

    def counting(index, keys=None):
        counts.append(index.size)
        return read(index, keys)

    store.read = counting
    shared = RunFolder("paper", "run", ExperimentOptions(runs=Path(folder)), shared=True)
    if moment:
        killed = shared.checkpoints / group_name(runs_of(files)), int(moment[0])
        threading.Thread(target=kill_at, args=killed, daemon=True).start()
    Checkpoints.due = due_every(1)
    build = make_build(partial(stream, store))
    training = SharedTraining(build, PROTOCOL, imagenet_statistics(), keep, announce=store.announce)
    train_runs(shared, runs_of(files), training)
    Path(f"{folder}-read-{jax.process_index()}").write_text(str(np.sum(counts)))


if __name__ == "__main__":
    run_as_command("--distributed", sys.argv[2])
