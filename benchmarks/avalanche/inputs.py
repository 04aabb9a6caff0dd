"""Images, tasks, initial weights and replayed samples that everlight and Avalanche both receive."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.continual import StoredImages, TaskSequence
from everlight.models import MLP, PlainCNN
from everlight.scenarios import class_incremental, pad_sequences
from everlight_data.images.digits import load_digits
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32
from everlight_data.sets.image_set import ImageSet, PerClass, first_per_class, shrink_images

CLASSES = 10
TASKS = 5
BATCH = 16
PER_CLASS = 64
"""Training images of each class, so that no batch is partial."""
HELD = 20
"""Samples of every task in GEM's memory."""


class Inputs(NamedTuple):
    """Normalized images, training images first, and the network."""

    images: Float[np.ndarray, "n *shape"]
    labels: Int[np.ndarray, "n"]
    trained: int
    """Number of training images."""
    net: nn.Module


class FixedSamples(NamedTuple):
    """Samples that strategies replay, where both sides receive the same."""

    replay: Int[Array, "t n b"]
    held: Int[Array, "t m"]
    logits: Float[Array, "n c"]
    labels: Int[Array, "n"]


class RunData(NamedTuple):
    """Data of a compiled run."""

    stored: StoredImages
    start: PyTree
    fixed: FixedSamples


class Seeded(NamedTuple):
    """Everything that all methods share under one seed."""

    inputs: Inputs
    seed: int
    sequence: TaskSequence
    data: RunData
    key: PRNGKeyArray


def digits() -> Inputs:
    """Return handwritten digits and the network of the split-digits benchmark."""
    images = first_per_class(load_digits(), PerClass(PER_CLASS, 36))
    gray = images.images[..., 0].reshape(len(images.images), -1)
    return _inputs(images, gray, MLP(CLASSES, (100, 100)))


def tiny_imagenet() -> Inputs:
    """Return ten classes of Tiny-ImageNet and a small convolutional network."""
    images = first_per_class(load_tiny_imagenet_32(range(CLASSES)), PerClass(PER_CLASS, 50))
    images = shrink_images(images, 16)
    return _inputs(images, images.images, PlainCNN(CLASSES, (16, 32), 64))


INPUTS: dict[str, Callable[[], Inputs]] = {"digits": digits, "tiny-imagenet": tiny_imagenet}


def _inputs(images: ImageSet, pixels: np.ndarray, net: nn.Module) -> Inputs:
    trained = len(images.train_labels)
    labels = np.concatenate([images.train_labels, images.test_labels]).astype(np.int64)
    # Avalanche sorts a task's samples by class, which decides its importances' batches.
    by_class = np.argsort(images.train_labels, kind="stable")
    order = np.concatenate([by_class, np.arange(trained, len(labels))])
    values = pixels[order].astype(np.float32)
    values = (values - values[:trained].mean()) / values[:trained].std()
    return Inputs(values, labels[order], trained, net)


def task_order(seed: int) -> Int[np.ndarray, "t 2"]:
    """Return the classes of every task."""
    return np.random.default_rng(seed).permutation(CLASSES).reshape(TASKS, -1)


def over_seeds(inputs: Inputs, seeds: int) -> list[Seeded]:
    """Return the seeds' runs, whose sequences have one shape and two classes per task."""
    train, test = np.split(inputs.labels, [inputs.trained])
    sequences = [
        class_incremental(train, test, task_order(seed).tolist(), CLASSES, valid_fraction=0.0)
        for seed in range(seeds)
    ]
    stored = StoredImages.of(jnp.asarray(inputs.images), jnp.zeros(1), jnp.ones(1))
    blank = jnp.zeros((1, *inputs.images.shape[1:]))
    out = []
    for seed, sequence in enumerate(pad_sequences(sequences)):
        start = inputs.net.init(jax.random.key(1_000 + seed), blank, False)["params"]
        data = RunData(stored, start, fixed_samples(inputs, seed))
        out.append(Seeded(inputs, seed, sequence, data, jax.random.key(seed)))
    return out


def fixed_samples(inputs: Inputs, seed: int) -> FixedSamples:
    """Draw the samples of earlier tasks that every step replays, with logits, and GEM's memory."""
    rng, count = np.random.default_rng(seed), len(inputs.labels)
    trained, order = inputs.labels[: inputs.trained], task_order(seed)
    replay = np.zeros((TASKS, count, BATCH), int)
    held = np.zeros((TASKS, HELD), int)
    for task in range(TASKS):
        held[task] = rng.choice(np.flatnonzero(np.isin(trained, order[task])), HELD, replace=False)
        if task:
            earlier = np.flatnonzero(np.isin(trained, order[:task]))
            replay[task] = rng.choice(earlier, (count, BATCH))
    logits = rng.normal(size=(count, CLASSES)).astype(np.float32)
    return FixedSamples(*map(jnp.asarray, (replay, held, logits, inputs.labels)))
