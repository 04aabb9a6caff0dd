"""Costly branches of strategies stay conditional when runs are vmapped, as on accelerators."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest

from everlight.base import Outputs
from everlight.continual.engine import Run, StoredImages, flax_setup
from everlight.continual.engine.driver import _RUNS_AXES
from everlight.continual.engine.tasks import begin_state, learn_epochs
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies import aper, gem, onpro, packnet
from everlight.models.layers.normalization import BatchNorm
from tests.continual.strategies.references import separable_tasks as tasks
from tests.contracts.matrix_products import has_equations

RUNS = 2
medium = pytest.mark.medium


class NormalizedNet(nn.Module):
    @nn.compact
    def __call__(self, inputs, train):
        hidden = BatchNorm()(nn.Dense(8, name="first")(inputs), train)
        return Outputs(nn.Dense(tasks.CLASSES, name="head")(hidden), hidden)


def products(program, in_condition=False):
    """Count the matrix products of a program and its parts, outside and inside of conditions."""
    counts = [0, 0]
    for equation in program.eqns:
        counts[in_condition] += equation.primitive.name == "dot_general"
        inside = in_condition or equation.primitive.name == "cond"
        for part in jax.tree.leaves(list(equation.params.values()), is_leaf=has_equations):
            if has_equations(part):
                deeper = products(getattr(part, "jaxpr", part), inside)
                counts = [sum(pair) for pair in zip(counts, deeper, strict=True)]
    return counts


@pytest.mark.parametrize(
    ("strategy", "backward_passes"),
    [
        pytest.param(packnet, 2, id="PackNet"),
        pytest.param(partial(gem, tasks=tasks.TASKS, per_task=4), 1, id="GEM", marks=medium),
        pytest.param(aper, 1, id="APER", marks=medium),
        pytest.param(partial(onpro, buffer_size=20, width=4), 2, id="OnPro", marks=medium),
    ],
)
def test_a_pass_that_some_tasks_take_is_in_a_condition(strategy, backward_passes):
    """A pass over this net has two products forward and three backward."""

    def build(stored):
        source = StoredImages.of(stored, jnp.zeros(tasks.WIDTH), jnp.ones(tasks.WIDTH))
        setup = flax_setup(NormalizedNet(), source, softmax_objective(), optax.sgd(0.1))
        return setup, strategy(setup)

    def run_of(sequence, key):
        return Run(build, tasks.PROTOCOL, tasks.INPUTS, sequence, key)

    def train(rows, state):
        return learn_epochs(run_of(*rows), state, 1)

    sequences = jax.tree.map(lambda leaf: jnp.stack([leaf] * RUNS), tasks.SEQUENCE)
    rows = sequences, jax.random.split(jax.random.key(0), RUNS)
    begin = jax.vmap(lambda *rows: begin_state(run_of(*rows)), out_axes=_RUNS_AXES)
    in_runs = jax.vmap(train, in_axes=(0, _RUNS_AXES), out_axes=_RUNS_AXES)
    program = jax.make_jaxpr(in_runs)(rows, jax.eval_shape(begin, *rows))
    _, conditional = products(program.jaxpr)
    assert conditional >= 5 * backward_passes
