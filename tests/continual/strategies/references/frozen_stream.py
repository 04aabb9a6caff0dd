"""A stream for strategies that count over the small net's features, and the same in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

from everlight.base import Batch, Outputs, Samples, Setup
from everlight.continual.objectives.softmax import softmax_objective
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, LABELS, START

# Classes begin within a batch, come again in later ones, and class 4 is never met; 11 and 3 are
# padding, with which nothing of class 5 or 3 may be counted.
BATCHES = [
    net.batch_of([0, 1, 6, 2, 12, 11], [1, 1, 1, 1, 1, 0]),
    net.batch_of([7, 13, 3, 8, 14, 18], [1, 1, 0, 1, 1, 1]),
    net.batch_of([19, 20, 5, 17, 25]),
]
MET = [0, 1, 2, 5]


def state_after(strategy, batches=None, setup=None):
    """Return memory and learner after the batches of one task that has all classes."""
    task = net.task_of(0, range(6), [0])
    steps = BATCHES if batches is None else batches
    return net.run_tasks(setup or net.small_setup(), strategy, [(task, steps)])[-1]


def solved(strategy, memory, learner):
    return jax.jit(strategy.before_evaluation)(memory, learner, jax.random.key(0))[0]


def arrivals(batches=None):
    """Return features in evaluation mode of training's inputs, and classes, in float64."""
    steps = BATCHES if batches is None else batches
    index = np.concatenate([np.asarray(b.index)[np.asarray(b.weight) > 0] for b in steps])
    return net.forward(START, index, train=True)[1], LABELS[index]


def one_by_one():
    """Return the same samples in the same order, one per batch."""
    stored = [np.asarray(b.index)[np.asarray(b.weight) > 0] for b in BATCHES]
    return [net.batch_of([index]) for index in np.concatenate(stored)]


# Handwritten digits 0 to 5 are features of a network that returns its inputs.


@functools.cache
def digits():
    """Return training features and labels in class order, and 400 test features and labels."""
    values, labels = load_digits(n_class=CLASSES, return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    values, labels = values[order] / 16, labels[order]
    train = np.argsort(labels[400:] // 2, kind="stable") + 400
    return values[train], labels[train], values[:400], labels[:400]


def identity_setup(features):
    stored = jnp.float32(features)

    def apply(params, batch_stats, inputs, train, key):
        return Outputs(jnp.zeros((len(inputs), CLASSES)), inputs), batch_stats

    return Setup(
        init=lambda key: ({"none": jnp.zeros(1)}, {}),
        apply=apply,
        objective=softmax_objective(),
        optimizer=optax.sgd(0.1),
        gather=lambda index, key: stored[index],
    )


def labelled_samples(index, labels):
    index = np.asarray(index)
    return Samples(
        jnp.asarray(index), jnp.asarray(labels[index][:, None]), jnp.ones(len(index), bool)
    )


def batches_of(labels, index, size=64):
    """Yield batches of stored samples in their order; weight 0 pads the last one."""
    for part in np.split(index, range(size, len(index), size)):
        place = np.pad(part, (0, size - len(part)))
        weight = jnp.asarray(np.arange(size) < len(part), jnp.float32)
        yield Batch(
            jnp.asarray(place), jnp.asarray(labels[place][:, None]), weight, jnp.zeros(size, bool)
        )


def streamed_digits(make, shift):
    """Return memory and scores after one pass, and the float32 features as float64 numbers."""
    train, labels, test, _ = digits()
    train, test = (np.float32(part + shift).astype(float) for part in (train, test))
    setup = identity_setup(train)
    strategy = make(setup)
    batches = list(batches_of(labels, np.arange(len(labels))))
    task = net.task_of(0, range(CLASSES), labelled_samples(range(len(labels)), labels))
    memory, learner = net.run_tasks(setup, strategy, [(task, batches)])[-1]
    if strategy.before_evaluation is not None:
        memory = solved(strategy, memory, learner)
    scores = strategy.predict(memory, learner, jnp.float32(test))
    return memory, np.asarray(scores, float), train, test
