"""Both sides step by step: equal weights, batches and random exemplars, and no augmentation.

The authors' network after every task is compared with everlight's. Batches are full in every epoch,
because everlight fills up partial ones for batch norm.
"""

import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from benchmarks.iirc.cases import Case
from benchmarks.iirc.everlight_side import label_scores_of, make_run
from benchmarks.iirc.inputs import Workload
from everlight.continual import Run, Samples
from everlight.continual.engine.run import SequenceState
from everlight.continual.engine.tasks import (
    begin_state,
    begin_task,
    end_task,
    learn_epochs,
    next_epoch,
)
from everlight_data.iirc.sets import IIRCData

STEPS = Workload(
    train_images=50,
    test_images=10,
    tasks=3,
    epochs=1,
    batch_size=8,
    learning_rate=0.0001,
    exemplars_per_class=4,
    augment=False,
)
"""Settings for which every epoch has a multiple of the batch size, also with exemplars."""
Weights = dict[str, np.ndarray]


def workload_of(case: Case) -> Workload:
    """Return a method's settings.

    A-GEM has two tasks, so that its reference batch is the whole memory and not a random part.
    """
    return replace(STEPS, tasks=2) if case.name == "A-GEM" else STEPS


class Traced(NamedTuple):
    """Everlight's run of a method."""

    start: Weights
    """Initial weights by the authors' names."""
    orders: list[list[tuple]]
    """Samples of every epoch: replayed or not, checksum and labels."""
    exemplars: list[list[tuple]]
    """Checksum and labels of the exemplars after every task, sorted."""
    tasks: list[Weights]
    """Weights and batch statistics after every task."""
    scores: list[float]


def trace(data: IIRCData, workload: Workload, folder: Path, case: Case, seed: int = 0) -> Traced:
    """Train a method once, and record its batches, exemplars and weights."""
    run, sequence = make_run(data, workload, folder, case, seed)
    begin, end, learn, look = (jax.jit(step) for step in (begin_task, end_task, _learn, next_epoch))
    state = jax.jit(begin_state)(run)
    start = named(state, workload.blocks)
    describe = partial(_keys, data)
    orders, exemplars, tasks = [], [], []
    for task in range(workload.tasks):
        state = begin(run, state)
        for _ in range(run.protocol.epochs_of(task)):
            epoch = look(run, state)
            slots = np.asarray(epoch.slots)[: int(epoch.count)]
            keys = describe(epoch.samples, slots)
            stored = np.asarray(epoch.memory_mask)[slots]
            orders.append([(bool(old), *key) for old, key in zip(stored, keys, strict=True)])
            state = learn(run, state)
        state = end(run, state)
        exemplars.append(sorted(_exemplars(state, describe)))
        tasks.append(named(state, workload.blocks))
    scores = label_scores_of(data, sequence, state.result.evaluation).union
    return Traced(start, orders, exemplars, tasks, scores.precision_weighted_jaccard.tolist())


def _learn(run: Run, state: SequenceState) -> SequenceState:
    return learn_epochs(run, state, 1)


def _exemplars(state: SequenceState, describe: Callable) -> list[tuple]:
    buffer = getattr(state.result.memory, "buffer", None)
    if buffer is None:
        return []
    samples = getattr(buffer, "samples", buffer)
    return describe(samples, np.flatnonzero(np.asarray(samples.mask)))


def _keys(data: IIRCData, samples: Samples, slots: np.ndarray) -> list[tuple[int, str]]:
    names, images = np.array(data.order(0)), data.images.images
    index, labels = np.asarray(samples.index)[slots], np.asarray(samples.labels)[slots]
    return [
        (zlib.crc32(images[place].tobytes()), "+".join(sorted(names[row[row >= 0]].tolist())))
        for place, row in zip(index, labels, strict=True)
    ]


def named(state: SequenceState, blocks: int) -> Weights:
    """Return weights and batch statistics by the authors' names."""
    learner = state.result.learner
    params, stats = (jax.device_get(leaves) for leaves in (learner.params, learner.batch_stats))
    weights: Weights = {}

    def add(layer: dict, normalized: dict, convolution: str, norm: str) -> None:
        (kernel,) = (part["kernel"] for name, part in layer.items() if "Convolution" in name)
        weights[f"{convolution}.weight"] = kernel.transpose(3, 2, 0, 1)
        layer_params, of_batch = layer["BatchNorm_0"], normalized["BatchNorm_0"]
        values = layer_params["scale"], layer_params["bias"], of_batch["mean"], of_batch["var"]
        parts = "weight", "bias", "running_mean", "running_var"
        weights.update({f"{norm}.{part}": value for part, value in zip(parts, values, strict=True)})

    first = "NormalizedConvolution_0"
    add(params[first], stats[first], "conv1", "bn1")
    for number in range(3 * blocks):
        block = f"BasicBlock_{number}"
        official = f"layer{number // blocks + 1}.{number % blocks}"
        block_params, of_batch = params[block], stats[block]
        for part in range(2):
            layer = f"NormalizedConvolution_{part}"
            place = part + 1
            add(
                block_params[layer],
                of_batch[layer],
                f"{official}.conv{place}",
                f"{official}.bn{place}",
            )
        if "shortcut" in block_params:
            add(
                block_params["shortcut"],
                of_batch["shortcut"],
                f"{official}.shortcut.0",
                f"{official}.shortcut.1",
            )
    head = params["head"]
    weights["output_layer.weight"] = head["kernel"].T
    if "bias" in head:
        weights["output_layer.bias"] = head["bias"]
    if "scale" in head:
        weights["output_layer.sigma"] = head["scale"].reshape(1)
    return weights


class Apart(NamedTuple):
    """Greatest differences after a task."""

    weights: float
    moved: float
    """Greatest change of any weight since the start, for comparison."""
    statistics: float
    exemplars: tuple[int, int]
    """New exemplars that both sides choose by themselves, and everlight's new ones."""


def compare(local: Traced, official: list[Weights], chosen: list[list]) -> list[Apart]:
    """Compare both sides after every task."""
    rows = []
    for number, (local_after, official_after) in enumerate(zip(local.tasks, official, strict=True)):
        official_after = _whole_head(official_after)
        parts = {"weights": 0.0, "moved": 0.0, "statistics": 0.0}
        for name, value in local_after.items():
            known = value[: len(official_after[name])]
            apart = float(np.abs(known - official_after[name]).max())
            part = "statistics" if "running" in name else "weights"
            parts[part] = max(parts[part], apart)
            if part == "weights":
                moved = float(np.abs(known - local.start[name][: len(known)]).max())
                parts["moved"] = max(parts["moved"], moved)
        new = set(local.exemplars[number]) - set(local.exemplars[number - 1] if number else [])
        both = {tuple(key) for key in chosen[number]} & new
        rows.append(Apart(**parts, exemplars=(len(both), len(new))))
    return rows


def _whole_head(state: Weights) -> Weights:
    """Return the weights with LUCIR's two parts of the head joined."""
    split = [f"output_layer.fc{part}.weight" for part in (1, 2)]
    if split[0] not in state:
        return state
    return state | {"output_layer.weight": np.concatenate([state[name] for name in split])}
