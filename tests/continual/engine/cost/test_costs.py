"""Costs counted from shapes: parameters, memory, replayed samples."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.continual.engine import (
    Protocol,
    Run,
    StoredImages,
    count_cost,
    flax_setup,
    replayed_per_step,
)
from everlight.continual.objectives import softmax_objective
from everlight.continual.strategies import ewc, experience_replay, naive
from everlight.models import MLP
from everlight.scenarios import class_incremental

LABELS = np.arange(24) % 4
SEQUENCE = class_incremental(LABELS[:16], LABELS[16:], [[0, 1], [2, 3]], 4, 0.25)
IMAGES = StoredImages.of(np.zeros((24, 5), np.float32), jnp.float32(0), jnp.float32(1))
KEY = jax.random.key(0)


def run_of(strategy):
    def build(data):
        setup = flax_setup(MLP(4, (3,)), data, softmax_objective(), optax.sgd(0.1))
        return setup, strategy(setup)

    return Run(build, Protocol(epochs=1, batch_size=4, select="last"), IMAGES, SEQUENCE, KEY)


def test_costs_follow_from_the_shapes():
    """The net has 5 inputs, 3 hidden units and 4 outputs; EWC stores two parameter copies."""
    parameters = 5 * 3 + 3 + 3 * 4 + 4
    plain, penalized = count_cost(run_of(naive)), count_cost(run_of(lambda setup: ewc(setup, 1.0)))
    assert (plain.parameters, plain.parameter_copies, plain.memory_bytes) == (parameters, 0, 0)
    assert (plain.sample_bytes, plain.batch_size) == (5 * 4, 4)
    assert penalized.parameter_copies == 2
    assert penalized.memory_bytes >= 2 * 4 * parameters
    assert penalized.operations > plain.operations > 0


def test_replayed_samples_are_counted_as_a_step_draws_them():
    assert replayed_per_step(run_of(naive)) == 0
    assert replayed_per_step(run_of(lambda setup: experience_replay(setup, 8))) == 4
    sized = run_of(lambda setup: experience_replay(setup, 8, replay_batch_size=6))
    assert replayed_per_step(sized) == 6
