"""IIRC's matrix of scores, herding of exemplars, and ranks of facts."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from everlight.continual.base import Samples
from everlight.continual.strategies.exemplars import add_herded_exemplars, empty_exemplars
from everlight.metrics.multilabel import task_score_matrix
from everlight.metrics.ranking import Facts, Ranks, rank_facts
from tests.speed.cases import OURS, Case, Machine, has_torch

# IIRC-CIFAR's: its superclasses come first.
FIRST, PER_TASK = 10, 5


class Predictions(NamedTuple):
    """Predicted and true labels, the test sets and the seen classes of every task."""

    predicted: np.ndarray
    labels: np.ndarray
    member: np.ndarray
    seen: np.ndarray


def iirc_matrix(machine: Machine, tasks: int = 22, samples: int = 10_000) -> Case:
    """Compute all of IIRC's R matrix: pw-JS, JS, exact match and recall."""
    made = predictions(tasks, samples)
    on_device = [jnp.asarray(array) for array in made]
    matrix = jax.jit(task_score_matrix)
    contestants = {OURS: lambda: matrix(*on_device)}
    if has_torch():
        contestants["PyTorch, task by task"] = torch_matrix(made)
    floor = (made.predicted.nbytes + made.labels.nbytes) / machine.bandwidth
    return Case(f"IIRC scores of {tasks} tasks, {samples:,} samples", contestants, floor)


def predictions(tasks: int, samples: int) -> Predictions:
    """Return samples of one subclass each, most with a superclass, and noisy predictions."""
    rng = np.random.default_rng(0)
    class_task = np.concatenate([np.zeros(FIRST, int), np.repeat(np.arange(1, tasks), PER_TASK)])
    classes = len(class_task)
    subclass = rng.integers(FIRST, classes, samples)
    labels = np.eye(classes, dtype=bool)[subclass]
    # Ten of thirteen, like IIRC-CIFAR's 77 of 100.
    has_super = subclass % 13 < FIRST
    labels[has_super, subclass[has_super] % 13] = True
    member = np.stack([labels[:, class_task == task].any(axis=1) for task in range(tasks)])
    seen = class_task <= np.arange(tasks)[:, None]
    wrong = rng.uniform(size=(tasks, samples, classes)) < 0.02
    return Predictions((labels ^ wrong) & seen[:, None], labels, member, seen)


def torch_matrix(made: Predictions):
    """Return the authors' way: four metrics of each task so far and of their union.

    Each task is one batch, and its predictions are cut out beforehand.
    """
    import torch

    blocks = []
    for j, (predicted, seen) in enumerate(zip(made.predicted, made.seen, strict=True)):
        for member in (*made.member[: j + 1], made.member[: j + 1].any(axis=0)):
            pair = predicted[member][:, seen], made.labels[member][:, seen]
            blocks.append([torch.from_numpy(np.ascontiguousarray(array)) for array in pair])

    def jaccard(predicted, true):
        return (predicted & true).sum(1) / (predicted | true).sum(1)

    def weighted_jaccard(predicted, true):
        precision = (predicted & true).sum(1) / predicted.sum(1).clamp(min=1)
        return jaccard(predicted, true) * precision

    def exact_match(predicted, true):
        return (predicted == true).all(1).float()

    def recall(predicted, true):
        return (predicted & true).sum() / true.sum()

    metrics = (weighted_jaccard, jaccard, exact_match, recall)
    return lambda: [[metric(*block).mean().item() for metric in metrics] for block in blocks]


def herding(
    machine: Machine,
    classes: int = 115,
    samples: int = 500,
    features: int = 64,
    exemplars: int = 20,
) -> Case:
    """Choose iCaRL's exemplars of all classes."""
    rng = np.random.default_rng(0)
    values = np.float32(rng.normal(size=(classes * samples, features)) + 0.5)
    labels = rng.permutation(np.repeat(np.arange(classes), samples))
    on_device = (
        empty_exemplars(classes * exemplars, 1),
        Samples(jnp.arange(len(labels)), jnp.asarray(labels[:, None]), jnp.ones(len(labels), bool)),
        jnp.ones(classes, bool),
        jnp.asarray(values),
    )
    herd = jax.jit(add_herded_exemplars)
    return Case(
        f"herding {exemplars} of {samples} samples for {classes} classes",
        {
            OURS: lambda: herd(*on_device).samples.index,
            "NumPy": lambda: numpy_herding(values, labels, exemplars),
        },
        values.nbytes / machine.bandwidth,
        3,
    )


def numpy_herding(values: np.ndarray, labels: np.ndarray, exemplars: int) -> np.ndarray:
    """Return iCaRL's algorithm 4, class by class: places of the chosen samples."""
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    chosen = np.empty((labels.max() + 1, exemplars), int)
    for label in range(len(chosen)):
        members = np.flatnonzero(labels == label)
        rows, free = unit[members], np.ones(len(members), bool)
        mean, total = rows.mean(axis=0), np.zeros(rows.shape[1], rows.dtype)
        for number in range(exemplars):
            distance = np.linalg.norm(mean - (total + rows) / (number + 1), axis=1)
            best = np.argmin(np.where(free, distance, np.inf))
            free[best], total = False, total + rows[best]
            chosen[label, number] = members[best]
    return chosen


def fact_ranks(
    machine: Machine, images: int = 1_000, facts: int = 20_000, words: int = 10_000, d: int = 300
) -> Case:
    """Rank the true fact of every image among all, by blocks and by NumPy's full matrix."""
    world = fact_world(images, facts, words, d)
    on_device = jax.tree.map(jnp.asarray, world)
    ranked = jax.jit(rank_facts)
    return Case(
        f"ranks of {images:,} images among {facts:,} facts",
        {OURS: lambda: ranked(*on_device), "NumPy": lambda: numpy_ranks(*world)},
        2 * images * 3 * words * d / machine.flops,
        3,
    )


def fact_world(images: int, facts: int, words: int, d: int) -> tuple:
    """Return noisy embeddings of random facts of all three types in eight tasks."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((words, d), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    pieces = rng.integers(0, words, (facts, 3))
    kind = rng.integers(0, 3, facts)
    pieces[np.arange(3) > kind[:, None]] = -1
    labels = rng.integers(0, facts, images)
    noise = rng.standard_normal((images, 3, d), np.float32)
    shown = np.where(pieces[labels, :, None] >= 0, vectors[pieces[labels]], 0)
    embeddings = (shown + noise / 10).astype(np.float32)
    return embeddings, labels, Facts(pieces, vectors), rng.integers(0, 8, facts)


def numpy_ranks(
    embeddings: np.ndarray, labels: np.ndarray, facts: Facts, fact_task: np.ndarray
) -> Ranks:
    """Return ranks from the full matrix, by the same formula and in the same precision."""
    pieces, vectors = facts
    squares = np.sum(vectors**2, axis=1)
    distances = np.zeros((len(embeddings), len(pieces)), np.float32)
    for piece, embedded in enumerate(np.moveaxis(embeddings, 1, 0)):
        words = squares - 2 * embedded @ vectors.T + np.sum(embedded**2, axis=1, keepdims=True)
        distances += np.pad(words, ((0, 0), (0, 1)))[:, pieces[:, piece]]
    distances /= np.sum(pieces >= 0, axis=1)
    closer = distances < np.take_along_axis(distances, labels[:, None], axis=1)
    same = fact_task[labels][:, None] == fact_task
    return Ranks(1 + np.sum(closer & same, axis=1), 1 + np.sum(closer, axis=1))
