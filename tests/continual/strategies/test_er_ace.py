"""ER-ACE's two softmaxes in float64."""

import jax
import jax.numpy as jnp
import numpy as np

from everlight.continual.engine.updates import complete_batch
from everlight.continual.strategies.er_ace import er_ace
from everlight.continual.strategies.experience_replay import Reservoir
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, LABELS, START

SETUP = net.small_setup()
STRATEGY = net.compiled(er_ace(SETUP, buffer_size=8))
TASK = net.task_of(1, [2, 3], net.samples_of([2, 3]))
# Sample 5 fills a last, partial batch: its class 5 is not present.
OWN, SEEN = [2, 8, 4], [0, 1, 2, 4, 5]
BATCH = net.batch_of([*OWN, 5], [1, 1, 1, 0])


@jax.jit
def step(memory):
    batch = complete_batch(SETUP, STRATEGY, memory, BATCH, TASK, jax.random.key(0))
    learner = net.small_learner(SETUP, SEEN)
    return STRATEGY.grads(memory, learner, batch, TASK, jax.random.key(1))


def memory_of(index):
    content = np.array([*index, *[39] * (8 - len(index))])
    return Reservoir(net.samples_of(content, np.arange(8) < len(index)), jnp.int32(len(index)))


def among(classes):
    return np.isin(np.arange(CLASSES), classes)


def test_the_batch_runs_over_its_own_classes_and_the_memory_over_all_seen():
    held = [0, 6, 11]
    own = net.batch_gradient(START, OWN, among(LABELS[OWN]))
    replayed = net.batch_gradient(START, held, among(SEEN))
    gradient, info = step(memory_of(held))
    expected = {name: own[name] + replayed[name] for name in own}
    net.assert_trees_close(gradient, expected, atol=1e-6)
    # A pass for each.
    assert info.batch_stats["passes"] == 2


def test_an_absent_class_s_output_gets_no_gradient_from_the_batch():
    """Its weights move by the replayed samples alone, and by nothing while none is held."""
    gradient, info = step(memory_of([]))
    net.assert_trees_close(gradient, net.batch_gradient(START, OWN, among([2, 4])), atol=1e-6)
    for label in (0, 1, 3, 5):
        assert np.all(gradient["head"][:, label] == 0)
        assert gradient["head_bias"][label] == 0
    assert np.any(gradient["head"][:, 2] != 0)
    # A memory without samples moves no batch statistics.
    assert info.batch_stats["passes"] == 1
