"""BiC's second task on the small net: what is known, what is new, how the old is corrected."""

import jax
import jax.numpy as jnp
import numpy as np

from everlight.continual.strategies.parts.bias_correction import Correction
from everlight.continual.strategies.parts.teacher import Teacher
from tests.continual.many_labels import binary_setup, labelled_batch
from tests.continual.small_net import CLASSES, as_float32, filled, small_learner

KEY = jax.random.key(0)
SETUP = binary_setup()
# Classes 0, 1 and 4 were known before, 2 and 3 are new, 5 is still to come.
KNOWN, SEEN = np.isin(np.arange(CLASSES), [0, 1, 4]), np.arange(CLASSES) != 5
INDEX = np.array([0, 1, 2, 3, 12, 5, 9, 33, 8])
BATCH = filled(SETUP, labelled_batch(INDEX, [1] * 8 + [0], [1, 1, 0, 0, 0, 1, 0, 1, 0]))
STORED = INDEX[:-1]
SCALE = np.array([0.7, 1.3, 1, 1, 0.5, 1])
SHIFT = np.array([0.4, -0.2, 0, 0, 0.9, 0])
CORRECTION = Correction(jnp.float32(SCALE), jnp.float32(SHIFT))
NEW = np.isin(np.arange(CLASSES), [2, 3])
IDENTITY = Correction(jnp.ones(CLASSES), jnp.zeros(CLASSES))


def memory_with(strategy, params, known, correction=CORRECTION):
    memory = strategy.init(KEY, small_learner(SETUP, []))
    teacher = Teacher(as_float32(params), {"passes": 0}, jnp.asarray(known))
    return memory._replace(teacher=teacher, correction=correction, old_correction=correction)
