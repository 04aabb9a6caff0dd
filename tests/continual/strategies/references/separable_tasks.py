"""Three tasks of two classes, far apart, and a net of two hidden layers that learns them."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.base import Outputs
from everlight.continual.engine import Protocol, Run, StoredImages, flax_setup
from everlight.continual.objectives.softmax import softmax_objective
from everlight.scenarios.class_incremental import class_incremental
from tests.single_run import drive_run

TASKS, CLASSES, WIDTH, PER_CLASS = 3, 6, 10, 40
PROTOCOL = Protocol(epochs=10, batch_size=8, evaluation_batch=60, select="last")


class Net(nn.Module):
    """ReLU layers named first, second and head."""

    @nn.compact
    def __call__(self, inputs, train):
        hidden = nn.relu(nn.Dense(24, name="first")(inputs))
        hidden = nn.relu(nn.Dense(24, name="second")(hidden))
        return Outputs(nn.Dense(CLASSES, name="head")(hidden), hidden)


_rng = np.random.default_rng(4)
LABELS = np.repeat(np.arange(CLASSES), PER_CLASS)
INPUTS = _rng.normal(size=(CLASSES, WIDTH))[LABELS] * 2
INPUTS = jnp.asarray(INPUTS + 0.3 * _rng.normal(size=INPUTS.shape), jnp.float32)
SEQUENCE = class_incremental(
    LABELS, LABELS, [[0, 1], [2, 3], [4, 5]], CLASSES, valid_fraction=0.0, test_offset=0
)


class After(NamedTuple):
    """The state after a task."""

    memory: tuple
    learner: tuple
    task_masked: np.ndarray
    """Task-aware accuracies, `[t]`."""
    scores: np.ndarray
    """Scores of all samples with the task identity, `[n, c]`."""


def learn(make, optimizer, protocol=PROTOCOL):
    """Return the strategy's states after every task."""

    def build(stored):
        source = StoredImages.of(stored, jnp.zeros(WIDTH), jnp.ones(WIDTH))
        setup = flax_setup(Net(), source, softmax_objective(), optimizer)
        return setup, make(setup)

    strategy, after = build(INPUTS)[1], []
    tell = jax.jit(jax.vmap(strategy.predict_task, (None, None, 0, 0)))
    parts = INPUTS.reshape(TASKS, -1, WIDTH)
    for state in drive_run(Run(build, protocol, INPUTS, SEQUENCE, jax.random.key(1))):
        if state.epoch == 0:
            memory, learner = state.result.memory, state.result.learner
            scores = tell(memory, learner, parts, jnp.arange(TASKS)).reshape(len(LABELS), -1)
            task_masked = state.result.evaluation.task_masked[len(after)]
            after.append(After(memory, learner, np.asarray(task_masked), np.asarray(scores)))
    assert len(after) == TASKS
    return after


def decaying():
    """Return momentum with weight decay, which move a parameter of zero gradient."""
    return optax.chain(optax.add_decayed_weights(1e-3), optax.sgd(0.05, momentum=0.9))


def assert_nothing_is_lost(after, atol=0.0):
    """Check that later states score a task's samples, with its identity, as right after it."""
    for task, early in enumerate(after):
        rows = slice(2 * task * PER_CLASS, 2 * (task + 1) * PER_CLASS)
        classes = slice(2 * task, 2 * task + 2)
        assert early.task_masked[task] > 0.95
        for late in after[task + 1 :]:
            scores = (state.scores[rows, classes] for state in (late, early))
            np.testing.assert_allclose(*scores, rtol=0, atol=atol)
            assert late.task_masked[task] == early.task_masked[task]
