"""A sequence streamed from JPEG files that kills itself: `FOLDER RESULT MOMENT`, or no moment.

Experience replay, three tasks of two classes. The memory limit holds four or more images, so that
most are decoded when they are asked for and some ahead, as threads have it.
"""

import sys
import threading
from functools import partial
from pathlib import Path

import flax.linen as nn
import jax
import numpy as np
import optax

from data_pipelines.images.imagenet import list_imagenet
from data_pipelines.images.jpeg_store import JpegStore
from everlight.continual.base import Outputs
from everlight.continual.engine.flax_setup import flax_setup
from everlight.continual.engine.steps import Protocol
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies.replay import experience_replay
from everlight.models.convolution import Convolution
from everlight.scenarios.class_incremental import class_incremental, equal_tasks
from experiments.common.checkpoint import Checkpoints
from experiments.common.sequences import train_sequence
from experiments.common.streaming import channels, stream
from tests.experiments.killed_sequence import kill_at
from tests.experiments.rhythm import due_every

WNIDS = ("n01440764", "n01443537", "n01484850", "n02085620", "n02085782", "n02085936")
PROTOCOL = Protocol(epochs=3, batch_size=8, evaluation_batch=8)


class Net(nn.Module):
    @nn.compact
    def __call__(self, images, train):
        hidden = nn.relu(Convolution(8, 3, 2)(images))
        features = hidden.reshape(len(images), 4, 4, 4, 4, 8).mean(axis=(2, 4)).reshape(-1, 128)
        return Outputs(nn.Dense(len(WNIDS))(features), features)


def make_build(source):
    def build(data):
        setup = flax_setup(Net(), source(data), softmax_objective(), optax.sgd(0.02, momentum=0.9))
        return setup, experience_replay(setup, 2)

    return build


def make_sequence(files):
    tasks = equal_tasks(range(len(WNIDS)), 3)
    return class_incremental(files.train_labels, files.test_labels, tasks, len(WNIDS))


def main() -> None:
    folder, result, *moment = sys.argv[1:]
    files = list_imagenet(WNIDS)
    store = JpegStore(files.folder, files.images, 32, 12_000_000, workers=3)
    if moment:
        threading.Thread(target=kill_at, args=(Path(folder), int(moment[0])), daemon=True).start()
    Checkpoints.due = due_every(1)
    parts = (make_build(partial(stream, store)), PROTOCOL, channels(), make_sequence(files))
    trained = train_sequence(
        *parts, jax.random.key(5), Path(folder), {"strategy": "er"}, store.announce
    )
    np.savez(result, *jax.tree.leaves(trained))


if __name__ == "__main__":
    main()
