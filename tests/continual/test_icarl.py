"""iCaRL's gradient, step and buffer against float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from everlight.continual.icarl import icarl
from everlight.continual.lwf import Teacher
from everlight.continual.memory import add_herded_exemplars, empty_buffer
from tests.continual.many_labels import (
    OLD,
    PAIRS,
    binary_gradient,
    binary_setup,
    entropies,
    labelled,
    labelled_batch,
    pairs_of,
    targets_of,
    teacher_logits,
)
from tests.continual.small_net import (
    CLASSES,
    RATE,
    START,
    as_float32,
    assert_trees_close,
    classes_mask,
    forward,
    run_tasks,
    small_learner,
    task_of,
)

KEY = jax.random.key(0)
SETUP = binary_setup()
# Classes 0, 1 and 4 were known before, 2 and 3 are new, 5 is still to come.
KNOWN, SEEN = np.isin(np.arange(CLASSES), [0, 1, 4]), np.arange(CLASSES) != 5
TASK = task_of(2, [2, 3], labelled([2, 3]))
# Samples of old and new classes, of both, and of one unseen; the last one only fills the batch.
INDEX = np.array([0, 1, 2, 3, 12, 5, 9, 33, 8])
BATCH = labelled_batch(INDEX, [1, 1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 1, 0, 1, 0])
KEPT = INDEX[:-1]
STRATEGY = icarl(SETUP, per_class=2, labels=2)
grads = jax.jit(STRATEGY.grads)


def memory_with(params, known):
    memory = STRATEGY.init(KEY, small_learner(SETUP, []))
    return memory._replace(teacher=Teacher(as_float32(params), {"passes": 0}, jnp.asarray(known)))


def soft_targets(old, index, targets, known):
    return np.where(known, expit(teacher_logits(old, index)), targets)


def test_old_classes_targets_are_the_old_network_s_outputs_for_every_sample():
    learner = small_learner(SETUP, np.flatnonzero(SEEN))
    gradient, info = grads(memory_with(OLD, KNOWN), learner, BATCH, TASK, KEY)
    targets = soft_targets(OLD, KEPT, targets_of(PAIRS[KEPT]), KNOWN)
    assert_trees_close(gradient, binary_gradient(START, KEPT, targets, SEEN), atol=1e-6)
    losses = entropies(forward(START, KEPT, train=True)[2], targets)[:, SEEN]
    np.testing.assert_allclose(info.loss, losses.mean(), rtol=1e-5)
    # The old network counts no pass.
    assert info.batch_stats["passes"] == 1


def test_the_labels_of_old_classes_change_nothing_and_those_of_new_ones_do():
    learner, memory = small_learner(SETUP, np.flatnonzero(SEEN)), memory_with(OLD, KNOWN)
    gradients = []
    for second in (-1, 0, 4, 3):
        labels = jnp.asarray([[2, second]] * len(INDEX))
        gradients.append(grads(memory, learner, BATCH._replace(labels=labels), TASK, KEY)[0])
    assert_trees_close(gradients[1], gradients[0], rtol=0.0, atol=0.0)
    assert_trees_close(gradients[2], gradients[0], rtol=0.0, atol=0.0)
    assert np.all(np.asarray(gradients[3]["head_bias"] != gradients[0]["head_bias"])[3])


@pytest.mark.parametrize("old", [START, OLD])
def test_in_the_first_task_it_is_binary_cross_entropy(old):
    """Whatever the memory's network is before one is frozen."""
    learner = small_learner(SETUP, [2, 3])
    memory, _ = STRATEGY.begin_task(memory_with(old, KNOWN), learner, TASK, KEY)
    gradient, _ = grads(memory, learner, BATCH, TASK, KEY)
    own = binary_gradient(START, KEPT, targets_of(PAIRS[KEPT]), classes_mask([2, 3]))
    assert_trees_close(gradient, own, atol=1e-6)


def test_two_tasks_through_the_engine_are_the_written_descent():
    """The second task keeps what the network was at the end of the first one."""
    first, second = [0, 6, 7, 1, 13], [2, 8, 3, 9, 0]
    setup = binary_setup()
    tasks = [
        (task_of(0, [0, 1], labelled(first)), [labelled_batch(first)] * 2),
        (task_of(1, [2, 3], labelled(second)), [labelled_batch(second)] * 3),
    ]
    after = run_tasks(setup, icarl(setup, per_class=2, labels=2), tasks)
    params, old, known = START, START, np.zeros(CLASSES, bool)
    for (memory, learner), index, steps, seen in zip(
        after, (first, second), (2, 3), (2, 4), strict=True
    ):
        for _ in range(steps):
            targets = soft_targets(old, index, targets_of(PAIRS[index]), known)
            slope = binary_gradient(params, index, targets, np.arange(CLASSES) < seen)
            params = {name: leaf - RATE * slope[name] for name, leaf in params.items()}
        assert_trees_close(learner.params, params, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(memory.teacher.known, known)
        old, known = params, np.arange(CLASSES) < seen


def test_a_task_restarts_what_it_is_told_and_the_teacher_stays_as_it_was():
    def restart(params):
        return {**params, "head_bias": jnp.ones(CLASSES)}

    strategy = icarl(SETUP, restart=restart)
    learner = small_learner(SETUP, [0, 1, 2, 3], OLD)
    memory = strategy.init(KEY, small_learner(SETUP, []))
    memory, after = strategy.begin_task(memory, learner, TASK, KEY)
    assert_trees_close(memory.teacher.params, as_float32(OLD), rtol=0.0, atol=0.0)
    np.testing.assert_array_equal(memory.teacher.known, classes_mask([0, 1]))
    changed = as_float32(OLD) | {"head_bias": np.ones(CLASSES)}
    assert_trees_close(after.params, changed, rtol=0.0, atol=0.0)


def test_exemplars_are_herded_by_features_of_evaluation_and_join_the_next_epoch():
    index = np.arange(2, 36)
    train = labelled(index, mask=index % 5 > 0)
    learner = small_learner(SETUP, [2, 3], OLD)
    memory = STRATEGY.init(KEY, learner)
    task = task_of(0, [2, 3], train)
    assert STRATEGY.stored_samples(memory, task) == 0
    memory, after = STRATEGY.end_task(memory, learner, task, KEY)
    assert_trees_close(after.params, learner.params, rtol=0.0, atol=0.0)
    features = jnp.asarray(forward(OLD, index)[1], jnp.float32)
    herded = add_herded_exemplars(empty_buffer(12, 2), train, task.classes, features)
    for found, expected in zip(memory.buffer, herded, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert STRATEGY.stored_samples(memory, task) == 4

    following = task_of(1, [0, 1], labelled([0, 1, 6], [0, 1, 0]))
    epoch = STRATEGY.epoch_data(memory, following)
    mask = np.asarray(epoch.samples.mask)
    kept = np.asarray(herded.index)[np.asarray(herded.mask)]
    np.testing.assert_array_equal(epoch.samples.index[mask], [0, 1, 6, *kept])
    np.testing.assert_array_equal(epoch.from_memory[mask], [0] * 3 + [1] * 4)
    labels = np.concatenate([pairs_of([0, 1, 6], [0, 1, 0]), PAIRS[kept]])
    np.testing.assert_array_equal(epoch.samples.labels[mask], labels)
