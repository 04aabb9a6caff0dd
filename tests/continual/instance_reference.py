"""Instance losses of OCM's official code in float64 NumPy, on the small network."""

import numpy as np

from tests.continual.small_net import GAIN

BENT = np.array([0.7, -0.4, 1.2])


def normalized(rows):
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def features_of(params, inputs):
    return GAIN * np.tanh(inputs @ params["hidden"] + params["hidden_bias"])


def projections_of(params, inputs):
    features = features_of(params, inputs)
    return features, normalized(features @ params["p kernel"] + params["p bias"])


def cross_entropy(params, inputs, labels, seen):
    logits = (features_of(params, inputs) @ params["head"] + params["head_bias"])[:, seen]
    rows = np.array([seen.index(label) for label in labels])
    return np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(rows)), rows]


def all_forms(inputs):
    """Return two forms of each input."""
    return np.concatenate([inputs, inputs[:, ::-1] * BENT])


def xent_n(near, labels, temperature, eps=1e-8):
    """Compute `Supervised_NT_xent_n`."""
    labels = np.tile(labels, 2)
    near = near - near.max(axis=1, keepdims=True)
    count = len(near) // 2
    powers = np.exp(near / temperature) * ~np.eye(2 * count, dtype=bool)
    logs = -np.log(powers / (powers.sum(axis=1, keepdims=True) + eps) + eps)
    mask = (labels[:, None] == labels).astype(float)
    mask = mask / (mask.sum(axis=1, keepdims=True) + eps)
    both = 2 * np.sum(mask * logs) / (2 * count)
    one = np.sum(np.diag(logs[:count, count:]) + np.diag(logs[count:, :count])) / (2 * count)
    return one + both


def xent_uni(near, labels, temperature, eps=1e-8):
    """Compute `Supervised_NT_xent_uni`."""
    return xent_pre(near, np.tile(labels, 2), temperature, eps)


def xent_pre(near, labels, temperature, eps=1e-8):
    """Compute `Supervised_NT_xent_pre`."""
    near = near - near.max(axis=1, keepdims=True)
    powers = np.exp(near / temperature)
    logs = -np.log(powers / (powers.sum(axis=1, keepdims=True) + eps) + eps)
    mask = (labels[:, None] == labels).astype(float)
    mask = mask / (mask.sum(axis=1, keepdims=True) + eps)
    return np.sum(mask * logs) / len(near)


def form_labels(labels):
    return np.concatenate([labels, labels + 1000.0])


def instance(params, inputs, labels, start, factor, loss, change=-0.5):
    """Return the loss of the forms of inputs in two views, a function of similarities and labels.

    Second views are the forms times `change`. Also returns the projections of the views.
    """
    rotated = all_forms(inputs)
    features, z = projections_of(params, np.concatenate([rotated, change * rotated]))
    part = normalized(features)[:, start : start + z.shape[1]]
    near = factor * (z @ part.T) + factor * (z @ z.T)
    return loss(near, form_labels(labels)), z
