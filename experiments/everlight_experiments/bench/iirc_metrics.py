"""IIRC's matrix of scores: all tasks in one compiled program against PyTorch, task by task."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from everlight.metrics.multilabel import task_score_matrix
from everlight_experiments.bench.net_training import has_torch
from everlight_experiments.bench.timing import median_ratio, seconds_in_turns

# IIRC-CIFAR's: its superclasses come first.
FIRST, PER_TASK = 10, 5


class MetricSpeed(NamedTuple):
    """Median seconds for the whole matrix; PyTorch's fields are None where it is not installed.

    The floor is the time to read the predictions and labels once.
    """

    tasks: int
    samples: int
    classes: int
    everlight_s: float
    torch_s: float | None
    ratio: float | None
    memory_floor_s: float


class _World(NamedTuple):
    predicted: np.ndarray
    labels: np.ndarray
    member: np.ndarray
    seen: np.ndarray


def metric_speed(tasks: int, samples: int, rounds: int, bandwidth: float) -> MetricSpeed:
    """Times pw-JS, JS, exact match and recall of every R_jk and R_j, from stored predictions.

    Args:
      tasks: tasks, of 10 classes and then 5 each: 22 give IIRC-CIFAR's 115.
      samples: test samples.
      rounds: turns of each.
      bandwidth: bytes per second that the machine copies, for the floor.
    """
    world = _world(tasks, samples)
    on_device = [jnp.asarray(array) for array in world]
    matrix = jax.jit(task_score_matrix)
    contestants: dict[str, Callable[[], object]] = {"everlight": lambda: matrix(*on_device)}
    if has_torch():
        contestants["torch"] = _torch_matrix(world)
    seconds = seconds_in_turns(contestants, rounds)
    ours, theirs = seconds["everlight"], seconds.get("torch")
    return MetricSpeed(
        tasks,
        samples,
        classes=world.labels.shape[1],
        everlight_s=float(np.median(ours)),
        torch_s=float(np.median(theirs)) if theirs else None,
        ratio=median_ratio(theirs, ours) if theirs else None,
        memory_floor_s=(world.predicted.nbytes + world.labels.nbytes) / bandwidth,
    )


def _world(tasks: int, samples: int) -> _World:
    """Random samples of one subclass each, most with a superclass, and noisy predictions."""
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
    return _World((labels ^ wrong) & seen[:, None], labels, member, seen)


def _torch_matrix(world: _World) -> Callable[[], object]:
    """The authors' way: after each task four metrics of each task so far and of their union.

    What they get from a forward pass per task, the seen classes' predictions and labels of its
    samples, is cut out beforehand, and each task is one batch instead of many of 128.
    """
    import torch
    from torch import Tensor

    blocks = []
    for j, (predicted, seen) in enumerate(zip(world.predicted, world.seen, strict=True)):
        for member in (*world.member[: j + 1], world.member[: j + 1].any(axis=0)):
            pair = predicted[member][:, seen], world.labels[member][:, seen]
            blocks.append([torch.from_numpy(np.ascontiguousarray(array)) for array in pair])

    def jaccard(predicted: Tensor, true: Tensor) -> Tensor:
        return (predicted & true).sum(1) / (predicted | true).sum(1)

    def weighted_jaccard(predicted: Tensor, true: Tensor) -> Tensor:
        precision = (predicted & true).sum(1) / predicted.sum(1).clamp(min=1)
        return jaccard(predicted, true) * precision

    def exact_match(predicted: Tensor, true: Tensor) -> Tensor:
        return (predicted == true).all(1).float()

    def recall(predicted: Tensor, true: Tensor) -> Tensor:
        return (predicted & true).sum() / true.sum()

    metrics = (weighted_jaccard, jaccard, exact_match, recall)
    return lambda: [[metric(*block).mean().item() for metric in metrics] for block in blocks]
