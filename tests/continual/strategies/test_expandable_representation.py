"""Expandable DER's losses, head and extractors, written again in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from everlight.base import Outputs
from everlight.continual.strategies.expandable_representation import expandable_representation
from everlight.continual.strategies.parts.expansion import drawn_head, joined_head
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, GAIN, HIDDEN, LABELS, RATE, SHIFT
from tests.continual.strategies.references.aligned_head import assert_aligned

SETUP = net.layered_setup()
AUXILIARY, EPOCHS, TEMPERATURE = 0.7, 4, 2.0
KEY = jax.random.key(3)
"""Key of `run_tasks` at the end of a task."""
INDEX = [[0, 1, 6, 7, 12], [2, 3, 8, 9, 14], [4, 5, 10, 11, 16]]
TASKS = [
    (net.task_of(t, [2 * t, 2 * t + 1], rows), [net.batch_of(rows[:3]), net.batch_of(rows[3:])])
    for t, rows in enumerate(INDEX)
]
TEST = np.arange(20, 40)


def der(classifier):
    return expandable_representation(
        SETUP,
        3,
        2,
        auxiliary_weight=AUXILIARY,
        classifier=classifier,
        finetuning_epochs=EPOCHS,
        finetuning_learning_rate_factor=0.5,
        finetuning_batch_size=64,
        temperature=TEMPERATURE,
    )


PLAIN = der("plain")


@pytest.fixture(scope="module")
def after_each():
    return net.run_tasks(SETUP, PLAIN, TASKS)


def features_of(layer, inputs, gain=1.0):
    return gain * np.tanh(inputs @ np.float64(layer["kernel"]) + np.float64(layer["bias"]))


def extractors_of(memory, learner, count):
    """Return the layers below the head of finished extractors and of the current one."""
    stacked = memory.extractors["hidden"]
    finished = [{name: leaf[place] for name, leaf in stacked.items()} for place in range(count)]
    return [*finished, learner.params["hidden"]]


def joined_features(memory, learner, count, inputs):
    parts = [features_of(layer, inputs) for layer in extractors_of(memory, learner, count)]
    empty = [np.zeros_like(parts[0])] * (2 - count)
    return np.concatenate([*parts[:-1], *empty, parts[-1]], axis=1)


def test_finished_extractors_stay_and_every_head_reads_all_of_them(after_each):
    for task, (memory, learner) in enumerate(after_each):
        assert memory.count == task
        for place, (_, before) in enumerate(after_each[:task]):
            for name, leaf in memory.extractors["hidden"].items():
                np.testing.assert_array_equal(leaf[place], before.params["hidden"][name])
        assert not np.any(memory.extractors["hidden"]["kernel"][task:])
        head = joined_head(memory, learner.params)
        rows = joined_features(memory, learner, task, DATA[TEST])
        expected = rows @ np.float64(head["kernel"]) + np.float64(head["bias"])
        scores = PLAIN.predict(memory, learner, jnp.float32(DATA[TEST]))
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


def test_a_task_starts_from_the_last_extractor_and_the_earlier_head(after_each):
    memory, learner = after_each[0]
    started, now = net.begin(SETUP, PLAIN, memory, learner, TASKS[1][0])
    np.testing.assert_array_equal(
        now.params["hidden"]["kernel"], learner.params["hidden"]["kernel"]
    )
    np.testing.assert_array_equal(
        started.heads.params["kernel"][0, :, :2], learner.params["head"]["kernel"][:, :2]
    )
    assert np.any(now.params["head"]["kernel"] != learner.params["head"]["kernel"])
    np.testing.assert_array_equal(now.params["head"]["bias"], learner.params["head"]["bias"])


def official_loss(values, memory, learner, index, task):
    """Return the sum of both cross-entropies; auxiliary classes are numbered within the task."""
    inputs = DATA[index] + SHIFT
    finished = extractors_of(memory, learner, task)[:-1]
    rows = [features_of(layer, inputs) for layer in finished]
    current = features_of({"kernel": values["hidden"], "bias": values["hidden_bias"]}, inputs, GAIN)
    logits = current @ values["head"] + values["head_bias"]
    logits = logits + sum(row @ values["rows"][place] for place, row in enumerate(rows))
    seen, known = 2 * task + 2, 2 * task
    position = np.arange(len(index))
    loss = -log_softmax(logits[:, :seen], axis=1)[position, LABELS[index]].mean()
    columns = [0, *range(known + 1, seen + 1)]
    auxiliary = (current @ values["auxiliary"] + values["auxiliary_bias"])[:, columns]
    targets = np.maximum(LABELS[index] - known + 1, 0)
    return loss - AUXILIARY * (task > 0) * log_softmax(auxiliary, axis=1)[position, targets].mean()


@pytest.mark.parametrize("task", [0, 2])
def test_a_step_is_the_gradient_of_the_official_loss(after_each, task):
    before = after_each[task - 1] if task else net.untrained(SETUP, PLAIN)
    memory, learner = net.begin(SETUP, PLAIN, *before, TASKS[task][0])
    index = np.array([4, 11, 10, 2, 0]) if task else np.array([0, 1, 6])
    batch = net.filled(SETUP, net.batch_of([*index, 9], [1] * len(index) + [0]))
    gradient, info = PLAIN.grads(memory, learner, batch, TASKS[task][0], KEY)

    def named(params, heads):
        auxiliary = heads["auxiliary"]
        return {
            **net.flat(params),
            "rows": heads["kernel"],
            "auxiliary": auxiliary["kernel"],
            "auxiliary_bias": auxiliary["bias"],
        }

    values = jax.tree.map(np.float64, named(learner.params, memory.heads.params))
    expected = net.finite_differences(
        lambda values: official_loss(values, memory, learner, index, task), values
    )
    net.assert_trees_close(named(gradient, info.aux), expected, rtol=1e-4, atol=1e-5)


def test_the_aligned_head_is_pycil_s(after_each):
    assert_aligned(SETUP, der("aligned"), after_each[0], TASKS[1][0], HIDDEN, KEY)


def test_the_finetuned_head_is_trained_on_the_exemplars(after_each):
    memory, learner = after_each[1]
    finetuned = der("finetuned")
    memory, learner = net.begin(SETUP, finetuned, memory, learner, TASKS[2][0])
    after, changed = finetuned.end_task(memory, learner, TASKS[2][0], KEY)
    held = after.buffer.samples
    index = np.asarray(held.index)[np.asarray(held.mask)]
    np.testing.assert_array_equal(np.sort(LABELS[index]), np.repeat(np.arange(6), 2))
    rows = joined_features(memory, learner, 2, DATA[index])
    start = drawn_head(memory, joined_head(memory, learner.params), jax.random.split(KEY)[0])
    kernel, bias = (np.float64(start[name]) for name in ("kernel", "bias"))
    assert np.abs(kernel).max() <= (3 * HIDDEN) ** -0.5
    assert not np.any(bias)
    for epoch in range(EPOCHS):
        probability = net.softmax((rows @ kernel + bias) / TEMPERATURE, True)
        error = (probability - np.eye(CLASSES)[LABELS[index]]) / len(index) / TEMPERATURE
        rate = RATE * 0.5 * (1 if epoch < EPOCHS / 2 else 0.1)
        kernel = kernel - rate * rows.T @ error
        bias = bias - rate * error.sum(axis=0)
    head = joined_head(after, changed.params)
    np.testing.assert_allclose(head["kernel"], kernel, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(head["bias"], bias, rtol=1e-4, atol=1e-6)


def test_the_first_task_s_head_stays(after_each):
    memory, learner = after_each[0]
    for classifier in ("finetuned", "aligned"):
        _, changed = der(classifier).end_task(memory, learner, TASKS[0][0], KEY)
        for name, leaf in learner.params["head"].items():
            np.testing.assert_array_equal(changed.params["head"][name], leaf)


def test_without_an_epoch_of_finetuning_the_head_stays(after_each):
    plain = expandable_representation(SETUP, 3, 2, classifier="finetuned", finetuning_epochs=0)
    memory, learner = net.begin(SETUP, plain, *after_each[0], TASKS[1][0])
    _, changed = plain.end_task(memory, learner, TASKS[1][0], KEY)
    np.testing.assert_array_equal(
        changed.params["head"]["kernel"], learner.params["head"]["kernel"]
    )


def test_a_network_that_is_a_head_alone_has_empty_extractors():
    """Its logits are those of the head: the rows of finished extractors are 0."""

    def init(key):
        return {"head": SETUP.init(key)[0]["head"]}, {}

    def apply(params, batch_stats, inputs, train, key):
        logits = inputs @ params["head"]["kernel"] + params["head"]["bias"]
        return Outputs(logits, inputs), batch_stats

    setup = SETUP._replace(init=init, apply=apply)
    strategy = expandable_representation(setup, 3, 2)
    memory, learner = net.untrained(setup, strategy)
    inputs = jnp.linspace(-1, 1, 2 * HIDDEN).reshape(2, HIDDEN)
    expected, _ = apply(learner.params, {}, inputs, False, None)
    logits = strategy.predict(memory, learner, inputs)
    np.testing.assert_allclose(logits, SETUP.objective.scores(expected), rtol=1e-5)
