"""DER++'s three terms in float64, and the logits that it stores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.engine.updates import complete_batch
from everlight.continual.strategies.der import DarkReservoir
from everlight.continual.strategies.der_plus_plus import der_plus_plus
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, RATE, START

SETUP = net.small_setup()
TASK = net.task_of(1, [2, 3], net.samples_of([2, 3]))
OWN = [2, 8, 3]
BATCH = net.batch_of([*OWN, 20], [1, 1, 1, 0])
ACTIVE = {"all": np.ones(CLASSES, bool), "seen": np.arange(CLASSES) < 4}
LOGITS = np.random.default_rng(1).normal(size=(8, CLASSES))


def memory_of(index):
    """Stored samples in the first slots, row i of `LOGITS` in slot i."""
    content, mask = np.full(8, 39), np.zeros(8, bool)
    place = np.arange(len(index))
    content[place], mask[place] = index, True
    logits = jnp.asarray(LOGITS, jnp.float32)
    return DarkReservoir(net.samples_of(content, mask), logits, jnp.int32(len(index)))


def step(memory, **given):
    strategy = net.compiled(der_plus_plus(SETUP, buffer_size=8, **given))

    @jax.jit
    def grads(memory):
        batch = complete_batch(SETUP, strategy, memory, BATCH, TASK, jax.random.key(0))
        learner = net.small_learner(SETUP, [0, 1, 2, 3])
        return strategy.grads(memory, learner, batch, TASK, jax.random.key(1))

    return grads(memory)


def distance(params, index, stored):
    """Mean over samples and all outputs of the squared way of the logits."""
    return np.mean((net.forward(params, index, train=True)[2] - stored) ** 2)


def distance_gradient(params, index, stored):
    away = net.forward(params, index, train=True)[2] - stored
    each = net.backward(params, index, 2 * away / CLASSES, train=True)
    return {name: leaf.mean(axis=0) for name, leaf in each.items()}


def test_the_reference_is_the_derivative_of_the_distance():
    index, stored = [0, 6, 7], LOGITS[:3]
    slope = net.finite_differences(lambda params: distance(params, index, stored), START)
    net.assert_trees_close(distance_gradient(START, index, stored), slope, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("alpha", "beta", "given", "classes"),
    [
        (0.1, 0.5, {}, "all"),
        (0.7, 0.0, {}, "all"),
        (0.0, 1.0, {"loss_over": "seen"}, "seen"),
        (0.1, 0.5, {"loss_over": "seen"}, "seen"),
    ],
)
def test_the_gradient_is_the_sum_of_three_terms(alpha, beta, given, classes):
    """Three held samples are all drawn, twice, for a batch of four."""
    held = [0, 6, 7]
    terms = [
        (1, net.batch_gradient(START, OWN, ACTIVE[classes])),
        (alpha, distance_gradient(START, held, LOGITS[:3])),
        (beta, net.batch_gradient(START, held, ACTIVE[classes])),
    ]
    expected = {name: sum(weight * term[name] for weight, term in terms) for name in START}
    gradient, info = step(memory_of(held), alpha=alpha, beta=beta, **given)
    net.assert_trees_close(gradient, expected, atol=1e-6)
    assert info.batch_stats["passes"] == 3


def test_an_empty_memory_leaves_the_gradient_and_the_batch_statistics():
    gradient, info = step(memory_of([]))
    net.assert_trees_close(gradient, net.batch_gradient(START, OWN, ACTIVE["all"]), atol=1e-6)
    assert info.batch_stats["passes"] == 1


def test_the_two_draws_are_two_and_each_sample_has_its_own_logits():
    """Four of eight held samples, twice: over 200 keys they are mostly not the same four."""
    strategy = net.compiled(der_plus_plus(SETUP, buffer_size=8))
    memory = memory_of(range(8))
    draw = jax.jit(jax.vmap(lambda key: strategy.draw(memory, BATCH, TASK, key)))
    matched, logits, labelled = draw(jax.random.split(jax.random.key(0), 200))
    np.testing.assert_allclose(logits, LOGITS[np.asarray(matched.index)], rtol=1e-6)
    pairs = zip(matched.index.tolist(), labelled.index.tolist(), strict=True)
    # By chance once in 70.
    assert sum(set(first) == set(second) for first, second in pairs) < 20


def test_logits_enter_as_they_were_before_the_step_for_the_augmented_inputs():
    """Two steps on the same batch: it is held twice, with the logits of two nets."""
    strategy = net.compiled(der_plus_plus(SETUP, buffer_size=10, alpha=0.0, beta=0.0))
    task = net.task_of(0, [0, 1, 2, 3], net.samples_of(OWN))
    ((memory, _),) = net.run_tasks(SETUP, strategy, [(task, [BATCH, BATCH])])
    assert memory.arrived == 6
    np.testing.assert_array_equal(memory.samples.index[:6], OWN + OWN)
    slope = net.batch_gradient(START, OWN, ACTIVE["all"])
    later = {name: START[name] - RATE * slope[name] for name in START}
    expected = np.concatenate([net.forward(own, OWN, train=True)[2] for own in (START, later)])
    np.testing.assert_allclose(memory.logits[:6], expected, rtol=1e-4, atol=1e-5)
