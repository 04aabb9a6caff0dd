"""Metrics of CORe50: accuracy over time and by batch, and scores of tests with unseen classes."""

import functools
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from everlight.continual import Build, Learner, Samples, SequenceResult, predict_samples
from everlight.continual.registry import Method
from everlight.metrics.open_set import partial_test_accuracy, rejection_curve, roc_area
from everlight_experiments.continual.benchmark import Benchmark, Draw, Metric, RunData, Trained
from everlight_experiments.continual.outcome import BY_TASK
from everlight_experiments.continual.runner import build_with

ACCURACY = "accuracy"
SEEN, ROC, AREA = "accuracy on seen classes", "ROC curve", "area under the ROC curve"
TRUNK_OPERATIONS, EVALUATION_SECONDS = "trunk operations per frame", "evaluation seconds"
ROC_POINTS = np.linspace(0, 1, 51)
"""Shares of unknown samples accepted at which the ROC curve is kept."""


def accuracy_by_task(run: Trained) -> Float[np.ndarray, "t t"]:
    """Return the accuracy on the classes that each batch is the first to bring, after every batch.

    Every class has equally many test frames.
    """
    brought = np.asarray(run.sequence.class_task) == np.arange(run.tasks)[:, None]
    with np.errstate(invalid="ignore"):
        return run.arrays["class_accuracy"] @ brought.T / brought.sum(axis=1)


class OpenSet(NamedTuple):
    """Scores of a test set that has classes not seen yet, after every batch."""

    partial: Float[Array, "t"]
    roc: Float[Array, "t points"]
    area: Float[Array, "t"]


def open_set(run: Trained) -> OpenSet:
    """Return the paper's two other ways to test (section 5.2): options 1 and 3."""
    sequence = run.sequence
    seen = jnp.cumsum(sequence.tasks.classes, axis=0) > 0
    known = seen[:, sequence.test.labels[:, 0]]
    confidence, correct = (jnp.asarray(run.arrays[name]) for name in ("confidence", "correct"))
    return _open_set(confidence, correct, known, sequence.test.mask)


@jax.jit
def _open_set(
    confidence: Float[Array, "t m"],
    correct: Bool[Array, "t m"],
    known: Bool[Array, "t m"],
    mask: Bool[Array, "m"],
) -> OpenSet:
    def after_batch(row: tuple[Array, Array, Array]) -> OpenSet:
        confidence, correct, known = row
        curve = rejection_curve(confidence, correct, known, mask)
        points = jnp.asarray(ROC_POINTS, jnp.float32)
        roc = jnp.interp(points, curve.unknown_accepted, curve.known_accepted)
        return OpenSet(partial_test_accuracy(correct, known, mask), roc, roc_area(curve))

    return jax.lax.map(after_batch, (confidence, correct, known))


METRICS = (
    Metric(ACCURACY, lambda run: run.arrays["accuracy"], ("time",)),
    Metric(BY_TASK.format(ACCURACY), accuracy_by_task, ("time", "task")),
    Metric(
        SEEN,
        lambda run: open_set(run).partial,
        ("time",),
        meaning="Accuracy on the test samples of the classes seen so far, whose number grows "
        "(option 1 of the paper, section 5.2).",
    ),
    Metric(ROC, lambda run: open_set(run).roc, ("time", len(ROC_POINTS))),
    Metric(
        AREA,
        lambda run: open_set(run).area,
        ("time",),
        meaning="Share of pairs where the sample of a seen class has the higher confidence than "
        "one of an unseen class; 0.5 is chance, and there is none when all classes are seen.",
    ),
    Metric(TRUNK_OPERATIONS, lambda run: run.arrays["trunk_operations"], (), False),
)


def timed(benchmark: Benchmark, seed: int) -> Benchmark:
    """Return the benchmark whose runs keep the seconds of an evaluation too."""
    programs = functools.cache(lambda method: evaluation_of(benchmark, method, seed))

    def keep(method: Method, result: SequenceResult) -> dict[str, Any]:
        evaluate = programs(method)(result)
        jax.block_until_ready(evaluate())  # compiles
        start = time.monotonic()
        jax.block_until_ready(evaluate())
        spent = time.monotonic() - start
        return {**benchmark.keep(method, result), "evaluation_seconds": np.array(spent)}

    seconds = Metric(EVALUATION_SECONDS, lambda run: run.arrays["evaluation_seconds"], (), False)
    return benchmark._replace(keep=keep, metrics=(*benchmark.metrics, seconds))


def evaluation_of(
    benchmark: Benchmark, method: Method, seed: int
) -> Callable[[SequenceResult], Callable[[], Float[Array, "m c"]]]:
    """Return a function from a result to the evaluation of its test set, as after every batch."""
    build = build_with(benchmark, method)
    size = benchmark.protocol(method).evaluation_batch
    # The test samples are the same in all orders.
    sequence = benchmark.sequence(method, Draw("evaluation", seed, 0))
    data = RunData(benchmark.shared(method), benchmark.own(sequence))

    def evaluation(result: SequenceResult) -> Callable[[], Float[Array, "m c"]]:
        left = result.memory, result.learner
        return partial(score_test_set, build, size, data, sequence.test, *left)

    return evaluation


@partial(jax.jit, static_argnums=(0, 1))
def score_test_set(
    build: Build, size: int, data: RunData, test: Samples, memory: PyTree, learner: Learner
) -> Float[Array, "m c"]:
    """Return the scores of test samples, as they are computed after every batch."""
    setup, strategy = build(data)
    return predict_samples(setup, strategy, memory, learner, test, size)
