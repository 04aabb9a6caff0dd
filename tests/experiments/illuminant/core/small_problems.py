"""Small regression problems, and the training of networks for them with frequent checkpoints."""

from unittest import mock

import numpy as np

from everlight.illuminant.illuminant_training import Problem, TrainingSettings
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.illuminant.core.networks import NetworkTraining, train_networks
from tests.experiments.checkpoint_intervals import due_every

PROBLEMS, SAMPLES, VALID = 3, 40, 15
SETTINGS = TrainingSettings(200, batch_size=8, learning_rate=0.01, validate_every=10)


def problems():
    rng = np.random.default_rng(0)

    def problem():
        features = rng.normal(size=(SAMPLES + VALID, 9))
        targets = np.exp(0.3 * np.tanh(features @ rng.normal(size=(9, 2))))
        train, valid = (slice(SAMPLES), slice(SAMPLES, None))
        return Problem(features[train], targets[train], features[valid], targets[valid])

    return [problem() for _ in range(PROBLEMS)]


def train(folder, settings=SETTINGS, depths=(2,), seed=1, data=None):
    data = problems() if data is None else data
    with mock.patch.object(Checkpoints, "due", due_every(1)):
        return train_networks(data, depths, NetworkTraining(settings, (seed,), folder))
