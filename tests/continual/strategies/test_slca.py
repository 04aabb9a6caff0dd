"""SLCA against the official procedure in float64: steps, Gaussians of classes, aligned head."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Epoch, Samples
from everlight.continual.engine.epochs import shuffle
from everlight.continual.engine.keys import epoch_keys
from everlight.continual.strategies.slca import (
    class_gaussians,
    gaussian_samples,
    normalised_logits,
    slca,
)
from tests.continual.small_net import (
    CLASSES,
    DATA,
    HIDDEN,
    LABELS,
    RATE,
    START,
    assert_trees_close,
    backward,
    batch_of,
    begin,
    flat,
    forward,
    layered_setup,
    run_tasks,
    samples_of,
    softmax,
    task_of,
    untrained,
)

SLOW, EPOCHS, COUNT, TEMPERATURE, DECAY = 0.1, 3, 4, 0.5, 0.05
OPTIMIZER = optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(RATE, momentum=0.9))
SETUP = layered_setup()._replace(optimizer=OPTIMIZER)
STRATEGY = slca(SETUP, SLOW, EPOCHS, COUNT, TEMPERATURE)
END_KEY = jax.random.key(3)
"""Key of `run_tasks` at the end of a task."""
FIRST, SECOND, THIRD = [0, 1, 6, 2, 7, 8, 12, 13], [3, 9, 15, 21], [4, 10, 16, 22, 5]
"""Samples of classes 0 to 2, of class 3, and of classes 4 and 5; 5 has one sample."""
TASKS = [
    (
        # A slot that is masked out has a sample of the task.
        task_of(0, [0, 1, 2], samples_of([*FIRST, 14], [1] * 8 + [0])),
        [batch_of([0, 1, 6, 2]), batch_of([7, 8, 12, 3], [1, 1, 1, 0])],
    ),
    (task_of(1, [3], samples_of(SECOND)), [batch_of(SECOND)]),
    (task_of(2, [4, 5], samples_of(THIRD)), [batch_of(THIRD), batch_of(THIRD[:3])]),
]
OWN = {0: [0, 1, 2], 1: [3], 2: [4, 5]}
TASK_OF = np.array([0, 0, 0, 1, 2, 2])
TEST = np.arange(20, 40)
INPUTS = jnp.asarray(DATA[TEST], jnp.float32)
HEAD = ("head", "head_bias")


def stage_one(params, batches, classes):
    """Momentum and weight decay from the start of a task; steps below the head are shorter."""
    velocity = {name: np.zeros_like(leaf) for name, leaf in params.items()}
    active = np.isin(np.arange(CLASSES), classes)
    for batch in batches:
        index = np.asarray(batch.index)[np.asarray(batch.weight) > 0]
        logits = forward(params, index, train=True)[2]
        error = (softmax(logits, active) - np.eye(CLASSES)[LABELS[index]]) / len(index)
        gradient = {k: v.sum(axis=0) for k, v in backward(params, index, error, True).items()}
        moved = {}
        for name, leaf in params.items():
            velocity[name] = 0.9 * velocity[name] + gradient[name] + DECAY * leaf
            learns = active if name in HEAD else SLOW
            moved[name] = leaf - RATE * learns * velocity[name]
        params = moved
    return params


def loss_gradient(logits, label, classes):
    """Gradient by the logits of the mean cross-entropy of normalised logits."""
    groups = [[c for c in classes if TASK_OF[c] == task] for task in sorted(set(TASK_OF[classes]))]
    gradient = np.zeros_like(logits)
    for row, (z, y) in enumerate(zip(logits, label, strict=True)):
        lengths = [np.sqrt(np.sum(z[group] ** 2)) for group in groups]
        norm = np.mean([length + 1e-7 for length in lengths])
        of_norm = np.zeros(CLASSES)
        for group, length in zip(groups, lengths, strict=True):
            of_norm[group] = z[group] / length / len(groups)
        scaled = np.full(CLASSES, -np.inf)
        scaled[classes] = z[classes] / norm / TEMPERATURE
        error = np.exp(scaled - scaled[classes].max())
        error = error / error.sum() - np.eye(CLASSES)[y]
        jacobian = (np.eye(CLASSES) / norm - np.outer(z, of_norm) / norm**2) / TEMPERATURE
        gradient[row] = error @ jacobian
    return gradient / len(logits)


def stage_two(params, gaussians, classes, task):
    """The aligned head, from draws of the library's keys."""
    head = {"kernel": params["head"], "bias": params["head_bias"]}
    velocity = {name: np.zeros_like(leaf) for name, leaf in head.items()}
    every = np.repeat(np.arange(CLASSES), COUNT)
    slots = Samples(
        jnp.arange(CLASSES * COUNT),
        jnp.asarray(every)[:, None],
        jnp.asarray(np.isin(every, classes)),
    )
    for epoch in range(EPOCHS):
        keys = epoch_keys(END_KEY, epoch)
        noise = np.float64(jax.random.normal(keys.evaluations, (CLASSES, COUNT, HIDDEN)))
        drawn = np.zeros((CLASSES, COUNT, HIDDEN))
        for c in classes:
            mean, covariance = gaussians[c]
            shorter = 0.9 + 0.1 * (TASK_OF[c] + 1) / (task + 1)
            drawn[c] = shorter * mean + noise[c] @ np.linalg.cholesky(covariance).T
        order = np.asarray(shuffle(Epoch(slots, slots.mask), keys.order).slots)
        rate = RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        for step in range(len(classes)):
            own = order[step * COUNT : (step + 1) * COUNT]
            rows, label = drawn.reshape(-1, HIDDEN)[own], every[own]
            error = loss_gradient(rows @ head["kernel"] + head["bias"], label, classes)
            gradient = {"kernel": rows.T @ error, "bias": error.sum(axis=0)}
            for name in head:
                velocity[name] = 0.9 * velocity[name] + gradient[name] + DECAY * head[name]
                head[name] = head[name] - rate * velocity[name]
    learned = np.isin(np.arange(CLASSES), classes)
    return {
        "kernel": np.where(learned, head["kernel"], params["head"]),
        "bias": np.where(learned, head["bias"], params["head_bias"]),
    }


@pytest.fixture(scope="module")
def after_each():
    return run_tasks(SETUP, STRATEGY, TASKS)


def test_three_tasks_are_the_official_procedure(after_each):
    params, gaussians, seen = START, {}, []
    for task, (memory, learner) in enumerate(after_each):
        params = stage_one(params, TASKS[task][1], OWN[task])
        assert_trees_close(flat(learner.params), params, rtol=1e-4, atol=2e-6)
        index = [FIRST, SECOND, THIRD][task]
        for c in OWN[task]:
            rows = forward(params, [n for n in index if LABELS[n] == c])[1]
            spread = np.cov(rows.T) if len(rows) > 1 else np.zeros((HIDDEN, HIDDEN))
            gaussians[c] = rows.mean(axis=0), spread + 1e-4 * np.eye(HIDDEN)
            np.testing.assert_allclose(memory.mean[c], gaussians[c][0], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(memory.covariance[c], gaussians[c][1], atol=1e-5)
        seen = [*seen, *OWN[task]]
        # The first task's head is not aligned.
        head = {"kernel": params["head"], "bias": params["head_bias"]}
        if task:
            head = stage_two(params, gaussians, seen, task)
            assert np.abs(head["kernel"] - params["head"]).max() > 1e-2
        assert_trees_close(memory.head, head, rtol=2e-3, atol=2e-4)
        found = STRATEGY.predict(memory, learner, INPUTS)
        expected = forward(params, TEST)[1] @ head["kernel"] + head["bias"]
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-3)


def test_while_a_task_is_learned_the_head_before_alignment_predicts(after_each):
    memory, learner = after_each[1]
    memory, learner = begin(SETUP, STRATEGY, memory, learner, TASKS[2][0])
    expected, _ = SETUP.apply(learner.params, learner.batch_stats, INPUTS, False, None)
    np.testing.assert_allclose(
        STRATEGY.predict(memory, learner, INPUTS), expected.logits, rtol=1e-5, atol=1e-5
    )


def test_statistics_of_classes_are_those_of_numpy():
    rng = np.random.default_rng(0)
    rows, label = rng.normal(size=(30, 3)) + 5, rng.integers(0, 3, 30)
    mask = np.arange(30) < 25
    mean, covariance = class_gaussians(jnp.float32(rows), jnp.array(label), jnp.array(mask), 4)
    for c in range(3):
        own = rows[mask & (label == c)]
        np.testing.assert_allclose(mean[c], own.mean(axis=0), rtol=1e-5)
        expected = np.cov(own.T) + 1e-4 * np.eye(3)
        np.testing.assert_allclose(covariance[c], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(covariance[3], 1e-4 * np.eye(3))


def test_drawn_samples_have_the_moments_of_their_class():
    covariance = np.array([[[2.0, 0.6], [0.6, 0.5]], [[0.1, -0.05], [-0.05, 0.3]]])
    means = np.array([[3.0, -1.0], [0.0, 10.0]])
    roots = jnp.float32(np.linalg.cholesky(covariance))
    drawn = gaussian_samples(jnp.float32(means), roots, 40_000, jax.random.key(0))
    for c, rows in enumerate(np.asarray(drawn).reshape(2, -1, 2)):
        np.testing.assert_allclose(rows.mean(axis=0), means[c], atol=0.03)
        np.testing.assert_allclose(np.cov(rows.T), covariance[c], atol=0.03)


def test_normalised_logits_do_not_depend_on_their_scale_and_have_a_finite_gradient_at_0():
    logits = jnp.array([[3.0, 4.0, 0.0, 7.0]])
    tasks, seen = jnp.array([0, 0, 1, 2]), jnp.array([True, True, True, False])
    found = normalised_logits(logits, tasks, seen)
    np.testing.assert_allclose(found, logits / 2.5, rtol=1e-6)
    np.testing.assert_allclose(normalised_logits(10 * logits, tasks, seen), found, rtol=1e-6)
    slope = jax.grad(lambda given: jnp.sum(normalised_logits(given, tasks, seen)))(logits)
    assert np.all(np.isfinite(slope))


def test_other_heads_are_refused():
    _, learner = untrained(SETUP, STRATEGY)
    cosine = {**learner.params["head"], "scale": jnp.ones(())}
    for params, message in (
        ({**learner.params, "head": cosine}, "SLCA needs a linear layer named head"),
        ({"out": learner.params["head"]}, "name the network's last layer head"),
    ):
        with pytest.raises(ValueError, match=message):
            STRATEGY.init(jax.random.key(0), learner._replace(params=params))
