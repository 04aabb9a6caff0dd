"""What everlight and Avalanche are both given: images, tasks, weights, and what is replayed."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from everlight.continual import TaskSequence
from everlight.models import MLP, PlainCNN
from everlight.scenarios import class_incremental
from everlight_data.images.digits import load_digits
from everlight_data.images.image_set import ImageSet, first_per_class, shrink_images
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32

CLASSES = 10
TASKS = 5
BATCH = 16
PER_CLASS = 64
"""Training images of each class, so that no batch is partial."""
HELD = 20
"""Samples of every task, in GEM's memory."""


class Material(NamedTuple):
    """Images as both sides get them, and the net."""

    images: Float[np.ndarray, "n *shape"]
    """Normalised."""
    labels: Int[np.ndarray, "n"]
    trained: int
    """Training images come first, so many."""
    net: nn.Module


class Fed(NamedTuple):
    """What strategies draw, where it is given to both sides; also the data of a compiled run."""

    replay: Int[Array, "t n b"]
    held: Int[Array, "t m"]
    logits: Float[Array, "n c"]
    labels: Int[Array, "n"]


def digits_material(per_class: tuple[int, int]) -> Material:
    """Handwritten digits and the net of the split-digits plan."""
    images = first_per_class(load_digits(), *per_class)
    grey = images.images[..., 0].reshape(len(images.images), -1)
    return _material(images, grey, MLP(CLASSES, (100, 100)))


def tiny_imagenet_material(per_class: tuple[int, int], side: int) -> Material:
    """Ten classes of Tiny-ImageNet and a small convolutional net."""
    images = shrink_images(first_per_class(load_tiny_imagenet_32(range(CLASSES)), *per_class), side)
    return _material(images, images.images, PlainCNN(CLASSES, (16, 32), 64))


def _material(images: ImageSet, pixels: np.ndarray, net: nn.Module) -> Material:
    trained = len(images.train_labels)
    labels = np.concatenate([images.train_labels, images.test_labels]).astype(np.int64)
    # Avalanche has a task's samples class by class, which its importances' batches hang on.
    by_class = np.argsort(images.train_labels, kind="stable")
    order = np.concatenate([by_class, np.arange(trained, len(labels))])
    values = pixels[order].astype(np.float32)
    values = (values - values[:trained].mean()) / values[:trained].std()
    return Material(values, labels[order], trained, net)


def order_of(seed: int) -> Int[np.ndarray, "t 2"]:
    """The classes of every task."""
    return np.random.default_rng(seed).permutation(CLASSES).reshape(TASKS, -1)


def sequence_of(material: Material, seed: int) -> TaskSequence:
    """Tasks of two classes, all of their training images."""
    train, test = np.split(material.labels, [material.trained])
    return class_incremental(train, test, order_of(seed).tolist(), CLASSES, valid_fraction=0.0)


def start_of(material: Material, seed: int) -> PyTree:
    """Initial weights."""
    blank = jnp.zeros((1, *material.images.shape[1:]))
    return material.net.init(jax.random.key(1_000 + seed), blank, False)["params"]


def draws_of(material: Material, seed: int) -> Fed:
    """What is replayed at every step: samples of earlier tasks, and logits that they had."""
    rng, count = np.random.default_rng(seed), len(material.labels)
    trained, order = material.labels[: material.trained], order_of(seed)
    replay = np.zeros((TASKS, count, BATCH), int)
    held = np.zeros((TASKS, HELD), int)
    for task in range(TASKS):
        held[task] = rng.choice(np.flatnonzero(np.isin(trained, order[task])), HELD, replace=False)
        if task:
            earlier = np.flatnonzero(np.isin(trained, order[:task]))
            replay[task] = rng.choice(earlier, (count, BATCH))
    logits = rng.normal(size=(count, CLASSES)).astype(np.float32)
    return Fed(*map(jnp.asarray, (replay, held, logits, material.labels)))
