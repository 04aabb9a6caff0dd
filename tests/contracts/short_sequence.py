"""A short class-incremental sequence for every strategy."""

import jax
import numpy as np

from everlight.continual.engine.protocol import Protocol
from everlight.scenarios.class_incremental import class_incremental, equal_tasks
from tests.contracts.strategies import CLASSES, TASKS

LABELS = np.repeat(np.arange(CLASSES), 6)
TEST = np.arange(CLASSES)
SEQUENCE = class_incremental(LABELS, TEST, equal_tasks(range(CLASSES), TASKS), CLASSES, 0.34)
DATA = jax.random.normal(jax.random.key(0), (len(LABELS) + CLASSES, 6))
PROTOCOL = Protocol(epochs=2, batch_size=3, evaluation_batch=32)
KEY = jax.random.key(7)
