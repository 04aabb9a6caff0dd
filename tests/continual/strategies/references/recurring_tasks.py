"""Three tasks of the small net; the last has a class of each earlier task, and one new class."""

import numpy as np

from tests.continual import small_net as net
from tests.continual.small_net import LABELS, START

CLASSES_OF = [[0, 1], [2, 3], [0, 2, 5]]
NEW = [[0, 1], [2, 3], [5]]
TRAIN = [np.flatnonzero(np.isin(LABELS, classes))[:9] for classes in CLASSES_OF]
BATCHES = [[net.batch_of(t[:4]), net.batch_of(t[4:]), net.batch_of(t[[5, 1, 0, 2]])] for t in TRAIN]
MASKED = [np.append(t, [4, 10]) for t in TRAIN]
"""Samples with two slots of padding, whose class 4 is in no task."""
SEQUENCE = [
    (
        net.task_of(
            t, NEW[t], net.samples_of(MASKED[t], np.arange(len(MASKED[t])) < len(TRAIN[t]))
        ),
        batches,
    )
    for t, batches in enumerate(BATCHES)
]


def own_mask(task):
    return net.classes_mask(CLASSES_OF[task])


def solution(task, start=START):
    """Return the float64 parameters after a task that trains from `start` on its classes alone."""
    return net.descend(start, BATCHES[task], own_mask(task), net.no_penalty)[0]
