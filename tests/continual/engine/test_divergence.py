"""Divergence: a number that is not finite is noticed in the epoch that first has it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual import engine
from everlight.continual.objectives import softmax_objective
from everlight.continual.strategies import naive
from everlight.models import MLP
from everlight.scenarios import class_incremental

LABELS = np.arange(24) % 6
TASKS = ((0, 1), (2, 3), (4, 5))
SEQUENCE = class_incremental(LABELS[:18], LABELS[18:], TASKS, 6, 0.34)
KEY = jax.random.key(0)
# An epoch is a single step, so that no later loss shows the parameters after it.
PROTOCOL = engine.Protocol(epochs=1, batch_size=32, select="last")
DATA = engine.StoredImages.of(
    jax.random.normal(jax.random.key(1), (24, 3)), jnp.float32(0), jnp.float32(1)
)


def nan_from_the_second(task, tree):
    return jax.tree.map(lambda leaf: jnp.where(task.id == 1, jnp.nan, leaf), tree)


def in_parameters(setup, plain):
    def grads(memory, learner, batch, task, key):
        gradient, info = plain.grads(memory, learner, batch, task, key)
        return nan_from_the_second(task, gradient), info

    return setup, plain._replace(grads=grads)


def in_validation(setup, plain):
    def metric(scores, labels, seen):
        # The classes of the second task are seen and those of the third are not.
        return jnp.where(seen[2] & ~seen[4], jnp.nan, jnp.zeros(scores.shape[0]))

    return setup._replace(objective=setup.objective._replace(metric=metric)), plain


def in_memory(setup, plain):
    def end_task(memory, learner, task, key):
        return nan_from_the_second(task, memory), learner

    return setup, plain._replace(init=lambda key, learner: jnp.zeros(2), end_task=end_task)


def building(part):
    def build(data):
        net = MLP(classes=6, hidden=(4,))
        setup = engine.flax_setup(net, data, softmax_objective(), optax.sgd(0.1))
        return part(setup, naive(setup))

    return build


def where_diverged(build):
    """Return after which tasks the compiled sequence and the driven one have diverged."""
    run = engine.Run(build, PROTOCOL, DATA, SEQUENCE, KEY)
    compiled = ~np.isfinite(engine.run_sequence(run).losses[:, 0])
    driven = [
        engine.diverged_runs(PROTOCOL, state).item()
        for state in engine.drive_runs(engine.Runs.of(run))
    ]
    return np.maximum.accumulate(compiled).tolist(), driven


@pytest.mark.parametrize("part", [in_parameters, in_validation, in_memory])
def test_divergence_is_found_in_its_task_compiled_and_driven(part):
    assert where_diverged(building(part)) == ([False, True, True],) * 2


def test_finite_runs_have_no_divergence():
    result = where_diverged(building(lambda setup, plain: (setup, plain)))
    assert result == ([False, False, False],) * 2
