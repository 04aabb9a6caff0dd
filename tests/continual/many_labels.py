"""The small net with up to two labels per sample and binary cross-entropy, in float64 too."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, log_expit

from everlight.base import Batch, Samples
from everlight.continual.objectives.multilabel import binary_objective
from tests.continual.small_net import CLASSES, START, STORED, backward, forward, small_setup

# Every third sample has a second label; sample i has i % 6 as its first.
PAIRS = np.stack(
    [
        np.arange(STORED) % CLASSES,
        np.where(np.arange(STORED) % 3, -1, (np.arange(STORED) // 3) % CLASSES),
    ],
    axis=1,
)
# The network before the task has these parameters.
OLD = {
    name: leaf + np.random.default_rng(5).normal(size=leaf.shape) * 0.6
    for name, leaf in START.items()
}


def binary_setup():
    return small_setup()._replace(objective=binary_objective())


def pairs_of(index, labels=None):
    """Return labels `[n, 2]`: the stored ones, or the given ones, one per sample."""
    if labels is None:
        return PAIRS[np.asarray(index)]
    return np.stack([np.asarray(labels), np.full(len(index), -1)], axis=1)


def labelled(index, labels=None, mask=None):
    """Return samples with all their stored labels, or with one given label per sample."""
    mask = np.ones(len(index), bool) if mask is None else np.asarray(mask, bool)
    return jax.tree.map(jnp.asarray, Samples(np.asarray(index), pairs_of(index, labels), mask))


def labelled_batch(index, weight=None, memory_mask=None, labels=None):
    index = np.asarray(index)
    weight = np.ones(len(index)) if weight is None else np.asarray(weight)
    memory_mask = np.zeros(len(index)) if memory_mask is None else np.asarray(memory_mask)
    return Batch(
        jnp.asarray(index),
        jnp.asarray(pairs_of(index, labels)),
        jnp.float32(weight),
        jnp.asarray(memory_mask, bool),
    )


def targets_of(pairs):
    """Return targets `[n, c]`, which are 1 at a sample's labels."""
    return np.array(
        [[label in pair for label in range(CLASSES)] for pair in np.asarray(pairs)], float
    )


def entropies(logits, targets):
    """Return the binary cross-entropy of every sample and class."""
    return -(targets * log_expit(logits) + (1 - targets) * log_expit(-logits))


def teacher_logits(params, index):
    """Return the logits of a network in evaluation mode on the inputs that training sees."""
    bent = forward(params, index, train=True)[1]
    return bent @ params["head"] + params["head_bias"]


def mean_gradient(params, index, logit_gradient):
    """Return the gradient of a batch's mean loss, from gradients with respect to the logits."""
    contribution = backward(params, index, logit_gradient, train=True)
    return {name: leaf.mean(axis=0) for name, leaf in contribution.items()}


def binary_gradient(params, index, targets, among):
    """Return the gradient of the binary cross-entropy's mean over a batch and some classes."""
    among = np.asarray(among)
    logits = forward(params, index, train=True)[2]
    return mean_gradient(params, index, among * (expit(logits) - targets) / among.sum())
