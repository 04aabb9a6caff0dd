"""Runs of the small net over three short tasks, driven by a strategy alone."""

import jax
import numpy as np

from everlight.continual.engine import Run, run_sequence
from everlight.scenarios import class_incremental
from tests.continual.small_net import CLASSES, LABELS, small_setup

TASKS = [[4, 1], [0, 5], [2, 3]]
SEQUENCE = class_incremental(LABELS, LABELS[:33], TASKS, CLASSES, 0.0, test_offset=0)
SIZES = np.asarray(SEQUENCE.tasks.train.mask).sum(axis=1)
KEY = jax.random.key(2)


def run_of(strategy, protocol, sequence=SEQUENCE):
    def build(data):
        setup = small_setup()
        return setup, strategy(setup)

    return Run(build, protocol, (), sequence, KEY)


def trained(strategy, protocol, sequence=SEQUENCE):
    return jax.jit(run_sequence)(run_of(strategy, protocol, sequence))
