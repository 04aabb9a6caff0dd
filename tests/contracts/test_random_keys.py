"""Every random key of a sequence has one consumer, whatever the strategy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.engine.run import Run
from everlight.continual.engine.sequence import run_sequence
from everlight.continual.engine.tasks import begin_state, begin_task, end_task, learn_epochs
from tests.continual.key_use import KeyUse
from tests.contracts.short_sequence import DATA, KEY, PROTOCOL, SEQUENCE
from tests.contracts.strategies import STRATEGIES, TASKS, some_now
from tests.contracts.strategies import build_with as contract_build


def used_twice(key):
    """Use one key for two things, as a split and as a fold."""
    return jax.random.uniform(jax.random.split(key)[0]) + jax.random.uniform(
        jax.random.fold_in(key, 0)
    )


def bits_and_split(key):
    return jax.random.uniform(key) + jax.random.uniform(jax.random.split(key)[1])


def bits_twice(key):
    return jax.random.normal(key) + jax.random.uniform(key)


def of_a_loop(key):
    def body(number, total):
        return total + jax.random.uniform(jax.random.fold_in(key, number // 2))

    return jax.lax.fori_loop(0, 4, body, 0.0)


def sound(key):
    first, others = jax.random.split(key)
    rest = jax.vmap(lambda number: jax.random.uniform(jax.random.fold_in(others, number)))
    return jax.random.uniform(first) + jnp.sum(rest(jnp.arange(4)))


@pytest.mark.parametrize("function", [used_twice, bits_and_split, bits_twice, of_a_loop])
def test_a_key_with_two_consumers_is_found(function):
    use = KeyUse()
    jax.block_until_ready(jax.jit(use.instrumented(function))(KEY))
    jax.effects_barrier()
    assert use.shared()


def test_keys_with_one_consumer_are_none():
    use = KeyUse()
    np.testing.assert_allclose(jax.jit(use.instrumented(sound))(KEY), sound(KEY), rtol=1e-6)
    jax.effects_barrier()
    assert len(use.uses) == 7
    assert not use.shared()


@some_now(STRATEGIES)
def test_no_key_of_a_compiled_sequence_serves_two_consumers(name):
    use, build = KeyUse(), contract_build(f"{name}, keys", name)
    program = jax.jit(
        use.instrumented(lambda data, key: run_sequence(Run(build, PROTOCOL, data, SEQUENCE, key)))
    )
    jax.block_until_ready(program(DATA, KEY))
    jax.effects_barrier()
    assert len(use.uses) > 10 * TASKS
    assert not use.shared()


@some_now(STRATEGIES, ())
def test_no_key_of_programs_in_turn_serves_two_consumers(name):
    """The driver has other programs for the start, the epochs and the end of a task."""
    use, build = KeyUse(), contract_build(f"{name}, driven keys", name)

    def program(part):
        return jax.jit(
            use.instrumented(
                lambda data, key, *state: part(Run(build, PROTOCOL, data, SEQUENCE, key), *state)
            )
        )

    begin, learn, end = map(program, (begin_task, partial(learn_epochs, epochs=1), end_task))
    state = program(begin_state)(DATA, KEY)
    for _ in range(TASKS):
        state = begin(DATA, KEY, state)
        for _ in range(PROTOCOL.epochs):
            state = learn(DATA, KEY, state)
        state = end(DATA, KEY, state)
    jax.effects_barrier()
    assert int(state.task) == TASKS
    assert len(use.uses) > 10 * TASKS
    assert not use.shared()
