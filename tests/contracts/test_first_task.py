"""The first task of methods that act on earlier tasks alone is plain finetuning, bit for bit."""

import chex
import jax
import jax.numpy as jnp
import pytest

from everlight.continual.engine.epochs import take_batch
from everlight.continual.engine.run import Run
from everlight.continual.engine.tasks import begin_state, begin_task, next_epoch, take_task
from everlight.continual.engine.updates import train_step
from everlight.continual.strategies.naive import naive
from tests.contracts.strategies import DATA, KEY, PROTOCOL, SEQUENCE, build_with

FINETUNED = ("EWC", "SI", "MAS", "LwF", "A-GEM", "GPM", "TRGP", "iCaRL, softmax")


def parameters_after_steps(build):
    """Return the parameters after three steps of the first task."""
    run, (setup, strategy) = Run(build, PROTOCOL, DATA, SEQUENCE, KEY), build(DATA)
    state = begin_task(run, begin_state(run))
    task = take_task(strategy, PROTOCOL, SEQUENCE, jnp.int32(0))
    epoch, memory, learner = next_epoch(run, state), state.result.memory, state.result.learner
    for step in range(3):
        batch, key = take_batch(epoch, jnp.int32(step), 8), jax.random.fold_in(KEY, step)
        memory, learner, _ = train_step(setup, strategy, memory, learner, batch, task, key)
    return learner.params


@pytest.mark.parametrize("name", FINETUNED)
def test_the_first_task_is_finetuning(name):
    build = build_with(f"{name}, first task", name)

    def finetuning(data):
        setup, _ = build(data)
        return setup, naive(setup)

    with jax.disable_jit():
        result, expected = map(parameters_after_steps, (build, finetuning))
    chex.assert_trees_all_equal(result, expected)
