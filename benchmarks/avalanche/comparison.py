"""Everlight's strategies and avalanche-lib's compared: step by step, and in the mean."""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from benchmarks.avalanche.cases import NAIVE, Case
from benchmarks.avalanche.inputs import (
    CLASSES,
    TASKS,
    Inputs,
    Seeded,
    over_seeds,
    task_order,
)
from benchmarks.avalanche.runs import (
    Question,
    Trainer,
    Weights,
    ask,
    plain_batches,
    protocol_of,
)

STEP_EPOCHS, MEAN_EPOCHS = 2, 3
SEEDS = 10


class Steps(NamedTuple):
    """Greatest difference of any weight after the last task.

    Where no weight is trained, it is that of the scores below the best one, relative to the
    greatest of Avalanche's.
    """

    case: Case
    as_shipped: float
    with_equation: float
    effect: float | None
    """Distance between Avalanche's run and its plain finetuning: more than nothing agrees."""


class Paired(NamedTuple):
    """Final accuracy over seeds, and its difference to Avalanche's under the same seed."""

    means: Float[np.ndarray, "3"]
    """Everlight, everlight with Avalanche's equations, Avalanche."""
    above: Float[np.ndarray, "2"]
    """Mean difference of the first two to Avalanche."""
    errors: Float[np.ndarray, "2"]
    """Standard errors of the differences."""


class Means(NamedTuple):
    """A method over seeds."""

    case: Case
    task_masked: Paired
    class_incremental: Paired
    seconds: tuple[float, float]
    """Median seconds of a run, everlight's once it is compiled and Avalanche's."""


def compare_steps(python: str, inputs: Inputs, cases: Sequence[Case]) -> list[Steps]:
    """Compare every case in one run with the same weights, batches and replayed samples."""
    (seeded,) = over_seeds(inputs, 1)
    pairs, questions = [], []
    for case in cases:
        trainer = Trainer(case, STEP_EPOCHS, avalanche=True, stepwise=True)
        equated = trainer.train(seeded)
        if case.has_equation(stepwise=True):
            shipped = Trainer(case, STEP_EPOCHS, stepwise=True).train(seeded)
        else:
            shipped = equated
        pairs.append((shipped, equated))
        if case.method == "iCaRL":  # Its epochs contain exemplars.
            batches = trainer.batches(seeded)
        else:
            batches = plain_batches(seeded, trainer.protocol.epochs)
        questions.append(Question(case, seeded, batches, True))
    plain = Question(NAIVE, seeded, plain_batches(seeded, STEP_EPOCHS), False)
    (*answers, finetuned), _ = ask(python, [*questions, plain])
    rows = []
    for case, (shipped, equated), official in zip(cases, pairs, answers, strict=True):
        trained = sorted(set(shipped) & set(official) - {"scores"})
        effect = _apart(finetuned, official, trained) if trained else None
        rows.append(
            Steps(case, *(_apart(local, official, trained) for local in (shipped, equated)), effect)
        )
    return rows


def _apart(first: Weights, second: Weights, names: Iterable[str]) -> float:
    if names:
        return max(float(np.abs(first[name] - second[name]).max()) for name in names)
    # Streaming LDA's scores have no meaning but their differences between classes.
    local, official = (
        side["scores"] - side["scores"].max(axis=1, keepdims=True) for side in (first, second)
    )
    return float(np.abs(local - official).max() / np.abs(official).max())


def compare_means(
    python: str, inputs: Inputs, cases: Sequence[Case], seeds: int = SEEDS
) -> tuple[list[Means], dict[str, str]]:
    """Compare every case over seeds; return Avalanche's package versions too."""
    all_seeds = over_seeds(inputs, seeds)
    plain = {n: [plain_batches(seeded, n) for seeded in all_seeds] for n in {1, MEAN_EPOCHS}}
    questions = [
        Question(case, seeded, batches, False)
        for case in cases
        for seeded, batches in zip(
            all_seeds, plain[protocol_of(case, MEAN_EPOCHS).epochs], strict=True
        )
    ]
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(ask, python, questions)
        local = [_both_sides(case, all_seeds) for case in cases]
        answers, versions = waiting.result()
    out = []
    for number, (case, (shipped, equated, seconds)) in enumerate(zip(cases, local, strict=True)):
        official = answers[number * seeds : (number + 1) * seeds]
        rows = np.array(
            [
                [
                    accuracies(run["scores"], seeded)
                    for run, seeded in zip(side, all_seeds, strict=True)
                ]
                for side in (shipped, equated, official)
            ]
        )
        their_seconds = float(np.median([run["seconds"] for run in official]))
        pairs = [pair(rows[..., column]) for column in range(2)]
        out.append(Means(case, *pairs, (seconds, their_seconds)))
    return out, versions


def _both_sides(
    case: Case, all_seeds: Sequence[Seeded]
) -> tuple[list[Weights], list[Weights], float]:
    """Return runs as shipped and with Avalanche's equations, and the former's median seconds."""
    trainer, seconds, shipped = Trainer(case, MEAN_EPOCHS), [], []
    for seeded in all_seeds:
        begin = time.perf_counter()
        shipped.append(trainer.train(seeded))
        seconds.append(time.perf_counter() - begin)
    equated = shipped
    if case.has_equation(stepwise=False):
        trainer = Trainer(case, MEAN_EPOCHS, avalanche=True)
        equated = [trainer.train(seeded) for seeded in all_seeds]
    jax.clear_caches()
    return shipped, equated, float(np.median(seconds[1:] or seconds))


def accuracies(scores: Float[np.ndarray, "m c"], seeded: Seeded) -> tuple[float, float]:
    """Return the mean accuracy over tasks, with scores masked to the task and without."""
    labels = seeded.inputs.labels[seeded.inputs.trained :]
    order = task_order(seeded.seed)
    task = np.argmax((labels[:, None, None] == order).any(axis=2), axis=1)
    in_task = (np.arange(CLASSES) == order[task][..., None]).any(axis=1)
    of_task = np.where(in_task, scores, -np.inf)
    correct = [values.argmax(axis=1) == labels for values in (of_task, scores)]
    masked, unmasked = (
        float(np.mean([hits[task == number].mean() for number in range(TASKS)])) for hits in correct
    )
    return masked, unmasked


def pair(rows: Float[np.ndarray, "3 seeds"]) -> Paired:
    """Compare everlight, everlight with Avalanche's equations, and Avalanche, seed by seed."""
    differences = rows[:2] - rows[2]
    errors = differences.std(axis=1, ddof=1) / np.sqrt(rows.shape[1])
    return Paired(rows.mean(axis=1), differences.mean(axis=1), errors)
