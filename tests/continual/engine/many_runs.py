"""Three runs of EWC with the linear network, which differ in classes, key and regularization."""

import jax
import jax.numpy as jnp

from everlight.continual.engine import Protocol, Runs, drive_runs
from everlight.continual.strategies.ewc import ewc
from everlight.scenarios import class_incremental, pad_sequences
from tests.continual.engine.linear_net import CLASSES, DATA, TEST, TRAIN, linear_setup

ORDERS = ([[0, 1], [2, 3], [4, 5]], [[5, 2], [0, 4], [1, 3]], [[3, 0], [5, 1], [4, 2]])
REGULARIZATIONS = jnp.array([1.0, 3.0, 0.3])
# No metric of 1 or less is an improvement, so that the rate drops after every further epoch.
FALLING = {"plateau_factor": 0.5, "plateau_patience": 0, "plateau_threshold": 2.0}
PROTOCOL = Protocol(epochs=4, first_epochs=5, batch_size=8, **FALLING)


def build(data):
    images, regularization = data
    setup = linear_setup(images)
    return setup, ewc(setup, regularization, importance_samples=16)


def join(shared, run_data):
    return shared, run_data


def some_runs(regularizations=REGULARIZATIONS):
    count = len(regularizations)
    sequences = pad_sequences([class_incremental(TRAIN, TEST, order, CLASSES) for order in ORDERS])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves[:count]), *sequences)
    keys = jax.random.split(jax.random.key(4), len(ORDERS))[:count]
    return Runs(build, PROTOCOL, DATA, stacked, keys, regularizations, join)


def copied(state):
    """Return a copy of the state, which outlives the next chunk."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)


def states(runs, chunk=3, state=None, mesh=None):
    return [copied(item) for item in drive_runs(runs, chunk, mesh, state)]
