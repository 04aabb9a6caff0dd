"""WA against PyCIL's loss and alignment in float64."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax, softmax

from everlight.continual.strategies.parts.linear_head import align_head
from everlight.continual.strategies.wa import wa
from tests.continual import small_net as net
from tests.continual.many_labels import OLD, mean_gradient, teacher_logits
from tests.continual.small_net import CLASSES, LABELS, START

KEY = jax.random.key(0)
SETUP = net.layered_setup()
# Classes 0, 1 and 4 are old, 2 and 3 new, 5 is still to come.
KNOWN, SEEN = [0, 1, 4], [0, 1, 2, 3, 4]
STRATEGY = net.compiled(wa(SETUP, exemplars_per_class=1))
TASK = net.task_of(1, [2, 3], [2, 8, 3, 9])


def started_task(task=TASK, known=KNOWN):
    """Return memory and learner in a task; the network before it is OLD."""
    before = net.small_learner(SETUP, [*known, *np.flatnonzero(task.classes)], OLD)
    before = before._replace(params=net.layered(before.params))
    memory, _ = STRATEGY.begin_task(STRATEGY.init(KEY, before), before, task, KEY)
    return memory, before._replace(params=net.layered(net.as_float32(START)))


def test_a_step_is_the_written_loss():
    memory, learner = started_task()
    index = np.array([2, 8, 3, 0, 13, 4])
    batch = net.filled(SETUP, net.batch_of([*index, 9], [1] * 6 + [0]))
    gradient, info = STRATEGY.grads(memory, learner, batch, TASK, KEY)
    logits, one_hot = net.forward(START, index, train=True)[2], np.eye(CLASSES)[LABELS[index]]
    soft = softmax(teacher_logits(OLD, index)[:, KNOWN] / 2, axis=1)
    entropy = -np.sum((one_hot[:, SEEN] * log_softmax(logits[:, SEEN], axis=1)), axis=1)
    stored = -np.sum(soft * log_softmax(logits[:, KNOWN] / 2, axis=1), axis=1)
    np.testing.assert_allclose(info.loss, np.mean(0.4 * entropy + 0.6 * stored), rtol=1e-5)
    slope = np.zeros_like(logits)
    slope[:, SEEN] = 0.4 * (softmax(logits[:, SEEN], axis=1) - one_hot[:, SEEN])
    slope[:, KNOWN] += 0.6 * (softmax(logits[:, KNOWN] / 2, axis=1) - soft) / 2
    net.assert_trees_close(net.flat(gradient), mean_gradient(START, index, slope), atol=1e-6)


def test_a_task_ends_with_the_official_alignment():
    memory, learner = started_task()
    after, learner = STRATEGY.end_task(memory, learner, TASK, KEY)
    weights = START["head"].T.copy()
    lengths = np.linalg.norm(weights, axis=1)
    weights[[2, 3]] *= lengths[KNOWN].mean() / lengths[[2, 3]].mean()
    net.assert_trees_close(net.flat(learner.params), {**START, "head": weights.T})
    held = after.buffer.samples
    np.testing.assert_array_equal(np.sort(held.labels[held.mask, 0]), [2, 3])


def test_without_old_or_without_new_classes_nothing_is_scaled():
    kernel = jnp.float32(START["head"])
    for new, known in (([2, 3], []), ([], KNOWN)):
        result = align_head(kernel, net.classes_mask(new), net.classes_mask(known))
        np.testing.assert_array_equal(result, kernel)


def test_one_class_per_task_has_no_gradient_at_first_and_no_distillation_in_the_second():
    """A softmax over one class is constant, so that half of the entropy alone is left."""
    index = np.array([0, 1, 6, 7])
    batch = net.filled(SETUP, net.batch_of(index, [1] * len(index)))
    batch = batch._replace(labels=jnp.zeros_like(batch.labels))
    memory, learner = started_task(net.task_of(0, [0], [0, 6]), [])
    gradient, info = STRATEGY.grads(memory, learner, batch, TASK, KEY)
    net.assert_trees_close(
        net.flat(gradient), {name: 0 * leaf for name, leaf in START.items()}, atol=1e-7
    )
    np.testing.assert_allclose(info.loss, 0, atol=1e-7)
    labels = np.array([0, 1, 0, 1])
    batch = batch._replace(labels=jnp.asarray(labels)[:, None])
    memory, learner = started_task(net.task_of(1, [1], [1, 7]), [0])
    gradient, _ = STRATEGY.grads(memory, learner, batch, TASK, KEY)
    logits = net.forward(START, index, train=True)[2]
    slope = np.zeros_like(logits)
    slope[:, :2] = 0.5 * (softmax(logits[:, :2], axis=1) - np.eye(2)[labels])
    net.assert_trees_close(net.flat(gradient), mean_gradient(START, index, slope), atol=1e-6)
