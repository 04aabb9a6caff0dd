"""FeTrIL against the official translation of features, written again in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual.strategies.feature_translation import (
    feature_translation,
    most_similar,
    translated_epoch,
)
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, LABELS, RATE, SHIFT, START

DECAY = 0.05
OPTIMIZER = optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(RATE))
SETUP = net.layered_setup()._replace(optimizer=OPTIMIZER)
STRATEGY = feature_translation(SETUP)
FIRST, SECOND = [0, 1, 6, 2, 7, 8], [3, 4, 9, 10, 15, 16, 21]
"""Samples of classes 0 to 2, and of classes 3 and 4."""
# A slot that is masked out has a sample of the task.
TASKS = [
    net.task_of(0, [0, 1, 2], FIRST),
    net.task_of(1, [3, 4], net.samples_of([*SECOND, 22], [1] * 7 + [0])),
]


def features_of(params, index, shift=0.0):
    return np.tanh((DATA[np.asarray(index)] + shift) @ params["hidden"] + params["hidden_bias"])


def official_epoch(params, euclidean=False):
    """Return rows of sample, label and translation of the second task, as the codes have them."""
    rows = {**dict.fromkeys(FIRST, 0), **dict.fromkeys(SECOND, 1)}
    by_class = {c: [n for n in rows if LABELS[n] == c] for c in range(5)}
    means = {c: features_of(params, by_class[c]).mean(axis=0) for c in by_class}
    epoch = [(n, LABELS[n], np.zeros(5)) for n in SECOND]
    for old in (0, 1, 2):
        if euclidean:
            near = [-np.linalg.norm(means[old] - means[new]) for new in (3, 4)]
        else:
            near = [
                means[old] @ means[new] / np.linalg.norm(means[old]) / np.linalg.norm(means[new])
                for new in (3, 4)
            ]
        new = (3, 4)[int(np.argmax(near))]
        epoch += [(n, old, means[old] - means[new]) for n in by_class[new]]
    return epoch


def first_task():
    """Return memory and learner after the first task, and its parameters in float64."""
    params = START
    batches = [net.batch_of(FIRST[:3]), net.batch_of(FIRST[3:])]
    (memory, learner), *_ = net.run_tasks(SETUP, STRATEGY, [(TASKS[0], batches)])
    seen = np.arange(CLASSES) < 3
    for batch in batches:
        gradient = net.batch_gradient(params, batch.index, seen)
        params = {k: v - RATE * (gradient[k] + DECAY * v) for k, v in params.items()}
    return memory, learner, params


def test_the_first_task_is_plain_training():
    memory, learner, params = first_task()
    net.assert_trees_close(net.flat(learner.params), params)
    for c in (0, 1, 2):
        class_samples = [n for n in FIRST if LABELS[n] == c]
        np.testing.assert_allclose(
            memory.means.mean[c], features_of(params, class_samples).mean(axis=0), atol=1e-5
        )


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_a_later_epoch_is_the_official_one_and_its_step_trains_the_head(similarity):
    memory, learner, params = first_task()
    strategy = feature_translation(SETUP, similarity)
    memory, learner = net.begin(SETUP, strategy, memory, learner, TASKS[1])
    epoch = strategy.epoch_data(memory, TASKS[1])
    held = np.asarray(epoch.samples.mask)
    expected = official_epoch(params, similarity == "euclidean")
    index, label = epoch.samples.index[held], epoch.samples.labels[held, 0]
    rows = sorted(zip(index.tolist(), label.tolist(), strict=True))
    assert rows == sorted((n, c) for n, c, _ in expected)
    # All rows of the epoch in one step, after one sample of padding.
    batch = net.batch_of([0, *index], [0] + [1] * len(index))
    batch = batch._replace(
        labels=jnp.concatenate([jnp.array([[1]]), label[:, None]]),
        memory_mask=jnp.concatenate([jnp.array([True]), epoch.memory_mask[held]]),
    )
    filled = net.filled(SETUP, batch)
    gradient, info = strategy.grads(memory, learner, filled, TASKS[1], jax.random.key(0))
    seen = np.arange(CLASSES) < 5
    features = np.stack([features_of(params, n, SHIFT) + move for n, _, move in expected])
    logits = features @ params["head"] + params["head_bias"]
    labels = np.array([c for _, c, _ in expected])
    error = (net.softmax(logits, seen) - np.eye(CLASSES)[labels]) / len(labels)
    actual = net.flat(gradient)
    np.testing.assert_allclose(actual["head"], features.T @ error, atol=1e-5)
    np.testing.assert_allclose(actual["head_bias"], error.sum(axis=0), atol=1e-5)
    np.testing.assert_array_equal(actual["hidden"], 0)
    np.testing.assert_array_equal(info.batch_stats["passes"], learner.batch_stats["passes"])


def test_layers_below_the_head_stay_bit_for_bit_after_the_first_task():
    batches = [net.batch_of(FIRST[:3])]
    pairs = [(TASKS[0], batches), (TASKS[1], [net.batch_of(SECOND[:4])])]
    (_, before), (memory, after) = net.run_tasks(SETUP, STRATEGY, pairs)
    for name in ("kernel", "bias"):
        np.testing.assert_array_equal(after.params["hidden"][name], before.params["hidden"][name])
        assert np.any(after.params["head"][name] != before.params["head"][name])
    np.testing.assert_array_equal(memory.means.count > 0, np.arange(CLASSES) < 5)


def test_the_most_similar_class_by_hand():
    """The second mean has the direction of class 0, the third is nearer to it."""
    means = jnp.array([[1.0, 0.0], [9.0, 1.0], [1.0, 2.0], [0.0, 0.0]])
    new = jnp.array([False, True, True, False])
    assert most_similar(means, new, "cosine")[0] == 1
    assert most_similar(means, new, "euclidean")[0] == 2


def test_the_epoch_of_a_first_task_has_no_translated_sample():
    train = net.samples_of(FIRST)
    epoch = translated_epoch(train, jnp.zeros(CLASSES, int), jnp.zeros(CLASSES, bool))
    held = np.asarray(epoch.samples.mask)
    np.testing.assert_array_equal(epoch.samples.index[held], FIRST)
    assert not np.any(epoch.memory_mask[held])
