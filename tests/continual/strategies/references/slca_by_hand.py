"""SLCA's steps, Gaussians of classes and alignment, written again in float64 over three tasks."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.base import Epoch, Samples
from everlight.continual.engine.epochs import shuffle
from everlight.continual.engine.keys import epoch_keys
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, HIDDEN, LABELS, RATE

SLOW, EPOCHS, COUNT, TEMPERATURE, DECAY = 0.1, 3, 4, 0.5, 0.05
OPTIMIZER = optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(RATE, momentum=0.9))
SETUP = net.layered_setup()._replace(optimizer=OPTIMIZER)
FIRST, SECOND, THIRD = [0, 1, 6, 2, 7, 8, 12, 13], [3, 9, 15, 21], [4, 10, 16, 22, 5]
"""Samples of classes 0 to 2, of class 3, and of classes 4 and 5; 5 has one sample."""
INDEX = [FIRST, SECOND, THIRD]
TASKS = [
    (
        # A slot that is masked out has a sample of the task.
        net.task_of(0, [0, 1, 2], net.samples_of([*FIRST, 14], [1] * 8 + [0])),
        [net.batch_of([0, 1, 6, 2]), net.batch_of([7, 8, 12, 3], [1, 1, 1, 0])],
    ),
    (net.task_of(1, [3], SECOND), [net.batch_of(SECOND)]),
    (net.task_of(2, [4, 5], THIRD), [net.batch_of(THIRD), net.batch_of(THIRD[:3])]),
]
TASK_CLASSES = {0: [0, 1, 2], 1: [3], 2: [4, 5]}
TASK_OF = np.array([0, 0, 0, 1, 2, 2])
HEAD = ("head", "head_bias")


def stage_one(params, batches, classes, slow=SLOW):
    """Train with momentum and weight decay; steps below the head are shorter."""
    velocity = {name: np.zeros_like(leaf) for name, leaf in params.items()}
    active = np.isin(np.arange(CLASSES), classes)
    for batch in batches:
        index = np.asarray(batch.index)[np.asarray(batch.weight) > 0]
        logits = net.forward(params, index, train=True)[2]
        error = (net.softmax(logits, active) - np.eye(CLASSES)[LABELS[index]]) / len(index)
        gradient = {k: v.sum(axis=0) for k, v in net.backward(params, index, error, True).items()}
        moved = {}
        for name, leaf in params.items():
            velocity[name] = 0.9 * velocity[name] + gradient[name] + DECAY * leaf
            learns = active if name in HEAD else slow
            moved[name] = leaf - RATE * learns * velocity[name]
        params = moved
    return params


def own_gaussians(params, task):
    """Return mean and regular covariance of each of the task's classes."""
    results = {}
    for c in TASK_CLASSES[task]:
        rows = net.forward(params, [n for n in INDEX[task] if LABELS[n] == c])[1]
        spread = np.cov(rows.T) if len(rows) > 1 else np.zeros((HIDDEN, HIDDEN))
        results[c] = rows.mean(axis=0), spread + 1e-4 * np.eye(HIDDEN)
    return results


def loss_gradient(logits, label, classes):
    """Return the gradient by the logits of the normalized logits' mean cross-entropy."""
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


def stage_two(params, gaussians, classes, task, key):
    """Return the aligned head, from draws of the library's keys."""
    head = {"kernel": params["head"], "bias": params["head_bias"]}
    velocity = {name: np.zeros_like(leaf) for name, leaf in head.items()}
    complete = np.repeat(np.arange(CLASSES), COUNT)
    slots = Samples(
        jnp.arange(CLASSES * COUNT),
        jnp.asarray(complete)[:, None],
        jnp.asarray(np.isin(complete, classes)),
    )
    for epoch in range(EPOCHS):
        keys = epoch_keys(key, epoch)
        noise = np.float64(jax.random.normal(keys.evaluations, (CLASSES, COUNT, HIDDEN)))
        drawn = np.zeros((CLASSES, COUNT, HIDDEN))
        for c in classes:
            mean, covariance = gaussians[c]
            shorter = 0.9 + 0.1 * (TASK_OF[c] + 1) / (task + 1)
            drawn[c] = shorter * mean + noise[c] @ np.linalg.cholesky(covariance).T
        order = np.asarray(shuffle(Epoch(slots, slots.mask), keys.order).slots)
        rate = RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        for step in range(len(classes)):
            task_classes = order[step * COUNT : (step + 1) * COUNT]
            rows, label = drawn.reshape(-1, HIDDEN)[task_classes], complete[task_classes]
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
