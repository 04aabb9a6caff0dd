"""A run of A-GEM in a run folder, which stores every array of its result."""

import jax
import numpy as np

from everlight_experiments.continual.training.runs import SharedTraining, TrainingRun, train_runs
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions
from tests.contracts.strategies import DATA, KEY, PROTOCOL, SEQUENCE, build_with


def folder_in(path):
    return RunFolder("paper", "run", ExperimentOptions(runs=path))


def checkpoints_of(path):
    """Return the folder of the run's checkpoints, which need not exist."""
    return path / "paper-run-demo" / "checkpoints" / "A-GEM"


def everything(result):
    return {str(number): leaf for number, leaf in enumerate(jax.tree.leaves(result))}


def train_agem(path, result, announce=None):
    """Train A-GEM in a run folder below `path`; `result` is a file of all arrays that it left."""
    run = TrainingRun("A-GEM", {"strategy": "a-gem"}, SEQUENCE, KEY)
    training = SharedTraining(
        build_with("A-GEM"), PROTOCOL, DATA, everything, announce=announce, one_by_one=True
    )
    (arrays,) = train_runs(folder_in(path), [run], training)
    np.savez(result, **arrays)
