"""iCaRL's gradient, step and buffer against float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, softmax

from everlight.continual.strategies import icarl, lucir, podnet
from everlight.continual.strategies.parts.exemplars import add_herded_exemplars, empty_exemplars
from everlight.continual.strategies.parts.teacher import Teacher
from tests.continual import many_labels as many
from tests.continual import small_net as net
from tests.continual.many_labels import OLD, PAIRS
from tests.continual.small_net import CLASSES, LABELS, RATE, START

KEY = jax.random.key(0)
SETUP = many.binary_setup()
# Classes 0, 1 and 4 were known before, 2 and 3 are new, 5 is still to come.
KNOWN, SEEN = np.isin(np.arange(CLASSES), [0, 1, 4]), np.arange(CLASSES) != 5
TASK = net.task_of(2, [2, 3], many.labelled([2, 3]))
# Samples have old and new classes, both, or an unseen one; the last only fills the batch.
INDEX = np.array([0, 1, 2, 3, 12, 5, 9, 33, 8])
BATCH = net.filled(SETUP, many.labelled_batch(INDEX, [1] * 8 + [0], [1, 1, 0, 0, 0, 1, 0, 1, 0]))
STORED = INDEX[:-1]
STRATEGY = net.compiled(icarl(SETUP, exemplars_per_class=2, labels=2))
herded_exemplars = jax.jit(add_herded_exemplars)


def memory_with(params, known):
    memory = STRATEGY.init(KEY, net.small_learner(SETUP, []))
    return memory._replace(
        teacher=Teacher(net.as_float32(params), {"passes": 0}, jnp.asarray(known))
    )


def soft_targets(old, index, targets, known):
    return np.where(known, expit(many.teacher_logits(old, index)), targets)


def test_old_classes_targets_are_the_old_network_s_outputs_for_every_sample():
    learner = net.small_learner(SETUP, np.flatnonzero(SEEN))
    gradient, info = STRATEGY.grads(memory_with(OLD, KNOWN), learner, BATCH, TASK, KEY)
    targets = soft_targets(OLD, STORED, many.targets_of(PAIRS[STORED]), KNOWN)
    net.assert_trees_close(gradient, many.binary_gradient(START, STORED, targets, SEEN), atol=1e-6)
    losses = many.entropies(net.forward(START, STORED, train=True)[2], targets)[:, SEEN]
    np.testing.assert_allclose(info.loss, losses.mean(), rtol=1e-5)
    # The old network counts no pass.
    assert info.batch_stats["passes"] == 1


def test_two_tasks_through_the_engine_are_the_written_descent():
    """The second task keeps what the network was at the end of the first one."""
    first, second = [0, 6, 7, 1, 13], [2, 8, 3, 9, 0]
    setup = many.binary_setup()
    tasks = [
        (net.task_of(0, [0, 1], many.labelled(first)), [many.labelled_batch(first)] * 2),
        (net.task_of(1, [2, 3], many.labelled(second)), [many.labelled_batch(second)] * 3),
    ]
    after = net.run_tasks(setup, icarl(setup, exemplars_per_class=2, labels=2), tasks)
    params, old, known = START, START, np.zeros(CLASSES, bool)
    for (memory, learner), index, steps, seen in zip(
        after, (first, second), (2, 3), (2, 4), strict=True
    ):
        for _ in range(steps):
            targets = soft_targets(old, index, many.targets_of(PAIRS[index]), known)
            slope = many.binary_gradient(params, index, targets, np.arange(CLASSES) < seen)
            params = {name: leaf - RATE * slope[name] for name, leaf in params.items()}
        net.assert_trees_close(learner.params, params, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(memory.teacher.known, known)
        old, known = params, np.arange(CLASSES) < seen


def test_a_task_restarts_the_named_parts_and_the_teacher_stays_as_it_was():
    def restart(params):
        return {**params, "head_bias": jnp.ones(CLASSES)}

    strategy = net.compiled(icarl(SETUP, restart=restart))
    learner = net.small_learner(SETUP, [0, 1, 2, 3], OLD)
    memory = strategy.init(KEY, net.small_learner(SETUP, []))
    memory, after = strategy.begin_task(memory, learner, TASK, KEY)
    net.assert_trees_close(memory.teacher.params, net.as_float32(OLD), rtol=0.0, atol=0.0)
    np.testing.assert_array_equal(memory.teacher.known, net.classes_mask([0, 1]))
    changed = net.as_float32(OLD) | {"head_bias": np.ones(CLASSES)}
    net.assert_trees_close(after.params, changed, rtol=0.0, atol=0.0)


def test_exemplars_are_herded_by_features_of_evaluation_and_join_the_next_epoch():
    index = np.arange(2, 36)
    train = many.labelled(index, mask=index % 5 > 0)
    learner = net.small_learner(SETUP, [2, 3], OLD)
    memory = STRATEGY.init(KEY, learner)
    task = net.task_of(0, [2, 3], train)
    assert STRATEGY.stored_samples(memory, task) == 0
    memory, after = STRATEGY.end_task(memory, learner, task, KEY)
    net.assert_trees_close(after.params, learner.params, rtol=0.0, atol=0.0)
    features = jnp.asarray(net.forward(OLD, index)[1], jnp.float32)
    # The means are of every class that the samples carry, second labels included.
    carried = jnp.ones(CLASSES, bool)
    herded = herded_exemplars(empty_exemplars(12, 2), train, carried, features).samples
    for actual, expected in zip(memory.buffer.samples, herded, strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert STRATEGY.stored_samples(memory, task) == 12

    following = net.task_of(1, [0, 1], many.labelled([0, 1, 6], [0, 1, 0]))
    epoch = STRATEGY.epoch_data(memory, following)
    mask = np.asarray(epoch.samples.mask)
    stored = np.asarray(herded.index)[np.asarray(herded.mask)]
    np.testing.assert_array_equal(epoch.samples.index[mask], [0, 1, 6, *stored])
    np.testing.assert_array_equal(epoch.memory_mask[mask], [0] * 3 + [1] * 12)
    labels = np.concatenate([many.pairs_of([0, 1, 6], [0, 1, 0]), PAIRS[stored]])
    np.testing.assert_array_equal(epoch.samples.labels[mask], labels)


# The tests below are of softmax and of the nearest mean.

SINGLE = net.small_setup()
SOFTMAX = net.compiled(icarl(SINGLE, exemplars_per_class=2, loss="softmax"))


def test_with_softmax_it_is_cross_entropy_and_the_old_network_s_distillation():
    """At temperature 2 the second term's gradient is multiplied by 4."""
    learner = net.small_learner(SINGLE, np.flatnonzero(SEEN))
    index = STORED[STORED % CLASSES != 5]
    batch = net.filled(SINGLE, net.batch_of([*index, 8], [1] * len(index) + [0]))
    gradient, info = SOFTMAX.grads(memory_with(OLD, KNOWN), learner, batch, TASK, KEY)
    logits = net.forward(START, index, train=True)[2]
    old = softmax(many.teacher_logits(OLD, index)[:, KNOWN] / 2, axis=1)
    now = softmax(logits[:, KNOWN] / 2, axis=1)
    one_hot = np.eye(CLASSES)[LABELS[index]]
    probability = np.where(SEEN, np.exp(logits), 0)
    probability /= probability.sum(axis=1, keepdims=True)
    entropy = -np.log(probability[np.arange(len(index)), LABELS[index]])
    divergence = np.sum(old * np.log(old / now), axis=1)
    np.testing.assert_allclose(info.loss, np.mean(entropy + 4 * divergence), rtol=1e-5)
    slope = probability - one_hot
    slope[:, KNOWN] += 2 * (now - old)
    net.assert_trees_close(gradient, many.mean_gradient(START, index, slope), atol=1e-6)


NEAREST = net.compiled(icarl(SINGLE, exemplars_per_class=3, classifier="nearest mean"))


def trained_on(index):
    """Return memory during and after a task with the OLD parameters, and the learner."""
    learner = net.small_learner(SINGLE, range(CLASSES), OLD)
    memory, learner = NEAREST.begin_task(NEAREST.init(KEY, learner), learner, TASK, KEY)
    during = memory
    memory, learner = NEAREST.end_task(memory, learner, net.task_of(0, [], index), KEY)
    return during, *NEAREST.before_evaluation(memory, learner, KEY)


def test_the_class_is_that_of_the_nearest_mean_of_its_exemplars():
    """The mean is of unit features and made unit again; class 5 has no exemplar and no sample."""
    index = np.array([i for i in range(30) if i % CLASSES != 5])
    _, memory, learner = trained_on(index)
    scores = np.asarray(NEAREST.predict(memory, learner, SINGLE.gather(jnp.arange(40), None)))

    held = np.asarray(memory.buffer.samples.index).reshape(CLASSES, 3)
    counts = np.asarray(memory.buffer.samples.mask).reshape(CLASSES, 3).sum(axis=1)
    assert counts.tolist() == [3] * 5 + [0]
    means = net.unit(
        np.stack([net.unit(net.forward(OLD, part)[1]).mean(axis=0) for part in held[:5]])
    )
    features = net.unit(net.forward(OLD, np.arange(40))[1])
    away = np.linalg.norm(features[:, None] - means, axis=-1)
    np.testing.assert_allclose(scores[:, :5], -(away**2), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(scores[:, 5], -4)
    np.testing.assert_array_equal(scores.argmax(axis=1), away.argmin(axis=1))
    heads = net.forward(OLD, np.arange(40))[2][:, :5].argmax(axis=1)
    assert np.any(heads != away.argmin(axis=1)), "the head must say otherwise somewhere"


@pytest.mark.parametrize("make", [icarl, lucir, podnet])
def test_the_classifier_is_a_choice_of_all_that_rehearse(make):
    """Before an evaluation, the means of the exemplars are computed."""
    for classifier in ("head", "nearest mean"):
        strategy = make(SINGLE, classifier=classifier)
        assert (strategy.before_evaluation is None) == (classifier == "head")


def test_while_a_task_is_learned_the_head_predicts():
    during, memory, learner = trained_on(np.arange(30))
    inputs = SINGLE.gather(jnp.arange(40), None)
    expected = net.forward(OLD, np.arange(40))[2]
    again, _ = NEAREST.begin_task(memory, learner, TASK, KEY)
    for learning in (during, again):
        ready, _ = NEAREST.before_evaluation(learning, learner, KEY)
        predicted = NEAREST.predict(ready, learner, inputs)
        np.testing.assert_allclose(predicted, expected, rtol=1e-4, atol=1e-5)


def test_the_means_are_computed_once_an_evaluation():
    """`predict` passes over its inputs alone."""
    passes = []

    def gather(index, key):
        jax.debug.callback(lambda: passes.append(1))
        return SINGLE.gather(index, key)

    counted = SINGLE._replace(gather=gather)
    strategy = net.compiled(icarl(counted, exemplars_per_class=3, classifier="nearest mean"))
    _, memory, learner = trained_on(np.arange(30))
    ready, _ = strategy.before_evaluation(memory, learner, KEY)
    jax.effects_barrier()
    assert len(passes) == 1
    inputs = SINGLE.gather(jnp.arange(40), None)
    jax.block_until_ready(strategy.predict(ready, learner, inputs))
    jax.effects_barrier()
    assert len(passes) == 1


def test_while_a_task_is_learned_runs_together_pass_over_no_exemplar():
    """A conditional became a choice under vmap: every validation passed over all exemplars."""
    passes = []

    def gather(index, key):
        jax.debug.callback(lambda: passes.append(1))
        return SINGLE.gather(index, key)

    strategy = net.compiled(
        icarl(SINGLE._replace(gather=gather), exemplars_per_class=3, classifier="nearest mean")
    )
    _, after, learner = trained_on(np.arange(30))
    during, _ = NEAREST.begin_task(after, learner, TASK, KEY)
    evaluate = jax.jit(jax.vmap(lambda memory: strategy.before_evaluation(memory, learner, KEY)[0]))
    for memory, passed in ((during, False), (after, True)):
        ready = evaluate(jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), memory))
        jax.block_until_ready(ready)
        jax.effects_barrier()
        assert bool(passes) == passed
    means = NEAREST.before_evaluation(after, learner, KEY)[0].nearest.means
    np.testing.assert_allclose(ready.nearest.means, jnp.stack([means] * 2), rtol=1e-5, atol=1e-6)
