"""Runs of EWC with the linear network, and their training in a run folder."""

import jax
import numpy as np

from everlight_experiments.continual.training.runs import SharedTraining, TrainingRun, train_runs
from tests.continual.engine.linear_net import DATA
from tests.continual.engine.many_runs import PROTOCOL, build, join, some_runs


def ewc_runs(hyperparameters=(1.0, 3.0, 0.3)):
    runs = some_runs(np.float32(hyperparameters))
    return [
        TrainingRun(
            f"EWC-{number}",
            {"hyperparameter": hyperparameter},
            *jax.tree.map(lambda a, n=number: a[n], (runs.sequence, runs.key, runs.run_data)),
        )
        for number, hyperparameter in enumerate(hyperparameters)
    ]


def keep(result):
    return {"losses": result.losses, "accuracy": result.evaluation.class_incremental}


TRAINING = SharedTraining(build, PROTOCOL, DATA, keep, join)


def train(folder, requested=None):
    return train_runs(folder, requested or ewc_runs(), TRAINING)
