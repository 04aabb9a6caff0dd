"""LwF's distillation by hand, and the strategy's gradient against finite differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.methods.registry import METHODS
from everlight.continual.strategies.lwf import lwf
from everlight.continual.strategies.parts.distillation import distillation
from everlight.continual.strategies.parts.teacher import Teacher
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, LABELS, START

ALL = jnp.ones(3, bool)


def logits_of(probabilities, temperature):
    """Return logits whose softmax at the temperature is `probabilities`, up to a shift."""
    return jnp.asarray(temperature * np.log(probabilities) + 1.7, jnp.float32)


@pytest.mark.parametrize(
    ("student", "teacher", "divergence"),
    [
        # 1/2 ln(1/2 ÷ 1/4) + 1/3 ln(1/3 ÷ 1/4) + 1/6 ln(1/6 ÷ 1/2)
        # = 0.346574 + 0.095894 - 0.183102 = 0.259366.
        ([1 / 4, 1 / 4, 1 / 2], [1 / 2, 1 / 3, 1 / 6], 0.259366),
        # 1/4 ln(1/2) + 1/4 ln(3/4) + 1/2 ln 3 = -0.173287 - 0.071921 + 0.549306 = 0.304099.
        ([1 / 2, 1 / 3, 1 / 6], [1 / 4, 1 / 4, 1 / 2], 0.304099),
        # A teacher that is sure of one class gives ln 3, up to its logits' finite size.
        ([1 / 3, 1 / 3, 1 / 3], [1 - 2e-12, 1e-12, 1e-12], 1.098612),
        ([1 / 2, 1 / 3, 1 / 6], [1 / 2, 1 / 3, 1 / 6], 0.0),
    ],
)
def test_at_temperature_2_by_hand(student, teacher, divergence):
    """The loss is T² = 4 times the divergence."""
    result = distillation(logits_of(student, 2), logits_of(teacher, 2), ALL, 2.0)
    np.testing.assert_allclose(result, 4 * divergence, rtol=1e-5, atol=1e-6)


def test_only_the_given_classes_count():
    """Over classes 0 and 2 it is 3/4 ln(3/4 ÷ 1/2) + 1/4 ln(1/4 ÷ 1/2) = 0.130812."""
    among = jnp.array([True, False, True, False])
    student, teacher = jnp.array([0.3, 50.0, 0.3, -80.0]), jnp.array([0.0, -9.0, 0.0, 70.0])
    teacher = teacher.at[0].add(2 * np.log(3))
    np.testing.assert_allclose(distillation(student, teacher, among, 2.0), 4 * 0.130812, rtol=1e-5)
    slope = jax.grad(distillation)(student, teacher, among, 2.0)
    # T (softmax(student / T) - softmax(teacher / T)) = 2 (1/2 - 3/4) at class 0.
    np.testing.assert_allclose(slope, [-0.5, 0.0, 0.5, 0.0], atol=1e-6)


@pytest.mark.parametrize("temperature", [2.0, 5.0])
def test_the_gradient_is_the_official_one_at_a_regularization_of_one_over_t_squared(temperature):
    """The gradient is (q - p) / T; p are the old probabilities to the power 1 / T, normalized."""
    rng = np.random.default_rng(1)
    for student, teacher in rng.normal(size=(5, 2, 6)) * 3:
        old = np.exp(teacher) / np.exp(teacher).sum()
        target = old ** (1 / temperature) / np.sum(old ** (1 / temperature))
        now = np.exp(student / temperature)
        official = (now / now.sum() - target) / temperature
        slope = jax.grad(distillation)(
            jnp.float32(student), jnp.float32(teacher), jnp.ones(6, bool), temperature
        )
        np.testing.assert_allclose(slope / temperature**2, official, rtol=1e-4, atol=1e-6)
    # The paper's coefficient is 1, without the square of its temperature 2.
    assert METHODS["LwF"].published == 1 / 2**2
    assert METHODS["LwF"].published in METHODS["LwF"].hyperparameters


def test_over_none_or_equal_logits_zero_with_a_zero_gradient():
    student, teacher = jnp.array([1.0, -2.0, 0.5]), jnp.array([0.0, 3.0, 1.0])
    for args in ((student, teacher, ~ALL), (student, student, ALL)):
        value, slope = jax.value_and_grad(distillation)(*args, 2.0)
        np.testing.assert_allclose(value, 0.0, atol=1e-6)
        np.testing.assert_allclose(slope, np.zeros(3), atol=1e-6)


OLD = {
    name: leaf + np.random.default_rng(5).normal(size=leaf.shape) * 0.4
    for name, leaf in START.items()
}
BATCH = net.filled(net.small_setup(), net.batch_of([2, 8, 3, 9, 20, 21], [1, 1, 1, 1, 1, 0]))
STORED = np.asarray(BATCH.index[:5])
TASK = net.task_of(2, [2, 3], [2, 3])
# Classes 0, 1, 4 and 5 were known before; 4 and 5 came together, 0 and 1 apart from them.
KNOWN = np.array([1, 1, 0, 0, 1, 1], bool)
GROUP = np.array([0, 0, 1, 1, 2, 2])


def written_loss(params, heads, regularization, temperature, active):
    """Return mean cross-entropy plus λ T² times the heads' mean divergence, in float64."""
    logits = net.forward(params, STORED, train=True)[2]
    # The old network sees the same augmented images, in evaluation mode: without the gain.
    inputs = net.forward(OLD, STORED, train=True)[1]
    old = inputs @ OLD["head"] + OLD["head_bias"]
    probability = net.softmax(logits, active)
    entropy = -np.log(probability[np.arange(5), LABELS[STORED]])
    divergence = 0.0
    for head in heads:
        p = net.softmax(old[:, head] / temperature, True)
        q = net.softmax(logits[:, head] / temperature, True)
        divergence += np.sum(p * np.log(p / q), axis=1) / len(heads)
    return np.mean(entropy + regularization * temperature**2 * divergence)


# Columns: temperature, heads of known classes, group of each class, factor on λ in task 2.
CASES = {
    "one head": (2.0, [[0, 1, 4, 5]], None, 1),
    "a head per task": (3.5, [[0, 1], [4, 5]], GROUP, 1),
    "one head, times the tasks": (2.0, [[0, 1, 4, 5]], None, 2),
    "the sum over heads of a task each": (2.0, [[0, 1], [4, 5]], GROUP, 2),
}


@functools.cache
def strategy_of(name):
    temperature, _, group, factor = CASES[name]
    group = None if group is None else jnp.asarray(group)
    groups = 1 if group is None else 3
    setup = net.small_setup(group)
    return net.compiled(lwf(setup, 0.7, temperature, group, groups, times_tasks=factor > 1))


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_the_written_loss(name):
    """Heads keep nothing of classes 2 and 3, since these are new."""
    temperature, heads, group, factor = CASES[name]
    learner = net.small_learner(net.small_setup(), np.arange(CLASSES))
    memory = Teacher(net.as_float32(OLD), learner.batch_stats, jnp.asarray(KNOWN))
    strategy = strategy_of(name)
    active = np.ones(CLASSES, bool) if group is None else GROUP[LABELS[STORED]][:, None] == GROUP
    gradient, info = strategy.grads(memory, learner, BATCH, TASK, jax.random.key(0))
    expected = net.finite_differences(
        lambda p: written_loss(p, heads, factor * 0.7, temperature, active), START
    )
    net.assert_trees_close(gradient, expected, rtol=1e-4, atol=2e-6)
    # The loss that is reported is the task's own, and the old network counts no pass.
    np.testing.assert_allclose(
        info.loss, written_loss(START, heads, 0.0, temperature, active), rtol=1e-5
    )
    assert info.batch_stats["passes"] == 1


def test_a_task_begins_with_a_copy_that_knows_the_earlier_classes():
    setup = net.small_setup()
    learner = net.small_learner(setup, [0, 1, 2, 3], OLD)
    strategy = net.compiled(lwf(setup))
    memory = strategy.init(jax.random.key(0), net.small_learner(setup, []))
    memory, after = strategy.begin_task(memory, learner, TASK, jax.random.key(0))
    np.testing.assert_array_equal(memory.known, net.classes_mask([0, 1]))
    net.assert_trees_close(memory.params, net.as_float32(OLD), rtol=0.0, atol=0.0)
    net.assert_trees_close(after.params, net.as_float32(OLD), rtol=0.0, atol=0.0)
