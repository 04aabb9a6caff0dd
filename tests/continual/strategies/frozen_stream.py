"""A stream for strategies that count over the small net's features, and the same in float64."""

import jax
import numpy as np

from tests.continual.small_net import (
    LABELS,
    START,
    batch_of,
    forward,
    run_tasks,
    samples_of,
    small_setup,
    task_of,
)

# Classes begin within a batch, come again in later ones, and class 4 is never met; 11 and 3 are
# padding, with which nothing of class 5 or 3 may be counted.
BATCHES = [
    batch_of([0, 1, 6, 2, 12, 11], [1, 1, 1, 1, 1, 0]),
    batch_of([7, 13, 3, 8, 14, 18], [1, 1, 0, 1, 1, 1]),
    batch_of([19, 20, 5, 17, 25]),
]
MET = [0, 1, 2, 5]


def after(strategy, batches=None, setup=None):
    """Memory and learner after the batches of one task that has all classes."""
    task = task_of(0, range(6), samples_of([0]))
    steps = BATCHES if batches is None else batches
    return run_tasks(setup or small_setup(), strategy, [(task, steps)])[-1]


def solved(strategy, memory, learner):
    return jax.jit(strategy.before_evaluation)(memory, learner, jax.random.key(0))[0]


def arrivals(batches=None):
    """Features in evaluation mode of what training sees, and classes, in float64."""
    steps = BATCHES if batches is None else batches
    index = np.concatenate([np.asarray(b.index)[np.asarray(b.weight) > 0] for b in steps])
    return forward(START, index, train=True)[1], LABELS[index]


def one_by_one():
    """The same samples in the same order, each a batch of its own."""
    kept = [np.asarray(b.index)[np.asarray(b.weight) > 0] for b in BATCHES]
    return [batch_of([index]) for index in np.concatenate(kept)]
