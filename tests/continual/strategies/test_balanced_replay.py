"""Experience replay where classes come again: CORe50's batches of new instances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.tasks import take_task
from everlight.continual.strategies.agem import agem
from everlight.continual.strategies.balanced_replay import Exemplars, balanced_replay
from everlight.scenarios.core50 import OBJECTS, TRAIN_SESSIONS, core50
from tests.continual.draw_frequencies import assert_equal_chances
from tests.continual.small_net import compiled, samples_of, small_learner, small_setup, task_of

FRAMES, HELD = 6, 4
# Every object has six frames in each of eleven sessions.
OBJECT, SESSION, _ = (leaf.reshape(-1) for leaf in np.indices((OBJECTS, 11, FRAMES)))
SETUP = small_setup()
STRATEGY = compiled(balanced_replay(SETUP, exemplars_per_class=HELD))


def buffers_after(scenario):
    """Return the buffer after every batch; no net is trained, as none affects the buffer."""
    sequence = core50(OBJECT, SESSION, scenario)
    seen = jnp.ones(OBJECTS, bool)
    learner = small_learner(SETUP, [0])._replace(seen=seen)

    def one_task(memory, number):
        task = take_task(STRATEGY, Protocol(select="last"), sequence, number)
        memory, _ = STRATEGY.end_task(memory, learner, task, jax.random.key(0))
        return memory, memory.buffer

    start = STRATEGY.init(jax.random.key(5), learner)
    assert isinstance(start, Exemplars)
    _, buffers = jax.jit(lambda m: jax.lax.scan(one_task, m, jnp.arange(len(sequence.tasks.id))))(
        start
    )
    return jax.tree.map(np.asarray, buffers), sequence


def test_after_eight_batches_of_new_instances_all_eight_sessions_are_held():
    """200 exemplars of 2,400 frames are 25 per session, by a chi-square test, and 4 per object."""
    buffers, sequence = buffers_after("NI")
    order = SESSION[np.asarray(sequence.tasks.train.index)[:, 0]]
    assert sorted(order.tolist()) == sorted(TRAIN_SESSIONS)
    for number, (index, mask) in enumerate(zip(buffers.index, buffers.mask, strict=True)):
        assert mask.all()
        assert set(SESSION[index]) == set(order[: number + 1])
    last = buffers.index[-1]
    np.testing.assert_array_equal(np.bincount(OBJECT[last]), [HELD] * OBJECTS)
    assert len(set(last.tolist())) == HELD * OBJECTS
    np.testing.assert_array_equal(buffers.labels[-1][:, 0], OBJECT[last])
    counts = [np.sum(SESSION[last] == session) for session in TRAIN_SESSIONS]
    assert_equal_chances(counts, HELD * OBJECTS, 1 / 8)


@pytest.mark.parametrize("make", [balanced_replay, agem])
@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_of_any_implementation_hold_the_same_exemplars_whatever_the_tasks(make, impl):
    """Four of seven samples of class 2 are stored, which come in one task or in three."""
    strategy, learner = make(SETUP, exemplars_per_class=HELD), small_learner(SETUP, [2])
    complete = np.array([2, 8, 14, 20, 26, 32, 38])

    def held_after(parts):
        memory = strategy.init(jax.random.key(5, impl=impl), learner)
        assert memory.key_data.shape == (2,)
        end = jax.jit(strategy.end_task)
        for number, part in enumerate(parts):
            task = task_of(number, [2], samples_of(np.resize(part, 7), np.arange(7) < len(part)))
            key = jax.random.key(number, impl=impl)
            memory, _ = end(memory, learner, task, key)
        return sorted(np.asarray(memory.buffer.index)[np.asarray(memory.buffer.mask)].tolist())

    expected = held_after([complete])
    assert len(expected) == HELD
    assert held_after([complete[[6, 1]], complete[[3, 0, 4]], complete[[5, 2]]]) == expected
