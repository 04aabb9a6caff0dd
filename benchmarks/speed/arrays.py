"""IIRC's metrics, herding and fact ranking against loops in NumPy and PyTorch."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.speed.timing import HAS_TORCH, Case, Machine
from everlight.continual import Samples
from everlight.continual.strategies.parts.exemplars import add_herded_exemplars, empty_exemplars
from everlight.metrics.multilabel import task_score_matrix
from everlight.metrics.ranking import Facts, Ranks, rank_facts

FIRST, PER_TASK = 10, 5
"""Classes of IIRC-CIFAR's first task, its superclasses, and of every other task."""


def iirc_metrics(machine: Machine, small: bool) -> list[Case]:
    """Return the whole matrix of scores from stored predictions, against PyTorch task by task."""
    tasks, samples = (3, 50) if small else (22, 10_000)
    arrays = noisy_predictions(tasks, samples)
    on_device, matrix = [jnp.asarray(array) for array in arrays], jax.jit(task_score_matrix)
    contestants: dict[str, Callable[[], object]] = {"everlight": lambda: matrix(*on_device)}
    if HAS_TORCH:
        contestants["PyTorch, task by task"] = torch_matrix(*arrays)
    floor = machine.floor(arrays[0].nbytes + arrays[1].nbytes)
    return [Case(f"IIRC's scores of {tasks} tasks, {samples:,} samples", contestants, floor)]


def herding(machine: Machine, small: bool) -> list[Case]:
    """Return iCaRL's choice of exemplars for all classes at once, against a loop over them."""
    classes, samples, features, exemplars = (4, 30, 6, 3) if small else (115, 500, 64, 20)
    values, labels = clustered_features(classes, samples, features)
    everlight = everlight_herding(values, labels, exemplars)
    contestants = {
        "everlight": everlight,
        "NumPy": lambda: numpy_herding(values, labels, exemplars),
    }
    name = f"herding {exemplars} of {samples} samples for {classes} classes"
    return [Case(name, contestants, machine.floor(values.nbytes))]


def fact_ranking(machine: Machine, small: bool) -> list[Case]:
    """Return a part of the large benchmark against the full matrix, and the whole, which is too
    large for one."""
    images, facts = (20, 40) if small else (1_000, 20_000)
    part = noisy_facts(images, facts, words=12 if small else 10_000)
    cases = [
        Case(
            f"ranks of {images:,} images among {facts:,} facts",
            {"everlight": everlight_ranks(part), "NumPy": lambda: numpy_ranks(*part)},
        )
    ]
    if not small:
        ranks = everlight_ranks(noisy_facts(10_000, 165_150, words=10_000))
        name = "ranks of 10,000 images among 165,150 facts (their matrix: 6.6 GB)"
        cases.append(Case(name, {"everlight": ranks}, rounds=1))
    return cases


def noisy_predictions(tasks: int, samples: int) -> tuple[np.ndarray, ...]:
    """Return predictions, labels, tasks' samples and seen classes; most samples have two labels."""
    rng = np.random.default_rng(0)
    class_task = np.concatenate([np.zeros(FIRST, int), np.repeat(np.arange(1, tasks), PER_TASK)])
    classes = len(class_task)
    subclass = rng.integers(FIRST, classes, samples)
    labels = np.eye(classes, dtype=bool)[subclass]
    # Ten of thirteen have a superclass, like IIRC-CIFAR's 77 of 100.
    has_super = subclass % 13 < FIRST
    labels[has_super, subclass[has_super] % 13] = True
    member = np.stack([labels[:, class_task == task].any(axis=1) for task in range(tasks)])
    seen = class_task <= np.arange(tasks)[:, None]
    wrong = rng.uniform(size=(tasks, samples, classes)) < 0.02
    return (labels ^ wrong) & seen[:, None], labels, member, seen


def torch_matrix(
    predicted: np.ndarray, labels: np.ndarray, member: np.ndarray, seen: np.ndarray
) -> Callable[[], list[list[float]]]:
    """Return the way of IIRC's authors: after each task, four metrics per task so far and union.

    The predictions and labels that a forward pass per task would give are cut out beforehand.
    """
    import torch
    from torch import Tensor

    blocks = []
    for j in range(len(predicted)):
        for chosen in (*member[: j + 1], member[: j + 1].any(axis=0)):
            pair = predicted[j][chosen][:, seen[j]], labels[chosen][:, seen[j]]
            blocks.append([torch.from_numpy(np.ascontiguousarray(array)) for array in pair])

    def jaccard(guess: Tensor, true: Tensor) -> Tensor:
        return (guess & true).sum(1) / (guess | true).sum(1)

    def weighted_jaccard(guess: Tensor, true: Tensor) -> Tensor:
        return jaccard(guess, true) * (guess & true).sum(1) / guess.sum(1).clamp(min=1)

    def exact_match(guess: Tensor, true: Tensor) -> Tensor:
        return (guess == true).all(1).float()

    def recall(guess: Tensor, true: Tensor) -> Tensor:
        return (guess & true).sum() / true.sum()

    metrics = (weighted_jaccard, jaccard, exact_match, recall)
    return lambda: [[metric(*block).mean().item() for metric in metrics] for block in blocks]


def clustered_features(classes: int, samples: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features around a common centre, and labels in random order."""
    rng = np.random.default_rng(0)
    values = np.float32(rng.normal(size=(classes * samples, features)) + 0.5)
    return values, rng.permutation(np.repeat(np.arange(classes), samples))


def everlight_herding(
    values: np.ndarray, labels: np.ndarray, exemplars: int
) -> Callable[[], jax.Array]:
    """Return a function that chooses exemplars of all classes, `[c * exemplars]`."""
    classes, columns = int(labels.max()) + 1, jnp.asarray(labels[:, None])
    arguments = (
        empty_exemplars(classes * exemplars, 1),
        Samples(jnp.arange(len(labels)), columns, jnp.ones(len(labels), bool)),
        jnp.ones(classes, bool),
        jnp.asarray(values),
    )
    herd = jax.jit(add_herded_exemplars)
    return lambda: herd(*arguments).samples.index


def numpy_herding(values: np.ndarray, labels: np.ndarray, exemplars: int) -> np.ndarray:
    """Return the choice of iCaRL's algorithm 4, class by class, `[c, exemplars]`."""
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


def noisy_facts(images: int, facts: int, words: int) -> tuple:
    """Return noisy embeddings, labels, facts of all three types, and the facts' tasks."""
    rng, dimension = np.random.default_rng(0), 300
    vectors = rng.standard_normal((words, dimension), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    pieces = rng.integers(0, words, (facts, 3))
    pieces[np.arange(3) > rng.integers(0, 3, facts)[:, None]] = -1
    labels = rng.integers(0, facts, images)
    noise = rng.standard_normal((images, 3, dimension), np.float32)
    shown = np.where(pieces[labels, :, None] >= 0, vectors[pieces[labels]], 0)
    embeddings = (shown + noise / 10).astype(np.float32)
    return embeddings, labels, Facts(pieces, vectors), rng.integers(0, 8, facts)


def everlight_ranks(arrays: tuple) -> Callable[[], Ranks]:
    """Return a function that ranks the facts of every image, block by block."""
    ranked, on_device = jax.jit(rank_facts), jax.tree.map(jnp.asarray, arrays)
    return lambda: ranked(*on_device)


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
